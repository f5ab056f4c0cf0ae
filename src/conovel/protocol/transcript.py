"""The messages of a run: every message by its size, every count by its value.

A transcript is made from the bytes that went over the wire and from nothing else. It holds no
row and no model, but all that the outcome follows from, so that
:func:`conovel.protocol.replay.verify` can replay the run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import partial
from operator import index
from typing import Any, NamedTuple

from conovel.deciding.asking import Below, Count, Question, Step
from conovel.deciding.cell_totals import CELLS_ROUND, AllSizes, Cells, Wanted
from conovel.deciding.cells import Histogram
from conovel.deciding.committed import Commit, Commitments, Reveal, Reveals
from conovel.deciding.types import SharedCounts
from conovel.errors import ConovelError, InputError, SiteVanishedError
from conovel.protocol.messages import decode
from conovel.protocol.plain_bodies import as_body, as_exact, as_plain, as_text
from conovel.spec.bodies import (
    COORDINATOR,
    Abort,
    Hello,
    Kind,
    Left,
    Message,
    Outcome,
    Ready,
    Roster,
    Start,
)
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import is_finite_number
from conovel.stats.words import briefly

FORMAT = "conovel-transcript-2"
EARLIER = "conovel-transcript-1"


class Entry(NamedTuple):
    """One message on the wire."""

    round: int
    sender: str
    receiver: str
    kind: str
    n_bytes: int
    paper_bits: float | None = None  # what the paper charges for it, if anything

    @property
    def place(self) -> tuple[int, int, int, str, str]:
        """Where it is listed: by stage, round, kind and names, whatever came in first."""
        kind = Kind[self.kind]
        counts = Kind.HISTOGRAM <= kind <= Kind.REVEALS or Kind.MODEL < kind <= Kind.COUNT
        is_counting = self.round and (counts or Kind.MASKED <= kind <= Kind.CELLS)
        stage = Kind.BELOW if is_counting else kind
        if kind is Kind.KEY:
            stage = Kind.MODEL
        if kind is Kind.SIZES:
            stage = Kind.START
        return stage, self.round, kind, self.sender, self.receiver


@dataclass
class Sizes:
    """The row numbers of one agent; the last three are zero until it was ready.

    With strata, the last three of each stratum, one after the other.
    """

    n_null: int = 0
    n_test: int = 0
    n_tested: int = 0
    n_calibration: int = 0
    n_wanted: int = 0
    strata: tuple[int, ...] = ()

    @property
    def ready(self) -> Ready:
        """The READY of the agent."""
        return Ready(self.n_tested, self.n_calibration, self.n_wanted, self.strata)


@dataclass
class Round:
    """One question and what was answered."""

    question: Question
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class Transcript:
    """The record of one run.

    Attributes
    ----------
    run_id : str
    spec : RunSpec or None
        The settings, as the hellos had them; None before the first hello.
    agents : dict of Sizes
        Everybody who said hello.
    roster : tuple of str
        Everybody who was there when the models were made.
    n_tests : int
        Tests of all agents when the counts began.
    left : dict of int
        Agents that were lost, and in which round; 0 is before the counts.
    weights : dict of Fraction
        In the regime `joint`, the planned weight of each agent's group, as the roster had it: zero
        for an agent in a group with no other. In the regime `consensus`, 1 for a type, else 0.
    rooms : dict of Fraction
        In the regime `joint`, the x of each agent's group, zero for an agent without a floor.
    histograms : dict of Histogram
        In the regime `joint`, the rows of each agent above its floor, by cell.
    shared : dict of SharedCounts
        In the regime `consensus`, the rows of each agent by cell.
    commitments : dict of bytes
        In committed counting, the commitment of each agent.
    reveals : dict of Reveal
        In committed counting, the counts that each agent revealed.
    all_ready : dict of Ready
        With masks, what agents said when they were ready, as it was told to all of them.
    group_wanted : dict of tuple
        With masks, what each group wants above its floors, by its first agent.
    group_cells : dict of Histogram
        With masks, the rows of each group in each cell above floors, by its first agent.
    rounds : dict of Round
        Questions and counts by round, from 1.
    outcome : Outcome or None
    abort : Abort or None
    entries : list of Entry
        Every message.

    Examples
    --------
    >>> from conovel.protocol.messages import encode
    >>> transcript = Transcript()
    >>> transcript.record(encode(Message(bytes(16), "a", "coordinator", 0, Ready(10, 99))))
    >>> transcript.entries[0]
    Entry(round=0, sender='a', receiver='coordinator', kind='READY', n_bytes=74, paper_bits=None)
    """

    run_id: str = ""
    spec: RunSpec | None = None
    agents: dict[str, Sizes] = field(default_factory=dict)
    roster: tuple[str, ...] = ()
    n_tests: int = 0
    left: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Fraction] = field(default_factory=dict)
    rooms: dict[str, Fraction] = field(default_factory=dict)
    histograms: dict[str, Histogram] = field(default_factory=dict)
    shared: dict[str, SharedCounts] = field(default_factory=dict)
    commitments: dict[str, bytes] = field(default_factory=dict)
    reveals: dict[str, Reveal] = field(default_factory=dict)
    all_ready: dict[str, Ready] = field(default_factory=dict)
    group_wanted: dict[str, tuple[int, ...]] = field(default_factory=dict)
    group_cells: dict[str, Histogram] = field(default_factory=dict)
    rounds: dict[int, Round] = field(default_factory=dict)
    outcome: Outcome | None = None
    abort: Abort | None = None
    entries: list[Entry] = field(default_factory=list)

    @property
    def settings(self) -> RunSpec:
        """The settings of the run; :class:`InputError` if nobody said hello."""
        if self.spec is None:
            raise InputError("nobody said hello: the transcript has no settings")
        return self.spec

    @property
    def n_rounds(self) -> int:
        """How many rounds of counts there were; histograms are one, and totals of groups two."""
        if self.all_ready:
            return CELLS_ROUND
        return len(self.rounds) or int(bool(self.histograms or self.reveals or self.shared))

    @property
    def cell_counts(self) -> dict[str, Histogram]:
        """In the regime `joint`, the rows of each agent above its floor, however it told them."""
        if not self.rooms or not self.reveals:
            return self.histograms
        return {n: Histogram(r.calibration, r.tests) for n, r in self.reveals.items()}

    @property
    def uncovered(self) -> tuple[str, ...]:
        """The agents that are no type, in the regime `consensus`."""
        if not self.shared:
            return ()
        return tuple(name for name in sorted(self.weights) if not self.weights[name])

    def record(self, data: bytes, paper_bits: float | None = None) -> None:
        """Take down one message.

        Parameters
        ----------
        data : bytes
            The message as it was sent.
        paper_bits : float, optional
            For a model, what the paper's N·(bits + 2.33) gives. Questions and counts are
            charged without being told.
        """
        self.note(decode(data), len(data), paper_bits)

    def note(self, message: Message, n_bytes: int, paper_bits: float | None = None) -> None:
        """Take down one message that is decoded already; see :meth:`record`."""
        self._read(message)
        place = message.round, message.sender, message.receiver, message.body.kind.name
        self.entries.append(self.charged(Entry(*place, n_bytes, paper_bits)))

    def charged(self, entry: Entry) -> Entry:
        """Charge a count ⌈log2(m_j + 1)⌉ bits and a question ⌈log2(m + 1)⌉, m over all agents.

        The paper has equal agents and writes K·m for the latter.
        """
        if entry.kind == Kind.COUNT.name and entry.sender in self.agents:
            return entry._replace(paper_bits=self.agents[entry.sender].n_tested.bit_length())
        if entry.kind in (Kind.BELOW.name, Kind.STEP.name):
            return entry._replace(paper_bits=self.n_tests.bit_length())
        return entry

    def _sizes(self, agent: str) -> Sizes:
        return self.agents.setdefault(agent, Sizes())

    def _read(self, message: Message) -> None:  # noqa: C901, PLR0912  (a table of message kinds)
        body, sender = message.body, message.sender
        match body:
            case Hello():
                self.run_id = message.run_id.hex()
                self.spec = body.spec
                sizes = self._sizes(sender)
                sizes.n_null, sizes.n_test = body.n_null, body.n_test
            case Roster():
                self.roster = body.agents
                self.weights = dict(zip(body.agents, body.weights, strict=False))
            case Ready():
                sizes = self._sizes(sender)
                sizes.n_tested, sizes.n_calibration = body.n_tested, body.n_calibration
                sizes.n_wanted, sizes.strata = body.n_wanted, body.strata
            case Left():
                self.left.setdefault(body.agent, message.round)
            case Start():
                self.n_tests = body.n_tests
                self.rooms = dict(zip(body.participants, body.rooms, strict=False))
            case AllSizes():
                self.all_ready = dict(zip(body.agents, body.ready, strict=False))
            case Wanted():
                self.group_wanted = body.by_group
                self.rooms = dict(zip(sorted(self.all_ready), body.rooms, strict=False))
            case Cells():
                self.group_cells |= dict(zip(body.groups, body.totals, strict=False))
            case Histogram():
                self.histograms[sender] = body
            case SharedCounts():
                self.shared[sender] = body
            case Commit():
                self.commitments[sender] = body.digest
            case Reveal():
                self.reveals[sender] = body
            case Commitments():  # to a site, which has not seen the others
                digests = dict(zip(body.agents, body.digests, strict=False))
                self.commitments = digests | self.commitments
            case Reveals():
                self.reveals = dict(zip(body.agents, body.reveals, strict=False)) | self.reveals
            case Below() | Step():
                self.rounds.setdefault(message.round, Round(body))
            case Count() if message.round in self.rounds:
                self.rounds[message.round].counts[sender] = body.count
            case Outcome():
                self.outcome = body
            # The coordinator passes on every end there is. What it tells an agent about that
            # agent's own vanishing is no end of the run.
            case Abort() if sender == COORDINATOR:
                alone = (SiteVanishedError.__name__, message.receiver)
                if (body.fault, body.culprit) != alone:
                    self.abort = self.abort or body

    def totals(self) -> dict[str, Any]:
        """Add up bytes and messages by kind and by agent, and the paper's bits."""
        sent, received = Counter[str](), Counter[str]()
        kinds: dict[str, list[Entry]] = {kind.name: [] for kind in Kind}
        for entry in self.entries:
            kinds[entry.kind].append(entry)
            sent[entry.sender] += entry.n_bytes
            received[entry.receiver] += entry.n_bytes
        return _sums(self.entries) | {
            "by_kind": {kind: _sums(entries) for kind, entries in kinds.items() if entries},
            "by_agent": {
                name: {"sent": sent[name], "received": received[name]}
                for name in sorted(sent | received)
            },
        }

    def to_dict(self) -> dict[str, Any]:
        """Give the transcript as plain JSON types, the same for any order of arrival."""
        tables = {
            key: {name: write(value) for name, value in sorted(getattr(self, key).items())}
            for key, (write, _) in _TABLES.items()
            if key not in _OF_MASKS or getattr(self, key)
        }
        return {
            "format": FORMAT,
            "run_id": self.run_id,
            "spec": self.spec and self.spec.to_dict(),
            "agents": tables.pop("agents"),
            "roster": list(self.roster),
            "n_tests": self.n_tests,
            **tables,
            "rounds": [
                {
                    "round": number,
                    "question": as_plain(round_.question),
                    "counts": dict(sorted(round_.counts.items())),
                }
                for number, round_ in sorted(self.rounds.items())
            ],
            "outcome": self.outcome and as_plain(self.outcome),
            "abort": self.abort and as_plain(self.abort),
            "columns": list(Entry._fields),
            "messages": [list(e) for e in sorted(self.entries, key=lambda e: e.place)],
            "totals": self.totals(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Transcript:
        """Read what :meth:`to_dict` wrote; :class:`InputError` for anything else."""
        try:
            if plain["format"] == EARLIER:
                raise InputError(
                    "this transcript was written by conovel 0.1, before transcripts held all"
                    " settings: verify it with that version, or run again with this one"
                )
            if plain["format"] != FORMAT:
                raise ValueError(f"its format is {plain['format']!r}")
            listed = [key for key in _TABLES if key not in _OF_MASKS or key in plain]
            if max(len(plain[key]) for key in ("roster", *listed)) > MAX_AGENTS:
                raise ValueError(f"it names more than {MAX_AGENTS} agents")
            tables = {
                key: {as_text(name): _TABLES[key][1](value) for name, value in plain[key].items()}
                for key in listed
            }
            return cls(
                run_id=as_text(plain["run_id"]),
                spec=None if plain["spec"] is None else RunSpec.from_dict(plain["spec"]),
                roster=tuple(map(as_text, plain["roster"])),
                n_tests=index(plain["n_tests"]),
                rounds={index(r["round"]): _as_round(r) for r in plain["rounds"]},
                outcome=plain["outcome"] and as_body(Outcome, plain["outcome"]),
                abort=plain["abort"] and as_body(Abort, plain["abort"]),
                entries=[_as_entry(row) for row in plain["messages"]],
                **tables,
            )
        except (ConovelError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"this is not a transcript: {error!r}") from error


def _sums(entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "messages": len(entries),
        "bytes": sum(entry.n_bytes for entry in entries),
        # Rounded once, so that the order of arrival does not show in the last digit.
        "paper_bits": math.fsum(entry.paper_bits or 0 for entry in entries),
    }


def _sizes_as_plain(sizes: Sizes) -> dict[str, Any]:
    plain = asdict(sizes)
    strata = list(plain.pop("strata"))
    return plain | ({"strata": strata} if strata else {})


def _as_sizes(plain: Mapping[str, Any]) -> Sizes:
    plain = dict(plain)
    strata = tuple(plain.pop("strata", ()))
    for n in (*plain.values(), *strata):
        if not 0 <= index(n) < 1 << 64:
            raise ValueError(f"{briefly(n)} is not a number of rows")
    return Sizes(**plain, strata=strata)


def _as_round(plain: Mapping[str, Any]) -> Round:
    kinds: dict[str, type[Question]] = {"BELOW": Below, "STEP": Step}
    question = as_body(kinds[plain["question"]["kind"]], plain["question"])
    return Round(question, {as_text(name): index(n) for name, n in plain["counts"].items()})


def _as_entry(row: list[Any]) -> Entry:
    round_, sender, receiver, kind, n_bytes, bits = row
    if bits is not None and not is_finite_number(bits):
        raise ValueError(f"{briefly(bits)} bits")
    name = Kind[kind].name
    return Entry(index(round_), as_text(sender), as_text(receiver), name, index(n_bytes), bits)


# What a transcript has of agents by name: how it is written, and how it is read.
_TABLES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "agents": (_sizes_as_plain, _as_sizes),
    "left": (int, index),
    "weights": (str, as_exact),
    "rooms": (str, as_exact),
    "histograms": (as_plain, partial(as_body, Histogram)),
    "shared": (as_plain, partial(as_body, SharedCounts)),
    "commitments": (bytes.hex, lambda digits: bytes.fromhex(as_text(digits))),
    "reveals": (as_plain, partial(as_body, Reveal)),
    "all_ready": (as_plain, partial(as_body, Ready)),
    "group_wanted": (list, lambda numbers: tuple(map(index, numbers))),
    "group_cells": (as_plain, partial(as_body, Histogram)),
}
_OF_MASKS = ("all_ready", "group_wanted", "group_cells")  # only runs with masks have them

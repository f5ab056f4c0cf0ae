"""Feeding the messages of a finished run to the machines of the protocol once more.

A transcript holds what the agents sent: numbers of rows, counts, commitments. The coordinator is
deterministic, so that these give back every question, the outcome and all its messages. An agent
is deterministic given its ranks. Models, sums and columns are not in a transcript and have
no part in what the machines answer: empty ones stand for them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import TypeAlias

import numpy as np

from conovel.deciding.asking import Count
from conovel.deciding.cell_totals import CELLS_ROUND, WANTED_ROUND, AllSizes, Cells, Masked, Wanted
from conovel.deciding.committed import Commit, Commitments, Reveals
from conovel.deciding.ways import ways_of
from conovel.errors import GuaranteeWarning, InputError
from conovel.learning.base import RankRows
from conovel.learning.exchange import FitModels
from conovel.learning.together.masks import Key
from conovel.learning.together.way import Sums, Totals
from conovel.protocol.agent import Agent
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.messages import encode
from conovel.protocol.states import Event, Send, messages_of
from conovel.protocol.transcript import Entry, Transcript
from conovel.spec.bodies import COORDINATOR, Body, Hello, Kind, Left, Message, Model, Roster, Start
from conovel.spec.facts import Facts
from conovel.spec.fields import MAX_MODEL_BYTES
from conovel.stats.cells import N_CELLS, N_WANTED
from conovel.stats.stepup import RankHistogram

_DIGEST = bytes(32)  # stands for a digest that no record holds
_MODEL = b"model"


def invited_to(transcript: Transcript) -> list[str]:
    """Name everybody who was expected in a run that has an outcome."""
    outcome = transcript.outcome
    parts = (outcome.participants, outcome.left_out, outcome.dropped) if outcome else ()
    return sorted({name for names in parts for name in names})


def kinds_in(transcript: Transcript) -> set[str]:
    """Name the kinds of messages in a record."""
    return {entry.kind for entry in transcript.entries}


Step: TypeAlias = tuple[str, Body | None, int]  # who, what it sends (None: it vanishes), round


def _script(record: Transcript) -> Iterator[Step]:
    """Give all that the agents sent to the coordinator, in an order in which it may have arrived.

    In each stage of the run, whoever vanished there comes before the others: the coordinator goes
    on when the others have answered.
    """
    early = [name for name in invited_to(record) if name not in record.roster]
    hellos = {name: _hello(record, name) for name in record.agents}
    yield from ((name, hellos[name], 0) for name in early if name in hellos)
    yield from ((name, None, 0) for name in early)
    yield from ((name, hellos[name], 0) for name in record.roster if name in hellos)
    ready_sent = {e.sender for e in record.entries if e.kind == "READY"}
    yield from ((e.sender, body, e.round) for e, body in _zeros(record, Sums))
    ready = {name: record.agents[name].ready for name in record.roster if name in ready_sent}
    yield from _stage(record, 0, ready)
    for number, round_ in sorted(record.rounds.items()):
        yield from _stage(record, number, {n: Count(count) for n, count in round_.counts.items()})
    if not record.rounds:
        yield from _stage(record, 1, {})
    yield from _masked(record)
    yield from ((name, histogram, 1) for name, histogram in sorted(record.histograms.items()))
    yield from ((name, counts, 1) for name, counts in sorted(record.shared.items()))
    yield from ((name, Commit(digest), 1) for name, digest in sorted(record.commitments.items()))
    yield from ((name, reveal, 1) for name, reveal in sorted(record.reveals.items()))


def _zeros(record: Transcript, kind: type[Sums] | type[Totals]) -> list[tuple[Entry, Body]]:
    """Give messages with as many numbers as the recorded ones: the numbers are in no record."""
    bodies: list[tuple[Entry, Body]] = []
    listed = [entry for entry in record.entries if entry.kind == kind.kind.name]
    for entry in sorted(listed, key=lambda e: (e.round, e.sender)):
        empty = Message(bytes(16), entry.sender, entry.receiver, entry.round, kind(b""))
        size = entry.n_bytes - len(encode(empty))
        if not 0 <= size <= MAX_MODEL_BYTES:
            raise InputError(f"a message with {entry.n_bytes} bytes cannot be {entry.kind}")
        bodies.append((entry, kind(bytes(size))))
    return bodies


def _masked(record: Transcript) -> Iterator[Step]:
    """Give numbers that add up to the recorded totals: no record has those under masks.

    The first agent of a group sends all of them, and the others send zeros.
    """
    cells = {n: (*one.calibration, *one.tests) for n, one in record.group_cells.items()}
    rounds = ((WANTED_ROUND, record.group_wanted, N_WANTED), (CELLS_ROUND, cells, 2 * N_CELLS))
    for number, totals, size in rounds:
        for entry in sorted(record.entries, key=lambda e: e.sender):
            if (entry.kind, entry.round) == (Kind.MASKED.name, number):
                numbers = totals.get(entry.sender, (0,) * size)
                yield entry.sender, Masked(np.array(numbers, dtype="<u8").tobytes()), number


def _stage(record: Transcript, number: int, bodies: Mapping[str, Body]) -> Iterator[Step]:
    lost = _lost_in(record, number)
    for name in lost:
        if name in bodies:
            yield name, bodies[name], number
        yield name, None, number
    yield from ((name, bodies[name], number) for name in sorted(bodies) if name not in lost)


def _lost_in(record: Transcript, number: int) -> list[str]:
    """Name the agents that vanished in one round, in order: later ones heard of those before."""
    lost = [name for name, when in record.left.items() if when == number]
    heard = Counter(e.receiver for e in record.entries if (e.kind, e.round) == ("LEFT", number))
    return sorted(lost, key=lambda name: (heard[name], name))


def _hello(record: Transcript, name: str) -> Hello:
    facts = Facts(record.agents[name].n_null, record.agents[name].n_test, 1, _DIGEST)
    return Hello(*facts, "", 0, record.settings)


def replay_coordinator(record: Transcript) -> Transcript:
    """Return the transcript of a coordinator that gets the messages of a record.

    Raises
    ------
    ConovelError
        What the coordinator finds wrong in them.
    """
    run_id, replayed = bytes.fromhex(record.run_id), Transcript()
    with warnings.catch_warnings():  # the run itself has warned
        warnings.simplefilter("ignore", GuaranteeWarning)
        machine = Coordinator(invited_to(record), spec=record.settings, run_id=run_id)
    for name, body, number in _script(record):
        if body is None:
            events: Sequence[Event] = machine.drop(name)
        else:
            message = Message(run_id, name, COORDINATOR, number, body)
            replayed.note(message, len(data := encode(message)))
            events = machine.receive(data, name)
        for sent in messages_of(events):
            replayed.note(sent.message, len(sent.data))
        if machine.error is not None:
            raise machine.error
    return replayed


def _received(record: Transcript) -> Iterator[tuple[Body, int]]:
    """Give what the coordinator sent to each participant, and the rounds, in order."""
    kinds, roster = kinds_in(record), record.roster
    weights = tuple(record.weights[name] for name in roster if name in record.weights)
    yield Roster(roster, 0, 0, weights), 0  # the totals are in no record
    totals = {entry.round: body for entry, body in _zeros(record, Totals)}
    yield from ((body, number) for number, body in sorted(totals.items()))
    yield from ((Left(lost), 0) for lost in _lost_in(record, 0))
    if "START" in kinds:
        began = tuple(name for name in roster if record.left.get(name) != 0)
        rooms = tuple(record.rooms[name] for name in began if name in record.rooms)
        yield Start(began, record.n_tests, () if record.all_ready else rooms), 0
    if record.all_ready:
        names = sorted(record.all_ready)
        yield AllSizes(tuple(names), tuple(record.all_ready[name] for name in names)), 0
        yield _wanted(record), WANTED_ROUND
        groups, cells = sorted(record.group_cells), record.group_cells
        yield Cells(tuple(groups), tuple(cells[name] for name in groups)), CELLS_ROUND
    for number, round_ in sorted(record.rounds.items()):
        yield round_.question, number
        yield from ((Left(lost), number) for lost in _lost_in(record, number))
    if record.commitments:
        agents, digests = zip(*sorted(record.commitments.items()), strict=True)
        yield Commitments(agents, digests), 1
    if "REVEALS" in kinds:
        agents, reveals = zip(*sorted(record.reveals.items()), strict=True)
        yield Reveals(agents, reveals), 1
    if record.outcome is not None:
        yield record.outcome, max(record.rounds, default=record.n_rounds)


def _wanted(record: Transcript) -> Wanted:
    groups = sorted(record.group_wanted)
    totals = tuple(n for name in groups for n in record.group_wanted[name])
    return Wanted(tuple(groups), totals, tuple(record.rooms[n] for n in sorted(record.all_ready)))


def key_entries(roster: Sequence[str]) -> list[Entry]:
    """List the keys that agents send one another: no record has them, and all have one size."""
    entries = []
    for sender, receiver in permutations(roster, 2):
        message = Message(bytes(16), sender, receiver, 0, Key(bytes(32), 0, 0))
        entries.append(Entry(0, sender, receiver, Kind.KEY.name, len(encode(message))))
    return entries


def replay_site(record: Transcript, name: str) -> Transcript:
    """Return the transcript of a site that follows from the values in its record."""
    run_id, replayed = bytes.fromhex(record.run_id), Transcript()
    messages = [Message(run_id, COORDINATOR, name, n, body) for body, n in _received(record)]
    messages += [
        Message(run_id, name, COORDINATOR, number, body)
        for agent, body, number in _script(record)
        if agent == name and body is not None
    ]
    for message in messages:
        replayed.note(message, len(encode(message)))
    return replayed


class AgentReplay:
    """An agent that has these ranks and gets the messages of a record.

    Attributes
    ----------
    machine : Agent
        After its last message.
    """

    def __init__(self, record: Transcript, name: str, ranks: RankHistogram) -> None:
        self._record, self._ranks, self._sent = record, ranks, dict[tuple[Kind, int], Body]()
        reveal, spec = record.reveals.get(name), record.settings
        run_id = bytes.fromhex(record.run_id)
        nonce = reveal.nonce if reveal else _DIGEST
        self.machine = Agent(name, spec=spec, run_id=run_id, nonce=nonce)
        hello = _hello(record, name)
        self._work(self.machine.join(Facts(hello.n_null, hello.n_test, 1, _DIGEST)))
        peers = [peer for peer in record.roster if peer != name]
        rounds = ways_of(spec.regime).learning.model_rounds
        models = [(peer, Model(_MODEL), n) for peer in peers for n in rounds]
        (roster, _), *later = _received(record)
        answers = [(COORDINATOR, body, number) for body, number in later]
        for sender, body, number in ((COORDINATOR, roster, 0), *models, *answers):
            data = encode(Message(run_id, sender, name, number, body))
            self._work(self.machine.receive(data, sender))

    def _work(self, events: Sequence[Event]) -> None:
        """Answer what the machine asks of a site."""
        if self.machine.error is not None:
            raise self.machine.error
        for event in events:
            match event:
                case Send():
                    self._sent[event.message.body.kind, event.message.round] = event.message.body
                case FitModels():
                    peers = [peer for peer in event.agents if peer != self.machine.name]
                    self._work(self.machine.work_done(dict.fromkeys(peers, _MODEL)))
                case RankRows():
                    self._work(self.machine.work_done(self._ranks))
                case _:
                    raise InputError("ranks do not decide in this regime")

    def findings(self) -> Iterator[str]:
        """Name the messages of the record that the agent does not send."""
        for name, body, number in _script(self._record):
            if name == self.machine.name and body is not None and not isinstance(body, Hello):
                answer = self._sent.get((body.kind, number))
                if answer != body:
                    yield f"the ranks of {name} give {answer}, and not {body}"


def message_findings(
    record: Transcript, replayed: Transcript, site: str | None, unsettled: Collection[str]
) -> Iterator[str]:
    """Compare the list of messages with that of a replay.

    Parameters
    ----------
    record, replayed : Transcript
    site : str or None
        Whose messages the record has; None for those of all.
    unsettled : collection of str
        Agents that did not tell which models they sent.
    """
    # No replay gives the size of a HELLO, which names the software, nor models and farewells.
    listed, follows = (
        Counter(
            entry._replace(n_bytes=0) if entry.kind == "HELLO" else entry
            for entry in transcript.entries
            if entry.kind not in ("MODEL", "ABORT")
        )
        for transcript in (record, replayed)
    )
    if record.settings.masks:
        ends = [e for e in key_entries(record.roster) if site in (None, e.sender, e.receiver)]
        follows.update(ends)
    wrong = [("does not follow", entry) for entry in (listed - follows).elements()]
    wrong += [("is missing", entry) for entry in (follows - listed).elements()]
    # Whoever was given up for lost is turned away; nobody else hears an ABORT before an outcome.
    gone = {COORDINATOR, *record.left, *(set(record.agents) - set(record.roster))}
    aborts = [entry for entry in record.entries if entry.kind == "ABORT"]
    wrong += [("does not follow", e) for e in aborts if e.round or not {*e[1:3]} <= gone]
    models = Counter(entry[:3] for entry in record.entries if entry.kind == "MODEL")
    due = {
        (number, *pair)
        for number in ways_of(record.settings.regime).learning.model_rounds
        for pair in permutations(record.roster, 2)
        if site is None or site in pair
    }
    if any(n > 1 for n in models.values()) or not models.keys() <= due:
        yield "a model was sent twice, or where none is sent"
    for number, sender, receiver in sorted(due - models.keys()):
        if not {sender, receiver} & record.left.keys() and sender not in unsettled:
            wrong.append(("is missing", Entry(number, sender, receiver, "MODEL", 0)))
    for what, e in sorted(wrong, key=str):
        size = f"{e.n_bytes} bytes, charged {e.paper_bits} bits"
        place = f"{e.kind} of {e.sender} for {e.receiver} in round {e.round}"
        yield f"a message {what}: {place} ({size})"

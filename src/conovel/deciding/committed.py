"""Committed counting: a hash of all counts first, the counts when everybody's hash is known.

A commitment is SHA-256 over the run, the agent's name, a nonce of 32 bytes and all counts. The
name makes a copied commitment worthless. A commitment that is not opened, or does not match, ends
the run: any value in its place would let a liar choose after it has seen the counts of others
(docs/theory.md, Theorem 17). What is counted, and what follows from it, is said by a way of
deciding (:mod:`conovel.deciding.counts`, :mod:`conovel.deciding.cells`); here is the order of the
messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Annotated, Protocol, cast

from conovel.deciding.base import Decided, DecidingAgent, Present
from conovel.errors import (
    CommitmentError,
    CountOutOfRangeError,
    InputError,
    OutcomeMismatchError,
    RemoteProtocolError,
    SiteVanishedError,
)
from conovel.learning.base import Cue, Next, Out, Party, State, Step, Table, insist
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start, packed
from conovel.spec.fields import (
    DIGEST,
    DIGESTS,
    MAX_NAME_BYTES,
    NAMES,
    NONCE_BYTES,
    U64,
    U64S,
    Field,
    layout_of,
    listed,
    unpack,
)
from conovel.spec.settings import TO_MEMBERS
from conovel.spec.training import Numbers
from conovel.stats.levels import as_liars

ROUND = 1  # of all messages of committed counting
_PURPOSE = b"conovel commitment 1\n"


class Committing(Enum):
    """States of committed counting."""

    COMMITTED = "committed"  # an agent that waits for all commitments
    REVEALED = "revealed"  # an agent that revealed its counts, and waits for the outcome
    COMMITTING = "committing"  # the coordinator waits for commitments
    REVEALING = "revealing"  # the coordinator waits for what was committed to


@dataclass(frozen=True)
class Commit(Body):
    """Agent to coordinator: a hash of what it will reveal; round 1."""

    kind = Kind.COMMIT
    digest: Annotated[bytes, DIGEST]


@dataclass(frozen=True)
class Commitments(Body):
    """Coordinator to agents: the commitments of all participants; round 1."""

    kind = Kind.COMMITMENTS
    agents: Annotated[tuple[str, ...], NAMES]
    digests: Annotated[tuple[bytes, ...], DIGESTS]


@dataclass(frozen=True)
class Reveal(Body):
    """Agent to coordinator: all its counts, and the nonce of its commitment; round 1.

    The first three numbers are those of its READY. `steps` are the values of k at which its count
    rises, and `tests` by how much. In the regime `joint` there are no steps: `calibration` and
    `tests` have its rows in each cell above its floor.
    """

    kind = Kind.REVEAL
    nonce: Annotated[bytes, DIGEST]
    n_tested: Annotated[int, U64]
    n_calibration: Annotated[int, U64]
    n_wanted: Annotated[int, U64]
    steps: Annotated[tuple[int, ...], U64S]
    calibration: Annotated[tuple[int, ...], U64S]
    tests: Annotated[tuple[int, ...], U64S]

    @property
    def ready(self) -> Ready:
        """The numbers that the agent gave in its READY."""
        return Ready(self.n_tested, self.n_calibration, self.n_wanted)


REVEALS_FIELD = listed(Field(packed, lambda reader: Reveal(*unpack(layout_of(Reveal), reader))))


@dataclass(frozen=True)
class Reveals(Body):
    """Coordinator to agents: what all participants revealed; round 1."""

    kind = Kind.REVEALS
    agents: Annotated[tuple[str, ...], NAMES]
    reveals: Annotated[tuple[Reveal, ...], REVEALS_FIELD]


def as_nonce(nonce: bytes) -> bytes:
    """Check a nonce, which a driver draws: the protocol has no random numbers."""
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise InputError(f"committed counting needs a secret nonce of {NONCE_BYTES} bytes")
    return nonce


def commitment(run_id: bytes, agent: str, reveal: Reveal) -> bytes:
    """Return the hash by which an agent commits to what it will reveal.

    Proof: Theorem 17 (docs/theory.md#thm-liars), Theorem 18 (docs/theory.md#thm-joint-liars).

    Examples
    --------
    >>> reveal = Reveal(bytes(32), 5, 19, 0, (2, 3), (), (2, 1))
    >>> commitment(bytes(16), "north", reveal) == commitment(bytes(16), "south", reveal)
    False
    """
    name = agent.encode()
    if len(name) > MAX_NAME_BYTES:
        raise InputError(f"a name has at most {MAX_NAME_BYTES} bytes")
    whole = _PURPOSE + run_id + len(name).to_bytes(1, "little") + name + packed(reveal)
    return hashlib.sha256(whole).digest()


@dataclass
class CommittedCounts:
    """The commitments of all participants, and what they have revealed so far.

    Attributes
    ----------
    run_id : bytes
    participants : tuple of str
    digests : dict of bytes
        The commitments that are known.
    reveals : dict of Reveal
        Checked against the commitments.
    """

    run_id: bytes
    participants: tuple[str, ...]
    digests: dict[str, bytes] = field(default_factory=dict)
    reveals: dict[str, Reveal] = field(default_factory=dict)

    @property
    def is_committed(self) -> bool:
        """Whether everybody has committed."""
        return set(self.digests) == set(self.participants)

    @property
    def is_revealed(self) -> bool:
        """Whether everybody has revealed."""
        return set(self.reveals) == set(self.participants)

    def add(self, agent: str, reveal: Reveal, ready: Ready | None = None) -> None:
        """Take what an agent reveals, if it is what it committed to.

        Proof: Theorem 17 (docs/theory.md#thm-liars).
        """
        if commitment(self.run_id, agent, reveal) != self.digests[agent]:
            raise CommitmentError(f"{agent} reveals other counts than it committed to", agent)
        if ready is not None and reveal.ready != ready:
            raise CountOutOfRangeError(f"{agent} reveals other numbers than in its READY", agent)
        self.reveals[agent] = reveal


class CountedAgent(DecidingAgent, Protocol):
    """An agent's side of a way whose counts can be committed to."""

    def reveal(self, nonce: bytes) -> Reveal:
        """Return all counts, after :meth:`start`."""

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed."""

    def finish_committed(self, outcome: Outcome) -> None:
        """Hold an outcome against the own counts, and note what is rejected."""


class CommittedAgent:
    """An agent that commits to its counts, reveals them, and checks those of the others."""

    def __init__(self, party: Party, counted: CountedAgent) -> None:
        self.party, self.counted = party, counted
        as_nonce(party.nonce)
        self.plan, self.ready, self.n_rejected = counted.plan, counted.ready, counted.n_rejected
        self._n_tests = 0
        self._all: CommittedCounts = CommittedCounts(party.run_id, ())
        self._decided: Decided | None = None  # from what everybody revealed

    @property
    def limit(self) -> int:
        """The largest rejected rank, or the lowest rejected cell."""
        return self.counted.limit

    @property
    def floor(self) -> int:
        """The lowest cell whose rows take part."""
        return self.counted.floor

    def start(self, start: Start) -> Next:
        """Commit to the counts."""
        self.counted.start(start)
        self._n_tests = start.n_tests
        self.own = self.counted.reveal(self.party.nonce)
        self._all = CommittedCounts(self.party.run_id, start.participants)
        commit = Commit(commitment(self.party.run_id, self.party.name, self.own))
        return Committing.COMMITTED, [Out([COORDINATOR], commit, ROUND)]

    def take(self, body: Body, round_: int) -> Next:
        """Take the commitments of all, or their counts."""
        if isinstance(body, Commitments):
            return self.open(body)
        return self._check_reveals(cast(Reveals, body))

    def open(self, commitments: Commitments) -> Next:
        """Reveal the counts, now that nobody can change its own any more."""
        names = self._all.participants
        insist(commitments.agents == names, "the commitments are of others than take part")
        insist(len(commitments.digests) == len(names), "there is not one commitment of everybody")
        self._all.digests = dict(zip(names, commitments.digests, strict=True))
        own = commitment(self.party.run_id, self.party.name, self.own)
        insist(self._all.digests[self.party.name] == own, "it changed this agent's commitment")
        return Committing.REVEALED, [Out([COORDINATOR], self.own, ROUND)]

    def _check_reveals(self, published: Reveals) -> Next:
        """Check what everybody revealed, and decide from it."""
        names = self._all.participants
        is_for_members = self.party.spec.reveal_to == TO_MEMBERS
        insist(is_for_members, "counts are for the coordinator alone")
        insist(published.agents == names, "counts are revealed of others than take part")
        insist(len(published.reveals) == len(names), "there is not one reveal of everybody")
        try:
            for name, reveal in zip(names, published.reveals, strict=True):
                self._all.add(name, reveal)
            total = sum(one.n_tested for one in published.reveals)
            insist(total == self._n_tests, "the tests do not add up to their number")
            self._decided = self.counted.derive(self._all.reveals)
        except RemoteProtocolError as error:  # it must have refused this itself
            if isinstance(error, OutcomeMismatchError):
                raise
            raise OutcomeMismatchError(f"the coordinator is wrong: {error}", COORDINATOR) from None
        return Committing.REVEALED, []

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Hold an outcome against all counts, or against the own if others are not known."""
        insist(not is_ready, "an outcome before the counts")
        insist(outcome.n_tests == self._n_tests, "another number of tests")
        if self.party.spec.reveal_to == TO_MEMBERS:
            insist(self._decided, "an outcome before the counts are revealed")
            follows = self._decided is not None and self._decided.matches(outcome)
            insist(follows, "not what follows from the counts of all members")
        self.counted.finish_committed(outcome)


class CountedCoordinator(Protocol):
    """The coordinator's side of a way whose counts can be committed to."""

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Return what the roster tells of every agent."""

    def opened(self) -> Start:
        """Return the message that begins the counts."""

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed."""


class CommittedCoordinator:
    """The coordinator's side: commitments of all, then counts of all."""

    def __init__(self, present: Present, counted: CountedCoordinator) -> None:
        self.present, self.counted, self.plan = present, counted, counted.plan
        self._all = CommittedCounts(present.run_id, ())

    def begin(self) -> Next:
        """Begin; everybody commits."""
        present = self.present
        start = self.counted.opened()
        as_liars(present.spec.liars, len(present.here))  # some agents may have left
        present.round = ROUND
        self._all = CommittedCounts(present.run_id, start.participants)
        return Committing.COMMITTING, [Out(present.here, start)]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take a commitment, or what was committed to."""
        self.present.insist_on_round(sender, round_)
        names = self._all.participants
        if isinstance(body, Commit):
            self._all.digests[sender] = body.digest
            if not self._all.is_committed:
                return Committing.COMMITTING, []
            digests = tuple(self._all.digests[name] for name in names)
            return Committing.REVEALING, [Out(names, Commitments(names, digests), ROUND)]
        self._all.add(sender, cast(Reveal, body), self.present.ready[sender])
        if not self._all.is_revealed:
            return Committing.REVEALING, []
        steps: list[Step] = []
        if self.present.spec.reveal_to == TO_MEMBERS:
            reveals = tuple(self._all.reveals[name] for name in names)
            steps = [Out(names, Reveals(names, reveals), ROUND)]
        return State.DONE, steps

    def lost(self, name: str) -> Next:
        """Break the run off: a commitment that is not opened ends it.

        Proof: Theorem 17 (docs/theory.md#thm-liars).
        """
        raise SiteVanishedError(f"{name} vanished and did not reveal its counts", name)

    def decided(self) -> Decided:
        """Return what follows from all counts."""
        return self.counted.derive(self._all.reveals)


TRANSITIONS: Table = {
    (State.WAITING, Kind.READY): frozenset({Committing.COMMITTING}),
    (State.WAITING, Cue.DROP): frozenset({Committing.COMMITTING}),
    (Committing.COMMITTED, Kind.COMMITMENTS): frozenset({Committing.REVEALED}),
    (Committing.REVEALED, Kind.REVEALS): frozenset({Committing.REVEALED}),
    (Committing.REVEALED, Kind.OUTCOME): frozenset({State.DONE}),
    (Committing.COMMITTING, Kind.COMMIT): frozenset({Committing.COMMITTING, Committing.REVEALING}),
    (Committing.COMMITTING, Cue.DROP): frozenset(),  # ends the run
    (Committing.REVEALING, Kind.REVEAL): frozenset({Committing.REVEALING, State.DONE}),
    (Committing.REVEALING, Cue.DROP): frozenset(),  # ends the run
}

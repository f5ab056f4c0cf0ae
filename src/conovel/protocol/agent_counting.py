"""An agent's side of the counts: it answers, or commits and reveals, and checks the outcome.

It believes its coordinator no further than it must: every question and the outcome have to
follow from what it was told before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias, TypeVar

from conovel.deciding.cells import group_of, own_floor, rooms_of, told_groups
from conovel.deciding.committed import (
    ROUND,
    CommittedCounts,
    Decided,
    as_nonce,
    commitment,
    decide,
    reveal_cells,
    reveal_ranks,
    slope_of,
)
from conovel.deciding.counts import Question, limit_of
from conovel.deciding.folds import fold_counts, fold_faults
from conovel.errors import OutcomeMismatchError, RemoteProtocolError, UnexpectedMessageError
from conovel.protocol.events import Outbox
from conovel.protocol.states import Machine, State
from conovel.spec.bodies import (
    COORDINATOR,
    Below,
    Body,
    Commit,
    Commitments,
    Count,
    Histogram,
    Outcome,
    Ready,
    Reveal,
    Reveals,
    Start,
    Step,
)
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import TO_MEMBERS
from conovel.stats.cells import N_CELLS, CellHistogram, allowed_rooms
from conovel.stats.consensus import FoldHistograms
from conovel.stats.stepup import RankHistogram

V = TypeVar("V")
Counted: TypeAlias = RankHistogram | CellHistogram | FoldHistograms
MAX_BELOW = 64  # that many halvings exhaust any grid; more would only be prying


class CountingAgent(Machine):
    """What an agent knows and does once its rows are ranked; see :class:`Agent`."""

    _histogram: Counted
    _told: Ready  # its own READY
    _own: Reveal
    _committed: CommittedCounts

    def __init__(self, name: str, spec: RunSpec, run_id: bytes, nonce: bytes) -> None:
        super().__init__(name, run_id, State.NEW)
        self.spec = spec
        self.regime = as_deployable(spec.regime)
        self._nonce = as_nonce(nonce) if spec.is_committed else nonce
        self._agents: tuple[str, ...] = ()  # the roster
        self._n_tests = 0  # of all agents together
        self._questions: list[Question] = []
        self._count = 0
        self._weights: dict[str, Fraction] = {}  # of the groups of the regime `joint`
        self._rooms: dict[str, Fraction] = {}  # x of everybody there; zero where one decides alone
        self._decided: Decided | None = None  # from what everybody revealed
        self._limit = 0
        self._floor = 0
        self._score = b""  # digest of the score of the regime `consensus`

    @property
    def limit(self) -> int:
        """The largest rejected rank; raises the error of a broken run."""
        _ = self.outcome
        return self._limit

    @property
    def floor(self) -> int:
        """The lowest cell whose rows take part in the regime `joint`; zero in others."""
        return self._floor

    @property
    def n_rejected(self) -> int:
        """How many rows of this agent are rejected; raises the error of a broken run."""
        limit = self.limit
        if isinstance(self._histogram, FoldHistograms):
            return self._histogram.n_rejected(self.outcome.cells)
        if isinstance(self._histogram, CellHistogram):
            return self._histogram.above(limit).size
        return self._histogram.at_most(limit)

    def _peers(self) -> set[str]:
        return set(self._agents) - self._gone - {self.name}

    def _here(self) -> set[str]:
        return self._peers() | {self.name}

    def _on_counting(self, body: Body, round_: int) -> Outbox:
        """Deal with a message of the counts."""
        match body:
            case Start():
                return self._on_start(body)
            case Below() | Step():
                return self._on_question(body, round_)
            case Commitments():
                return self._on_commitments(body)
            case Reveals():
                return self._on_reveals(body)
            case Outcome():
                return self._on_outcome(body)
        raise AssertionError(body)  # the table lets nothing else through

    def _on_start(self, start: Start) -> Outbox:
        self._insist(self.regime.uses_counts, f"{self.regime.name} has no counts to start")
        self._insist(set(start.participants) == self._here(), "the counts start with others")
        self._insist(start.n_tests >= self._histogram.size, "the counts start without this agent")
        self._n_tests = start.n_tests
        self.state = State.COUNTING
        rooms = self._by_agent(start.participants, start.rooms, "x")
        if self.spec.is_committed:
            return self._commit(start.participants, rooms)
        if isinstance(self._histogram, CellHistogram):
            above = self._above_floor(self._histogram, rooms)
            counts = Histogram(tuple(above.calibration.tolist()), tuple(above.tests.tolist()))
            return self._send([COORDINATOR], counts, 1)
        if isinstance(self._histogram, FoldHistograms):
            bodies = fold_counts(self._histogram, self._score)
            return [m for r, body in bodies for m in self._send([COORDINATOR], body, r)]
        return []

    def _by_agent(
        self, agents: Sequence[str], values: Sequence[V], what: str, *, folds: bool = False
    ) -> dict[str, V]:
        """Give what is told of every agent, in the regime `joint` and no other, by name.

        With `folds`, also in the regime `consensus`.
        """
        is_told = self.regime.pools_calibration or (folds and self.regime.composite_null)
        told = len(agents) if is_told else 0
        self._insist(len(values) == told, f"{len(values)} {what} are told, and not {told}")
        return dict(zip(agents, values, strict=False))

    def _in_group(self, told: Mapping[str, object], what: str) -> set[str]:
        """Return who is in this agent's group; they must have been told the same."""
        together = group_of(self.name, told, self._weights, self._rooms)
        same = {told[name] for name in together}
        self._insist(len(same) == 1, f"the agents of a group have one {what}")
        return together

    def _above_floor(
        self, histogram: CellHistogram, rooms: Mapping[str, Fraction]
    ) -> CellHistogram:
        self._rooms = dict(rooms)
        room, is_alone = rooms[self.name], len(self._in_group(rooms, "x")) == 1
        allowed = (Fraction(0),) if is_alone else allowed_rooms(self.spec.liars)
        self._insist(room in allowed, f"x must be {' or '.join(map(str, allowed))}, not {room}")
        self._floor = own_floor(histogram, room, is_alone=is_alone, level=self.spec.level)
        return histogram.above(self._floor)

    def _commit(self, participants: tuple[str, ...], rooms: Mapping[str, Fraction]) -> Outbox:
        histogram = self._histogram
        if isinstance(histogram, CellHistogram):
            above = self._above_floor(histogram, rooms)
            self._own = reveal_cells(self._nonce, self._told, above)
        elif isinstance(histogram, RankHistogram):
            self._own = reveal_ranks(self._nonce, histogram, self.spec.level, self._n_tests)
        self._committed = CommittedCounts(self.run_id, participants)
        self.state = State.COMMITTED
        commit = Commit(commitment(self.run_id, self.name, self._own))
        return self._send([COORDINATOR], commit, ROUND)

    def _on_commitments(self, told: Commitments) -> Outbox:
        """Reveal the counts, now that nobody can change its own any more."""
        names = self._committed.participants
        self._insist(told.agents == names, "the commitments are of others than take part")
        self._insist(len(told.digests) == len(names), "there is not one commitment of everybody")
        self._committed.digests = dict(zip(names, told.digests, strict=True))
        own = commitment(self.run_id, self.name, self._own)
        self._insist(self._committed.digests[self.name] == own, "another commitment than mine")
        self.state = State.REVEALED
        return self._send([COORDINATOR], self._own, ROUND)

    def _on_reveals(self, told: Reveals) -> Outbox:
        """Check what everybody revealed, and decide from it."""
        names = self._committed.participants
        self._insist(self.spec.reveal_to == TO_MEMBERS, "counts are for the coordinator alone")
        self._insist(told.agents == names, "counts are revealed of others than take part")
        self._insist(len(told.reveals) == len(names), "there is not one reveal of everybody")
        try:
            for name, reveal in zip(names, told.reveals, strict=True):
                self._committed.add(name, reveal)
            found = self._derive(self._committed.reveals)
        except RemoteProtocolError as error:  # it must have refused this itself
            raise OutcomeMismatchError(f"the coordinator is wrong: {error}", COORDINATOR) from None
        self._decided = found
        return []

    def _derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        ready = {name: reveal.ready for name, reveal in reveals.items()}
        total = sum(one.n_tested for one in ready.values())
        self._insist(total == self._n_tests, "the tests do not add up to their number")
        groups = told_groups(self._weights)
        if self.regime.pools_calibration:
            follows = rooms_of(groups, ready, self.spec.level, self.spec.liars)
            self._insist(follows == self._rooms, "x does not follow from the numbers of rows")
        return decide(self.spec, reveals, self._n_tests, groups, self._rooms)

    def _on_question(self, question: Question, round_: int) -> Outbox:
        histogram = self._histogram
        if not isinstance(histogram, RankHistogram):
            raise UnexpectedMessageError(f"{self.regime.name} has no questions", COORDINATOR)
        if round_ != len(self._questions) + 1:
            raise UnexpectedMessageError(f"round {round_} is out of turn", COORDINATOR)
        last = self._questions[-1] if self._questions else None
        if isinstance(question, Below):
            prying = self.spec.pi0 is None or isinstance(last, Step) or round_ > MAX_BELOW
            self._insist(not prying, "a question that no estimator needs")
        elif isinstance(last, Step):
            self._insist(question.slope == last.slope, "the slope has changed")
            self._insist(self._count <= question.k < last.k, "k must fall, to the sum of counts")
        else:
            self._insist(question.k == self._n_tests, "k must begin at the number of tests")
            plain = question.slope * self._n_tests == self.spec.level
            self._insist(plain or self.spec.pi0, "the slope is not α/m")
        self._questions.append(question)
        self._count = histogram.at_most(limit_of(question, histogram.n_calibration))
        return self._send([COORDINATOR], Count(self._count), round_)

    def _on_outcome(self, outcome: Outcome) -> Outbox:
        self._insist(set(outcome.participants) == self._here(), "the outcome is about others")
        if self.spec.is_committed:
            self._check_committed(outcome)
        if isinstance(self._histogram, FoldHistograms):
            self._insist(self.state is State.COUNTING, "an outcome before the counts")
            for fault in fold_faults(self._histogram, outcome, self.name, self._n_tests):
                self._insist(False, fault)
        elif isinstance(self._histogram, CellHistogram):
            cells = self._by_agent(outcome.participants, outcome.cells, "cells")
            self._insist(self.state is not State.READY, "an outcome before the counts")
            self._insist(outcome.n_tests == self._n_tests, "another number of tests")
            self._in_group(cells, "lowest cell")
            self._limit = max(cells[self.name], self._floor)
            own = self._histogram.above(self._limit).size
            self._insist(cells[self.name] <= N_CELLS, "a cell that does not exist")
            self._insist(own <= outcome.n_rejected, "fewer rejections than at this agent")
        elif self.spec.is_committed:
            self._limit = limit_of(outcome.step, self._histogram.n_calibration)
        elif self.regime.uses_counts:
            last = self._questions[-1] if self._questions else Step(0, Fraction(0))
            self._insist(self.state is State.COUNTING, "an outcome before the counts")
            self._insist(last == Step(outcome.n_rejected, outcome.slope), "not the fixed point")
            self._insist(outcome.n_tests == self._n_tests, "another number of tests")
            self._limit = limit_of(last, self._histogram.n_calibration)
        self._outcome = outcome
        self.state = State.DONE
        return []

    def _check_committed(self, outcome: Outcome) -> None:
        """Hold an outcome against all counts, or against the own if others are not known."""
        self._insist(self.state is State.REVEALED, "an outcome before the counts")
        self._insist(outcome.n_tests == self._n_tests, "another number of tests")
        if self.spec.reveal_to == TO_MEMBERS:
            self._insist(self._decided, "an outcome before the counts are revealed")
            follows = self._decided is not None and self._decided.matches(outcome)
            self._insist(follows, "not what follows from the counts of all members")
        if isinstance(self._histogram, RankHistogram):
            slope = slope_of(self.spec.level, self._n_tests)
            own = self._histogram.at_most(limit_of(outcome.step, self._histogram.n_calibration))
            self._insist(outcome.slope == slope, "the slope is not α/m")
            self._insist(outcome.k <= outcome.n_rejected, "more than is rejected in all")
            self._insist(own <= outcome.n_rejected, "fewer rejections than at this agent")

    def _insist(self, holds: object, otherwise: str) -> None:
        """Hold the coordinator to what it said before."""
        if not holds:
            raise OutcomeMismatchError(f"the coordinator is wrong: {otherwise}", COORDINATOR)

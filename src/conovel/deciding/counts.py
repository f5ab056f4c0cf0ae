"""One step-up over all agents, by questions and counts or by counts that are committed to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import cast

import numpy as np

from conovel.deciding.asking import Below, Count, CountCheck, Counting, Question, Step, limit_of
from conovel.deciding.base import Decided, Deciding, Present, either
from conovel.deciding.committed import (
    ROUND,
    TRANSITIONS,
    CommittedAgent,
    CommittedCoordinator,
    Committing,
    Reveal,
)
from conovel.errors import CountOutOfRangeError, SampleError, UnexpectedMessageError
from conovel.learning.base import INDEPENDENT, Cue, Next, Out, Party, State, insist
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start
from conovel.spec.fields import MAX_STEPS
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers
from conovel.stats.stepup import RankHistogram
from conovel.stats.tolerant import CountSteps, count_steps, largest_k, rises_at

MAX_BELOW = 64  # that many halvings exhaust any grid; more would only be prying
FEWER = "fewer rejections than at this agent"


def slope_of(level: Fraction, n_tests: int) -> Fraction:
    """Return α/m, and zero where nothing is tested."""
    return level / n_tests if n_tests else Fraction(0)


def reveal_ranks(nonce: bytes, histogram: RankHistogram, level: Fraction, n_tests: int) -> Reveal:
    """Return what an agent reveals of its ranks, where there are `n_tests` tests in all."""
    claim = CountSteps((), ())
    if histogram.size:
        claim = count_steps(histogram, slope_of(level, n_tests), n_tests)
    if len(claim.steps) > MAX_STEPS:
        raise SampleError(
            f"{len(claim.steps):,} different counts are too many to reveal, at most {MAX_STEPS:,}:"
            " use counting='rounds'"
        )
    return Reveal(nonce, histogram.size, histogram.n_calibration, 0, claim.steps, (), claim.tests)


def claim_of(agent: str, reveal: Reveal, level: Fraction, n_tests: int) -> CountSteps:
    """Check that counts are those of some ranks, and return them as a function of k.

    Proof: Theorem 17 (docs/theory.md#thm-liars).

    Raises
    ------
    CountOutOfRangeError
        If they count more rows than the agent has, or rise at a k where no rank can join.
    """
    steps, tests, slope = reveal.steps, reveal.tests, slope_of(level, n_tests)
    size = reveal.n_calibration
    fits = (
        not reveal.calibration
        and len(steps) == len(tests)
        and all(a < b for a, b in pairwise(steps))
        and all(k <= n_tests for k in steps)
        and all(n > 0 for n in tests)
        and sum(tests) <= reveal.n_tested
        and all(rises_at(k, slope, size) for k in steps)
    )
    if not fits:
        raise CountOutOfRangeError(
            f"{agent} reveals counts that {reveal.n_tested} ranks among {size} calibration rows"
            " cannot have",
            agent,
        )
    return CountSteps(steps, tests)


def decide_steps(spec: RunSpec, reveals: Mapping[str, Reveal], n_tests: int) -> Decided:
    """Decide from the counts that all participants reveal; `n_tests` are the tests of all.

    Proof: Theorem 17 (docs/theory.md#thm-liars).
    """
    claims = [claim_of(name, reveals[name], spec.level, n_tests) for name in sorted(reveals)]
    k = largest_k(claims, n_tests, spec.liars)
    n_rejected = sum(claim.at(k) for claim in claims)
    return Decided(n_rejected, slope_of(spec.level, n_tests), ROUND, k=k)


def step_of(outcome: Outcome) -> Step:
    """Return the question that the limits on ranks follow from."""
    return Step(outcome.k or outcome.n_rejected, outcome.slope)


class CountsAgent:
    """An agent that answers questions about its ranks, and holds the coordinator to the rule."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.limit = self.floor = 0
        self._n_tests = 0  # of all agents together
        self._questions: list[Question] = []
        self._count = 0
        self.counts = RankHistogram(np.zeros(0, dtype=np.int64), 1)

    def plan(self, weights: Sequence[Fraction]) -> Fraction:
        """Nothing is planned."""
        insist(not weights, f"{len(weights)} weights are told, and not 0")
        return Fraction(0)

    def ready(self, counts: RankHistogram, score: bytes) -> Ready:
        """Take the ranks of the site."""
        self.counts = counts
        return Ready(counts.size, counts.n_calibration)

    def start(self, start: Start) -> Next:
        """Begin: the coordinator will ask."""
        insist(not start.rooms, f"{len(start.rooms)} x are told, and not 0")
        self._n_tests = start.n_tests
        return State.COUNTING, []

    def take(self, body: Body, round_: int) -> Next:
        """Answer a question, if the rule leads to it."""
        question = cast(Question, body)
        if round_ != len(self._questions) + 1:
            raise UnexpectedMessageError(f"round {round_} is out of turn", COORDINATOR)
        self._check(question, round_)
        self._questions.append(question)
        self._count = self.at_most(question)
        return State.COUNTING, [Out([COORDINATOR], Count(self._count), round_)]

    def at_most(self, question: Question) -> int:
        """Count the ranks that a question asks for."""
        return self.counts.at_most(limit_of(question, self.counts.n_calibration))

    def _check(self, question: Question, round_: int) -> None:
        spec, last = self.party.spec, self._questions[-1] if self._questions else None
        if isinstance(question, Below):
            prying = spec.pi0 is None or isinstance(last, Step) or round_ > MAX_BELOW
            insist(not prying, "a question that no estimator needs")
        elif isinstance(last, Step):
            insist(question.slope == last.slope, "the slope has changed")
            insist(self._count <= question.k < last.k, "k must fall, to the sum of counts")
        else:
            insist(question.k == self._n_tests, "k must begin at the number of tests")
            plain = question.slope * self._n_tests == spec.level
            insist(plain or spec.pi0, "the slope is not α/m")

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Check that the outcome is the fixed point."""
        last = self._questions[-1] if self._questions else Step(0, Fraction(0))
        insist(not is_ready, "an outcome before the counts")
        insist(last == Step(outcome.n_rejected, outcome.slope), "not the fixed point")
        insist(outcome.n_tests == self._n_tests, "another number of tests")
        self.limit = limit_of(last, self.counts.n_calibration)

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many ranks are within the limit."""
        return self.counts.at_most(self.limit)

    def reveal(self, nonce: bytes) -> Reveal:
        """Return all counts, where they are committed to."""
        spec = self.party.spec
        return reveal_ranks(nonce, self.counts, spec.level, self._n_tests)

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed."""
        return decide_steps(self.party.spec, reveals, self._n_tests)

    def finish_committed(self, outcome: Outcome) -> None:
        """Check an outcome against the own counts, and note the limit."""
        slope = slope_of(self.party.spec.level, self._n_tests)
        insist(outcome.slope == slope, "the slope is not α/m")
        insist(outcome.k <= outcome.n_rejected, "more than is rejected in all")
        insist(self.at_most(step_of(outcome)) <= outcome.n_rejected, FEWER)
        self.limit = limit_of(step_of(outcome), self.counts.n_calibration)


class CountsCoordinator:
    """The coordinator's side: it asks until the fixed point is reached."""

    def __init__(self, present: Present) -> None:
        self.present = present
        self._checks: dict[str, CountCheck] = {}  # whoever was there when the counts began
        self._counts: dict[str, int] = {}  # of this round

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Nothing is planned."""
        return ()

    def begin(self) -> Next:
        """Begin the counts with the first question."""
        present, spec = self.present, self.present.spec
        self._checks = {
            name: CountCheck(name, ready.n_tested, ready.n_calibration)
            for name, ready in sorted(present.ready.items())
        }
        self._counting = Counting(spec.level, [*self._checks.values()], spec.pi0)
        state, steps = self._ask()
        return state, [Out(present.here, present.start()), *steps]

    def _ask(self) -> Next:
        if self._counting.question is None:
            return State.DONE, []
        self.present.round += 1
        self._counts = {}
        question = Out(self.present.here, self._counting.question, self.present.round)
        return State.ASKING, [question]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take a count."""
        question = self._counting.question
        if not isinstance(body, Count) or question is None or round_ != self.present.round:
            raise UnexpectedMessageError(
                f"{sender} counts for round {round_} in round {self.present.round}", sender
            )
        self._checks[sender].add(question, body.count)
        self._counts[sender] = body.count
        return self._close_round()

    def _close_round(self) -> Next:
        if set(self.present.here) - set(self._counts):
            return State.ASKING, []
        self._counting.answer([self._counts.get(name, 0) for name in self._checks])
        return self._ask()

    def lost(self, name: str) -> Next:
        """Count an agent that vanished as zero, if the settings allow it.

        Proof: Theorem 8 (docs/theory.md#thm-dropout),
        Theorem 9 (docs/theory.md#thm-dropout-estimate).
        """
        if self.present.spec.on_dropout == "abort":
            self.present.require_all(name)
        # Also the count of this round: its rows will not be rejected, so none may be counted.
        self._counts.pop(name, None)
        return self._close_round()

    def opened(self) -> Start:
        """Return the message that begins committed counting."""
        return self.present.start()

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed."""
        return decide_steps(self.present.spec, reveals, self.present.n_tests)

    def decided(self) -> Decided:
        """Return the fixed point."""
        return Decided(self._counting.k, self._counting.slope, self._counting.steps)


COUNTS = Deciding(
    name="counts",
    at_agent=either(CountsAgent, CommittedAgent),
    at_coordinator=either(CountsCoordinator, CommittedCoordinator),
    transitions={
        (State.READY, Kind.START): frozenset({State.COUNTING, Committing.COMMITTED}),
        (State.COUNTING, Kind.BELOW): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.STEP): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.LEFT): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.OUTCOME): frozenset({State.DONE}),
        (State.ASKING, Kind.COUNT): frozenset({State.ASKING, State.DONE}),
        (State.ASKING, Cue.DROP): frozenset({State.ASKING, State.DONE}),
        **TRANSITIONS,
    },
    counts_type=RankHistogram,
    needs=INDEPENDENT,
    peers_learn="the total count of each round",
    coordinator_learns="every agent's count in each round",
    bound_by_nulls=True,
)

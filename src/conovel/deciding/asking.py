"""A step-up as questions and counts: what the coordinator asks, and what it may be told.

The questions are the messages :class:`Below` and :class:`Step`. To an agent either one is a
limit on its own ranks, so that all it ever answers is "how many ranks are at most r".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, TypeAlias

from conovel.errors import CountOutOfRangeError, CountRisingError
from conovel.spec.bodies import Body, Kind
from conovel.spec.fields import FRACTION, U64
from conovel.stats.null_proportion import NullProportion
from conovel.stats.resolution import rank_limit


@dataclass(frozen=True)
class Below(Body):
    """Coordinator to agents: count the p-values strictly below this one."""

    kind = Kind.BELOW
    p_value: Annotated[Fraction, FRACTION]


@dataclass(frozen=True)
class Step(Body):
    """Coordinator to agents: count your rejections if there are `k` in all."""

    kind = Kind.STEP
    k: Annotated[int, U64]
    slope: Annotated[Fraction, FRACTION]


@dataclass(frozen=True)
class Count(Body):
    """Agent to coordinator: the answer."""

    kind = Kind.COUNT
    count: Annotated[int, U64]


Question: TypeAlias = Below | Step


def limit_of(question: Question, n_calibration: int) -> int:
    """Largest rank that a question counts, for an agent with ℓ calibration rows.

    Proof: Theorem 2 (docs/theory.md#thm-main).

    Examples
    --------
    >>> limit_of(Step(k=3, slope=Fraction(1, 50)), 99), limit_of(Below(Fraction(1, 2)), 99)
    (6, 49)
    """
    if isinstance(question, Step):
        return rank_limit(question.slope, question.k, n_calibration)
    return math.ceil(question.p_value * (n_calibration + 1)) - 1


class CountCheck:
    """The counts that one agent has given, held against what m ranks can give.

    The number of ranks that are at most r is 0 at r = 0, m at r = ℓ + 1, and rises with r.
    An agent is free to lie within these bounds (docs/revealed.md), and no further.

    Proof: Theorem 17 (docs/theory.md#thm-liars).

    Parameters
    ----------
    agent : str
        Whom to blame.
    n_tested, n_calibration : int
        Its m and ℓ.

    Examples
    --------
    >>> check = CountCheck("north", n_tested=10, n_calibration=99)
    >>> check.add(Step(50, Fraction(1, 500)), 4)
    >>> check.add(Step(20, Fraction(1, 500)), 5)
    Traceback (most recent call last):
    ...
    conovel.errors.CountRisingError: north counts 5 ranks up to 4, but 4 up to 10
    """

    def __init__(self, agent: str, n_tested: int, n_calibration: int) -> None:
        self.agent = agent
        self.n_tested = n_tested
        self.n_calibration = n_calibration
        self._points = {0: 0, n_calibration + 1: n_tested}

    def add(self, question: Question, count: int) -> None:
        """Take one more count, or say why it cannot be true."""
        if not 0 <= count <= self.n_tested:
            raise CountOutOfRangeError(
                f"{self.agent} counts {count} of its {self.n_tested} rows", self.agent
            )
        limit = min(max(limit_of(question, self.n_calibration), 0), self.n_calibration + 1)
        for point in self._points.items():
            low, high = sorted([point, (limit, count)], key=lambda point: point[0])
            if low[1] > high[1] or (low[0] == high[0] and low[1] != high[1]):
                raise CountRisingError(
                    f"{self.agent} counts {low[1]} ranks up to {low[0]},"
                    f" but {high[1]} up to {high[0]}",
                    self.agent,
                )
        self._points[limit] = count


class _Unanswered(Exception):
    """An estimator needs a count that nobody has given yet."""


class Counting:
    """FastLSU from the asking side, one question at a time.

    Proof: Theorem 4 (docs/theory.md#thm-fastlsu), Theorem 9 (docs/theory.md#thm-dropout-estimate).

    Parameters
    ----------
    level : Fraction
        The level α.
    agents : sequence of CountCheck
        Whom to ask, with their numbers of tests and calibration rows.
    estimator : NullProportion or None
        How to estimate the number of nulls; None takes m.

    Attributes
    ----------
    question : Below, Step or None
        What to ask next; None when the fixed point is reached.
    k : int
        Rejections, once there is nothing left to ask.
    slope : Fraction
        α/m, or α over the estimated number of nulls.
    steps : int
        Rounds of the step-up so far, without those of the estimator.

    Examples
    --------
    >>> agents = [CountCheck("north", 3, 19), CountCheck("south", 2, 39)]
    >>> counting = Counting(Fraction(1, 5), agents, None)
    >>> counting.question
    Step(k=5, slope=Fraction(1, 25))
    >>> counting.answer([2, 1])
    >>> counting.answer([2, 1])
    >>> counting.question, counting.k, counting.steps
    (None, 3, 2)
    """

    def __init__(
        self, level: Fraction, agents: Sequence[CountCheck], estimator: NullProportion | None
    ) -> None:
        self._level = level
        # An agent without tests has no p-values, so its grid does not matter.
        self._sizes = [agent.n_calibration for agent in agents if agent.n_tested]
        self._m = m = sum(agent.n_tested for agent in agents)
        self._estimator = estimator
        self._below: dict[Fraction, Sequence[int]] = {}
        self.k = m
        self.slope = Fraction(0)
        self.steps = 0
        self.question: Question | None = self._first() if m else None

    def answer(self, counts: Sequence[int]) -> None:
        """Take everybody's count for the current question and think of the next one."""
        if isinstance(self.question, Below):
            self._below[self.question.p_value] = tuple(counts)
            self.question = self._first()
            return
        total = sum(counts)
        self.steps += 1
        self.question = None if total == self.k else Step(total, self.slope)
        self.k = total

    def _first(self) -> Question:
        """Ask for what the estimator still lacks, else begin the step-up at k = m.

        The estimator is a plain function of counts: it is run again from its beginning with
        the answers so far, up to the first question that has none.
        """
        nulls = Fraction(self._m)
        if self._estimator is not None:
            try:
                nulls = self._estimator.null_count(self._recall, self._sizes, self._m)
            except _Unanswered as missing:
                return Below(missing.args[0])
        self.slope = self._level / nulls
        return Step(self._m, self.slope)

    def _recall(self, p_value: Fraction) -> Sequence[int]:
        if p_value not in self._below:
            raise _Unanswered(p_value)
        return self._below[p_value]

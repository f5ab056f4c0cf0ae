"""How many false rows a list can have, with a stated probability: whole numbers b(c).

Of a list with C calibration rows beside it, at most b(C) tests are null, for all lists at once,
with probability at least 1 - δ (Theorem 21 of docs/theory.md). b follows from numbers of rows.

δ is spent on c = 0, 1, 2, ... in this order, most of it on the first. The chance to exceed
b(c) is bounded in two ways. For small c it is that of a walk: the next null row is a test with
probability at most q(c). Beyond, it is that of a binomial number, at some c with others between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

from conovel.errors import InputError
from conovel.stats.levels import Level, as_level, as_whole

# Chances are computed in floats, and every one is made larger by more than the error of this.
_RELATIVE, _ABSOLUTE = 1e-6, 1e-15
_TINY = 1e-19  # longer runs of tests without a calibration row are left out; within _ABSOLUTE
# The walk ends where q(c) has moved its mean by this many standard deviations, or here.
_MOVED, _LONGEST_WALK = 0.25, 400
# Beyond the walk, b is one number for about this many standard deviations of c.
_STEP = 2.0
# Beyond this share of all calibration rows a list is a large part of all tests.
_DEEPEST = Fraction(1, 4)


class Block(NamedTuple):
    """Rows that are exchangeable with each other: those of an agent.

    `n_above` is the largest number of its mixture rows that take part, or None for all.
    """

    n_test: int
    n_calibration: int
    n_above: int | None = None

    @property
    def n_part(self) -> int:
        """The largest number of rows that take part."""
        rows = self.n_test + self.n_calibration
        return rows if self.n_above is None else min(self.n_above, rows)


def as_confidence(confidence: Level) -> Fraction:
    """Return δ = 1 - confidence as an exact fraction; 1e-9 at least."""
    delta = 1 - as_level(confidence, "confidence")
    if delta < Fraction(1, 10**9):
        raise InputError(f"confidence must be at most 1 - 1e-9, not {confidence}")
    return delta


def false_bound(blocks: Sequence[Block], confidence: Level) -> NDArray[np.int64]:
    """Return b(0), b(1), ..., b(Σℓ): the most null tests with so many calibration rows beside.

    Parameters
    ----------
    blocks : sequence of Block
        The numbers of tests and calibration rows of each agent.
    confidence : float, str or Fraction
        1 - δ, the probability with which all bounds hold at once.

    Returns
    -------
    int array of shape (Σℓ + 1,)
        Nondecreasing, and at most the number of all tests.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).

    Examples
    --------
    >>> false_bound([Block(333, 500)], 0.95)[[0, 1, 5, 10, 20]].tolist()
    [4, 5, 11, 18, 29]
    """
    delta = as_confidence(confidence)
    taking = [block for block in _checked(blocks) if block.n_test and block.n_part]
    size = 1 + sum(block.n_calibration for block in blocks)
    most = sum(min(block.n_test, block.n_part) for block in taking)
    bound = np.full(size, most, dtype=np.int64)
    if taking:
        deepest = _deepest(taking)
        spent = _Spent(float(delta), deepest)
        walked = _walk(taking, deepest, spent)
        bound[: walked.size] = walked
        _by_steps(taking, bound, walked.size, deepest, spent)
    return np.minimum(bound, most)


def _checked(blocks: Sequence[Block]) -> list[Block]:
    for block in blocks:
        as_whole(block.n_test, "n_test")
        as_whole(block.n_calibration, "n_calibration")
        if block.n_above is not None:
            as_whole(block.n_above, "n_above")
    return list(blocks)


def _deepest(blocks: Sequence[Block]) -> int:
    """Return the largest c for which δ is spent; beyond, b is the number of all tests."""
    rows = sum(block.n_calibration for block in blocks)
    above = sum(min(block.n_calibration, block.n_part) for block in blocks)
    return min(math.ceil(_DEEPEST * rows), above)


class _Spent:
    """What is spent of δ so far, and how much may be spent up to each c."""

    def __init__(self, delta: float, deepest: int) -> None:
        self.delta, self.deepest, self.so_far = delta * (1 - _RELATIVE), deepest, 0.0

    def left(self, c: int) -> float:
        """Return what may be spent at c: what belongs to all up to c, without what was spent."""
        share = (1 - 1 / math.sqrt(c + 2)) / (1 - 1 / math.sqrt(self.deepest + 2))
        return max(self.delta * share - self.so_far, 0.0)


def chance_of_test(blocks: Sequence[Block], c: int) -> float:
    """Return q(c): the largest chance that the next null row is a test, after c calibration rows.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).
    """
    return max(
        block.n_test / (block.n_test + block.n_calibration - gone)
        for block in blocks
        for gone in [min(c, block.n_part - 1, block.n_calibration)]
    )


def _walk(blocks: Sequence[Block], deepest: int, spent: _Spent) -> NDArray[np.int64]:
    """Spend on c = 0, 1, 2, ... by the exact recursion of a walk, as far as it is sharp.

    `alive[v]` is the chance of v tests at the c-th calibration row with no bound exceeded before.
    With one block the chances of drawing without replacement follow: those of independent draws
    with q = m/(m + ℓ), times how much likelier the rest makes m tests in all.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).
    """
    is_one = len(blocks) == 1
    p = chance_of_test(blocks, 0)
    alive, moved = np.ones(1), 0.0
    bound: list[int] = []
    for c in range(deepest + 1):
        q = p if is_one else chance_of_test(blocks, c)
        if q >= 1:
            break
        moved += q / (1 - q) - p / (1 - p)
        if c > _LONGEST_WALK or moved > _MOVED * math.sqrt((c + 1) * p) / (1 - p):
            break
        reached = _with_runs(alive, q)  # the chance of v tests before calibration row c + 1
        first = bound[-1] if bound else 0
        tests = np.arange(first + 1, reached.size)  # v = b(c) + 1 exceeds b(c)
        chance = reached[first + 1 :]
        if is_one:
            chance = chance * _likelier(blocks[0], tests, c, p)
        chance = chance * (1 + _RELATIVE) + _ABSOLUTE
        fits = np.flatnonzero(chance <= spent.left(c))
        if not fits.size:
            break
        spent.so_far += float(chance[fits[0]])
        bound.append(int(tests[fits[0]]) - 1)
        alive = (1 - q) * reached[: bound[-1] + 1]
    return np.array(bound, dtype=np.int64)


def _with_runs(alive: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    """Add runs of tests: the sum over i of q^i alive[v - i], by 1 + x + ... = (1 + x)(1 + x²)...

    No term is negative, so that errors stay relative.
    """
    longest = 1 + math.ceil(math.log(_TINY * (1 - q)) / math.log(q))
    reached = np.concatenate([alive, np.zeros(longest)])
    step = 1
    while step <= longest:
        reached[step:] += q**step * reached[:-step]
        step *= 2
    return reached


def _likelier(block: Block, tests: NDArray[np.int64], c: int, p: float) -> NDArray[np.float64]:
    """Return the chance of a state when drawing without replacement, over that of independence."""
    m, rows = block.n_test, block.n_test + block.n_calibration
    v = np.minimum(tests, m)
    log = _log_choose(rows - v - c, m - v) - _log_choose(np.array(rows), np.array(m))
    ratio = np.exp(log - v * math.log(p) - c * math.log1p(-p))
    return np.where(tests <= m, ratio, 0.0)


def _log_choose(n: NDArray[np.int64], k: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def _by_steps(
    blocks: Sequence[Block], bound: NDArray[np.int64], c: int, deepest: int, spent: _Spent
) -> None:
    """Spend on some c, from the given one on, and let b be constant between them.

    v tests with at most c calibration rows beside them are v tests among the first v + c null
    rows. Their number is at most binomial above its mean.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).
    """
    means = _Means(blocks)
    last = int(bound[c - 1]) if c else 0
    most = int(bound[-1])
    while c <= deepest:
        at = min(c + math.ceil(_STEP * math.sqrt(c + 1)) - 1, deepest)
        allowed = spent.left(at)
        low, high = last - 1, most  # `high` is never exceeded
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if means.tail(middle, at) <= allowed else (middle, high)
        if high < most:
            spent.so_far += means.tail(high, at)
        bound[c : at + 1] = last = high
        c = at + 1


class _Means:
    """The largest mean number of tests among the first s null rows, in any order of agents."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        shares = [block.n_test / (block.n_test + block.n_calibration) for block in blocks]
        order = np.argsort(shares)[::-1]
        rows = np.array([blocks[i].n_part for i in order])
        self.rows = np.concatenate([[0], np.cumsum(rows)])
        tests = np.cumsum(rows * np.array(shares)[order])
        self.tests = np.concatenate([[0.0], tests]) * (1 + _RELATIVE)

    def tail(self, v: int, c: int) -> float:
        """Bound the chance of more than v tests with at most c calibration rows beside them."""
        s = min(v + 1 + c, int(self.rows[-1]))
        mean = float(np.interp(s, self.rows, self.tests))
        if v < mean:
            return 1.0
        if v >= s:
            return 0.0
        chance = float(betainc(v + 1, s - v, min(mean / s, 1.0)))
        return chance * (1 + _RELATIVE) + _ABSOLUTE

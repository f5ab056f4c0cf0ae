"""Conformal ranks: where a test score falls among the calibration scores.

A higher score is more novel, everywhere in conovel. The rank of a test score ``s`` is
``1 + #{calibration scores >= s}``, so that ties count against the test row; dividing by
ℓ + 1 gives the conformal p-value (the paper's empirical p-value).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.levels import as_array

# From this many queries on, a guide table saves time (benchmarks/statistics.py).
_GUIDE_QUERIES = 20_000
_GUIDE_CELLS = 1 << 18


def conformal_ranks(calibration_scores: ArrayLike, test_scores: ArrayLike) -> NDArray[np.int64]:
    """Rank each test score among the calibration scores, ties against the test row.

    Parameters
    ----------
    calibration_scores : array of shape (ℓ,)
        Scores of known normals that are exchangeable with the normal test rows.
    test_scores : array of shape (m,)
        Scores of the rows to test; higher is more novel.

    Returns
    -------
    int64 array of shape (m,)
        ``1 + #{calibration >= score}``, from 1 (most novel) to ℓ + 1.

    Examples
    --------
    >>> conformal_ranks([0.1, 0.2, 0.3], [0.25, 0.3, 9.0])
    array([2, 2, 1])
    """
    calibration = as_scores(calibration_scores, "calibration_scores")
    tests = as_scores(test_scores, "test_scores")
    below = count_below(np.sort(calibration), tests)
    np.subtract(calibration.size + 1, below, out=below)
    return below


def conformal_pvalues(
    calibration_scores: ArrayLike, test_scores: ArrayLike
) -> NDArray[np.float64]:
    """Conformal p-values, ``conformal_ranks / (ℓ + 1)``.

    For display and for other software; conovel's own decisions use the integer ranks.

    Parameters
    ----------
    calibration_scores : array of shape (ℓ,)
        Scores of known normals.
    test_scores : array of shape (m,)
        Scores of the rows to test; higher is more novel.

    Returns
    -------
    float64 array of shape (m,)

    Examples
    --------
    >>> conformal_pvalues([0.1, 0.2, 0.3], [0.25, 0.3, 9.0])
    array([0.5 , 0.5 , 0.25])
    """
    ranks = conformal_ranks(calibration_scores, test_scores)
    return ranks / (np.size(calibration_scores) + 1)


def as_scores(scores: ArrayLike, name: str) -> NDArray[Any]:
    """Check a vector of scores: one dimension, not empty, numeric, no NaN.

    Integers stay integers, so that large ones keep their order; other numbers become float64.
    Infinite scores are allowed: they compare like any other number.
    """
    array = as_array(scores, name)
    if array.ndim != 1:
        raise SampleError(f"{name} must have one dimension, not shape {array.shape}")
    if array.size == 0:
        raise SampleError(f"{name} is empty: at least one score is needed")
    if array.dtype.kind in "iu":
        return array
    if array.dtype.kind not in "bf":
        raise InputError(f"{name} must be numbers, not {array.dtype}")
    array = array.astype(np.float64, copy=False)
    missing = np.isnan(array)
    if missing.any():
        raise InputError(
            f"{name} has {np.count_nonzero(missing)} NaN (first at position"
            f" {np.flatnonzero(missing)[0]}): a row without a score cannot be ranked"
        )
    return array


def count_below(ordered: NDArray[Any], queries: NDArray[Any]) -> NDArray[np.int64]:
    """Count the entries of `ordered` (ascending) strictly below each query.

    Equal to ``np.searchsorted(ordered, queries)``. Many queries first go through a guide
    table: the range is cut into equal cells, and a query that is not above the smallest
    entry of its cell is answered by the cell alone. The map from values to cells is monotone
    in floating point too, so the answer is exact, and only the other queries are searched for.
    """
    if queries.size >= _GUIDE_QUERIES and queries.dtype == ordered.dtype == np.float64:
        # The outer 2 % on each side share the end cells, so heavy tails do not stretch the rest.
        trim = ordered.size // 50
        low, high = float(ordered[trim]), float(ordered[-1 - trim])
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = (_GUIDE_CELLS - 1) / np.float64(high - low)
        # Infinite when the range is a point or subnormal, 0 when it is infinite or overflows.
        if np.isfinite(scale) and scale > 0:
            return _guided_count_below(ordered, queries, low, high, float(scale))
    return np.searchsorted(ordered, queries, side="left").astype(np.int64, copy=False)


def _guided_count_below(
    ordered: NDArray[np.float64],
    queries: NDArray[np.float64],
    low: float,
    high: float,
    scale: float,
) -> NDArray[np.int64]:
    def cell(values: NDArray[np.float64]) -> NDArray[np.int32]:
        scaled = np.clip(values, low, high)
        scaled -= low
        scaled *= scale
        return scaled.astype(np.int32)

    # first[c] entries lie in cells before c, and least[c] is the next; inf if c is empty.
    occupied = np.bincount(cell(ordered), minlength=_GUIDE_CELLS)
    first = np.cumsum(occupied) - occupied
    least = np.append(ordered, np.inf)[np.where(occupied > 0, first, ordered.size)]
    cells = cell(queries)
    below = first[cells]
    undecided = np.flatnonzero(queries > least[cells])
    below[undecided] = np.searchsorted(ordered, queries[undecided], side="left")
    return below


class RankHistogram:
    """How often each rank occurs at one agent; a step-up needs nothing else.

    Parameters
    ----------
    ranks : int array of shape (m,)
        Conformal ranks between 1 and ``n_calibration + 1``.
    n_calibration : int
        Size ℓ of the calibration sample they refer to.
    """

    def __init__(self, ranks: NDArray[np.int64], n_calibration: int) -> None:
        if ranks.size < n_calibration:
            self._set(*np.unique(ranks, return_counts=True), n_calibration)
        else:
            histogram = np.bincount(ranks)
            values = np.flatnonzero(histogram)
            self._set(values, histogram[values], n_calibration)

    @classmethod
    def of_counts(cls, counts: NDArray[np.int64], n_calibration: int) -> RankHistogram:
        """Make a histogram from the number of times each rank occurs, rank 0 first.

        Examples
        --------
        >>> RankHistogram.of_counts(np.array([0, 2, 1, 4]), n_calibration=2).at_most(2)
        3
        """
        values = np.flatnonzero(counts)
        return cls.of_pairs(values, counts[values], n_calibration)

    @classmethod
    def of_pairs(
        cls, values: NDArray[np.int64], counts: NDArray[np.int64], n_calibration: int
    ) -> RankHistogram:
        """Make a histogram from ranks in increasing order and how often each occurs.

        Examples
        --------
        >>> RankHistogram.of_pairs(np.array([1, 3]), np.array([2, 4]), n_calibration=2).at_most(2)
        2
        """
        histogram = cls.__new__(cls)
        histogram._set(values, counts, n_calibration)
        return histogram

    def _set(
        self, values: NDArray[np.int64], counts: NDArray[np.int64], n_calibration: int
    ) -> None:
        self.n_calibration = n_calibration
        self.size = int(counts.sum())
        self._values = values
        self._cumulative = np.concatenate([[0], np.cumsum(counts)])

    def adjusted(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the ranks that occur, and the adjusted p-value of each (`adjusted_pvalues`)."""
        scaled = (self._values * self.size) / ((self.n_calibration + 1) * self._cumulative[1:])
        return self._values, np.minimum.accumulate(scaled[::-1])[::-1]

    def smallest(self, k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the k-th smallest rank for every k from 1 to the number of ranks."""
        return np.asarray(self._values[np.searchsorted(self._cumulative[1:], k)])

    def at_most(self, rank: int) -> int:
        """Count the ranks that are at most `rank`."""
        return int(self._cumulative[np.searchsorted(self._values, rank, side="right")])

    def pairs(self, most: int) -> list[tuple[int, int]]:
        """Return the ranks up to `most` that occur, ascending, with how often each occurs.

        Examples
        --------
        >>> RankHistogram(np.array([3, 1, 3]), n_calibration=4).pairs(3)
        [(1, 1), (3, 2)]
        """
        n = int(np.searchsorted(self._values, most, side="right"))
        times = np.diff(self._cumulative[: n + 1])
        return list(zip(self._values[:n].tolist(), times.tolist(), strict=True))

    def below(self, p_value: Fraction) -> int:
        """Count the p-values strictly below `p_value`, exactly."""
        return self.at_most(math.ceil(p_value * (self.n_calibration + 1)) - 1)


def rank_limit(slope: Fraction, k: int, n_calibration: int) -> int:
    """Largest rank that BH rejects when it rejects `k` in all: floor(slope·k·(ℓ+1)).

    `slope` is α/m, or α divided by the estimated number of nulls. Python integers do not
    overflow, so m and ℓ may be of any size.
    """
    return slope.numerator * int(k) * (int(n_calibration) + 1) // slope.denominator


def first_k(slope: Fraction, rank: int, n_calibration: int) -> int:
    """Smallest k whose limit admits a rank: the inverse of :func:`rank_limit`.

    Examples
    --------
    >>> k = first_k(Fraction(1, 50), 6, 99)
    >>> k, rank_limit(Fraction(1, 50), k, 99), rank_limit(Fraction(1, 50), k - 1, 99)
    (3, 6, 4)
    """
    return -(-rank * slope.denominator // (slope.numerator * (int(n_calibration) + 1)))


def within_limit(ranks: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Return which ranks are rejected; a row that is not tested has rank 0.

    Examples
    --------
    >>> within_limit(np.array([0, 1, 2, 3]), 2)
    array([False,  True,  True, False])
    """
    return np.asarray((ranks >= 1) & (ranks <= limit))


def as_block(ranks: ArrayLike, n_calibration: int) -> tuple[NDArray[np.int64], int]:
    """Check one block: integer ranks between 1 and ℓ + 1."""
    array = as_array(ranks, "ranks")
    if array.ndim != 1:
        raise SampleError(f"ranks must have one dimension, not shape {array.shape}")
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"ranks must be integers, not {array.dtype}: see conformal_ranks")
    size = as_array(n_calibration, "n_calibration")
    if size.ndim != 0 or size.dtype.kind not in "iu" or size < 1:
        raise SampleError(f"n_calibration must be a positive integer, not {n_calibration!r}")
    largest = int(size) + 1
    if array.size and (array.min() < 1 or array.max() > largest):
        raise InputError(
            f"ranks must lie between 1 and n_calibration + 1 = {largest},"
            f" not between {array.min()} and {array.max()}"
        )
    return array.astype(np.int64, copy=False), largest - 1


def as_ranks(
    ranks: ArrayLike, n_calibration: int | ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Check ranks with their calibration sizes, one for all tests or one per test."""
    sizes = as_array(n_calibration, "n_calibration")
    ranks = as_array(ranks, "ranks")
    if ranks.size == 0:
        raise SampleError("there is nothing to test: ranks is empty")
    if sizes.ndim == 0:
        array, size = as_block(ranks, n_calibration)  # type: ignore[arg-type]
        return array, np.full(array.size, size, dtype=np.int64)
    if sizes.shape != np.shape(ranks) or sizes.dtype.kind not in "iu" or sizes.min() < 1:
        raise SampleError(
            "n_calibration must be one positive integer, or one per rank"
            f" (shape {np.shape(ranks)}), not {sizes.dtype} of shape {sizes.shape}"
        )
    array, _ = as_block(ranks, int(sizes.max()))
    sizes = sizes.astype(np.int64, copy=False)
    if np.any(array > sizes + 1):
        raise InputError("a rank exceeds its own n_calibration + 1")
    return array, sizes


ENOUGH = 10  # draws at least as extreme as the observed order, after which no more are made


class Draws(NamedTuple):
    """What the permutations gave.

    Attributes
    ----------
    p_value : Fraction
        Of the largest of all statistics.
    adjusted : float array of shape (d,)
        Of each statistic, adjusted for the number of statistics (single-step max-T).
    n_draws : int
        How many permutations were drawn.
    """

    p_value: Fraction
    adjusted: NDArray[np.float64]
    n_draws: int


def permutation_p_value(
    observed: NDArray[np.float64], draw: Callable[[], float], most: int
) -> Draws:
    """Compare statistics with the largest statistic of random permutations.

    Draws stop once :data:`ENOUGH` of them were at least as large as the largest observed
    statistic: samples without anything to be seen cost a few draws only. The p-value is then h/B
    with h = 10 and B draws, and otherwise (1 + exceedances)/(1 + B): Besag and Clifford (1991).
    See docs/theory.md, "The check of the known normals".

    Parameters
    ----------
    observed : float array of shape (d,)
        The statistics of the observed order.
    draw : callable
        Gives the largest of the d statistics of one random permutation.
    most : int
        The largest number of draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> permutation_p_value(np.array([9.0, 0.1]), rng.normal, 99).p_value
    Fraction(1, 100)
    """
    largest = observed.max(initial=-np.inf)
    reached = 0
    drawn: list[float] = []
    while len(drawn) < most and reached < ENOUGH:
        drawn.append(draw())
        reached += drawn[-1] >= largest
    n = len(drawn)
    p_value = Fraction(ENOUGH, n) if reached == ENOUGH else Fraction(1 + reached, 1 + n)
    above = n - np.searchsorted(np.sort(drawn), observed)  # draws at least as large
    adjusted = np.maximum((1 + above) / (1 + n), float(p_value))
    return Draws(p_value, np.minimum(adjusted, 1.0), n)

"""The Benjamini-Hochberg step-up on integer ranks, at one site and between many.

Every decision is one integer comparison. With the level α held as a fraction, a rank r
among ℓ calibration scores is rejected together with k - 1 others iff

    r / (ℓ + 1)  <=  α k / m        i.e.        r  <=  floor(α k (ℓ + 1) / m),

and :func:`rank_limit` is the only place where that is computed. BH rejects the largest k
for which k ranks stay within their limit. FastLSU (Madar and Batista 2016) finds it from
above: start at k = m, count, lower k to the count, until it stays. Agents only exchange
the counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.checks import as_array, as_whole
from conovel.errors import (
    GuaranteeWarning,
    InputError,
    ResolutionWarning,
    SampleError,
)
from conovel.levels import Level, as_level
from conovel.pi0 import NullProportion, as_estimator
from conovel.ranks import as_scores


@dataclass(frozen=True, eq=False)
class StepUp:
    """What a step-up decided, and how it got there.

    Attributes
    ----------
    n_rejected : int
        Rejections over all blocks.
    rejected : tuple of bool arrays
        One mask per block; empty where only counts were given.
    counts : tuple of tuples of int
        For every round, the count each block reported.
    limits : tuple of int
        The largest rejected rank allowed in each block (blocks of one calibration size).
    level : Fraction
        The level α.
    pi0 : Fraction or None
        The estimated proportion of nulls, when one was used.
    """

    n_rejected: int
    rejected: tuple[NDArray[np.bool_], ...]
    counts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    level: Fraction
    pi0: Fraction | None

    @property
    def rounds(self) -> int:
        """Number of rounds of counts until the fixed point."""
        return len(self.counts)


class Resolution(NamedTuple):
    """What a calibration size can resolve among m tests, before any row is looked at."""

    fewest: int  # the fewest rows that can be rejected together; above m: none ever
    rows_for_any: int  # calibration rows needed for any rejection at all
    rows_for_one: int  # calibration rows needed to be able to reject a single row


class RankHistogram:
    """The ranks of one agent, as counts: all that a step-up ever asks for.

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
        """Make one from how often each rank occurs, rank 0 first.

        Examples
        --------
        >>> RankHistogram.of_counts(np.array([0, 2, 1, 4]), n_calibration=2).at_most(2)
        3
        """
        histogram = cls.__new__(cls)
        values = np.flatnonzero(counts)
        histogram._set(values, counts[values], n_calibration)
        return histogram

    def _set(
        self, values: NDArray[np.int64], counts: NDArray[np.int64], n_calibration: int
    ) -> None:
        self.n_calibration = n_calibration
        self.size = int(counts.sum())
        self._values = values
        self._cumulative = np.concatenate([[0], np.cumsum(counts)])

    def adjusted(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Give the ranks that occur, and the adjusted p-value of each (`adjusted_pvalues`)."""
        scaled = (self._values * self.size) / ((self.n_calibration + 1) * self._cumulative[1:])
        return self._values, np.minimum.accumulate(scaled[::-1])[::-1]

    def smallest(self, k: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the k-th smallest rank for every k from 1 to the number of ranks."""
        return np.asarray(self._values[np.searchsorted(self._cumulative[1:], k)])

    def at_most(self, rank: int) -> int:
        """Count the ranks that are at most `rank`."""
        return int(self._cumulative[np.searchsorted(self._values, rank, side="right")])

    def below(self, p_value: Fraction) -> int:
        """Count the p-values strictly below `p_value`, exactly."""
        return self.at_most(math.ceil(p_value * (self.n_calibration + 1)) - 1)


def rank_limit(slope: Fraction, k: int, n_calibration: int) -> int:
    """Largest rank that BH rejects when it rejects `k` in all: floor(slope·k·(ℓ+1)).

    `slope` is α/m, or α divided by the estimated number of nulls. Python integers do not
    overflow, so any m and ℓ will do.
    """
    return slope.numerator * int(k) * (int(n_calibration) + 1) // slope.denominator


def benjamini_hochberg(
    ranks: ArrayLike,
    n_calibration: int | ArrayLike,
    level: Level,
    *,
    pi0: str | NullProportion | None = None,
) -> NDArray[np.bool_]:
    """Benjamini-Hochberg on conformal ranks, exact.

    Parameters
    ----------
    ranks : int array of shape (m,)
        Conformal ranks, see :func:`conovel.conformal_ranks`.
    n_calibration : int, or int array of shape (m,)
        Calibration size ℓ, one for all tests or one per test.
    level : float, str or Fraction
        Target false discovery rate.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls; None is plain BH.

    Returns
    -------
    bool array of shape (m,)
        True where the row is declared a novelty.

    Examples
    --------
    >>> benjamini_hochberg([1, 1, 2, 9, 20], n_calibration=19, level=0.2)
    array([ True,  True,  True, False, False])
    """
    ranks, sizes = as_ranks(ranks, n_calibration)
    if sizes.min() == sizes.max():
        return fast_lsu([(ranks, int(sizes[0]))], level, pi0=pi0).rejected[0]
    # Tests with equal ℓ form a block; FastLSU does not mind how tests are partitioned.
    order = np.argsort(sizes, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1)
    blocks = [(ranks[i], int(sizes[i[0]])) for i in members]
    outcome = fast_lsu(blocks, level, pi0=pi0)
    rejected = np.zeros(ranks.size, dtype=np.bool_)
    for i, mask in zip(members, outcome.rejected, strict=True):
        rejected[i] = mask
    return rejected


def fast_lsu(
    blocks: Sequence[tuple[ArrayLike, int]],
    level: Level,
    *,
    pi0: str | NullProportion | None = None,
) -> StepUp:
    """Benjamini-Hochberg over blocks of tests that only exchange counts (FastLSU).

    The result is that of :func:`benjamini_hochberg` on all tests together, whatever the
    partition into blocks.

    Parameters
    ----------
    blocks : sequence of (ranks, n_calibration)
        One pair per agent. A block may be empty, but not all of them.
    level : float, str or Fraction
        Target false discovery rate over all blocks together.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls, from counts alone.

    Returns
    -------
    StepUp

    Examples
    --------
    >>> outcome = fast_lsu([([1, 1, 12], 19), ([2, 30], 39)], level=0.2)
    >>> outcome.n_rejected, outcome.rounds, outcome.counts
    (3, 2, ((2, 1), (2, 1)))
    """
    alpha = as_level(level)
    estimator = as_estimator(pi0)
    pairs = [as_block(*pair) for pair in _as_pairs(blocks)]
    m = sum(ranks.size for ranks, _ in pairs)
    if m == 0:
        raise SampleError("there is nothing to test: every block is empty")
    sizes = [size for ranks, size in pairs if ranks.size]
    if estimator is not None and len(sizes) > 1 and not estimator.proven_for_several:
        warnings.warn(
            f"{type(estimator).__name__} is proven for one site only, not for {len(sizes)}:"
            " use pi0='storey', which is proven for several",
            GuaranteeWarning,
            stacklevel=2,
        )
    outcome = step_up(pairs, alpha, estimator)
    if outcome.n_rejected == 0:  # an estimate below m can make up for too few rows
        warn_resolution([(ranks.size, size) for ranks, size in pairs], alpha)
    return outcome


def _as_pairs(blocks: Any) -> list[tuple[Any, Any]]:
    try:
        return [(ranks, size) for ranks, size in blocks]
    except (TypeError, ValueError):
        raise InputError("blocks must be a list of pairs (ranks, n_calibration)") from None


def step_up(
    blocks: Sequence[tuple[NDArray[np.int64], int]],
    level: Fraction,
    estimator: NullProportion | None = None,
) -> StepUp:
    """Do the work of :func:`fast_lsu` on checked blocks, without warnings."""
    outcome = step_up_counts([RankHistogram(*block) for block in blocks], level, estimator)
    rejected = tuple(
        ranks <= limit for (ranks, _), limit in zip(blocks, outcome.limits, strict=True)
    )
    return replace(outcome, rejected=rejected)


def step_up_counts(
    histograms: Sequence[RankHistogram],
    level: Fraction,
    estimator: NullProportion | None = None,
) -> StepUp:
    """Do the step-up on counts alone; the rows to reject are those up to their limit."""
    m = sum(h.size for h in histograms)
    nulls = Fraction(m)
    if estimator is not None:
        sizes = [h.n_calibration for h in histograms if h.size]
        nulls = estimator.null_count(lambda p: [h.below(p) for h in histograms], sizes, m)
    counts, limits = descend(histograms, level / nulls)
    return StepUp(
        n_rejected=sum(counts[-1]),
        rejected=(),
        counts=counts,
        limits=limits,
        level=level,
        pi0=None if estimator is None else nulls / m,
    )


def descend(
    histograms: Sequence[RankHistogram], slope: Fraction
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Lower k from m to the count of ranks within their limits, until it stays (FastLSU).

    Returns the counts of every round and the final limits. The map from k to the count is
    nondecreasing, so the descent stops at its greatest fixed point, which is BH's k.
    """
    k = sum(h.size for h in histograms)
    rounds: list[tuple[int, ...]] = []
    while not rounds or sum(rounds[-1]) != k:
        k = sum(rounds[-1]) if rounds else k
        limits = tuple(rank_limit(slope, k, h.n_calibration) for h in histograms)
        rounds.append(tuple(h.at_most(r) for h, r in zip(histograms, limits, strict=True)))
    return tuple(rounds), limits


def reject(
    calibration_scores: ArrayLike, test_scores: ArrayLike, level: Level
) -> NDArray[np.bool_]:
    """Decide straight from scores: the mask of BH on the ranks, without any p-value.

    A rank is at most r iff the score exceeds the r-th largest calibration score, so that
    every round of the step-up is one comparison of the scores still in question.

    Parameters
    ----------
    calibration_scores : array of shape (ℓ,)
        Scores of known normals.
    test_scores : array of shape (m,)
        Scores of the rows to test; higher is more novel.
    level : float, str or Fraction
        Target false discovery rate.

    Returns
    -------
    bool array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> reject(np.arange(99), [200.0, 150.5, 98.5, 97.0, 12.0], level=0.1)
    array([ True,  True,  True,  True, False])
    """
    alpha = as_level(level)
    calibration = as_scores(calibration_scores, "calibration_scores")
    tests = as_scores(test_scores, "test_scores")
    # One dtype for both, the one in which conformal_ranks compares them.
    common = np.result_type(calibration, tests)
    calibration, tests = calibration.astype(common, copy=False), tests.astype(common, copy=False)
    n_calibration, m = calibration.size, tests.size
    warn_resolution([(m, n_calibration)], alpha)
    slope = alpha / m
    most = rank_limit(slope, m, n_calibration)  # at most α(ℓ+1) <= ℓ
    if most == 0:
        return np.zeros(m, dtype=np.bool_)
    # Only the `most` largest calibration scores can ever be the threshold.
    largest = np.sort(np.partition(calibration, n_calibration - most)[n_calibration - most :])
    candidates, k = tests, m
    while (limit := rank_limit(slope, k, n_calibration)) > 0:
        threshold = largest[most - limit]
        candidates = candidates[candidates > threshold]
        if candidates.size == k:
            return np.asarray(tests > threshold)
        k = candidates.size
    return np.zeros(m, dtype=np.bool_)


def adjusted_pvalues(ranks: ArrayLike, n_calibration: int | ArrayLike) -> NDArray[np.float64]:
    """BH-adjusted p-values: the smallest level at which each row is rejected ("q-value").

    Parameters
    ----------
    ranks : int array of shape (m,)
        Conformal ranks.
    n_calibration : int, or int array of shape (m,)
        Calibration size ℓ, one for all tests or one per test.

    Returns
    -------
    float64 array of shape (m,)
        At most 1.

    Examples
    --------
    >>> adjusted_pvalues([1, 1, 2, 9, 20], n_calibration=19)
    array([0.125     , 0.125     , 0.16666667, 0.5625    , 1.        ])
    """
    ranks, sizes = as_ranks(ranks, n_calibration)
    m = ranks.size
    # Quotients of integers below 2**53 are rounded correctly: equal p-values give equal
    # floats and, for ℓ below 9e7, different ones different floats.
    order = np.argsort(ranks / (sizes + 1), kind="stable")
    steps = np.arange(1, m + 1)
    scaled = (ranks[order] * m) / ((sizes[order] + 1) * steps)
    adjusted = np.empty(m)
    adjusted[order] = np.minimum.accumulate(scaled[::-1])[::-1]
    return adjusted


def resolution(n_calibration: int, m: int, level: Level) -> Resolution:
    """Tell how finely ℓ calibration rows can resolve m tests at this level.

    Examples
    --------
    >>> resolution(166, 999, 0.1)
    Resolution(fewest=60, rows_for_any=9, rows_for_one=9989)
    """
    alpha = as_level(level)
    n_calibration, m = as_whole(n_calibration, "n_calibration"), as_whole(m, "m")
    return Resolution(
        fewest=math.ceil(m / (alpha * (n_calibration + 1))),
        rows_for_any=math.ceil(1 / alpha) - 1,
        rows_for_one=math.ceil(m / alpha) - 1,
    )


def warn_resolution(blocks: Sequence[tuple[int, int]], level: Fraction) -> None:
    """Warn when no rejection is possible even if every row had rank 1.

    Parameters
    ----------
    blocks : sequence of (n_tests, n_calibration)
        What is decided together.
    level : Fraction
    """
    m = best = sum(n_tests for n_tests, _ in blocks)
    last = -1
    while best != last:  # the step-up of ranks that are all 1
        last = best
        best = sum(n for n, size in blocks if rank_limit(level / m, last, size) >= 1)
    if best == 0:
        most = max(size for n, size in blocks if n)
        need = resolution(most, m, level)
        warnings.warn(
            f"no row can be rejected at level {level}: p-values are at least 1/{most + 1}, from"
            f" {most} calibration rows. At least {need.rows_for_any} calibration rows are needed,"
            f" and {need.rows_for_one} to be able to reject a single one of {m} rows:"
            " add known normals or lower train_fraction",
            ResolutionWarning,
            stacklevel=3,
        )


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

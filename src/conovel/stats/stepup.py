"""The Benjamini-Hochberg step-up on integer ranks, at one site and between many.

Every decision is one integer comparison. With the level α held as a fraction, a rank r
among ℓ calibration scores is rejected together with k - 1 others iff

    r / (ℓ + 1)  <=  α k / m        i.e.        r  <=  floor(α k (ℓ + 1) / m),

and `rank_limit` (:mod:`conovel.stats.ranks`) is the only place where that is computed.
BH rejects the largest k for which k ranks stay within their limit. FastLSU (Madar and Batista
2016) finds it from above: start at k = m, count, lower k to the count, until it stays. Agents
only exchange the counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import GuaranteeWarning, InputError, SampleError
from conovel.stats.levels import Level, as_level, as_liars
from conovel.stats.null_proportion import NullProportion, as_estimator
from conovel.stats.ranks import as_block, as_ranks, as_scores
from conovel.stats.resolution import rank_limit, warn_resolution


@dataclass(frozen=True, eq=False, repr=False)
class StepUp:
    """The decisions of a step-up, and the counts that led to them.

    Attributes
    ----------
    n_rejected : int
        Rejections over all blocks, those that are claimed by liars included.
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

    See Also
    --------
    conovel.fast_lsu : Makes it from ranks.
    conovel.Detection : Holds the one of a detection.
    """

    n_rejected: int
    rejected: tuple[NDArray[np.bool_], ...]
    counts: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    level: Fraction
    pi0: Fraction | None

    def __repr__(self) -> str:
        return f"<StepUp: {self.n_rejected:,} rejected, level {self.level}>"

    @property
    def rounds(self) -> int:
        """Number of rounds of counts until the fixed point."""
        return len(self.counts)


def benjamini_hochberg(
    ranks: ArrayLike,
    n_calibration: int | ArrayLike,
    level: Level,
    *,
    pi0: str | NullProportion | None = None,
) -> NDArray[np.bool_]:
    """Benjamini-Hochberg on conformal ranks, exact.

    Proof: Theorem 2 (docs/theory.md#thm-main), Theorem 4 (docs/theory.md#thm-fastlsu).

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
    # Tests with equal ℓ form a block. Any partition into blocks gives the same result.
    order = np.argsort(sizes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1)
    blocks = [(ranks[i], int(sizes[i[0]])) for i in groups]
    outcome = fast_lsu(blocks, level, pi0=pi0)
    rejected = np.zeros(ranks.size, dtype=np.bool_)
    for i, mask in zip(groups, outcome.rejected, strict=True):
        rejected[i] = mask
    return rejected


def fast_lsu(
    blocks: Sequence[tuple[ArrayLike, int]],
    level: Level,
    *,
    pi0: str | NullProportion | None = None,
    liars: int = 0,
) -> StepUp:
    """Benjamini-Hochberg over blocks of tests that only exchange counts (FastLSU).

    The result is that of :func:`benjamini_hochberg` on all tests together, whatever the
    partition into blocks. With `liars`, the limits follow from the sum of all counts but the
    largest ones: if at most so many blocks lie, the false discovery rate over the rows of the
    other blocks keeps its bound.

    Proof: Theorem 4 (docs/theory.md#thm-fastlsu), Theorem 17 (docs/theory.md#thm-liars).

    Parameters
    ----------
    blocks : sequence of (ranks, n_calibration)
        One pair per agent. A block may be empty, but not all of them.
    level : float, str or Fraction
        Target false discovery rate over all blocks together.
    pi0 : None, "storey", "quantile", Storey or Quantile
        Adapt to the proportion of nulls, from counts alone.
    liars : int
        How many blocks may lie about their counts: fewer than there are blocks. Not with
        ``pi0="quantile"``.

    Returns
    -------
    StepUp

    Examples
    --------
    >>> outcome = fast_lsu([([1, 1, 12], 19), ([2, 30], 39)], level=0.2)
    >>> outcome.n_rejected, outcome.rounds, outcome.counts
    (3, 2, ((2, 1), (2, 1)))

    The third block claims that all of its rows have rank 1:

    >>> blocks = [([1, 1, 12], 99), ([2, 30], 99), ([1] * 5, 99)]
    >>> fast_lsu(blocks, level=0.2).limits, fast_lsu(blocks, level=0.2, liars=1).limits
    ((18, 18, 18), (6, 6, 6))
    """
    alpha = as_level(level)
    estimator = as_estimator(pi0)
    pairs = [as_block(*pair) for pair in _as_pairs(blocks)]
    liars = as_liars(liars, max(len(pairs), 1))
    if liars and estimator is not None and not estimator.proven_for_several:
        raise InputError(
            f"pi0={type(estimator).__name__.lower()!r} is not proven where blocks may lie: use"
            " pi0='storey', or take liars=0"
        )
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
    outcome = step_up(pairs, alpha, estimator, liars)
    if outcome.n_rejected == 0:  # if rows were rejected, the resolution was fine enough
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
    liars: int = 0,
) -> StepUp:
    """Do the work of :func:`fast_lsu` on checked blocks, without warnings."""
    histograms = [RankHistogram(*block) for block in blocks]
    outcome = step_up_counts(histograms, level, estimator, liars)
    rejected = tuple(
        within_limit(ranks, limit)
        for (ranks, _), limit in zip(blocks, outcome.limits, strict=True)
    )
    return replace(outcome, rejected=rejected)


def step_up_counts(
    histograms: Sequence[RankHistogram],
    level: Fraction,
    estimator: NullProportion | None = None,
    liars: int = 0,
) -> StepUp:
    """Do the step-up on counts alone; rows with ranks up to their limit are rejected.

    Proof: Theorem 2 (docs/theory.md#thm-main), Lemma 7 (docs/theory.md#lem-adaptive).
    """
    m = sum(h.size for h in histograms)
    nulls = Fraction(m)
    if estimator is not None:
        sizes = [h.n_calibration for h in histograms if h.size]
        nulls = estimator.null_count(lambda p: [h.below(p) for h in histograms], sizes, m)
    counts, limits = descend(histograms, level / nulls, liars)
    return StepUp(
        n_rejected=sum(counts[-1]),
        rejected=(),
        counts=counts,
        limits=limits,
        level=level,
        pi0=None if estimator is None else nulls / m,
    )


def descend(
    histograms: Sequence[RankHistogram], slope: Fraction, liars: int = 0
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Lower k from m to the count of ranks within their limits, until it stays (FastLSU).

    Returns the counts of every round and the final limits. The map from k to the count is
    nondecreasing, so the descent stops at its greatest fixed point, which is BH's k. With
    `liars`, the count leaves out the largest ones (:func:`conovel.stats.stepup.least_total`).

    Proof: Theorem 4 (docs/theory.md#thm-fastlsu), Theorem 17 (docs/theory.md#thm-liars).
    """
    k, last = sum(h.size for h in histograms), -1
    rounds: list[tuple[int, ...]] = []
    while k != last:
        limits = tuple(rank_limit(slope, k, h.n_calibration) for h in histograms)
        rounds.append(tuple(h.at_most(r) for h, r in zip(histograms, limits, strict=True)))
        last, k = k, least_total(rounds[-1], liars)
    return tuple(rounds), limits


def reject(
    calibration_scores: ArrayLike, test_scores: ArrayLike, level: Level
) -> NDArray[np.bool_]:
    """Decide from scores: the same mask as BH on the ranks, without computing ranks.

    A rank is at most r iff the score exceeds the r-th largest calibration score, so that
    every round of the step-up is one comparison of the scores still in question.

    Proof: Theorem 4 (docs/theory.md#thm-fastlsu).

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


class RankHistogram:
    """How often each rank occurs at one agent; a step-up needs nothing else.

    The ranks lie between 1 and ``n_calibration + 1``.
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
        """Make a histogram from the number of times each rank occurs, rank 0 first."""
        values = np.flatnonzero(counts)
        return cls.of_pairs(values, counts[values], n_calibration)

    @classmethod
    def of_pairs(
        cls, values: NDArray[np.int64], counts: NDArray[np.int64], n_calibration: int
    ) -> RankHistogram:
        """Make a histogram from ranks in increasing order and how often each occurs."""
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
        """Count the ranks that are at most `rank`.

        Proof: Theorem 4 (docs/theory.md#thm-fastlsu).
        """
        return int(self._cumulative[np.searchsorted(self._values, rank, side="right")])

    def totals(self) -> NDArray[np.int64]:
        """Count the ranks that are at most 1, 2, ..., ℓ + 1."""
        ranks = np.arange(1, self.n_calibration + 2)
        return np.asarray(self._cumulative[np.searchsorted(self._values, ranks, side="right")])

    def pairs(self, most: int) -> list[tuple[int, int]]:
        """Return the ranks up to `most` that occur, ascending, with how often each occurs."""
        n = int(np.searchsorted(self._values, most, side="right"))
        times = np.diff(self._cumulative[: n + 1])
        return list(zip(self._values[:n].tolist(), times.tolist(), strict=True))

    def below(self, p_value: Fraction) -> int:
        """Count the p-values strictly below `p_value`, exactly."""
        return self.at_most(math.ceil(p_value * (self.n_calibration + 1)) - 1)


def within_limit(ranks: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Return which ranks are rejected; a row that is not tested has rank 0.

    Proof: Theorem 2 (docs/theory.md#thm-main).
    """
    return np.asarray((ranks >= 1) & (ranks <= limit))


def least_total(counts: Sequence[int], liars: int) -> int:
    """Add up all counts but the `liars` largest.

    Proof: Theorem 17 (docs/theory.md#thm-liars).
    """
    return sum(sorted(counts)[: len(counts) - liars])

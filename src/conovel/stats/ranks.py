"""Conformal ranks: where a test score falls among the calibration scores.

A higher score is more novel, everywhere in conovel. The rank of a test score ``s`` is
``1 + #{calibration scores >= s}``, so that ties count against the test row; dividing by
ℓ + 1 gives the conformal p-value (the paper's empirical p-value).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError

# From this many queries on, a guide table saves time (benchmarks/statistics.py).
_GUIDE_QUERIES = 20_000
_GUIDE_CELLS = 1 << 18


def conformal_ranks(calibration_scores: ArrayLike, test_scores: ArrayLike) -> NDArray[np.int64]:
    """Rank each test score among the calibration scores, ties against the test row.

    Proof: Lemma 2 (docs/theory.md#lem-ranks).

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


def break_ties(scores: NDArray[Any], seed: int) -> NDArray[np.int64]:
    """Give each row its place in the order of the scores, equal scores in random order.

    Which of two rows with equal scores comes first follows from the seed and from where the rows
    stand alone. Nothing may have been decided by the same seed.

    Proof: Corollary 6 (docs/theory.md#cor-ties).

    Examples
    --------
    >>> break_ties(np.array([0.5, 0.1, 0.5, 0.9]), seed=0)
    array([2, 0, 1, 3])
    """
    lots = np.random.default_rng(seed).permutation(scores.size)
    places = np.empty(scores.size, dtype=np.int64)
    places[np.lexsort((lots, scores))] = np.arange(scores.size)
    return places


def count_below(ordered: NDArray[Any], queries: NDArray[Any]) -> NDArray[np.int64]:
    """Count the entries of `ordered` (ascending) strictly below each query.

    Equal to ``np.searchsorted(ordered, queries)``. Many queries first go through a guide
    table: the range is cut into equal cells, and a query that is not above the smallest
    entry of its cell is answered by the cell alone. The map from values to cells is monotone
    in floating point too, so the answer is exact, and only the other queries are searched for.

    Proof: Lemma 2 (docs/theory.md#lem-ranks).
    """
    if queries.size >= _GUIDE_QUERIES and queries.dtype == ordered.dtype == np.float64:
        # The outer 2 % on each side share the end cells, so heavy tails do not stretch the rest.
        trim = ordered.size // 50
        low, high = float(ordered[trim]), float(ordered[-1 - trim])
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = (_GUIDE_CELLS - 1) / np.float64(high - low)
        # Infinite when the range is a point or subnormal, 0 when it is infinite or overflows.
        if np.isfinite(scale) and scale > 0:
            return guided_count_below(ordered, queries, low, high, float(scale))
    return np.searchsorted(ordered, queries, side="left").astype(np.int64, copy=False)


def guided_count_below(
    ordered: NDArray[np.float64],
    queries: NDArray[np.float64],
    low: float,
    high: float,
    scale: float,
) -> NDArray[np.int64]:
    """Count by the guide table: cells of equal width between `low` and `high`."""

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


def as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Convert to an array of any shape and type."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise SampleError(
            f"{name} cannot become an array: its parts have different lengths"
        ) from None

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
from conovel.stats.arguments import as_array

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

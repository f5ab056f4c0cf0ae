"""Columns as small integers, computed once for all fits on the same rows.

A bin is a range of values of one column, and a split of a tree falls between two bins. Bins are
a function of the rows as a multiset: neither their order nor the role of a row matters. They
are narrow in the tails, where novelties lie, and a value that many rows share has a bin of its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from conovel.errors import InputError
from conovel.scorers.base import Matrix, Vector
from conovel.stats.levels import as_whole

Places: TypeAlias = Literal["value", "normal", "bin"]

MOST_BINS = 255


@dataclass(frozen=True, eq=False)
class Bins:
    """The rows of a training set in bins.

    Attributes
    ----------
    edges : tuple of arrays
        Increasing edges of each column. A value is in bin c if c edges lie below it.
    columns : uint8 array of shape (d, n)
        The bin of each value.
    places : array of shape (d, 256)
        Where on its axis each bin stands, for thresholds that are drawn.

    Examples
    --------
    >>> bins = Bins.of(np.array([[1.0], [3.0], [3.0], [9.0]]))
    >>> bins.edges[0], bins.columns[0]
    (array([2., 6.]), array([0, 1, 1, 2], dtype=uint8))
    """

    edges: tuple[Vector, ...]
    columns: NDArray[np.uint8]
    places: Matrix

    @classmethod
    def of(cls, rows: Matrix, most: int = MOST_BINS, places: Places = "value") -> Bins:
        """Put rows in bins.

        Parameters
        ----------
        rows : array of shape (n, d)
            Finite numbers.
        most : int
            Largest number of bins of a column, from 2 to 255.
        places : {"value", "normal", "bin"}
            The axis on which thresholds are drawn: the values themselves, the normal
            quantiles of their ranks, or the numbers of the bins. The last two ignore how far
            away an extreme value lies.

        Returns
        -------
        Bins
        """
        most = as_whole(most, "most", 2, MOST_BINS)
        if places not in ("value", "normal", "bin"):
            raise InputError(f"places must be 'value', 'normal' or 'bin', not {places!r}")
        n, d = rows.shape
        edges, axes, codes = [], np.zeros((d, MOST_BINS + 1)), np.empty((d, n), np.uint8)
        columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        lengths, numbers = _lengths(n), np.arange(MOST_BINS + 1, dtype=np.uint8)
        for column, axis, values in zip(codes, axes, columns, strict=True):
            order = np.argsort(values)
            inner, lowest, bounds = _bins_of_column(values[order], most, lengths)
            edges.append(inner)
            size = lowest.size
            column[order] = np.repeat(numbers[:size], bounds[1:] - bounds[:-1])
            if places == "value":
                axis[:size] = lowest
            elif places == "normal":
                axis[:size] = ndtri((bounds[:-1] + bounds[1:]) / (2 * n))  # of the middle rank
            else:
                axis[:size] = np.arange(size)
        return cls(tuple(edges), codes, axes)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.columns.shape[1])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.columns.shape[0])

    def thresholds(self, feature: NDArray[np.integer], cut: NDArray[np.integer]) -> Vector:
        """Return the edge above bin `cut` of each split; 0 at a leaf, whose feature is -1."""
        starts = np.cumsum([0, *map(len, self.edges)])[:-1]
        inner = feature >= 0
        threshold = np.zeros(feature.size)
        threshold[inner] = np.concatenate(self.edges)[starts[feature[inner]] + cut[inner]]
        return threshold


def _lengths(n: int) -> Vector:
    """Return which share of the bins the first rows of a column fill, for 0 to n of them.

    Half of the bins hold equally many rows; the other half become shorter towards both ends,
    as 1 / (rows up to the end).
    """
    tails = 1 / np.minimum(np.arange(1, n + 1), np.arange(n, 0, -1))
    filled = np.cumsum(tails)
    both = (np.arange(1, n + 1) / n + filled / filled[-1]) / 2
    return np.concatenate([[0.0], both])


def _bins_of_column(
    ordered: Vector, most: int, lengths: Vector
) -> tuple[Vector, Vector, NDArray[np.intp]]:
    """Return the edges, the least value of each bin, and how many rows are before it."""
    n = ordered.size
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1  # of all distinct values but one
    if starts.size >= most:
        length = np.empty(starts.size + 1)
        length[:-1] = lengths[starts]
        length[-1] = 1.0
        length[1:] -= length[:-1].copy()
        # What would fill several bins is one.
        end = np.cumsum(np.minimum(length, 1 / most))
        middle = end[1:] + end[:-1]
        number = (middle * (most / 2 / end[-1])).astype(np.int64)
        new = np.empty(starts.size, np.bool_)
        new[0] = number[0] > 0
        new[1:] = number[1:] != number[:-1]
        starts = starts[new]
    lowest, highest = ordered[starts], ordered[starts - 1]
    edges = highest / 2 + lowest / 2
    edges = np.where(edges >= lowest, highest, edges)
    bounds = np.concatenate([[0], starts, [n]])
    return edges, ordered[bounds[:-1]], bounds


def as_integers(weights: Vector | None, n: int, largest: int = 2**31) -> NDArray[np.int64]:
    """Return weights as whole multiples of a power of two, so that their sums are exact.

    The unit is the smallest with which n of the largest weights add up to less than `largest`.
    A positive weight stays positive.

    Examples
    --------
    >>> as_integers(np.array([1.0, 0.5, 0.0]), 3, 100)
    array([16,  8,  0])
    """
    if weights is None:
        return np.ones(n, dtype=np.int64)
    scaled = np.rint(scaled_weights(weights, n, largest))
    return np.where(np.asarray(weights) > 0, np.maximum(scaled, 1), 0).astype(np.int64)


def scaled_weights(weights: Vector | None, n: int, largest: int = 2**31) -> Vector:
    """Return weights times the largest power of two with which n of them stay below `largest`."""
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        raise InputError(f"weights must be {n} finite numbers, none below 0")
    top = float(weights.max(initial=0))
    if not top:
        raise InputError("weights are all 0: at least one row must count")
    _, exponent = np.frexp(largest / n / 2)
    _, of_top = np.frexp(top)
    return np.asarray(np.ldexp(weights, int(exponent - of_top)))


def balanced(y: NDArray[np.integer], weights: Sequence[float] | Vector | None = None) -> Vector:
    """Scale weights so that both classes weigh as much in total as they have rows on average.

    Examples
    --------
    >>> balanced(np.array([0, 0, 0, 1]))
    array([0.66666667, 0.66666667, 0.66666667, 2.        ])
    """
    given = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)
    scaled = given.copy()
    used = np.count_nonzero(given > 0)
    for label in (0, 1):
        total = np.cumsum(np.sort(given[y == label]))[-1:]  # in order: not of the rows
        if total.size and total[0] > 0:
            scaled[y == label] *= used / (2 * total[0])
    return scaled

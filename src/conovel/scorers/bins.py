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
from conovel.models.kernels import bin_features
from conovel.scorers.base import Matrix, Vector
from conovel.stats.arguments import as_whole

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
        edges, axes = [], np.zeros((rows.shape[1], MOST_BINS + 1))
        for axis, values in zip(axes, np.ascontiguousarray(rows.T, dtype=np.float64), strict=True):
            inner, lowest, rank = _bins_of_column(np.sort(values), most)
            edges.append(inner)
            if places == "value":
                axis[: lowest.size] = lowest
            elif places == "normal":
                axis[: rank.size] = ndtri(rank)
            else:
                axis[: rank.size] = np.arange(rank.size)
        codes = bin_features(rows, edges)
        return cls(tuple(edges), np.ascontiguousarray(codes.T), axes)

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


def _bins_of_column(ordered: Vector, most: int) -> tuple[Vector, Vector, Vector]:
    """Return the edges, and the least value and the middle rank (in (0, 1)) of each bin."""
    n = ordered.size
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    distinct = ordered[starts]
    first = np.arange(starts.size)
    if starts.size > most:
        # Half of the bins hold equally many rows; the other half become shorter towards both
        # ends, as 1 / (rows up to the end). What fills a bin alone counts for one bin.
        to_end = np.minimum(np.arange(1, n + 1), np.arange(n, 0, -1))
        tails = 1 / to_end
        size = np.add.reduceat(1 / n + tails / np.cumsum(tails)[-1], starts)
        size = np.minimum(size, size.sum() / most)
        end = np.cumsum(size)
        number = np.minimum(np.floor((end - size / 2) * (most / end[-1])), most - 1)
        first = np.flatnonzero(np.concatenate([[True], number[1:] != number[:-1]]))
    lowest = distinct[first]
    highest = distinct[np.append(first[1:], distinct.size) - 1]
    edges = highest[:-1] / 2 + lowest[1:] / 2
    edges = np.where(edges >= lowest[1:], highest[:-1], edges)
    bounds = np.append(starts[first], n)
    return edges, lowest, (bounds[:-1] + bounds[1:]) / (2 * n)


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

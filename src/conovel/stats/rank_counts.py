"""The ranks of one agent as counts, and the limit that ranks are compared with."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.arguments import as_array


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

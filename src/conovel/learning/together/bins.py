"""Bins of columns from summed counts: quantiles of all rows, finer in the tails.

Every float64 has its place in one order of 64-bit whole numbers, its *key*. The first round counts
rows in 256 intervals of keys. Each later round divides the intervals in which a wanted quantile
lies into eight parts, as long as they hold the rows of two bins: the values of fewer rows are told
no closer. So edges are fixed fractions of the range of all numbers, and no row's own value is an
edge. Heavy tails, zeros and columns of few values need no special case.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import Matrix, Vector

N_ROUNDS = 8  # 8 + 7 · 3 = 29 bits of a key: 17 of them are digits of the number
_FIRST_BITS, _PARTS = 8, 8
_SIGN = np.uint64(1 << 63)
_N_QUANTILES = 32
# Quantiles at 0, 1, 2 and 3 standard deviations of a normal column, for its centre and unit.
NORMAL = (0.5, 0.15865525393145707, 0.022750131948179195, 0.0013498980316300933)

_N_TAILS = 24  # bins at either end, each with twice the rows of the one before
_MOST_WANTED = _N_QUANTILES + 2 * _N_TAILS + 2 * len(NORMAL)  # quantiles of a column
# Intervals of a column in one round: the parts of those that are divided, and one between each.
# In a message of 16 MiB a column may have up to 6 KB of counts if there are so many of them at
# most, or 2 KB, as in the first round, with coarse bins: eight quantiles and no tails.
MOST_FINE, _N_COARSE = 2_600, 8
MOST_COLUMNS = 8_000
MOST_INTERVALS = max(1 << _FIRST_BITS, (_PARTS + 1) * _MOST_WANTED + 1)

Keys = NDArray[np.uint64]


def keys_of(values: Matrix) -> Keys:
    """Return whole numbers in the same order as the values; 0.0 and -0.0 are one number.

    Examples
    --------
    >>> keys = keys_of(np.array([-np.inf, -1.5, -0.0, 0.0, 1e-300, 2.0]))
    >>> bool(np.all(np.diff(keys) >= 0)), bool(keys[2] == keys[3])
    (True, True)
    """
    bits = (np.ascontiguousarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def values_of(keys: Keys) -> Vector:
    """Return the value of each key."""
    bits = np.where(keys & _SIGN, keys ^ _SIGN, ~keys)
    return bits.view(np.float64)


_FARTHEST = keys_of(np.array([-1e300, 1e300]))  # between which centres and units are


@dataclass(frozen=True, eq=False)
class Bins:
    """The lowest keys of all bins of a column but the first, and its centre and unit."""

    edges: Keys
    centre: float
    unit: float

    def codes(self, keys: Keys) -> NDArray[np.int64]:
        """Return the bin of each key."""
        return np.searchsorted(self.edges, keys, side="right")


def first_cuts() -> Keys:
    """Return the inner edges of the intervals of the first round."""
    return np.arange(1, 1 << _FIRST_BITS, dtype=np.uint64) << np.uint64(64 - _FIRST_BITS)


def counts_between(cuts: Keys, keys: Keys) -> NDArray[np.int64]:
    """Count the keys in each interval between cuts."""
    places = np.searchsorted(cuts, keys, side="right")
    return np.bincount(places, minlength=cuts.size + 1).astype(np.int64)


def refined(cuts: Keys, counts: NDArray[np.int64], least: int, *, is_fine: bool = True) -> Keys:
    """Divide the intervals that hold a wanted quantile, and join the others with neighbours."""
    above = np.cumsum(counts)
    wanted = np.zeros(counts.size, dtype=np.bool_)
    wanted[np.searchsorted(above, _wanted_places(int(above[-1]), least, is_fine))] = True
    low = np.append(np.uint64(0), cuts)
    high = np.append(cuts, ~np.uint64(0))
    width = (high - low) // np.uint64(_PARTS)
    # A bin holds `least` rows. Dividing fewer than those of two bins would only tell their values.
    divided = wanted & (width > 0) & (counts >= 2 * least)
    inner = low[divided, None] + width[divided, None] * np.arange(1, _PARTS, dtype=np.uint64)
    beside = wanted[1:] | wanted[:-1]  # a cut stays if a wanted interval is at one side of it
    return np.sort(np.concatenate([cuts[beside], inner.ravel()]))


def bins_from(cuts: Keys, counts: NDArray[np.int64], least: int, *, is_fine: bool = True) -> Bins:
    """Choose the edges of a column: a bin holds at least `least` rows of all agents together."""
    above = np.cumsum(counts)
    n_rows = int(above[-1])
    at = np.searchsorted(above, _wanted_places(n_rows, least, is_fine))
    chosen: list[int] = []
    last = 0
    for place in np.unique(at[at < cuts.size]).tolist():
        if above[place] - last >= least and n_rows - above[place] >= least:
            chosen.append(place)
            last = int(above[place])
    centre, unit = _centre_and_unit(cuts, above, n_rows)
    return Bins(cuts[chosen], centre, unit)


def _wanted_places(n_rows: int, least: int, is_fine: bool) -> NDArray[np.int64]:
    """Return the places, from 1, of the rows at which a bin should end."""
    if n_rows == 0:
        return np.ones(1, dtype=np.int64)
    n_even = _N_QUANTILES if is_fine else _N_COARSE
    even = np.arange(1, n_even) * n_rows // n_even
    tails = least * 2 ** np.arange(_N_TAILS if is_fine else 0)
    tails = tails[tails < n_rows]
    normal = np.array([q for p in NORMAL for q in (p, 1 - p)]) * n_rows
    places = np.concatenate([even, tails, n_rows - tails, normal.astype(np.int64)])
    return np.unique(np.clip(places, 1, n_rows))


def _centre_and_unit(cuts: Keys, above: NDArray[np.int64], n_rows: int) -> tuple[float, float]:
    """Return the median, and the spread by the innermost quantiles that differ."""

    def quantile(share: float) -> float:
        place = int(np.searchsorted(above, min(max(int(share * n_rows), 1), n_rows)))
        # The middle of the interval in which the quantile lies. Keys beyond infinity are of no
        # number: the highest interval ends there.
        ends = cuts[max(place - 1, 0) : place + 1] if cuts.size else keys_of(np.zeros(1))
        return float(values_of(np.clip(ends, *_FARTHEST)).mean())

    centre = quantile(NORMAL[0])
    for n_units, share in enumerate(NORMAL[1:], start=1):
        spread = (quantile(1 - share) - quantile(share)) / (2 * n_units)
        # Two ends of one interval differ by its width, which is rounding and no spread.
        if spread > 1e-4 * abs(centre) + 1e-200:
            return centre, spread
    return centre, max(abs(centre), 1.0)

"""Evidence against rows that are null: e-values, their averages, and the e-BH procedure.

An e-value is a number E >= 0, large for a row that is probably novel. E_1..E_m are *compound*
e-values when the expectations of the nulls' E_i add up to at most m. e-BH at level α rejects
the k rows with the largest e-values, with k the largest number for which

    E_(k)  >=  m / (α k).

Its false discovery rate is at most α, whatever the dependence between rows (docs/theory.md).
Equality is common here too, so everything is compared in integers.

Where every null has an expectation of at most 1 by itself, closed e-BH rejects more:
:func:`closed_e_bh`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level, as_whole
from conovel.stats.ranks import as_array


@dataclass(frozen=True, eq=False)
class Evidence:
    """Exact e-values of many rows that have few different values.

    Attributes
    ----------
    values : tuple of Fraction
        The different e-values.
    codes : int array of shape (m,)
        For every row, the position of its e-value in `values`.

    Examples
    --------
    >>> Evidence((Fraction(0), Fraction(5, 2)), np.array([1, 0])).to_list()
    [Fraction(5, 2), Fraction(0, 1)]
    """

    values: tuple[Fraction, ...]
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.codes.size)

    def to_list(self) -> list[Fraction]:
        """Return the e-value of every row."""
        return [self.values[code] for code in self.codes.tolist()]


def e_bh(
    e_values: ArrayLike | Evidence, level: Level, *, denominator: int = 1
) -> NDArray[np.bool_]:
    """Reject rows by their e-values (e-BH), exactly.

    Parameters
    ----------
    e_values : array of shape (m,), or Evidence
        Compound e-values: integers, Fractions or floats. A float is read as the binary number
        that it is. Infinity is allowed.
    level : float, str or Fraction
        Target false discovery rate.
    denominator : int
        The e-values are ``e_values / denominator``, so integers over a common denominator
        stay exact.

    Returns
    -------
    bool array of shape (m,)
        True where the row is declared a novelty.

    Examples
    --------
    >>> e_bh([40, 20, Fraction(10, 3), 0], level=0.1)
    array([ True,  True, False, False])
    >>> e_bh([120, 60, 10, 0], level=0.1, denominator=3)
    array([ True,  True, False, False])
    """
    alpha = as_level(level)
    scale = as_whole(denominator, "denominator", 1)
    evidence = e_values if isinstance(e_values, Evidence) else None
    values, codes = (evidence.values, evidence.codes) if evidence else _grouped(e_values)
    m = codes.size
    if m == 0:
        raise SampleError("there is nothing to test: e_values is empty")
    counts = np.bincount(codes, minlength=len(values)).tolist()
    return np.array(accepted_values(values, counts, alpha, scale), dtype=np.bool_)[codes]


def accepted_values(
    values: Sequence[Any], counts: Sequence[int], level: Fraction, denominator: int = 1
) -> list[bool]:
    """Tell which of the different e-values e-BH accepts, from how many rows have each.

    The values are e-values times `denominator`.

    Proof: Lemma 9 (docs/theory.md#lem-e-bh).


    Examples
    --------
    >>> accepted_values([0, 40, 20], [2, 1, 1], Fraction(1, 10))
    [False, True, True]
    """
    k = m = sum(counts)
    least = m * denominator * level.denominator  # E_(k) >= m/(αk) iff E·α.numerator·k >= least
    accepted = [False] * len(values)
    ascending = sorted(range(len(values)), key=values.__getitem__)
    for place, code in enumerate(ascending):  # k rows have this value or a larger one
        value = values[code]
        if value == math.inf:
            enough = True
        else:
            numerator, below = value.as_integer_ratio()
            enough = numerator * level.numerator * k >= least * below
        if enough:
            for other in ascending[place:]:
                accepted[other] = True
            break
        k -= counts[code]
    return accepted


def closed_e_bh(evidence: Evidence, level: Level) -> NDArray[np.bool_]:
    """Reject rows by their e-values (closed e-BH), exactly.

    The e-value of each null has an expectation of at most 1. A set R of r rows is *mean
    consistent* if every set S of rows, of which a are in R, has an average e-value of at least
    a/(αr). Rejected is the largest mean consistent set of the form {E ≥ t}, so equal evidence is
    decided alike. It contains what e-BH rejects.

    Proof: Lemma 11 (docs/theory.md#lem-closed).

    Examples
    --------
    >>> three = Evidence((Fraction(0), Fraction(9), Fraction(40)), np.array([2, 2, 1, 0]))
    >>> closed_e_bh(three, 0.1), e_bh(three, 0.1)
    (array([ True,  True,  True, False]), array([ True,  True, False, False]))
    """
    alpha = as_level(level)
    counts = np.bincount(evidence.codes, minlength=len(evidence.values)).tolist()
    scale = math.lcm(*(value.denominator for value in evidence.values))
    whole = [value.numerator * (scale // value.denominator) for value in evidence.values]
    least = _least_closed(whole, counts, alpha / scale)
    return np.array([least is not None and value >= least for value in whole])[evidence.codes]


def _least_closed(values: Sequence[int], counts: Sequence[int], slope: Fraction) -> int | None:
    """Return the least t for which {E ≥ t} is mean consistent; None if no row is rejected.

    E-values are `values`, whole numbers, and α divided by their unit is `slope`. Of the sets S
    with a rows in R and b outside, the one with the least e-values counts. With the best b, what S
    has more than it needs is concave in a between two different e-values, and 0 for a = 0. So a
    needs to be tried only where an e-value ends.

    Proof: Lemma 11 (docs/theory.md#lem-closed).
    """
    sizes: dict[int, int] = {}
    for value, count in zip(values, counts, strict=True):
        sizes[value] = sizes.get(value, 0) + count
    ordered = sorted(value for value, count in sizes.items() if count)
    rows = [0, *accumulate(sizes[value] for value in ordered)]
    sums = [0, *accumulate(sizes[value] * value for value in ordered)]
    num, den = slope.numerator, slope.denominator
    last = len(ordered)  # the end of the e-values of R in the set S that failed last

    def holds(start: int, end: int, r: int) -> bool:
        a = rows[end] - rows[start]
        # Outside R, a row with an e-value below a/(αr) makes S worse.
        below = min(bisect_left(ordered, -(-a * den // (num * r))), start)
        total = sums[end] - sums[start] + sums[below]
        return total * num * r >= (a + rows[below]) * a * den

    for start in range(len(ordered)):  # R = all rows from this e-value on
        r = rows[-1] - rows[start]
        last = max(last, start + 1)
        if not holds(start, last, r):
            continue
        for end in range(start + 1, len(ordered) + 1):
            if not holds(start, end, r):
                last = end
                break
        else:
            return ordered[start]
    return None


def averaged(evidence: Sequence[Evidence]) -> Evidence:
    """Average compound e-values of the same rows.

    Proof: Lemma 9 (docs/theory.md#lem-e-bh).
    """
    if not evidence:
        raise SampleError("there is nothing to average: evidence is empty")
    sizes = {len(part) for part in evidence}
    if len(sizes) > 1:
        raise SampleError(f"evidence must be about the same rows, not about {sorted(sizes)} rows")
    values: list[Fraction] = [Fraction(0)]
    codes = np.zeros(sizes.pop(), dtype=np.int64)
    for part in evidence:
        # One code for every pair of values that occurs together.
        pairs, codes = np.unique(codes * len(part.values) + part.codes, return_inverse=True)
        old, new = np.divmod(pairs, len(part.values))
        values = [
            values[i] + part.values[j] / len(evidence)
            for i, j in zip(old.tolist(), new.tolist(), strict=True)
        ]
    return Evidence(tuple(values), codes)


def _grouped(e_values: Any) -> tuple[Sequence[Any], NDArray[np.int64]]:
    """Return the different e-values as Python numbers, and the place of each row's among them."""
    array = _as_numbers(e_values)
    if array.dtype == object:
        places: dict[Any, int] = {}
        codes = np.array([places.setdefault(v, len(places)) for v in array], dtype=np.int64)
        values = list(places)
    else:
        different, codes = np.unique(array, return_inverse=True)
        values = different.tolist()
    for place, value in enumerate(values):
        if not value >= 0:  # NaN is not >= 0 either
            row = int(np.flatnonzero(codes == place)[0])
            raise InputError(
                f"e_values must be numbers from 0 to infinity, and row {row} has {value!r}"
            )
    return values, codes


def _as_numbers(e_values: Any) -> NDArray[Any]:
    """Convert to an array of integers, float64 or exact objects, without rounding a number."""
    if isinstance(e_values, list | tuple):
        # numpy would round a large integer that stands beside a float.
        kinds = set(map(type, e_values))
        array = np.asarray(e_values, dtype=None if len(kinds) <= 1 else object)
    else:
        array = as_array(e_values, "e_values")
    if array.ndim != 1:
        raise SampleError(f"e_values must have one dimension, not shape {array.shape}")
    if array.size == 0 or array.dtype.kind in "iu":
        return array.astype(np.int64) if array.size == 0 else array
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return array.astype(np.float64, copy=False)
    if array.dtype != object:
        raise InputError(
            f"e_values must be integers, Fractions or floats of 64 bits, not {array.dtype}"
        )
    for row, value in enumerate(array):
        if not isinstance(value, Rational | float) or isinstance(value, bool):
            raise InputError(
                f"e_values must be integers, Fractions or floats, and row {row} is a"
                f" {type(value).__name__}"
            )
    return array

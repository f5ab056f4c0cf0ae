"""Decisions where known normals and normal tests differ by weights that are known in advance.

A normal test row is drawn from the distribution of the known normals times a weight w(x) > 0. Let
C(t) be the weight of the calibration rows with a score of at least t, C that of all of them, and
R(t) the number of tests with such a score. The weighted p-value of row i is

    p_i  =  (C(s_i) + w_i) / (C + w_i).

Benjamini-Hochberg on these has no proof. So each row looks for its own threshold t_i, the lowest
score of the mixture with

    m (C(t) + w_i)  <=  α R(t) (C + w_i),        t <= s_i,

and has the e-value E_i = (C + w_i) / (C(t_i) + w_i), or 0 without one. With one random number U in
(0, 1] for all rows, the k rows with E_i / U >= m/(α k) are rejected, for the largest such k
(docs/theory.md, "Weights"). Weights are whole numbers, so that whole numbers decide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level
from conovel.stats.ranks import as_array, as_scores

MOST_SPREAD_BITS = 40  # the largest weight is at most 2^40 times the smallest
_MANTISSA_BITS = 53
_CHANCE_BITS = 53


@dataclass(frozen=True, eq=False, repr=False)
class WeightedStepUp:
    """The decisions about weighted rows.

    Attributes
    ----------
    rejected : bool array of shape (m,)
        True where the row is declared a novelty.
    needs : int array of shape (m,)
        The row is rejected if at least so many rows are; m + 1 where it is not, whatever the
        others are. The decisions follow from these numbers alone.
    p_values : float array of shape (m,)
        The weighted p-values. They do not decide by themselves.

    See Also
    --------
    conovel.Detection : Has it with `weights`.
    """

    rejected: NDArray[np.bool_]
    needs: NDArray[np.int64]
    p_values: NDArray[np.float64]


def as_row_weights(values: ArrayLike, n_rows: int, name: str) -> NDArray[np.float64]:
    """Check the weights of the rows of a sample: finite numbers above 0, one for each row."""
    weights = as_array(values, name)
    if weights.shape != (n_rows,):
        raise SampleError(
            f"{name} must have one number for each of {n_rows:,} rows, not shape {weights.shape}"
        )
    if weights.dtype.kind not in "iuf":
        raise InputError(f"{name} must be numbers, not {weights.dtype}")
    weights = weights.astype(np.float64)
    for kind, wrong, fix in (
        ("missing", np.isnan(weights), "leave these rows out, or say what they weigh"),
        ("infinite", np.isinf(weights), "bound the weights"),
        ("negative", weights < 0, "a weight is a ratio of two densities"),
        ("zero", weights == 0, "leave these rows out: no normal test row is like them"),
    ):
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"{name}: {int(wrong.sum()):,} of {n_rows:,} weights are {kind}, first in row"
                f" {first}: {fix}"
            )
    return weights


def whole_weights(weights: NDArray[np.float64]) -> list[int]:
    """Give weights as whole numbers in a common unit, without rounding any.

    Examples
    --------
    >>> halves, thirds = whole_weights(np.array([0.5, 1.5]))
    >>> thirds // halves, thirds % halves
    (3, 0)
    """
    largest, smallest = float(weights.max()), float(weights.min())
    if largest > smallest * 2.0**MOST_SPREAD_BITS:
        raise InputError(
            f"weights from {smallest:.3g} to {largest:.3g} are too far apart: few rows would"
            " decide. Bound them in both directions, to 0.01 and 100, say"
        )
    mantissas, exponents = np.frexp(weights)
    digits = np.ldexp(mantissas, _MANTISSA_BITS).astype(np.int64).tolist()
    shifts = (exponents - exponents.min()).tolist()
    return [digit << shift for digit, shift in zip(digits, shifts, strict=True)]


def draw_chance(seed: int) -> Fraction:
    """Draw the random number U in (0, 1] by which rows are pruned.

    U is at most u with a probability of at most u, for every u.
    """
    drawn = np.random.default_rng(seed).integers(1, 2**_CHANCE_BITS, endpoint=True)
    return Fraction(int(drawn), 2**_CHANCE_BITS)


def weighted_step_up(
    calibration: tuple[ArrayLike, Sequence[int]],
    tests: tuple[ArrayLike, Sequence[int]],
    level: Level,
    chance: Fraction,
) -> WeightedStepUp:
    """Decide about tests by scores and weights, exactly.

    Proof: Theorem 24 (docs/theory.md#thm-weights).

    Parameters
    ----------
    calibration, tests : pairs (scores of shape (n,), weights)
        Scores, higher is more novel, and positive whole weights in a common unit.
    level : float, str or Fraction
        Target false discovery rate.
    chance : Fraction
        A number in (0, 1], drawn apart from all rows by :func:`draw_chance`.

    Returns
    -------
    WeightedStepUp

    Examples
    --------
    With equal weights it is Benjamini-Hochberg:

    >>> known_rows = np.arange(99), [1] * 99
    >>> tests = [200.0, 150.5, 98.5, 97.0, 12.0], [1] * 5
    >>> weighted_step_up(known_rows, tests, 0.1, Fraction(1, 2)).rejected
    array([ True,  True,  True,  True, False])
    """
    alpha = as_level(level)
    known_scores = as_scores(calibration[0], "calibration scores")
    scores, own = as_scores(tests[0], "test scores"), tests[1]
    m = scores.size
    # Position 0 is the highest score of the mixture; equal scores have one position.
    _, places = np.unique(-np.concatenate([known_scores, scores]), return_inverse=True)
    known_places, test_places = np.split(places, [known_scores.size])
    above = _weights_from(known_places, calibration[1], int(places.max()) + 1)
    counts = np.cumsum(np.bincount(test_places, minlength=len(above))).tolist()
    total = above[-1]
    # Rows of a weight of at most heaviest[k] meet the condition at place k or at a later one.
    heaviest = _heaviest(above, counts, m, alpha)
    needs, p_values = np.full(m, m + 1, dtype=np.int64), np.empty(m)
    unit = chance / alpha * m  # a row needs k >= unit / E_i
    for i, (place, weight) in enumerate(zip(test_places.tolist(), own, strict=True)):
        p_values[i] = (above[place] + weight) / (total + weight)
        # heaviest does not rise, so its negative is in order.
        last = bisect_right(heaviest, -weight) - 1
        if last >= place:
            share = unit.numerator * (above[last] + weight)
            # At most R at the place, because the condition holds there, and so at most m.
            needs[i] = -(-share // (unit.denominator * (total + weight)))
    return WeightedStepUp(rejected_by_needs(needs), needs, p_values)


def _weights_from(places: NDArray[np.intp], weights: Sequence[int], n: int) -> list[int]:
    """Add up the weights at each place and at those before it."""
    at = [0] * n
    for place, weight in zip(places.tolist(), weights, strict=True):
        at[place] += weight
    return list(accumulate(at))


def _heaviest(above: Sequence[int], counts: Sequence[int], m: int, alpha: Fraction) -> list[int]:
    """Return for each place, negated, the largest weight that may stop there or later.

    A weight w may stop at place k iff m (C_k + w) <= α R_k (C + w), that is w (m - α R_k) <=
    α R_k C - m C_k.

    Proof: Theorem 24 (docs/theory.md#thm-weights).
    """
    num, least, total = alpha.numerator, m * alpha.denominator, above[-1]
    own = [
        -((num * r * total - least * c) // (least - num * r))
        for c, r in zip(above, counts, strict=True)
    ]
    return list(accumulate(reversed(own), min))[::-1]


def rejected_by_needs(needs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Reject the k rows that need at most k rejections, for the largest k.

    Proof: Theorem 24 (docs/theory.md#thm-weights).

    Examples
    --------
    >>> rejected_by_needs(np.array([2, 1, 5, 5]))
    array([ True,  True, False, False])
    """
    enough = np.flatnonzero(np.sort(needs) <= np.arange(1, needs.size + 1))
    k = int(enough[-1]) + 1 if enough.size else 0
    return np.asarray(needs <= k)


def effective_rows(weights: NDArray[np.float64]) -> float:
    """Return how many rows of equal weight are worth as much: (Σw)² / Σw².

    Examples
    --------
    >>> effective_rows(np.array([1.0, 1.0, 0.001]))
    2.001...
    """
    scaled = weights / weights.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())

"""P-values from random permutations, exact for every number of draws.

If all orders of a sample are equally likely, the observed order is one more draw. So the share of
draws at least as extreme, the observed one counted, is a p-value, whatever the statistic.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ENOUGH = 10  # draws at least as extreme as the observed order, after which no more are made


class Draws(NamedTuple):
    """What the permutations gave.

    Attributes
    ----------
    p_value : Fraction
        Of the largest of all statistics.
    adjusted : float array of shape (d,)
        Of each statistic, adjusted for the number of statistics (single-step max-T).
    n_draws : int
        How many permutations were drawn.
    """

    p_value: Fraction
    adjusted: NDArray[np.float64]
    n_draws: int


def permutation_p_value(
    observed: NDArray[np.float64], draw: Callable[[], float], most: int
) -> Draws:
    """Compare statistics with the largest statistic of random permutations.

    Draws stop once :data:`ENOUGH` of them were at least as large as the largest observed
    statistic: samples without anything to be seen cost a few draws only. The p-value is then h/B
    with h = 10 and B draws, and otherwise (1 + exceedances)/(1 + B): Besag and Clifford (1991).
    See docs/theory.md, "The check of the known normals".

    Parameters
    ----------
    observed : float array of shape (d,)
        The statistics of the observed order.
    draw : callable
        Gives the largest of the d statistics of one random permutation.
    most : int
        The largest number of draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> permutation_p_value(np.array([9.0, 0.1]), rng.normal, 99).p_value
    Fraction(1, 100)
    """
    largest = observed.max(initial=-np.inf)
    reached = 0
    drawn: list[float] = []
    while len(drawn) < most and reached < ENOUGH:
        drawn.append(draw())
        reached += drawn[-1] >= largest
    n = len(drawn)
    p_value = Fraction(ENOUGH, n) if reached == ENOUGH else Fraction(1 + reached, 1 + n)
    above = n - np.searchsorted(np.sort(drawn), observed)  # draws at least as large
    adjusted = np.maximum((1 + above) / (1 + n), float(p_value))
    return Draws(p_value, np.minimum(adjusted, 1.0), n)

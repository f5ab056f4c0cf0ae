"""The best power that is possible, when all densities are known.

Agent j sees a novelty at distance d_j = |μ_alt − μ_j| from its normals, and by Neyman and
Pearson no test beats the projection on that line. BH at level α spends π0·α of false
discoveries, so the threshold solves

    π0 F / (π0 F + (1 − π0) T) = π0 α,

F and T being the shares of normals and of novelties beyond it, averaged over agents. A
conformal procedure has one p-value threshold for all agents, so one F. Ranking rows across agents
by likelihood ratio uses a larger F where more novelties are found, which no agent can do alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from conovel.errors import InputError
from conovel.experiments.gaussian import centres, novelty_centre
from conovel.stats.levels import Level, as_level

Tail: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_FAR = 50.0  # standard deviations; no probability lies beyond


class Limit(NamedTuple):
    """The largest power at a false discovery rate of π0·α."""

    common: float
    """One p-value threshold for all agents: what BH and FastLSU can reach."""
    ratio: float
    """Rows ranked across agents by likelihood ratio."""


def power_limit(distances: ArrayLike, level: Level = 0.1, null_share: float = 0.9) -> Limit:
    """Return the Neyman–Pearson limit of agents that see novelties at given distances.

    Parameters
    ----------
    distances : array of shape (K,)
        Distance between an agent's normals and the novelties in standard deviations; agents
        have equally many rows.
    level : float, str or Fraction
        The level α of the step-up.
    null_share : float
        Share π0 of normals among the tests.

    Examples
    --------
    >>> power_limit([3.0, 3.0, 3.0])
    Limit(common=0.7217..., ratio=0.7217...)
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.ndim != 1 or d.size == 0 or not np.all(np.isfinite(d)) or d.min() <= 0:
        raise InputError("distances must be a list of positive numbers, one for each agent")
    if not 0 < null_share < 1:
        raise InputError(f"null_share must lie between 0 and 1, not {null_share}")
    alpha = float(as_level(level))

    def best(false: Tail, true: Tail) -> float:
        """Return the share of novelties found at the loosest threshold that keeps the level."""

        def excess(thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
            # p <= α R / m with equality: F = α (π0 F + (1 − π0) T), averaged over agents.
            spent, gained = (tail(thresholds).mean(axis=0) for tail in (false, true))
            kept, won = 1 - alpha * null_share, alpha * (1 - null_share)
            return np.asarray(kept * spent - won * gained, dtype=np.float64)

        # The first root from the loosest threshold, where FastLSU ends too.
        grid = np.linspace(-_FAR, _FAR, 2001)
        kept = excess(grid) <= 0
        first = int(np.argmax(kept))
        if kept[first] and first == 0:  # novelties so far away that no threshold is too loose
            return float(true(grid[:1]).mean())
        low, high = grid[first - 1 : first + 1]
        root = brentq(lambda c: excess(np.array([c])).item(), low, high, xtol=1e-12)
        return float(true(np.array([root])).mean())

    d = d[:, None]
    return Limit(
        common=best(lambda z: ndtr(-z) + 0 * d, lambda z: ndtr(d - z)),
        ratio=best(lambda c: ndtr(-c / d - d / 2), lambda c: ndtr(d / 2 - c / d)),
    )


def gaussian_limit(delta: float, level: Level = 0.1, null_share: float = 0.9) -> Limit:
    """Return the limit of the paper's Gaussian design at shift `delta`.

    Examples
    --------
    >>> [round(gaussian_limit(delta).common, 4) for delta in (0, 0.5, 1, 2, 3, 4)]
    [0.9993, 0.999, 0.998, 0.9925, 0.9842, 0.9808]
    """
    distances = np.linalg.norm(novelty_centre() - centres(delta), axis=1)
    return power_limit(distances, level, null_share)


def limit_table(
    shifts: Sequence[float], level: Level = 0.1, null_share: float = 0.9
) -> list[tuple[float, Limit]]:
    """Return the limit for each shift.

    Examples
    --------
    >>> [(shift, round(limit.ratio, 4)) for shift, limit in limit_table([3, 4])]
    [(3, 0.9942), (4, 0.9929)]
    """
    return [(shift, gaussian_limit(shift, level, null_share)) for shift in shifts]

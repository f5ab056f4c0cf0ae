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

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
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


SHIFTS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
QUANTIZED_AT = 2.0


class Published(NamedTuple):
    """One cell of a published table: mean and spread of each figure."""

    fdr: tuple[float, float]
    power: tuple[float, float]
    kilobits: tuple[float, float] | None = None


def _shift(
    fdr: tuple[float, ...], fdr_spread: float, power: tuple[float, ...], *power_spread: float
) -> dict[float, Published]:
    rows = zip(SHIFTS, fdr, power, power_spread, strict=True)
    return {shift: Published((f, fdr_spread), (p, s)) for shift, f, p, s in rows}


# Tables "Global FDR: Shift Sweep" and "Statistical Power: Shift Sweep", by regime.
SHIFT: Mapping[str, Mapping[float, Published]] = MappingProxyType(
    {
        "isolated": _shift(
            (0.027, 0.029, 0.028, 0.027, 0.028, 0.031),
            0.01,
            (0.901, 0.894, 0.881, 0.835, 0.763, 0.748),
            *(0.03, 0.03, 0.04, 0.05, 0.06, 0.06),
        ),
        "counts": _shift(
            (0.086, 0.088, 0.091, 0.087, 0.088, 0.090),
            0.02,
            (0.949, 0.945, 0.940, 0.906, 0.862, 0.849),
            *(0.02, 0.02, 0.02, 0.03, 0.03, 0.04),
        ),
        "split": _shift(
            (0.081, 0.084, 0.081, 0.082, 0.078, 0.074),
            0.03,
            (0.966, 0.971, 0.982, 0.991, 0.997, 0.999),
            *(0.03, 0.02, 0.02, 0.01, 0.01, 0.00),
        ),
        # Table "Conservative Model Exchange: Simulated Dataset Shift".
        "conservative": {
            0.0: Published((0.030, 0.01), (0.924, 0.03), (15303, 806)),
            0.5: Published((0.029, 0.01), (0.925, 0.03), (15349, 600)),
            1.0: Published((0.030, 0.02), (0.927, 0.02), (15317, 630)),
            2.0: Published((0.031, 0.01), (0.890, 0.03), (15666, 777)),
            3.0: Published((0.028, 0.01), (0.747, 0.07), (16072, 716)),
            4.0: Published((0.028, 0.01), (0.667, 0.01), (16036, 491)),
        },
    }
)

# Tables "Quantization Sweep (δ = 2.0)" and "Conservative Model Exchange: Quantization Sweep",
# by regime and precision.
QUANTIZATION: Mapping[str, Mapping[str, Published]] = MappingProxyType(
    {
        "isolated": {"": Published((0.029, 0.01), (0.834, 0.06), (0.0, 0.0))},
        "counts": {"": Published((0.090, 0.02), (0.908, 0.03), (0.1, 0.01))},
        "split": {
            "float64": Published((0.082, 0.03), (0.990, 0.01), (1576.9, 37.6)),
            "6": Published((0.080, 0.03), (0.990, 0.01), (199.0, 4.8)),
            "4": Published((0.078, 0.03), (0.991, 0.01), (150.3, 3.5)),
            "2": Published((0.084, 0.03), (0.991, 0.01), (103.3, 2.2)),
            "1": Published((0.087, 0.04), (0.991, 0.01), (79.4, 1.9)),
        },
        "conservative": {
            "float64": Published((0.031, 0.01), (0.890, 0.03), (15666, 777)),
            "6": Published((0.032, 0.01), (0.891, 0.03), (1966, 98)),
            "4": Published((0.031, 0.01), (0.894, 0.03), (1494, 74)),
            "2": Published((0.032, 0.01), (0.880, 0.04), (1021, 51)),
            "1": Published((0.031, 0.01), (0.845, 0.05), (785, 39)),
        },
    }
)

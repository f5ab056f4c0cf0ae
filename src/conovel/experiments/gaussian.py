"""The paper's Gaussian design: agents with different normals, one common kind of novelty.

Section "Simulated Data" of the paper: d = 20; the nulls of agent j are N(μ_j, I) with the
μ_j on a centred equilateral triangle of radius δ; novelties are N(μ_alt, I) with
sqrt(2 log d) on the first five coordinates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError

DIMENSION = 20


@dataclass(frozen=True, eq=False)
class Labelled:
    """The rows of one agent, and which test rows are novel; no procedure may use the latter."""

    X_null: NDArray[np.float64]
    X_test: NDArray[np.float64]
    is_novel: NDArray[np.bool_]


def centres(delta: float) -> NDArray[np.float64]:
    """Return the three null centres μ_1, μ_2, μ_3 at distance `delta` from the origin."""
    u, v = np.zeros(DIMENSION), np.zeros(DIMENSION)
    u[:10] = v[10:] = 1 / np.sqrt(10)
    height = np.sqrt(3) / 2
    return delta * np.stack([u, -u / 2 + height * v, -u / 2 - height * v])


def novelty_centre() -> NDArray[np.float64]:
    """Return μ_alt."""
    centre = np.zeros(DIMENSION)
    centre[:5] = np.sqrt(2 * np.log(DIMENSION))
    return centre


def gaussian_design(
    delta: float,
    random_state: int | np.random.Generator,
    *,
    n_agents: int = 3,
    n_null: int = 3000,
    n_test: int = 1000,
    null_share: float = 0.9,
) -> list[Labelled]:
    """Draw the design; totals are divided evenly, and the first agents get the remainder.

    Agents beyond the third take the triangle's corners in turn.

    Parameters
    ----------
    delta : float
        Distance of the null centres from the origin.
    random_state : int or Generator
    n_agents : int
    n_null, n_test : int
        Known normals and test rows over all agents together.
    null_share : float
        Share of normals among the test rows of each agent (rounded).

    Examples
    --------
    >>> agents = gaussian_design(2.0, 0)
    >>> [(a.X_null.shape, a.X_test.shape, int(a.is_novel.sum())) for a in agents]
    [((1000, 20), (334, 20), 33), ((1000, 20), (333, 20), 33), ((1000, 20), (333, 20), 33)]
    """
    if min(n_null, n_test) < n_agents or n_agents < 1:
        raise InputError(
            f"{n_null} nulls and {n_test} tests are too few for {n_agents} agents: each needs"
            " at least one of both"
        )
    rng = np.random.default_rng(random_state)
    corners, novel = centres(delta), novelty_centre()
    agents = []
    for j in range(n_agents):
        n, m = (total // n_agents + (j < total % n_agents) for total in (n_null, n_test))
        is_novel = np.arange(m) >= round(null_share * m)
        centre = corners[j % 3]
        X_test = rng.normal(size=(m, DIMENSION)) + np.where(is_novel[:, None], novel, centre)
        agents.append(Labelled(rng.normal(size=(n, DIMENSION)) + centre, X_test, is_novel))
    return agents


@dataclass(frozen=True)
class Gaussian:
    """The paper's Gaussian design; every shift has the same noise in the same trial."""

    shift: float
    n_agents: int = 3
    n_null: int = 3000
    n_test: int = 1000

    def draw(self, seed: list[int]) -> list[Labelled]:
        """Draw the agents of a trial."""
        return gaussian_design(
            self.shift,
            np.random.default_rng(seed),
            n_agents=self.n_agents,
            n_null=self.n_null,
            n_test=self.n_test,
        )

    def columns(self) -> dict[str, Any]:
        """Name the source in the results."""
        return {"data": "gaussian", "shift": float(self.shift), "agents": self.n_agents}

    def identity(self) -> dict[str, Any]:
        """Return everything that the rows depend on besides the seed."""
        return asdict(self)

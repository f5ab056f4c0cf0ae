"""Gaussian normals, novelties of some shape, and the largest power that is possible there.

``python -m benchmarks._shapes`` prints that power.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ive

from conovel.experiments.gaussian import (
    DIMENSION,
    Labelled,
    centres,
    gaussian_design,
    novelty_centre,
)

RADIUS = 5.0  # of the circle that curved novelties lie on


@dataclass(frozen=True)
class Design:
    """Three agents of the paper's design: novelties are on both sides, or on a circle."""

    shape: str
    shift: float

    def draw(self, seed: int) -> list[Labelled]:
        rng = np.random.default_rng(seed)
        agents = gaussian_design(self.shift, rng)
        return [
            Labelled(
                agent.X_null,
                np.where(
                    agent.is_novel[:, None], self.novelties(len(agent.X_test), rng), agent.X_test
                ),
                agent.is_novel,
            )
            for agent in agents
        ]

    def novelties(self, n: int, rng: np.random.Generator) -> np.ndarray:
        noise = rng.normal(size=(n, DIMENSION))
        if self.shape == "symmetric":
            return noise + rng.choice([-1.0, 1.0], size=(n, 1)) * novelty_centre()
        angle = rng.uniform(0, 2 * np.pi, n)
        noise[:, 0] += RADIUS * np.cos(angle)
        noise[:, 1] += RADIUS * np.sin(angle)
        return noise

    def limit(self, n: int = 400_000) -> float:
        """The best power with one p-value threshold for all, by simulation."""
        rng = np.random.default_rng(0)
        true = []
        novel = self.novelties(n, rng)
        for centre in centres(self.shift):
            null = self.log_ratio(rng.normal(size=(n, DIMENSION)) + centre, centre)
            null.sort()
            above = n - np.searchsorted(null, self.log_ratio(novel, centre))
            true.append(np.sort((above + 1) / (n + 1)))
        p = np.sort(np.concatenate(true))
        power = np.arange(1, p.size + 1) / p.size
        share = 0.9  # of normal tests
        keeps = p * (1 - 0.1 * share) <= 0.1 * (1 - share) * power  # F = α (π0 F + (1 - π0) T)
        return float(power[keeps].max(initial=0))

    def log_ratio(self, X: np.ndarray, centre: np.ndarray) -> np.ndarray:
        null = -((X - centre) ** 2).sum(axis=1) / 2
        if self.shape == "symmetric":
            both = [-((X - s * novelty_centre()) ** 2).sum(axis=1) / 2 for s in (-1, 1)]
            return np.logaddexp(*both) - null
        radius = RADIUS * np.hypot(X[:, 0], X[:, 1])
        return -(X**2).sum(axis=1) / 2 + np.log(ive(0, radius)) + radius - null


DESIGNS = {
    f"{shape}, shift {shift}": Design(shape, float(shift))
    for shape in ("symmetric", "curved")
    for shift in (0, 2)
}

if __name__ == "__main__":
    for name, design in DESIGNS.items():
        print(f"{name}: {design.limit():.4f}")

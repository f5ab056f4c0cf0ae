"""Gaussian normals, novelties of some shape, and the largest power that is possible there."""

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
from conovel.experiments.limit import gaussian_limit

RADIUS = 5.0  # of the circle that curved novelties lie on


@dataclass(frozen=True)
class Design:
    """Agents with Gaussian normals: novelties are shifted, on both sides, or on a circle."""

    shape: str = "shifted"
    shift: float = 0.0
    n_agents: int = 3
    null_share: float = 0.9

    def draw(self, seed: int) -> list[Labelled]:
        rng = np.random.default_rng(seed)
        agents = gaussian_design(
            self.shift, rng, n_agents=self.n_agents, null_share=self.null_share
        )
        if self.shape == "shifted":
            return agents
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
        """The best power with one p-value threshold for all; by simulation where need be."""
        if self.shape == "shifted":
            return gaussian_limit(self.shift, null_share=self.null_share).common
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
        share = self.null_share
        keeps = p * (1 - 0.1 * share) <= 0.1 * (1 - share) * power  # F = α (π0 F + (1 - π0) T)
        return float(power[keeps].max(initial=0))

    def log_ratio(self, X: np.ndarray, centre: np.ndarray) -> np.ndarray:
        null = -((X - centre) ** 2).sum(axis=1) / 2
        if self.shape == "symmetric":
            both = [-((X - s * novelty_centre()) ** 2).sum(axis=1) / 2 for s in (-1, 1)]
            return np.logaddexp(*both) - null
        radius = RADIUS * np.hypot(X[:, 0], X[:, 1])
        return -(X**2).sum(axis=1) / 2 + np.log(ive(0, radius)) + radius - null

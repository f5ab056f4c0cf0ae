"""What sums with differential privacy say about single rows, by the same attack as without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from benchmarks._sums import Products, Round, one_hot, products_of, reference_mask
from benchmarks._sums_rows import MIXTURE, Design, Probe
from conovel.learning.together.private import (
    EDGES,
    GRAIN,
    PrivateLearner,
    PrivateRows,
    Whole,
    honest_of,
)
from conovel.learning.together.rounds import AgentRows
from conovel.site.sent.compact import public_units
from conovel.site.sent.private_surrogate import SecretNoise, row_vectors
from conovel.spec.settings import Privacy

_BIG = 8  # rows that the mean is learnt from, for one row of an agent


class _Silent:
    """No noise: for what is expected."""

    def add(self, sums: Whole, scale: float) -> Whole:
        """Return the sums."""
        return sums

    def largest(self, scores: Whole, scale: float) -> int:
        """Return the place of the largest score."""
        return int(np.argmax(scores))


class _Secret(SecretNoise):
    """The real noise; remembers its scale."""

    scale = 0.0

    def add(self, sums: Whole, scale: float) -> Whole:
        """Add discrete Gaussian noise."""
        self.scale = scale
        return super().add(sums, scale)


def listen_private(
    agents: Sequence[AgentRows],
    design: Design,
    references: Sequence[Probe],
    attacked: Sequence[Probe],
    seed: int,
    privacy: Privacy,
    n_heard: int,
) -> dict[str, Products]:
    """Run the rounds with privacy; whoever hears one agent alone hears a run without masks."""
    n_honest = 1 if n_heard == 1 else honest_of(len(agents))
    learner = PrivateLearner(public_units(None, agents[0].values.shape[1]), privacy, n_honest)
    rng, probes = np.random.default_rng([seed, 98]), [*references, *attacked]
    some = [design.agent(j, rng, _BIG) for j in range(min(len(agents), 3))]
    noise, n_rows = _Secret(), sum(design.sizes) * n_heard
    heard = []
    while not learner.is_done:
        part = "units" if learner.n_rounds == 0 else "tails"
        numbers = [learner.answer(_rows(one), noise) for one in agents]
        of_places = [learner.answer(_rows(one), _Silent()) / _BIG for one in some]
        expected = [of_places[j % len(some)] for j in range(len(agents))]
        added = [_intervals(p) if part == "units" else _tails(p, learner) for p in probes]
        spread = noise.scale**2 * n_heard / n_rows  # of the noise, for each row
        one = Round(part, np.stack(numbers)[:, 3:], np.stack(expected)[:, 3:], added)
        heard.append((part, products_of(one, reference_mask(references, probes), spread)))
        learner.take(np.sum(numbers, axis=0))
    return dict(heard)


def _rows(one: AgentRows) -> PrivateRows:
    return PrivateRows(one.null_train, one.mixture, len(one.mixture))


def _intervals(probe: Probe) -> sparse.csr_matrix:
    places = np.searchsorted(EDGES, probe.values, side="right")
    width = EDGES.size + 1
    places = places + width * np.arange(places.shape[1])
    return one_hot(places, width * places.shape[1]) * GRAIN


def _tails(probe: Probe, learner: PrivateLearner) -> sparse.csr_matrix:
    vectors = row_vectors(probe.values, learner.units).astype(np.float64)
    none = np.zeros_like(vectors)
    return sparse.csr_matrix(
        np.hstack([none, vectors] if probe.role == MIXTURE else [vectors, none])
    )

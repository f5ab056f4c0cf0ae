"""The false discovery rate of whole runs whose models have differential privacy.

The noise has a seed here, so that the test always comes out alike. The design is that of
tests/theory/test_monte_carlo.py, in which the bound is attained from both sides: α(ℓ+1)/m = 1.
"""

import numpy as np
import pytest
from support.attained import BOUND, LEVEL, draw_agents, false_share
from support.noise import SeededNoise

import conovel as cn
from conovel.site.sent.private_surrogate import SecretNoise


def false_discovery_share(trial):
    network = cn.Network(
        draw_agents(trial),
        regime="full",
        composite="mean",
        scorer="logistic",
        level=LEVEL,
        privacy=8,
        random_state=trial,
    )
    return false_share(network.run(check=False))


@pytest.fixture(autouse=True)
def _seeded(monkeypatch):
    noise = SeededNoise(0)
    for name in ("add", "largest"):
        draw = getattr(noise, name)
        monkeypatch.setattr(SecretNoise, name, lambda _, *asked, draw=draw: draw(*asked))


def check(trials):
    shares = [false_discovery_share(trial) for trial in trials]
    error = np.std(shares) / len(shares) ** 0.5
    assert abs(np.mean(shares) - BOUND) <= 3 * error
    return error


def test_fdr_with_private_models():
    check(range(30))


@pytest.mark.slow
def test_fdr_with_private_models_in_many_runs():
    error = check(range(100, 500))
    assert 3 * error < 0.3 * BOUND  # the test has the power to see 1.3·α

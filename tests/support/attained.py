"""A network of two agents in which the bound on the false discovery rate is attained.

Each agent has 20 tests, half of them novel. By default 199 of 398 known normals train, so that
ℓ = 199 and α(ℓ+1)/m = 1: the bound α·m0/m = 0.1 is attained, from both sides.
"""

import numpy as np

import conovel as cn

LEVEL, N_KNOWN, N_CALIBRATION, N_NULL, N_NOVEL = 0.2, 398, 199, 10, 10
BOUND = LEVEL * N_NULL / (N_NULL + N_NOVEL)


def draw_agents(trial):
    """Draw both agents; the tests from number 10 on are novel."""
    rng = np.random.default_rng(trial)
    agents = []
    for name in "ab":
        X_test = rng.normal(size=(N_NULL + N_NOVEL, 3))
        X_test[N_NULL:] += 2
        agents.append(cn.Agent(name, rng.normal(size=(N_KNOWN, 3)), X_test))
    return agents


def false_share(run):
    """Return the share of normal rows among the rejected ones."""
    assert {site.n_calibration for site in run.values()} == {N_CALIBRATION}
    false = sum(site.rejected[:N_NULL].sum() for site in run.values())
    return false / max(run.n_rejected, 1)

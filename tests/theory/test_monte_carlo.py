"""One long simulation of whole runs of the regime `full`, rows in and decisions out.

What makes the rate hold is tested exactly and in less time: scores do not depend on roles
(tests/theory/test_roles.py), and the rate is what it should be for every order of the nulls
(tests/stats/test_exact_fdr.py). Here nothing is frozen, and nothing is taken apart.
"""

import numpy as np
import pytest

import conovel as cn

# Two agents of 20 tests, half of them novel. By default 199 of 398 known normals train, so that
# ℓ = 199 and α(ℓ+1)/m = 1: the bound α·m0/m = 0.1 is attained, from both sides.
LEVEL, N_KNOWN, N_CALIBRATION, N_NULL, N_NOVEL, TRIALS = 0.2, 398, 199, 10, 10, 100
BOUND = LEVEL * N_NULL / (N_NULL + N_NOVEL)


def false_discovery_share(trial):
    rng = np.random.default_rng(trial)
    agents = []
    for name in "ab":
        X_test = rng.normal(size=(N_NULL + N_NOVEL, 3))
        X_test[N_NULL:] += 2
        agents.append(cn.Agent(name, rng.normal(size=(N_KNOWN, 3)), X_test))
    run = cn.Network(agents, regime="full", level=LEVEL, random_state=trial).run()
    assert {site.n_calibration for site in run.values()} == {N_CALIBRATION}
    false = sum(site.rejected[:N_NULL].sum() for site in run.values())
    return false / max(run.n_rejected, 1)


@pytest.mark.slow
def test_fdr_of_whole_runs_of_full():
    shares = [false_discovery_share(trial) for trial in range(TRIALS)]
    error = np.std(shares) / TRIALS**0.5
    assert 3 * error < 0.3 * BOUND  # the test has the power to see 1.3·α
    assert abs(np.mean(shares) - BOUND) <= 3 * error

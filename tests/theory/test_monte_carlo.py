"""One long simulation of whole runs of the regime `full`, rows in and decisions out.

What makes the rate hold is tested exactly and in less time: scores do not depend on roles
(tests/theory/test_roles.py), and the rate is what it should be for every order of the nulls
(tests/stats/test_exact_fdr.py). Here nothing is frozen, and nothing is taken apart.
"""

import numpy as np
import pytest
from support.attained import BOUND, LEVEL, draw_agents, false_share

import conovel as cn

TRIALS = 100


def false_discovery_share(trial):
    agents = draw_agents(trial)
    return false_share(cn.Network(agents, regime="full", level=LEVEL, random_state=trial).run())


@pytest.mark.slow
def test_fdr_of_whole_runs_of_full():
    shares = [false_discovery_share(trial) for trial in range(TRIALS)]
    error = np.std(shares) / TRIALS**0.5
    assert 3 * error < 0.3 * BOUND  # the test has the power to see 1.3·α
    assert abs(np.mean(shares) - BOUND) <= 3 * error

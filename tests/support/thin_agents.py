"""Small agents whose normals differ a little, with four novelties each."""

import numpy as np


def thin_agents(n_agents, seed=1, n_null=60, n_test=30):
    """Return the known normals and tests of each agent."""
    rng = np.random.default_rng(seed)
    pairs = []
    for j in range(n_agents):
        null, test = rng.normal(0.2 * j, 1, (n_null, 3)), rng.normal(0.2 * j, 1, (n_test, 3))
        test[:4] += 4
        pairs.append((null.round(1), test.round(1)))
    return pairs

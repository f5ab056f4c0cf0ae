"""Rows of three branches that differ in their means."""

import numpy as np
import pandas as pd

BRANCHES = np.array(["north", "south", "east"])


def frame(seed, n, shares, far=0.0):
    """Draw rows with these shares of branches; one in eight is novel by `far`."""
    rng = np.random.default_rng(seed)
    strata = rng.choice(3, size=n, p=shares)
    rows = rng.normal(size=(n, 3)) + 3 * strata[:, np.newaxis]
    rows[: n // 8, 1:] += [far, -far]
    return pd.DataFrame(rows, columns=list("abc")).assign(branch=BRANCHES[strata])

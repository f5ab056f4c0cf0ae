"""One detection and one run of every regime, to report on. Tests change only copies of them."""

import numpy as np
import pytest
from support.reports import SCRIPT, network_run, three_sites

import conovel as cn
from conovel.report import of_detection


@pytest.fixture(scope="session")
def detection():
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    ids = [SCRIPT, *(f"row-{i}" for i in range(1, 100))][::-1]
    result = cn.AdaDetect("logistic").detect(rng.normal(size=(600, 3)), X_test, ids=ids)
    return {"command": "detect", **result.summary(), "picture": of_detection(result)}


@pytest.fixture(scope="session")
def rows():
    return three_sites()


@pytest.fixture(scope="session")
def runs(rows):
    regimes = (
        "isolated",
        "counts",
        "pooled",
        "split",
        "conservative",
        "full",
        "joint",
        "consensus",
    )
    return {regime: network_run(rows, regime) for regime in regimes}

"""The false discovery rate with categories and missing values, measured."""

import warnings

import numpy as np
import pytest
from support.mixed import SCHEMA, mixed_table

import conovel as cn

LEVEL = 0.2
# 49 rows train and 99 calibrate: a limit of k rejections is 2k of 100 ranks, nothing is rounded.
N_NULL, N_TEST, N_NOVEL = 148, 10, 2


def fdp(rejected, n_novel):
    return rejected[: rejected.size - n_novel].sum() / max(rejected.sum(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("n_novel", [0, N_NOVEL])
@pytest.mark.parametrize("form", ["table", "pandas"])
def test_one_site_infers_its_schema_and_keeps_the_level(form, n_novel):
    """The bound α·m0/m is attained but for ties."""
    rng = np.random.default_rng(n_novel)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(400):
            null, test = mixed_table(rng, N_NULL), mixed_table(rng, N_TEST, n_novel)
            if form == "pandas":
                null, test = null.to_pandas(), test.to_pandas()
            detector = cn.AdaDetect(
                "logistic", LEVEL, "1/3", random_state=seed, schema={"who": "ignore"}
            )
            found.append(fdp(detector.detect(null, test).rejected, n_novel))
    error = np.std(found) / len(found) ** 0.5
    bound = LEVEL * (1 - n_novel / N_TEST)
    assert np.mean(found) <= bound + 3 * error
    assert np.mean(found) >= bound / 2  # close to the bound, so that the test can fail


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["full", "joint"])
def test_agents_that_agree_on_a_schema_keep_the_level(regime):
    rng = np.random.default_rng(1)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(120):
            agents = [
                cn.Agent(name, mixed_table(rng, N_NULL), mixed_table(rng, N_TEST, N_NOVEL))
                for name in "abc"
            ]
            run = cn.Network(
                agents,
                regime=regime,
                composite="mean",
                bits=4,
                level=LEVEL,
                scorer="logistic",
                random_state=seed,
                schema=SCHEMA,
            ).run()
            false = sum(run[name].rejected[:-N_NOVEL].sum() for name in "abc")
            found.append(false / max(run.n_rejected, 1))
    assert np.mean(found) <= LEVEL + 3 * np.std(found) / len(found) ** 0.5

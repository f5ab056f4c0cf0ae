"""The mix of strata changes: plain detection breaks the level, strata hold it."""

import math

import numpy as np
import pytest

from benchmarks.strata import CHANGED, LEVEL, NORMAL, judge

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def trials(n_agents, shares, strata, number):
    drawn = np.array([judge(seed, n_agents, shares, strata) for seed in range(number)])
    errors = drawn.std(axis=0, ddof=1) / math.sqrt(number)
    return drawn.mean(axis=0), errors


def check(n_agents, number):
    (plain, _), (error, _) = trials(n_agents, CHANGED, None, number)
    assert plain - 3 * error > 2 * LEVEL  # so a test that holds the level would fail here
    (fdr, power), (error, _) = trials(n_agents, CHANGED, "0", number)
    assert fdr <= LEVEL + 3 * error
    (_, without_change), (_, error) = trials(n_agents, NORMAL, None, number)
    assert power >= 0.9 * without_change - 3 * error


@pytest.mark.parametrize(
    ("n_agents", "number"), [(1, 12), pytest.param(3, 10, marks=pytest.mark.slow)]
)
def test_strata_hold_the_level_where_shares_change(n_agents, number):
    check(n_agents, number)


@pytest.mark.slow
@pytest.mark.parametrize(("n_agents", "number"), [(1, 200), (3, 60), (9, 20)])
def test_strata_hold_the_level_in_many_trials(n_agents, number):
    check(n_agents, number)

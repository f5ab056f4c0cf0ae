"""The mix of strata changes: plain detection breaks the level, strata hold it."""

import math

import numpy as np
import pytest

from benchmarks.strata import CHANGED, LEVEL, NORMAL, judge, judge_kept

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


@pytest.mark.parametrize("number", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_kept_detectors_and_their_lists_hold_the_level_with_strata(number):
    drawn = [np.array([judge_kept(s, way) for s in range(number)]) for way in (None, "0")]
    for batch_or_list in (0, 2):
        plain, strata = (one[:, batch_or_list] for one in drawn)
        assert plain.mean() - 3 * plain.std(ddof=1) / math.sqrt(number) > 2 * LEVEL
        assert strata.mean() <= LEVEL + 3 * strata.std(ddof=1) / math.sqrt(number)
    powers = drawn[1].mean(axis=0)
    assert powers[1] > 0.5
    assert powers[3] > 0.2

"""The largest possible power, against known values, simulation and its own monotonicity."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel import benjamini_hochberg
from conovel.errors import InputError
from conovel.experiments.limit import gaussian_limit, power_limit


@pytest.mark.parametrize(
    ("delta", "common", "ratio"),
    [
        (0, 0.9993, 0.9993),
        (0.5, 0.9990, 0.9992),
        (1, 0.9980, 0.9989),
        (2, 0.9925, 0.9972),
        (3, 0.9842, 0.9942),
        (4, 0.9808, 0.9929),
    ],
)
def test_the_gaussian_design(delta, common, ratio):
    assert gaussian_limit(delta) == pytest.approx((common, ratio), abs=6e-5)


def test_an_oracle_that_knows_the_densities_reaches_it_and_no_more():
    """Exact p-values of the best test, through BH itself."""
    rng = np.random.default_rng(0)
    distances, m, n = np.array([2.0, 3.0, 4.0]), 30_000, 10**6
    found = []
    for _ in range(10):
        novel = np.arange(m) % 10 == 0
        agent = rng.integers(3, size=m)
        z = rng.normal(size=m) + np.where(novel, distances[agent], 0)
        from scipy.stats import norm

        ranks = 1 + np.floor(norm.sf(z) * n).astype(np.int64)
        rejected = benjamini_hochberg(ranks, n, 0.1)
        found.append(rejected[novel].mean())
    error = np.std(found, ddof=1) / len(found) ** 0.5
    assert np.mean(found) == pytest.approx(power_limit(distances).common, abs=4 * error + 1e-3)


@given(
    distances=st.lists(st.floats(0.5, 8), min_size=1, max_size=5),
    level=st.sampled_from(["0.01", "0.05", "0.1", "0.2"]),
    null_share=st.floats(0.5, 0.99),
)
def test_order(distances, level, null_share):
    found = power_limit(distances, level, null_share)
    assert 0 <= found.common <= found.ratio + 1e-9 <= 1 + 2e-9
    easier = power_limit([d + 0.5 for d in distances], level, null_share)
    assert easier.common >= found.common - 1e-9
    if len(set(distances)) == 1:
        assert found.ratio == pytest.approx(found.common, abs=1e-9)


@pytest.mark.parametrize("distances", [[], [0.0], [[1.0]], [np.nan]])
def test_distances_are_checked(distances):
    with pytest.raises(InputError, match="positive numbers"):
        power_limit(distances)


def test_null_share_is_checked():
    with pytest.raises(InputError, match="null_share"):
        power_limit([1.0], null_share=1.0)


def test_the_command(conovel):
    ran = conovel("limit", "--shifts", "0,4")
    assert [line.split() for line in ran.stdout.splitlines()[1:]] == [
        ["0", "0.9993", "0.9993"],
        ["4", "0.9808", "0.9929"],
    ]
    assert len({len(line) for line in ran.stdout.splitlines()}) == 1  # aligned
    (found,) = json.loads(conovel("limit", "--shifts", "2", "--json").stdout)
    assert found["shift"] == 2
    assert found["common"] == pytest.approx(0.9925, abs=6e-5)


def test_the_command_explains_bad_shifts(conovel):
    ran = conovel("limit", "--shifts", "far")
    assert ran.returncode == 2
    assert "numbers separated by commas" in ran.stderr

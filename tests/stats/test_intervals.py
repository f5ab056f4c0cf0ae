"""Exact intervals of a share, against the tails of the binomial distribution."""

import pytest
from scipy.stats import binom

from conovel.stats.intervals import CONFIDENCE, exact_interval


@pytest.mark.parametrize("n", [1, 7, 40])
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_ends_are_where_the_tails_are(n, confidence):
    tail = (1 - confidence) / 2
    for hits in range(n + 1):
        low, high = exact_interval(hits, n, confidence)
        assert 0 <= low <= hits / n <= high <= 1
        if hits:
            assert binom.sf(hits - 1, n, low) == pytest.approx(tail)
        else:
            assert low == 0
        if hits < n:
            assert binom.cdf(hits, n, high) == pytest.approx(tail)
        else:
            assert high == 1


@pytest.mark.parametrize("p", [0.02, 0.1, 0.5, 0.93])
def test_it_covers_the_probability_as_often_as_it_says(p):
    n = 25
    ends = [exact_interval(hits, n) for hits in range(n + 1)]
    covers = sum(binom.pmf(k, n, p) for k, (low, high) in enumerate(ends) if low <= p <= high)
    assert covers >= CONFIDENCE
    assert CONFIDENCE == 0.95


def test_without_draws_nothing_is_ruled_out():
    assert exact_interval(0, 0) == (0.0, 1.0)

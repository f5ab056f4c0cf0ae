"""P-values given one calibration sample: exact numbers, exact coverage, and rates of detectors."""

import warnings
from fractions import Fraction
from itertools import pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from conovel.errors import ResolutionWarning
from conovel.stats.conditional import UNITS, Conditional, long_run, price
from conovel.stats.stepup import step_up

ALPHA = Fraction(1, 10)


def tail_bound(n, r, delta, k):
    """Return (1 - b_r)^k, exactly."""
    return delta * Fraction(comb(n + 1 - r, k), comb(n, k))


@pytest.mark.parametrize("n", [1, 2, 3, 8, 99, 400])
@pytest.mark.parametrize("confidence", [Fraction(1, 2), Fraction(19, 20), Fraction(999, 1000)])
def test_every_p_value_is_rounded_up_and_hardly(n, confidence):
    units, k = Conditional(n, confidence).units.tolist(), -(-n // 2)
    assert len(units) == n + 1
    for r, one in enumerate(units, 1):
        if n + 1 - r < k:
            assert one == UNITS
            continue
        exact = tail_bound(n, r, 1 - confidence, k)
        assert (1 - Fraction(one, UNITS)) ** k <= exact
        assert (1 - Fraction(one, UNITS) + Fraction(1, 10**8)) ** k > exact
    assert all(a <= b for a, b in pairwise(units))


def coverage(bounds):
    """Return P(U_(r) ≤ b_r for all r) for order statistics of uniforms, in fractions.

    The number of uniforms up to b_r is followed from b_1 on; r or more are needed.
    """
    n, before = len(bounds), Fraction(0)
    weights = {0: Fraction(1)}  # of how many are at most `before`, without binomial factors
    for r, bound in enumerate(bounds, 1):
        step = bound - before
        after = {}
        for count, weight in weights.items():
            for more in range(n - count + 1):
                if count + more >= r:
                    now = weight * comb(n - count, more) * step**more
                    after[count + more] = after.get(count + more, Fraction(0)) + now
        weights, before = after, bound
    return sum(weight * (1 - before) ** (n - count) for count, weight in weights.items())


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_bounds_hold_together_with_the_stated_probability(n):
    """Exact: with one or two calibration rows it is the confidence itself."""
    confidence = Fraction(9, 10)
    bounds = [Fraction(int(one), UNITS) for one in Conditional(n, confidence).units[:-1]]
    sure = coverage(bounds)
    assert confidence <= sure <= confidence + Fraction(1, 25)
    if n <= 2:
        assert sure <= confidence + Fraction(1, 10**7)
    # What each bound would be by itself does not hold for all of them together.
    alone = [Fraction(beta.ppf(0.9, r, n + 1 - r)) for r in range(1, n + 1)]
    assert n == 1 or coverage(alone) < confidence


def test_simulated_bounds_are_tight():
    n, confidence, draws = 299, Fraction(19, 20), 4000
    U = np.sort(np.random.default_rng(0).random((draws, n)), axis=1)
    covered = (Conditional(n, confidence).units[:-1] / UNITS >= U).all(axis=1).mean()
    error = 3 * np.sqrt(0.05 * 0.95 / draws)
    assert 0.95 - error <= covered <= 0.96 + error


def false_alarm_rate(U, limits, m):
    """Return for each calibration sample how often BH flags a row of m normal ones, exactly.

    `limits` are the largest ranks that BH flags with 1, 2, … rows; further ones hardly matter.
    """
    reached = np.stack([U[:, r - 1] if r else np.zeros(len(U)) for r in limits], axis=1)
    before = np.zeros(len(U))
    counts = np.zeros((len(U), len(limits) + 1))
    counts[:, 0] = 1.0
    for k in range(1, len(limits) + 1):
        now = np.zeros_like(counts)
        share = (reached[:, k - 1] - before) / (1 - before)
        for count in range(k):
            for more in range(k - count):
                now[:, count + more] += counts[:, count] * binom.pmf(more, m - count, share)
        counts, before = now, reached[:, k - 1]
    return 1 - counts.sum(axis=1)


def test_the_long_run_rate_of_a_detector_is_below_the_level_with_confidence():
    """Of detectors without confidence two in five are above it: the average is the level."""
    n, m, draws, confidence = 999, 100, 1500, Fraction(9, 10)
    U = np.sort(np.random.default_rng(1).random((draws, n)), axis=1)
    adjusted = Conditional(n, confidence)
    limits = [adjusted.limit(ALPHA / m, k) for k in range(1, 16)]
    rates = false_alarm_rate(U, limits, m)
    error = 3 * np.sqrt(0.1 * 0.9 / draws)
    assert (rates > 0.1).mean() <= 0.1 + error
    plain = false_alarm_rate(U, range(1, 16), m)
    assert abs(plain.mean() - 0.1) <= 3 * plain.std() / np.sqrt(draws)
    assert (plain > 0.1).mean() > 0.3
    # One step less careful than the theorem: it fails.
    careless = false_alarm_rate(U, [max(1, limit) for limit in limits], m)
    assert (careless > 0.1).mean() > 0.1 + error


def test_the_interval_of_detectors_without_confidence():
    """The share of batches with a row of rank 1, over calibration samples."""
    rate = long_run(999, ALPHA)
    assert rate.n_tests == 100
    U = np.random.default_rng(2).random((20_000, 999)).min(axis=1)
    simulated = np.quantile(1 - (1 - U) ** 100, [0.05, 0.95])
    assert np.allclose([rate.low, rate.high], simulated, rtol=0.06)
    assert str(rate) == "in 0.51 % to 26 % of batches of 100 normal rows"
    assert long_run(199, ALPHA).n_tests == 20
    assert long_run(8, ALPHA) is None
    # Two rows, each above 19 uniforms with the probability 1 - V^(1/19), V uniform
    two = long_run(19, ALPHA)
    assert np.allclose(two[1:], [1 - 0.95 ** (2 / 19), 1 - 0.05 ** (2 / 19)], rtol=1e-9)
    assert long_run(9, ALPHA).n_tests == 1
    many = long_run(99_999, ALPHA)
    assert 0.06 < many.low < many.high < 0.14


@given(st.integers(1, 60), st.data())
def test_the_step_up_is_bh_on_the_adjusted_p_values(n, data):
    ranks = np.array(data.draw(st.lists(st.integers(1, n + 1), min_size=1, max_size=30)))
    level = data.draw(st.sampled_from([Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)]))
    adjusted = Conditional(n, Fraction(4, 5))
    found = adjusted.step_up(ranks, level)
    values = sorted(Fraction(int(one), UNITS) for one in adjusted.units[ranks - 1])
    m = len(ranks)
    k = max((i for i, p in enumerate(values, 1) if p <= level * i / m), default=0)
    assert found.n_rejected == k == found.rejected[0].sum()
    largest = values[k - 1] if k else -1
    assert np.array_equal(found.rejected[0], adjusted.p_values(ranks) <= float(largest))
    # Adjusted p-values are larger, so it never rejects more than BH on ranks.
    assert not (found.rejected[0] & ~step_up([(ranks, n)], level, None).rejected[0]).any()


def test_the_largest_rank_within_a_p_value():
    adjusted = Conditional(99, Fraction(9, 10))
    fifth = Fraction(int(adjusted.units[4]), UNITS)
    assert adjusted.limit(fifth, 1) == adjusted.limit(fifth / 3, 3) == 5
    assert adjusted.limit(fifth - Fraction(1, UNITS), 1) == 4
    assert adjusted.limit(Fraction(3), 10**9) == 100
    assert adjusted.limit(Fraction(1, 10), 0) == 0
    assert [price(Fraction(one)) for one in ("0.95", "0.9", "0.1")] == [6, 5, 1]


def test_how_few_rows_can_be_rejected():
    adjusted = Conditional(999, Fraction(19, 20))
    need = adjusted.resolution(100, ALPHA)
    ones = np.ones(100, dtype=np.int64)
    ones[need.fewest :] = 1000
    assert adjusted.step_up(ones, ALPHA).n_rejected == need.fewest == 6
    ones[need.fewest - 1] = 1000
    assert adjusted.step_up(ones, ALPHA).n_rejected == 0
    for n_rows, m in ((need.rows_for_one, 100), (need.rows_for_any, 1)):
        enough, few = (
            Conditional(n, Fraction(19, 20)).resolution(m, ALPHA) for n in (n_rows + 2, n_rows - 4)
        )
        assert enough.fewest == 1 < few.fewest
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adjusted.resolution(need.fewest, ALPHA * need.fewest / 100).fewest == need.fewest
        adjusted.warn_resolution(need.fewest, ALPHA * need.fewest / 100)
    with pytest.warns(ResolutionWarning, match="no row can be flagged at level 1/10 with"):
        Conditional(40, Fraction(19, 20)).warn_resolution(20, ALPHA)
    assert adjusted.step_up(np.zeros(0, dtype=np.int64), ALPHA).n_rejected == 0

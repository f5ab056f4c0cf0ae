"""The step-up against a brute-force oracle in rationals, and every way of calling it."""

import re
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control
from statsmodels.stats.multitest import multipletests
from support.strategies import blocks_of, float_levels, levels, problems, score_samples

from conovel.errors import InputError, LevelError, ResolutionWarning, SampleError
from conovel.stats.ranks import adjusted_pvalues, conformal_ranks
from conovel.stats.resolution import rank_limit, resolution
from conovel.stats.stepup import (
    RankHistogram,
    benjamini_hochberg,
    descend,
    fast_lsu,
    reject,
    step_up,
)
from conovel.stats.words import counted

# Small problems often cannot reject anything; what the warning says has tests of its own.
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


def p_values(ranks, sizes):
    return [Fraction(int(r), int(n) + 1) for r, n in zip(ranks, sizes, strict=True)]


def oracle(ranks, sizes, level):
    """BH by its definition: the largest k with k p-values at most αk/m, all in rationals."""
    p, m = p_values(ranks, sizes), len(ranks)
    k = max((k for k in range(1, m + 1) if sum(q <= level * k / m for q in p) >= k), default=0)
    return [q <= level * k / m for q in p]


def adjusted_oracle(ranks, sizes):
    """The smallest level at which each row is rejected, capped at 1."""
    p, m = p_values(ranks, sizes), len(ranks)
    steps = {q: q * m / sum(other <= q for other in p) for q in p}
    return [min(1, *(steps[other] for other in p if other >= q)) for q in p]


# --- Benjamini-Hochberg -----------------------------------------------------------------


@given(problems())
def test_bh_equals_the_oracle_at_and_around_equality(problem):
    ranks, sizes, level = problem
    got = benjamini_hochberg(ranks, sizes, level)
    assert got.dtype == np.bool_
    assert got.tolist() == oracle(ranks, sizes, level)


@given(problems(one_size=True))
def test_one_size_for_all_equals_one_per_test(problem):
    ranks, sizes, level = problem
    np.testing.assert_array_equal(
        benjamini_hochberg(ranks, int(sizes[0]), level), benjamini_hochberg(ranks, sizes, level)
    )


@pytest.mark.parametrize("level", [0.1, "0.1", "1/10", Fraction(1, 10)])
def test_all_hundred_equality_points_are_rejected(level):
    """At ℓ=999, m=1000, α=0.1 rank k is exactly αk/m for k up to 100: a knife's edge each."""
    n_calibration, m = 999, 1000
    for k in range(1, 101):
        assert Fraction(k, n_calibration + 1) == Fraction(1, 10) * (k * 10) / m
        on_the_edge = np.full(m, n_calibration + 1)
        on_the_edge[: 10 * k] = k
        assert benjamini_hochberg(on_the_edge, n_calibration, level).sum() == 10 * k
        on_the_edge[10 * k - 1] = n_calibration + 1
        assert benjamini_hochberg(on_the_edge, n_calibration, level).sum() == 0


def test_floats_miss_some_of_those_points():
    """Why integers decide: BH in floats loses equality points that exist on this very grid."""
    ranks = np.arange(1, 1001)
    lost = 0
    for k in range(1, 101):
        edge = np.where(ranks <= 10 * k, k, 1000)
        lost += (false_discovery_control(edge / 1000) <= 0.1).sum() < 10 * k
    assert lost > 0


@given(problems())
def test_bh_agrees_with_scipy_and_statsmodels_away_from_equality(problem):
    ranks, sizes, level = problem
    p, m = p_values(ranks, sizes), len(ranks)
    # A hair above the level nothing changes sides, unless it sat at equality.
    between = level + Fraction(1, 10**7)
    assert all(q != between * k / m for q in p for k in range(1, m + 1))
    got = benjamini_hochberg(ranks, sizes, between)
    floats = np.array([float(q) for q in p])
    np.testing.assert_array_equal(got, false_discovery_control(floats) <= float(between))
    np.testing.assert_array_equal(got, multipletests(floats, float(between), method="fdr_bh")[0])


@given(problems(), levels)
def test_a_larger_level_rejects_at_least_as_much(problem, other):
    low, high = sorted([problem.level, Fraction(str(other))])
    small = benjamini_hochberg(problem.ranks, problem.sizes, low)
    large = benjamini_hochberg(problem.ranks, problem.sizes, high)
    assert np.all(small <= large)


@given(problems(), st.data())
def test_a_smaller_rank_rejects_at_least_as_much(problem, data):
    """R is nonincreasing in every p-value: what the proof of the FDR bound uses."""
    ranks, sizes, level = problem
    smaller = ranks.copy()
    i = data.draw(st.integers(0, ranks.size - 1))
    smaller[i] = data.draw(st.integers(1, int(ranks[i])))
    before = benjamini_hochberg(ranks, sizes, level)
    assert np.all(before <= benjamini_hochberg(smaller, sizes, level))


@given(problems(), st.randoms(use_true_random=False))
def test_permuting_tests_permutes_decisions(problem, random):
    ranks, sizes, level = problem
    order = list(range(ranks.size))
    random.shuffle(order)
    np.testing.assert_array_equal(
        benjamini_hochberg(ranks[order], sizes[order], level),
        benjamini_hochberg(ranks, sizes, level)[order],
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint64])
def test_narrow_integers_do_not_wrap(dtype):
    largest = min(int(np.iinfo(dtype).max), 2**40)
    ranks = np.array([1, 1, 2], dtype)
    assert benjamini_hochberg(ranks, dtype(largest), 0.1).all()
    sizes = np.full(3, largest, dtype)
    assert benjamini_hochberg(ranks, sizes, 0.1).all()
    assert np.all(adjusted_pvalues(ranks, sizes) == adjusted_pvalues([1, 1, 2], largest))


# --- FastLSU ----------------------------------------------------------------------------


@given(problems(), st.data())
def test_fast_lsu_equals_bh_for_every_partition(problem, data):
    ranks, sizes, level = problem
    members = data.draw(blocks_of(problem))
    outcome = fast_lsu([(ranks[rows], size) for size, rows in members], level)
    merged = np.zeros(ranks.size, dtype=bool)
    for (_, rows), mask in zip(members, outcome.rejected, strict=True):
        assert mask.shape == (len(rows),)
        assert mask.dtype == np.bool_
        merged[rows] = mask
    np.testing.assert_array_equal(merged, oracle(ranks, sizes, level))
    assert outcome.n_rejected == merged.sum()
    assert outcome.level == level
    assert outcome.pi0 is None


@given(problems(), st.data())
def test_the_rounds_of_fast_lsu(problem, data):
    ranks, _, level = problem
    members = data.draw(blocks_of(problem))
    outcome = fast_lsu([(ranks[rows], size) for size, rows in members], level)
    counts = np.array(outcome.counts)
    assert counts.shape == (outcome.rounds, len(members))
    assert np.all(np.diff(counts, axis=0) <= 0), "a block's count never grows"
    totals = [len(ranks), *counts.sum(axis=1).tolist()]
    assert totals[-1] == totals[-2] == outcome.n_rejected, "it stops when the total stays"
    assert np.all(np.diff(totals[:-1]) < 0), "and not before"
    assert counts[-1].tolist() == [int(mask.sum()) for mask in outcome.rejected]
    # Every count follows from the total before it, and from nothing else.
    for k, row in zip(totals, counts, strict=False):
        limits = [level * k * (size + 1) / len(ranks) for size, _ in members]
        expected = [sum(ranks[rows] <= x) for x, (_, rows) in zip(limits, members, strict=True)]
        assert row.tolist() == expected
    for limit, (_, rows), mask in zip(outcome.limits, members, outcome.rejected, strict=True):
        np.testing.assert_array_equal(mask, ranks[rows] <= limit)


def test_an_empty_block_changes_nothing():
    alone = fast_lsu([([1, 1, 5], 30)], 0.1)
    beside = fast_lsu([([], 10**6), ([1, 1, 5], 30), (np.array([]), 1)], 0.1)
    assert beside.n_rejected == alone.n_rejected == 2
    assert beside.counts == tuple((0, n, 0) for (n,) in alone.counts)
    assert [mask.size for mask in beside.rejected] == [0, 3, 0]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(29, 35), st.integers(0, 40))
def test_a_histogram_counts_like_its_ranks(ranks, n_calibration, numerator):
    histogram = RankHistogram(np.array(ranks, dtype=np.int64), n_calibration)
    assert histogram.size == len(ranks)
    for rank in (-1, 0, 1, 7, 30, n_calibration + 1, 10**15):
        assert histogram.at_most(rank) == sum(r <= rank for r in ranks)
    point = Fraction(numerator, 36)
    assert histogram.below(point) == sum(Fraction(r, n_calibration + 1) < point for r in ranks)


# --- sizes at which 64 bits overflow ------------------------------------------------------


@given(
    st.fractions(0, 1, max_denominator=10**18).filter(lambda a: 0 < a < 1),
    st.integers(1, 10**9),
    st.integers(1, 10**7),
)
def test_the_rank_limit_is_an_exact_floor(level, k, n_calibration):
    m = 10**9
    limit = rank_limit(level / m, k, n_calibration)
    assert Fraction(limit, n_calibration + 1) <= level * k / m
    assert Fraction(limit + 1, n_calibration + 1) > level * k / m


class Uniform:
    """Counts of a billion tests: `novel` of rank 1 and 99 nulls on every rank. No arrays."""

    n_calibration, novel, nulls_per_rank = 10**7, 10**6, 99
    size = novel + nulls_per_rank * (n_calibration + 1)

    def at_most(self, rank):
        return (self.novel if rank >= 1 else 0) + self.nulls_per_rank * min(rank, 10**7 + 1)


@pytest.mark.parametrize("level", ["0.1", "0.123456789012345678"])
def test_a_billion_tests_against_ten_million_calibration_rows(level):
    tests, alpha = Uniform(), Fraction(level)
    assert tests.size > 9 * 10**8
    counts, (limit,) = descend([tests], alpha / tests.size)

    def count(k):  # how many p-values are at most αk/m
        return tests.at_most(int(alpha * k * (tests.n_calibration + 1) / tests.size))

    k = sum(counts[-1])
    assert k == count(k) == tests.at_most(limit) > tests.novel
    # count grows by less than its argument does, so no k above this one is a fixed point
    assert all(count(above) < above for above in [*range(k + 1, k + 500), 2 * k, tests.size])


# --- reject: the same from scores -----------------------------------------------------------


@given(score_samples, levels)
def test_reject_is_bh_on_the_ranks(pair, level):
    calibration, tests = pair
    ranks = conformal_ranks(calibration, tests)
    expected = benjamini_hochberg(ranks, len(calibration), level)
    got = reject(calibration, tests, level)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("offset", [0, 2**62])
@pytest.mark.parametrize("first", [np.int8, np.uint64, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("second", [np.int8, np.uint64, np.int64, np.float32, np.float64])
def test_reject_is_bh_on_the_ranks_for_every_pair_of_dtypes(first, second, offset):
    """Near 2**62 a common dtype may have to round, and both must round alike."""
    calibration = np.arange(19).astype(first)
    tests = np.array([0, 5, 18, 19, 30, 31, 32]).astype(second)
    if first in (np.uint64, np.int64):
        calibration += first(offset)
    if second in (np.uint64, np.int64):
        tests += second(offset)
    expected = benjamini_hochberg(conformal_ranks(calibration, tests), 19, 0.3)
    np.testing.assert_array_equal(reject(calibration, tests, 0.3), expected)
    if offset == 0:
        assert expected.tolist() == [False, False, True, True, True, True, True]


@pytest.mark.parametrize("kind", ["normal", "ties", "binary", "infinite"])
def test_reject_is_bh_on_the_ranks_at_size(kind):
    rng = np.random.default_rng(1)
    calibration, tests = rng.standard_normal(1999), rng.standard_normal(30_000)
    tests[:1500] += 4
    if kind == "ties":
        calibration, tests = calibration.round(1), tests.round(1)
    elif kind == "binary":
        calibration, tests = np.abs(calibration) > 3.2, tests > 3.2
    elif kind == "infinite":
        calibration[0], tests[tests > 5] = np.inf, np.inf
        tests[-10:] = -np.inf
    expected = benjamini_hochberg(conformal_ranks(calibration, tests), 1999, 0.1)
    got = reject(calibration, tests, 0.1)
    np.testing.assert_array_equal(got, expected)
    assert 0 < got.sum() < 3000


# --- adjusted p-values ----------------------------------------------------------------------


@given(problems())
def test_adjusted_pvalues_are_the_rounded_exact_ones(problem):
    ranks, sizes, _ = problem
    got = adjusted_pvalues(ranks, sizes)
    assert got.tolist() == [float(q) for q in adjusted_oracle(ranks, sizes)]
    floats = [float(q) for q in p_values(ranks, sizes)]
    np.testing.assert_allclose(got, multipletests(floats, method="fdr_bh")[1], rtol=1e-12)


def test_adjusted_pvalues_of_agents_of_different_sizes_by_hand():
    """p = 1/2 and 4/10: the second is smaller, 2 · 4/10 is above 1/2, so both are 1/2."""
    assert adjusted_pvalues([1, 4], [1, 9]).tolist() == [0.5, 0.5]


@given(problems(), float_levels)
def test_adjusted_at_most_the_level_iff_rejected(problem, level):
    for alpha in (level, float(problem.level)):
        if len(str(alpha)) < 8:  # what someone types; 0.3333333333333333 is another number
            np.testing.assert_array_equal(
                adjusted_pvalues(problem.ranks, problem.sizes) <= alpha,
                benjamini_hochberg(problem.ranks, problem.sizes, alpha),
            )


@given(problems())
def test_each_row_is_rejected_from_its_exact_adjusted_pvalue_on(problem):
    ranks, sizes, _ = problem
    for i, exact in enumerate(adjusted_oracle(ranks, sizes)):
        if exact < 1:
            assert benjamini_hochberg(ranks, sizes, exact)[i]
        assert not benjamini_hochberg(ranks, sizes, exact - Fraction(1, 10**12))[i]


@given(problems(one_size=True))
def test_adjusted_pvalues_are_monotone_in_the_rank(problem):
    adjusted = adjusted_pvalues(problem.ranks, problem.sizes)
    order = np.argsort(problem.ranks)
    assert np.all(np.diff(adjusted[order]) >= 0)
    assert np.all(adjusted >= problem.ranks / (problem.sizes + 1))
    assert np.all(adjusted <= 1)


def test_adjusted_pvalues_with_products_near_the_end_of_int64():
    adjusted = adjusted_pvalues(np.full(10**5, 10**13), 10**13 + 10)
    assert np.all((adjusted > 1 - 1e-9) & (adjusted <= 1))


# --- resolution -----------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 40), levels)
def test_resolution_is_what_bh_can_do(n_calibration, m, level):
    fewest, rows_for_any, rows_for_one = resolution(n_calibration, m, level)

    def rejects(k, size):  # when k rows have the smallest p-value and the rest the largest
        ranks = np.full(m, size + 1)
        ranks[:k] = 1
        return benjamini_hochberg(ranks, size, level)[:k].all()

    assert fewest > m or rejects(fewest, n_calibration)
    assert fewest == 1 or not rejects(min(fewest - 1, m), n_calibration)
    for k, rows in ((m, rows_for_any), (1, rows_for_one)):
        assert rejects(k, max(rows, 1))
        assert rows <= 1 or not rejects(k, rows - 1)


CALLS = {
    "benjamini_hochberg": lambda n, m, level: benjamini_hochberg([1] * m, n, level).all(),
    "fast_lsu": lambda n, m, level: fast_lsu([([1] * m, n)], level).n_rejected == m,
    "several blocks": lambda n, m, level: (
        fast_lsu([([1] * (m - 1), n), ([1], n), ([], 10**6)], level).n_rejected == m
    ),
    "reject": lambda n, m, level: reject([0.0] * n, [1.0] * m, level).all(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(
    ("level", "rows"), [(0.1, 9), (0.05, 19), ("1/3", 2), ("0.3", 3), ("0.01", 99), ("3/7", 2)]
)
@pytest.mark.parametrize("m", [1, 50])
def test_the_warning_asks_for_exactly_the_rows_that_are_missing(call, level, rows, m):
    for_one = int(-(-m // Fraction(str(level)))) - 1
    asked = f"At least {rows} calibration rows are needed, and {for_one} to be able"
    with pytest.warns(ResolutionWarning, match=asked) as caught:
        assert not call(rows - 1, m, level)
    assert len(caught) == 1
    text = str(caught[0].message)
    few = f"with {counted(rows - 1, 'calibration row')}, no row can be flagged at level"
    assert text.startswith(f"{few} {Fraction(str(level))}: p-values are at least 1/{rows}.")
    assert f"flag a single one of {counted(m, 'row')}: add known normals" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(rows, m, level)


def test_no_warning_when_an_estimate_of_the_nulls_makes_up_for_it():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fast_lsu([([1] * 100, 5)], 0.1, pi0="storey").n_rejected == 100


def test_checked_blocks_step_up_without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step_up([(np.array([1]), 3)], Fraction(1, 10)).n_rejected == 0


# --- arguments that cannot be used ----------------------------------------------------------

BAD_RANKS = {
    "empty": ([], 9, SampleError, "there is nothing to test: "),
    "two dimensions": ([[1]], 9, SampleError, "ranks must have one dimension, not shape (1, 1)"),
    "no dimension": (1, 9, SampleError, "ranks must have one dimension, not shape ()"),
    "floats": ([0.1], 9, InputError, "ranks must be integers, not float64: see conformal_ranks"),
    "bools": ([True], 9, InputError, "ranks must be integers, not bool"),
    "zero": (
        [0, 3],
        9,
        InputError,
        "ranks must lie between 1 and n_calibration + 1 = 10, not between 0 and 3",
    ),
    "too large": ([11], 9, InputError, "n_calibration + 1 = 10, not between 11 and 11"),
    "no calibration": ([1], 0, SampleError, "n_calibration must be a positive integer, not 0"),
    "float size": ([1], 9.0, SampleError, "n_calibration must be a positive integer, not 9.0"),
    "bool size": ([1], True, SampleError, "n_calibration must be a positive integer, not True"),
    "no size": ([1], None, SampleError, "n_calibration must be a positive integer, not None"),
}
FUNCTIONS = {
    "benjamini_hochberg": lambda ranks, n: benjamini_hochberg(ranks, n, 0.1),
    "adjusted_pvalues": adjusted_pvalues,
    "fast_lsu": lambda ranks, n: fast_lsu([(ranks, n)], 0.1),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize(("ranks", "size", "error", "message"), BAD_RANKS.values(), ids=BAD_RANKS)
def test_bad_ranks_and_sizes(function, ranks, size, error, message):
    with pytest.raises(error, match=re.escape(message)):
        function(ranks, size)


@pytest.mark.parametrize("name", ["benjamini_hochberg", "adjusted_pvalues"])
@pytest.mark.parametrize(
    ("ranks", "sizes", "error", "message"),
    [
        ([1, 1], [9], SampleError, "or one per rank (shape (2,)), not int64 of shape (1,)"),
        ([1, 1], [9, 0], SampleError, "n_calibration must be one positive integer"),
        ([1, 1], [9.0, 9.0], SampleError, "not float64 of shape (2,)"),
        ([1, 8], [20, 6], InputError, "a rank exceeds its own n_calibration + 1"),
        ([1, 22], [20, 6], InputError, "n_calibration + 1 = 21, not between 1 and 22"),
        ([[1], [1]], [[9], [9]], SampleError, "ranks must have one dimension, not shape (2, 1)"),
    ],
)
def test_bad_sizes_per_test(name, ranks, sizes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        FUNCTIONS[name](ranks, sizes)


@pytest.mark.parametrize("blocks", [[], [([], 9)], [([], 9), ([], 99)]])
def test_nothing_to_test(blocks):
    with pytest.raises(SampleError, match="there is nothing to test: every block is empty"):
        fast_lsu(blocks, 0.1)


@pytest.mark.parametrize("level", [0, 1, "abc", None, np.nan])
def test_bad_levels(level):
    for call in CALLS.values():
        with pytest.raises(LevelError, match=r"^level must "):
            call(9, 2, level)
    with pytest.raises(LevelError, match=r"^level must "):
        resolution(9, 1, level)


@pytest.mark.parametrize(
    ("calibration", "tests", "error", "message"),
    [
        ([], [1.0], SampleError, "calibration_scores is empty"),
        ([1.0], [], SampleError, "test_scores is empty"),
        ([1.0], [np.nan], InputError, "test_scores has 1 NaN (first at position 0)"),
        ([1.0], ["a"], InputError, "test_scores must be numbers"),
        ([[1.0]], [1.0], SampleError, "calibration_scores must have one dimension"),
    ],
)
def test_reject_refuses_what_cannot_be_ranked(calibration, tests, error, message):
    with pytest.raises(error, match=re.escape(message)):
        reject(calibration, tests, 0.1)


def test_the_warning_sees_that_agents_with_enough_rows_are_too_few_to_carry_the_others():
    # 999 tests can never be rejected with 5 calibration rows, and one test alone is not enough.
    with pytest.warns(ResolutionWarning, match="no row can be flagged"):
        outcome = fast_lsu([([1], 100), ([1] * 999, 5)], 0.1)
    assert outcome.n_rejected == 0


def test_rank_limit_does_not_overflow_with_numpy_integers():
    slope = Fraction(1, 10) / 10**9
    assert rank_limit(slope, np.int64(10**9), np.int64(10**7 - 1)) == 10**6


def test_resolution_refuses_impossible_counts():
    with pytest.raises(InputError, match="n_calibration must be a whole number from 0 on, not -1"):
        resolution(-1, 5, 0.1)

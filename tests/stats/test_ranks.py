"""Ranks against their definition: 1 + #{calibration >= score}, through every path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import big_integers, samples, score_samples

from conovel.errors import InputError, SampleError
from conovel.stats import ranks
from conovel.stats.ranks import conformal_pvalues, conformal_ranks


def by_definition(calibration, tests):
    """The O(ℓ·m) definition, on Python numbers so that nothing is rounded or promoted."""
    return [1 + sum(c >= s for c in calibration) for s in tests]


def guided_ranks(calibration, tests, cells=1 << 18):
    """Ranks through the guide table, however few the queries; also tells if it was used."""
    used = []
    guided = ranks.guided_count_below

    def spy(*args):
        used.append(True)
        return guided(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks, "_GUIDE_QUERIES", 1)
        patch.setattr(ranks, "_GUIDE_CELLS", cells)
        patch.setattr(ranks, "guided_count_below", spy)
        return conformal_ranks(calibration, tests), bool(used)


@given(score_samples)
def test_ranks_equal_their_definition(pair):
    calibration, tests = pair
    got = conformal_ranks(calibration, tests)
    assert got.dtype == np.int64
    assert got.tolist() == by_definition(calibration, tests)


@given(score_samples, st.sampled_from([2, 3, 8, 1 << 10]))
def test_ranks_through_the_guide_table_equal_their_definition(pair, cells):
    calibration, tests = pair
    got, _ = guided_ranks(calibration, tests, cells)
    assert got.dtype == np.int64
    assert got.tolist() == by_definition(calibration, tests)


TINY, HUGE = 5e-324, 1.7e308
AWKWARD = {
    "constant": [3.0] * 7,
    "one row": [3.0],
    "infinite above": [0.0, 1.0, np.inf],
    "infinite below": [-np.inf, 0.0, 1.0],
    "infinite on both sides": [-np.inf, 0.0, np.inf],
    "all infinite": [np.inf] * 3,
    "a range that overflows": [-HUGE, 0.0, HUGE],
    "a range just below overflow": [-HUGE / 2, 0.0, HUGE / 4],
    "a subnormal range": [0.0, TINY, 4 * TINY],
    "a subnormal range far from zero": [1.0, np.nextafter(1.0, 2.0)],
    "signed zeros": [-0.0, 0.0, 1.0],
    "a tiny range above a huge offset": [1e300, np.nextafter(1e300, np.inf), 1.1e300],
    "heavy tails": [-1e200, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0, 1e9, 1e200],
}


@pytest.mark.parametrize("cells", [2, 1 << 18])
@pytest.mark.parametrize("calibration", AWKWARD.values(), ids=AWKWARD.keys())
def test_awkward_ranges_through_the_guide_table(calibration, cells):
    finite = [c for c in calibration if np.isfinite(c)]
    beside = [np.nextafter(c, side) for c in finite for side in (-np.inf, np.inf)]
    tests = [*calibration, *beside, -np.inf, -HUGE, -TINY, 0.0, TINY, 1.0, HUGE, np.inf]
    got, _ = guided_ranks(calibration, tests, cells)
    assert got.tolist() == by_definition(calibration, tests)


def test_the_guide_table_is_what_these_tests_exercise():
    assert guided_ranks([0.0, 1.0], [0.5])[1]
    assert not guided_ranks([0.0, 0.0], [0.5])[1]
    assert not guided_ranks([0, 1], [2])[1]


@pytest.mark.parametrize("draw", ["normal", "uniform", "cauchy", "ties", "mostly infinite"])
def test_many_queries_equal_the_definition(draw):
    rng = np.random.default_rng(5)
    calibration, tests = rng.standard_normal(400), rng.standard_normal(25_000)
    if draw == "uniform":
        calibration, tests = rng.random(400), rng.random(25_000)
    elif draw == "cauchy":
        calibration, tests = rng.standard_cauchy(400), rng.standard_cauchy(25_000)
    elif draw == "ties":
        calibration, tests = calibration.round(1), tests.round(1)
    elif draw == "mostly infinite":
        calibration[calibration > 0], tests[tests > 0] = np.inf, np.inf
    assert tests.size >= ranks._GUIDE_QUERIES
    expected = 1 + np.count_nonzero(calibration[:, None] >= tests, axis=0)
    np.testing.assert_array_equal(conformal_ranks(calibration, tests), expected)


@given(score_samples, st.randoms(use_true_random=False))
def test_permuting_rows_permutes_ranks(pair, random):
    calibration, tests = pair
    expected = conformal_ranks(calibration, tests)
    order = list(range(len(tests)))
    random.shuffle(order)
    random.shuffle(calibration)
    np.testing.assert_array_equal(
        conformal_ranks(calibration, [tests[i] for i in order]), expected[order]
    )


@given(samples(big_integers))
def test_integers_beyond_floats_keep_their_order(pair):
    calibration, tests = (np.array(sample, dtype=np.int64) for sample in pair)
    assert len(set(map(float, pair[0] + pair[1]))) == 1, "as floats they are all tied"
    assert conformal_ranks(calibration, tests).tolist() == by_definition(*pair)


@pytest.mark.parametrize(
    "kinds", [(np.int64, np.uint64), (np.float64, np.int64), (np.uint64, float)]
)
def test_mixed_kinds_of_number_are_ranked_at_least_as_high(kinds):
    # A common dtype may round; rounding is monotone, so it adds ties but loses none.
    values = [2**62 + i for i in range(0, 2048, 64)]
    calibration, tests = np.array(values, kinds[0]), np.array(values, kinds[1])
    exact = by_definition([int(c) for c in calibration], [int(s) for s in tests])
    assert np.all(conformal_ranks(calibration, tests) >= exact)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float16, np.float32, ">f8", ">i4"])
def test_every_numeric_dtype_will_do(dtype):
    calibration, tests = np.array([0, 1, 1, 0], dtype), np.array([0, 1], dtype)
    assert conformal_ranks(calibration, tests).tolist() == [5, 3]


def test_the_arguments_are_left_alone():
    calibration, tests = np.array([3.0, 1.0, 2.0]), np.array([5.0, 0.0])
    guided_ranks(calibration, tests)
    assert calibration.tolist() == [3.0, 1.0, 2.0]
    assert tests.tolist() == [5.0, 0.0]


@given(score_samples)
def test_pvalues_are_ranks_over_the_size_plus_one(pair):
    calibration, tests = pair
    p = conformal_pvalues(calibration, tests)
    assert p.tolist() == [r / (len(calibration) + 1) for r in by_definition(calibration, tests)]


@pytest.mark.parametrize("argument", ["calibration_scores", "test_scores"])
@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        ([], SampleError, "is empty: at least one score is needed"),
        (np.ones((2, 1)), SampleError, r"must have one dimension, not shape \(2, 1\)"),
        (1.0, SampleError, r"must have one dimension, not shape \(\)"),
        (["a"], InputError, "must be numbers, not <U1"),
        ([1.0, None], InputError, "must be numbers, not object"),
        ([1j], InputError, "must be numbers, not complex128"),
        (
            [1.0, np.nan, np.nan],
            InputError,
            r"has 2 NaN \(first at position 1\): a row without a score cannot be ranked",
        ),
    ],
)
@pytest.mark.parametrize("function", [conformal_ranks, conformal_pvalues])
def test_scores_that_cannot_be_ranked(function, argument, scores, error, message):
    arguments = {"calibration_scores": [0.0, 1.0], "test_scores": [0.5], argument: scores}
    with pytest.raises(error, match=f"^{argument} {message}"):
        function(**arguments)

"""The estimators of the number of nulls against their formulas, in rationals."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.strategies import blocks_of, levels, problems

from conovel.errors import GuaranteeWarning, InputError, LevelError, SampleError
from conovel.stats.null_proportion import NullProportion, Quantile, Storey, as_estimator
from conovel.stats.stepup import RankHistogram, benjamini_hochberg, fast_lsu

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
quiet = pytest.mark.filterwarnings("ignore::conovel.errors.GuaranteeWarning")

estimators = st.builds(Storey, levels) | st.builds(Quantile, levels)


def p_values(ranks, sizes):
    return [Fraction(int(r), int(n) + 1) for r, n in zip(ranks, sizes, strict=True)]


def null_count(estimator, ranks, sizes):
    """The estimate for ranks with one size each; no bound on the nulls counts as infinity."""
    groups = [(np.asarray(ranks)[np.asarray(sizes) == n], int(n)) for n in np.unique(sizes)]
    histograms = [RankHistogram(rows, n) for rows, n in groups]
    try:
        return estimator.null_count(
            lambda p: [h.below(p) for h in histograms], [n for _, n in groups], len(ranks)
        )
    except SampleError:
        return math.inf


# --- formulas -------------------------------------------------------------------------------


@given(problems(one_size=True), levels)
def test_storey_at_one_site(problem, at):
    ranks, sizes, _ = problem
    n = int(sizes[0])
    lam = Fraction(str(at))
    on_grid = min(Fraction(j, n + 1) for j in range(1, n + 2) if Fraction(j, n + 1) >= lam)
    large = sum(p >= lam for p in p_values(ranks, sizes))
    expected = (1 + large) / (1 - on_grid) if on_grid < 1 else math.inf
    assert null_count(Storey(at), ranks, sizes) == expected


@given(problems(one_size=True), levels)
def test_quantile_at_one_site(problem, at):
    ranks, sizes, _ = problem
    k0 = math.ceil(Fraction(str(at)) * len(ranks))
    kth = sorted(p_values(ranks, sizes))[k0 - 1]
    expected = (len(ranks) - k0 + 1) / (1 - kth) if kth < 1 else math.inf
    assert null_count(Quantile(at), ranks, sizes) == expected


def test_worked_examples():
    # Ten tests, ℓ = 9: p = .1 .1 .1 .2 .3 .4 .6 .7 .9 1.
    ranks, sizes = [1, 1, 1, 2, 3, 4, 6, 7, 9, 10], [9] * 10
    assert null_count(Storey(0.5), ranks, sizes) == (1 + 4) / Fraction(1, 2)
    assert null_count(Storey(0.6), ranks, sizes) == (1 + 4) / Fraction(4, 10)
    assert null_count(Storey(0.55), ranks, sizes) == (1 + 4) / Fraction(4, 10)
    assert null_count(Quantile(0.5), ranks, sizes) == (10 - 5 + 1) / Fraction(7, 10)
    assert null_count(Quantile(0.41), ranks, sizes) == (10 - 5 + 1) / Fraction(7, 10)


@given(problems(), levels)
def test_storey_at_several_sites_uses_the_largest_rounded_point(problem, at):
    ranks, sizes, _ = problem
    lam = Fraction(str(at))
    rounded = max(Fraction(math.ceil(lam * (int(n) + 1)), int(n) + 1) for n in sizes)
    large = sum(p >= lam for p in p_values(ranks, sizes))
    expected = (1 + large) / (1 - rounded) if rounded < 1 else math.inf
    assert null_count(Storey(at), ranks, sizes) == expected


@given(problems(), levels)
def test_quantile_at_several_sites_never_claims_fewer_nulls(problem, at):
    ranks, sizes, _ = problem
    k0 = math.ceil(Fraction(str(at)) * len(ranks))
    kth = sorted(p_values(ranks, sizes))[k0 - 1]
    got = null_count(Quantile(at), ranks, sizes)
    if kth == 1:
        assert got == math.inf
    else:
        assert got >= (len(ranks) - k0 + 1) / (1 - kth)


# --- what the proofs use ----------------------------------------------------------------------


@given(problems(), estimators, st.data())
def test_a_larger_p_value_never_lowers_the_estimate(problem, estimator, data):
    ranks, sizes, _ = problem
    larger = ranks.copy()
    i = data.draw(st.integers(0, ranks.size - 1))
    larger[i] = data.draw(st.integers(int(ranks[i]), int(sizes[i]) + 1))
    assert null_count(estimator, larger, sizes) >= null_count(estimator, ranks, sizes)


@quiet
@given(problems(), estimators, st.data())
def test_the_partition_does_not_matter(problem, estimator, data):
    ranks, sizes, level = problem
    assume(null_count(estimator, ranks, sizes) < math.inf)
    members = data.draw(blocks_of(problem))
    outcome = fast_lsu([(ranks[rows], n) for n, rows in members], level, pi0=estimator)
    assert outcome.pi0 == null_count(estimator, ranks, sizes) / len(ranks)
    merged = np.zeros(ranks.size, dtype=bool)
    for (_, rows), mask in zip(members, outcome.rejected, strict=True):
        merged[rows] = mask
    np.testing.assert_array_equal(merged, benjamini_hochberg(ranks, sizes, level, pi0=estimator))


@quiet
@given(problems(), estimators)
def test_adaptive_bh_is_bh_with_the_estimate_for_m(problem, estimator):
    ranks, sizes, level = problem
    nulls = null_count(estimator, ranks, sizes)
    assume(nulls < math.inf)
    p = p_values(ranks, sizes)
    ks = range(1, len(p) + 1)
    k = max((k for k in ks if sum(q <= level * k / nulls for q in p) >= k), default=0)
    expected = [q <= level * k / nulls for q in p]
    assert benjamini_hochberg(ranks, sizes, level, pi0=estimator).tolist() == expected


def test_an_estimate_above_m_is_not_cut():
    outcome = fast_lsu([([9] * 10, 9)], 0.1, pi0="storey")
    assert outcome.pi0 == Fraction(22, 10)


# --- warnings and errors ------------------------------------------------------------------------


def test_the_quantile_estimator_is_not_proven_for_several_sites():
    blocks = [([1, 2, 3], 30), ([1, 1, 9], 40)]
    with pytest.warns(GuaranteeWarning, match="Quantile is proven for one site only, not for 2"):
        fast_lsu(blocks, 0.1, pi0="quantile")
    with pytest.warns(GuaranteeWarning, match="use pi0='storey'"):
        benjamini_hochberg([1, 2], [30, 40], 0.1, pi0=Quantile())


def test_what_is_proven_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast_lsu([([1, 2, 3], 30)], 0.1, pi0="quantile")
        fast_lsu([([1, 2, 3], 30), ([], 40)], 0.1, pi0="quantile")
        fast_lsu([([1, 2, 3], 30), ([1, 1, 9], 40)], 0.1, pi0="storey")


@pytest.mark.parametrize(("at", "rows"), [("0.9", 9), ("0.5", 1), ("0.95", 19), ("2/3", 2)])
def test_storey_asks_for_exactly_the_rows_that_are_missing(at, rows):
    if rows > 1:
        message = (
            f"^Storey at {Fraction(at)} needs at least {rows} calibration rows at every site,"
            f" and one has {rows - 1}"
        )
        with pytest.raises(SampleError, match=message):
            fast_lsu([([1], 100), ([1], rows - 1)], 0.1, pi0=f"storey:{at}")
    assert fast_lsu([([1], 100), ([1], rows)], 0.1, pi0=f"storey:{at}").pi0 > 0
    assert fast_lsu([([1], 100), ([], 1)], 0.1, pi0=f"storey:{at}").pi0 > 0


def test_quantile_says_so_when_it_sees_nothing():
    with pytest.raises(SampleError, match=r"^the 2-th smallest p-value is 1, so Quantile at 1/2"):
        fast_lsu([([1, 10, 10, 10], 9)], 0.2, pi0="quantile")


@pytest.mark.parametrize(
    ("text", "estimator"),
    [
        ("storey", Storey(Fraction(1, 2))),
        ("quantile", Quantile(Fraction(1, 2))),
        ("storey:0.25", Storey("1/4")),
        ("quantile:1/3", Quantile(Fraction(1, 3))),
        ("storey:", Storey()),
    ],
)
def test_strings_name_estimators(text, estimator):
    assert as_estimator(text) == estimator
    assert as_estimator(estimator) is estimator


def test_none_is_plain_bh():
    assert as_estimator(None) is None
    assert fast_lsu([([1, 1, 5], 30)], 0.1).pi0 is None


@pytest.mark.parametrize("pi0", ["Storey", "bh", "", ":0.5", 0.5, Storey, True])
def test_unknown_estimators(pi0):
    with pytest.raises(InputError, match=r"^pi0 must be None, 'storey' or 'quantile', not "):
        fast_lsu([([1], 9)], 0.1, pi0=pi0)


@pytest.mark.parametrize("kind", [Storey, Quantile])
@pytest.mark.parametrize("at", [0, 1, "x", np.nan])
def test_the_point_lies_inside_the_unit_interval(kind, at):
    name = kind.__name__
    with pytest.raises(LevelError, match=rf"^{name}\(at=\.\.\.\) must "):
        kind(at)
    with pytest.raises(LevelError, match=rf"^{name}\(at=\.\.\.\) must "):
        as_estimator(f"{name.lower()}:{at}")


def test_estimators_are_values():
    assert Storey(0.5) == Storey("1/2") != Quantile(0.5)
    assert len({Storey(0.5), Storey("0.5"), Quantile(0.5)}) == 2
    with pytest.raises(AttributeError):
        Storey().at = 0.3
    with pytest.raises(TypeError):
        NullProportion()

"""e-BH against its definition in rationals, evidence from rejections, and its averages."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.evidence import rejection_evidence
from support.exact_fdr import FAR, Site, outcomes
from support.fixed_thresholds import joined
from support.strategies import levels

import conovel as cn
from conovel.errors import InputError, LevelError, SampleError
from conovel.stats.evidence import Evidence, averaged, closed_e_bh
from conovel.stats.null_proportion import Storey
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up

INFINITY = float("inf")


def oracle(e_values, level):
    """e-BH by its definition: the largest k with E_(k) >= m/(αk), all in rationals."""
    m = len(e_values)
    exact = [e if e == INFINITY else Fraction(e) for e in e_values]
    ordered = sorted(exact, reverse=True)
    k = max((k for k in range(1, m + 1) if ordered[k - 1] >= m / (level * k)), default=0)
    return [bool(k) and e >= ordered[k - 1] for e in exact]


@st.composite
def evidence_and_level(draw):
    """E-values on, just below and just above their thresholds m/(αk), and others."""
    level, m = Fraction(str(draw(levels))), draw(st.integers(1, 12))
    near = st.builds(
        lambda k, step: m / (level * k) + step,
        st.integers(1, m),
        st.sampled_from([Fraction(0), Fraction(0), Fraction(-1, 10**9), Fraction(1, 10**9)]),
    )
    other = st.integers(0, 10**20) | st.floats(0, allow_nan=False) | st.just(INFINITY)
    return draw(st.lists(near | near | other, min_size=m, max_size=m)), level


@given(evidence_and_level())
def test_e_bh_equals_its_definition(problem):
    e_values, level = problem
    got = cn.e_bh(e_values, level)
    assert got.dtype == np.bool_
    assert got.tolist() == oracle(e_values, level)


@given(st.lists(st.floats(0, 1e6) | st.just(INFINITY), min_size=1, max_size=30), levels)
def test_arrays_of_floats_are_read_as_the_binary_numbers_they_are(e_values, level):
    exact = Fraction(str(level))
    assert cn.e_bh(np.array(e_values), level).tolist() == oracle(e_values, exact)


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=30),
    st.integers(1, 50),
    levels,
)
def test_integers_over_a_common_denominator(numerators, denominator, level):
    fractions = [Fraction(n, denominator) for n in numerators]
    for kind in (list, np.array, lambda n: np.array(n, dtype=np.uint16)):
        got = cn.e_bh(kind(numerators), level, denominator=denominator)
        assert got.tolist() == cn.e_bh(fractions, level).tolist()


def test_a_large_integer_beside_a_float_is_not_rounded():
    # m/(αk) = 2**53 + 1 at k = 1 is no float.
    level = Fraction(2, 2**53 + 1)
    assert cn.e_bh([2**53 + 1, 0.5], level).tolist() == [True, False]
    assert cn.e_bh([2**53, 0.5], level).tolist() == [False, False]


def test_a_million_rows():
    rng = np.random.default_rng(0)
    e_values = rng.exponential(size=1_000_000) * 10.0 ** rng.integers(0, 4, size=1_000_000)
    ordered = np.sort(e_values)[::-1]
    k = np.flatnonzero(ordered * np.arange(1, 1_000_001) >= 1_000_000 / 0.5)[-1] + 1
    assert 0 < k < 1_000_000
    assert cn.e_bh(e_values, 0.5).sum() == k


@pytest.mark.parametrize(
    ("e_values", "message"),
    [
        ([1.0, float("nan")], "row 1 has nan"),
        ([Fraction(1), 2, float("nan")], "row 2 has nan"),
        ([3, -1], "row 1 has -1"),
        (np.array([0.5, -0.5]), "row 1 has -0.5"),
        ([Fraction(-1, 3)], r"row 0 has Fraction\(-1, 3\)"),
        ([True, False], "not bool"),
        ([1, True], "row 1 is a bool"),
        (["a"], "integers, Fractions or floats"),
        ([1, None], "row 1 is a NoneType"),
        (np.array([1.0], dtype=np.longdouble), "floats of 64 bits"),
    ],
)
def test_what_is_no_e_value_is_refused_by_name(e_values, message):
    with pytest.raises(InputError, match=message):
        cn.e_bh(e_values, 0.1)


@pytest.mark.parametrize("e_values", [[], np.zeros((2, 2)), 3.0])
def test_e_values_need_one_dimension_and_a_row(e_values):
    with pytest.raises(SampleError):
        cn.e_bh(e_values, 0.1)


def test_levels_and_denominators_are_checked():
    with pytest.raises(LevelError):
        cn.e_bh([1], 1)
    with pytest.raises(InputError, match="denominator"):
        cn.e_bh([1], 0.1, denominator=0)


masks = st.lists(st.booleans(), min_size=1, max_size=20)


@given(masks, levels)
def test_the_evidence_of_a_procedure_gives_its_rejections_back(mask, level):
    """m/(αR) >= m/(αR): an equality point, which floats often miss."""
    evidence = rejection_evidence(mask, level)
    assert cn.e_bh(evidence, level).tolist() == mask
    assert cn.e_bh(evidence.to_list(), level).tolist() == mask
    assert sum(evidence.to_list()) == (len(mask) / Fraction(str(level)) if any(mask) else 0)


@given(st.data(), st.integers(1, 8), st.integers(1, 6))
def test_averages_are_those_of_the_rows(data, m, n_parts):
    row = st.lists(st.booleans(), min_size=m, max_size=m)
    parts = [rejection_evidence(data.draw(row), data.draw(levels)) for _ in range(n_parts)]
    columns = list(zip(*(part.to_list() for part in parts), strict=True))
    assert averaged(parts).to_list() == [sum(column) / n_parts for column in columns]
    assert joined(parts).to_list() == [e for part in parts for e in part.to_list()]


def test_evidence_of_many_rows_is_averaged_by_its_few_values():
    rng = np.random.default_rng(0)
    usual = rng.random(1_000_000) < 0.01
    parts = [rejection_evidence(usual ^ (rng.random(usual.size) < 1e-3), 0.05) for _ in range(5)]
    together = averaged(parts)
    assert len(together) == usual.size
    assert len(together.values) <= 2**5
    found = cn.e_bh(together, 0.1)
    assert 0.9 < (found & usual).sum() / usual.sum() <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: averaged([]), "nothing to average"),
        (lambda: averaged([PART, joined([PART, PART])]), "same rows"),
    ],
)
def test_bad_parts_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


PART = rejection_evidence([True, False], 0.1)


# False discovery rates, by enumeration ------------------------------------------------------


def exact_fdr(scores, n_calibration, n_novel, beta, level, combine, *, closed=False):
    """FDR of e-BH, or closed e-BH on (ℓ+1)/L, on evidence from several scores of the same rows.

    `scores` has one line per split. The last `n_novel` rows are novelties; the others are null,
    and every choice of the calibration rows among them is equally likely.
    """
    n_null = scores.shape[1] - n_novel
    choices = list(itertools.combinations(range(n_null), n_calibration))
    fdr = Fraction(0)
    for chosen in choices:
        tests = np.delete(np.arange(scores.shape[1]), chosen)
        parts = []
        for line in scores:
            ranks = conformal_ranks(line[list(chosen)], line[tests])
            decided = step_up([(ranks, n_calibration)], beta)
            mask = decided.rejected[0]
            part = rejection_evidence(mask, beta)
            if closed:
                value = Fraction(n_calibration + 1, max(decided.limits[0], 1))
                part = Evidence((Fraction(0), value), part.codes)
            parts.append(part)
        e_values = combine(parts)
        if closed:
            of_rows = e_values.to_list() if isinstance(e_values, Evidence) else e_values
            rejected = closed_e_bh(as_evidence(of_rows), level)
        else:
            rejected = cn.e_bh(e_values, level)
        fdr += Fraction(int((rejected & (tests < n_null)).sum()), max(int(rejected.sum()), 1))
    return fdr / len(choices)


def largest(parts):
    """INVALID: the best of several splits, row by row."""
    return [max(column) for column in zip(*(part.to_list() for part in parts), strict=True)]


def test_averaged_evidence_keeps_the_level_and_the_best_of_it_does_not():
    rng = np.random.default_rng(0)
    beta, worst = Fraction(1, 3), {averaged: Fraction(0), largest: Fraction(0)}
    for n_novel in [0, 1] * 15:
        scores = rng.permuted(np.tile(np.arange(7.0), (3, 1)), axis=1)
        scores[:, 7 - n_novel :] += 3
        for combine, ratio in worst.items():
            for level in (beta, 2 * beta):
                fdr = exact_fdr(scores, 5, n_novel, beta, level, combine)
                worst[combine] = max(worst[combine], ratio, fdr / level)
    assert 0 < worst[averaged] <= 1 < worst[largest]


def test_two_opposite_scores_where_the_best_has_twice_the_level():
    """Lemma 8(b): one null test row, rejected if it is the largest or the smallest."""
    scores, level = np.array([np.arange(5.0), -np.arange(5.0)]), Fraction(1, 5)
    assert exact_fdr(scores, 4, 0, level, level, largest) == 2 * level
    assert exact_fdr(scores[:1], 4, 0, level, level, averaged) == level
    assert exact_fdr(scores, 4, 0, level / 2, level, averaged) == 0


# Lemma 9(e): the limit on ranks as evidence --------------------------------------------------

NETWORKS = [
    [Site(4, 2)],
    [Site(5, 2, (FAR,))],
    [Site(4, 2, (FAR,), ties=2)],
    [Site(3, 1), Site(5, 2, (FAR,))],
    [Site(4, 2, (2.5,)), Site(6, 1, (FAR,))],
    [Site(2, 1, (FAR,)), Site(5, 1, ties=2), Site(3, 1)],
    [Site(5, 1), Site(2, 2, (FAR, FAR))],
]


def by_limit(found, j, size, ranks):
    """(ℓ + 1)/L, with L the largest rank that the step-up allows."""
    return Fraction(size + 1, found.limits[j])


def by_share(found, j, size, ranks):
    """m/(βR) of Lemma 9(b), or 1/(slope R) with an estimate of the nulls."""
    nulls = sum(map(len, found.rejected)) * (found.pi0 or 1)
    return nulls / (found.level * found.n_rejected)


def by_largest_rejected(found, j, size, ranks):
    """INVALID: divides by the largest rank that was rejected."""
    return Fraction(size + 1, int(ranks[ranks <= found.limits[j]].max()))


def expected_evidence(sites, level, pi0, evidence):
    """The expectation of the evidence about a null of each site, over every order, in fractions.

    The nulls of a site are alike: the average over them is the expectation of each.
    """
    found = [Fraction(0)] * len(sites)
    for joint in itertools.product(*map(outcomes, sites)):
        blocks = [(r, s.n_calibration) for (r, _), s in zip(joint, sites, strict=True)]
        decided = step_up(blocks, level, pi0)
        chance = math.prod(p for _, p in joint)
        for j, ((ranks, _), site) in enumerate(zip(joint, sites, strict=True)):
            if n_false := int(np.count_nonzero(ranks[: site.n_null] <= decided.limits[j])):
                share = chance * n_false / site.n_null
                found[j] += share * evidence(decided, j, site.n_calibration, ranks)
    return found


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
@pytest.mark.parametrize("pi0", [None, Storey("1/3")], ids=["plain", "storey"])
def test_the_limit_on_ranks_is_the_sharper_evidence(pi0):
    largest_found, wrong, sharper = Fraction(0), Fraction(0), 0
    for sites, level in itertools.product(NETWORKS, (Fraction(1, 3), Fraction(1, 2), "4/5")):
        sharp, plain, invalid = (
            expected_evidence(sites, Fraction(level), pi0, evidence)
            for evidence in (by_limit, by_share, by_largest_rejected)
        )
        assert max(sharp) <= 1
        assert all(one >= two for one, two in zip(sharp, plain, strict=True))
        sharper += sum(one > two for one, two in zip(sharp, plain, strict=True))
        largest_found, wrong = max(largest_found, *sharp), max(wrong, *invalid)
    assert (largest_found == 1) is (pi0 is None)
    assert Fraction(9, 10) < largest_found <= 1 < wrong
    assert sharper > 20


def test_evidence_counts_its_rows():
    assert len(Evidence((Fraction(1),), np.zeros(3, dtype=np.int64))) == 3


# Lemma 11: closed e-BH -----------------------------------------------------------------------


def subsets(m):
    return [[i for i in range(m) if code >> i & 1] for code in range(1, 1 << m)]


def is_consistent(e_values, rejected, level):
    """The definition, for every set S of rows."""
    r, held = len(rejected), set(rejected)
    return all(
        sum(e_values[i] for i in chosen) * level * r
        >= len(chosen) * len(held.intersection(chosen))
        for chosen in subsets(len(e_values))
    )


def closed_oracle(e_values, level):
    """The largest mean consistent set of rows with E >= t, by trying every set."""
    for least in sorted(set(e_values)):
        above = [i for i, e in enumerate(e_values) if e >= least]
        if is_consistent(e_values, above, level):
            return [e >= least for e in e_values]
    return [False] * len(e_values)


@st.composite
def few_e_values(draw):
    """E-values of which many are equal, around 1/(αr), 1/α and m/(αk)."""
    level, m = Fraction(draw(st.integers(1, 9)), 10), draw(st.integers(1, 7))
    around = st.builds(
        lambda k, most, step: Fraction(most, k) / level + step,
        st.integers(1, m),
        st.integers(1, m),
        st.sampled_from([Fraction(0), Fraction(0), Fraction(-1, 999), Fraction(1, 999)]),
    )
    pool = draw(st.lists(around | st.just(Fraction(0)), min_size=1, max_size=m))
    values = draw(st.lists(st.sampled_from(pool), min_size=m, max_size=m))
    return [max(value, Fraction(0)) for value in values], level


def as_evidence(e_values):
    return Evidence(tuple(e_values), np.arange(len(e_values)))


@given(few_e_values())
def test_closed_e_bh_equals_its_definition(problem):
    e_values, level = problem
    got = closed_e_bh(as_evidence(e_values), level)
    assert got.dtype == np.bool_
    assert got.tolist() == closed_oracle(e_values, level)
    assert not (cn.e_bh(e_values, level) & ~got).any()


@given(few_e_values())
def test_without_ties_no_mean_consistent_set_is_larger(problem):
    """The set of the paper: the largest of all mean consistent sets, whatever their form."""
    e_values, level = problem
    e_values = [e + Fraction(i, 10**6) for i, e in enumerate(e_values[:6])]
    largest_of_all = max(
        (len(s) for s in subsets(len(e_values)) if is_consistent(e_values, s, level)), default=0
    )
    assert closed_e_bh(as_evidence(e_values), level).sum() == largest_of_all


def test_closed_e_bh_rejects_more_than_e_bh_in_many_cases():
    rng, more = np.random.default_rng(1), 0
    for _ in range(200):
        e_values = [Fraction(int(e)) for e in rng.integers(0, 60, 7) * (rng.random(7) < 0.7)]
        found = closed_e_bh(as_evidence(e_values), "1/10")
        assert found.tolist() == closed_oracle(e_values, Fraction(1, 10))
        more += int(found.sum() > cn.e_bh(e_values, "1/10").sum())
    assert more > 40


def test_closed_e_bh_of_many_different_e_values():
    """Ten thousand different e-values; the check of every a and b in floats, for the result."""
    rng = np.random.default_rng(2)
    e_values = np.sort(rng.integers(0, 10**9, 10_000) * (rng.random(10_000) < 0.6))
    evidence = as_evidence([Fraction(int(e), 10**7) for e in e_values])
    found = closed_e_bh(evidence, "1/10")
    assert 0 < found.sum() < 10_000
    assert found.sum() > cn.e_bh(evidence, "1/10").sum()
    inside, outside = e_values[found] / 1e7, e_values[~found] / 1e7
    assert inside.min() > outside.max()
    total_in, total_out = np.cumsum(inside), np.concatenate([[0], np.cumsum(outside)])
    for a in range(1, inside.size + 1, 37):
        b = np.arange(total_out.size)
        assert (total_in[a - 1] + total_out >= (a + b) * a / (0.1 * inside.size) - 1e-3).all()


def closed_fdr(sites, beta, level, evidence, decide):
    """FDR of a rule on the evidence of one run at one site, over every order, in fractions."""
    (site,) = sites
    fdr = Fraction(0)
    for ranks, chance in outcomes(site):
        found = step_up([(ranks, site.n_calibration)], beta)
        mask = ranks <= found.limits[0]
        value = evidence(found, 0, site.n_calibration, ranks) if mask.any() else Fraction(0)
        rejected = decide(Evidence((Fraction(0), value), mask.astype(np.int64)), level)
        fdr += chance * Fraction(int(rejected[: site.n_null].sum()), max(int(rejected.sum()), 1))
    return fdr


def twice(found, j, size, ranks):
    """INVALID: the limit of a run at half of its level."""
    return 2 * by_limit(found, j, size, ranks)


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")
def test_closed_e_bh_keeps_the_level_and_larger_evidence_breaks_it():
    """Lemma 11 for every order of small sites, novelties anywhere, ties included."""
    sites = [Site(4, 2), Site(5, 2, (FAR,)), Site(4, 2, (2.5,)), Site(4, 2, (FAR,), ties=2)]
    largest_found, wrong = Fraction(0), Fraction(0)
    betas = [Fraction(1, 3), Fraction(1, 2), Fraction(4, 5)]
    for site, beta, level in itertools.product(sites, betas, [Fraction(1, 5), *betas]):
        fdr = closed_fdr([site], beta, level, by_limit, closed_e_bh)
        assert fdr <= level
        largest_found = max(largest_found, fdr / level)
        invalid = closed_fdr([site], beta, level, twice, closed_e_bh)
        wrong = max(wrong, invalid / level)
    assert largest_found == 1
    assert wrong > 1


def test_compound_e_values_are_not_enough_for_closed_e_bh():
    """A null with E = 2 = m, always, beside a clear novelty: e-BH keeps 2/5, closed e-BH not."""
    e_values, level = [Fraction(2), Fraction(100)], Fraction(2, 5)
    assert cn.e_bh(e_values, level).tolist() == [False, True]
    assert closed_e_bh(as_evidence(e_values), level).tolist() == [True, True]  # FDP 1/2


def test_several_splits_with_closed_e_bh_keep_the_level_and_the_best_of_them_does_not():
    rng = np.random.default_rng(0)
    beta, worst = Fraction(1, 3), {averaged: Fraction(0), largest: Fraction(0)}
    for n_novel in [0, 1] * 12:
        scores = rng.permuted(np.tile(np.arange(7.0), (3, 1)), axis=1)
        scores[:, 7 - n_novel :] += 3
        for combine, ratio in worst.items():
            for level in (beta, Fraction(5, 9)):
                fdr = exact_fdr(scores, 5, n_novel, beta, level, combine, closed=True)
                worst[combine] = max(worst[combine], ratio, fdr / level)
    assert 0 < worst[averaged] <= 1 < worst[largest]

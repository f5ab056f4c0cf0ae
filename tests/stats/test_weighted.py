"""Weighted decisions against their definition, over all outcomes of small cases, and simulated."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import InputError, SampleError
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up
from conovel.stats.weighted import (
    MOST_SPREAD_BITS,
    as_row_weights,
    draw_chance,
    effective_rows,
    rejected_by_needs,
    weighted_step_up,
    whole_weights,
)

LEVELS = st.sampled_from([Fraction(1, 10), Fraction(1, 4), Fraction(1, 2), Fraction(2, 3)])


def evidence(calibration, tests, level):
    """E-values by the definition of Theorem 24: for each row the bag of it and the calibration."""
    mixture = sorted({score for score, _ in (*calibration, *tests)})
    m, values = len(tests), []
    for i, (own, _) in enumerate(tests):
        bag = [*calibration, tests[i]]
        whole = sum(weight for _, weight in bag)
        for t in mixture:
            above = sum(weight for score, weight in bag if score >= t)
            n = 1 + sum(score >= t for j, (score, _) in enumerate(tests) if j != i)
            if m * above <= level * n * whole:
                values.append(Fraction(whole, above) if own >= t else Fraction(0))
                break
        else:
            values.append(Fraction(0))
    return values


def judged(calibration, tests, level, chance):
    """e-BH on the e-values divided by the random number, all in rationals."""
    return cn.e_bh([value / chance for value in evidence(calibration, tests, level)], level)


def decide(calibration, tests, level, chance):
    pairs = [([s for s, _ in rows], [w for _, w in rows]) for rows in (calibration, tests)]
    return weighted_step_up(*pairs, level, chance)


rows = st.tuples(st.integers(0, 6), st.integers(1, 5))


@given(
    st.lists(rows, min_size=1, max_size=12),
    st.lists(rows, min_size=1, max_size=8),
    LEVELS,
    st.fractions(Fraction(1, 50), 1),
)
def test_decisions_follow_their_definition(calibration, tests, level, chance):
    outcome = decide(calibration, tests, level, chance)
    assert outcome.rejected.tolist() == judged(calibration, tests, level, chance).tolist()
    m, values = len(tests), evidence(calibration, tests, level)
    unit = chance * m / level
    assert outcome.needs.tolist() == [
        min(math.ceil(unit / value), m + 1) if value else m + 1 for value in values
    ]
    whole = sum(weight for _, weight in calibration)
    for (score, weight), p_value in zip(tests, outcome.p_values, strict=True):
        above = sum(w for s, w in calibration if s >= score)
        assert p_value == (above + weight) / (whole + weight)
    assert outcome.rejected.tolist() == rejected_by_needs(outcome.needs).tolist()


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=40),
    st.lists(st.integers(0, 25), min_size=1, max_size=15),
    st.integers(1, 9),
    LEVELS,
    st.fractions(Fraction(1, 1000), 1),
)
def test_equal_weights_give_benjamini_hochberg(known_scores, scores, weight, level, chance):
    ranks = conformal_ranks(known_scores, scores)
    plain = step_up([(ranks, len(known_scores))], level).rejected[0]
    tests = [(score, weight) for score in scores]
    got = decide([(score, weight) for score in known_scores], tests, level, chance)
    assert got.rejected.tolist() == plain.tolist()


@given(st.lists(rows, min_size=1, max_size=9), st.lists(rows, min_size=1, max_size=6), LEVELS)
def test_the_unit_of_the_weights_does_not_matter(calibration, tests, level):
    chance = Fraction(1, 3)
    other = [[(score, 7 * weight) for score, weight in part] for part in (calibration, tests)]
    got = decide(calibration, tests, level, chance).needs
    assert got.tolist() == decide(*other, level, chance).needs.tolist()


# Exact false discovery rates: known normals have the values 0, 1, 2 with the probabilities SHARES,
# normal tests have them with probabilities in proportion to SHARES · WEIGHTS.
SHARES = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
CHANCES = [Fraction(k, 4) for k in range(1, 5)]


def exact_fdr(procedure, weights, n_calibration, n_null, novel, level, score):
    """The rate over all values of calibration rows and null tests and all random numbers."""
    whole = sum(share * w for share, w in zip(SHARES, weights, strict=True))
    tilted = [share * w / whole for share, w in zip(SHARES, weights, strict=True)]
    rate = Fraction(0)
    for values in itertools.product(range(3), repeat=n_calibration + n_null):
        known_rows, nulls = values[:n_calibration], values[n_calibration:]
        probability = Fraction(1)
        for value in known_rows:
            probability *= SHARES[value]
        for value in nulls:
            probability *= tilted[value]
        mixture = sorted([*values, *novel])  # all that a score may see
        calibration = [(score(x, mixture), weights[x]) for x in known_rows]
        tests = [(score(x, mixture), weights[x]) for x in (*nulls, *novel)]
        for chance in CHANCES:
            mask = procedure(calibration, tests, level, chance)
            false = int(mask[:n_null].sum())
            rate += probability * Fraction(false, max(int(mask.sum()), 1)) / len(CHANCES)
    return rate


def by_weights(calibration, tests, level, chance):
    return decide(calibration, tests, level, chance).rejected


def without_weights(calibration, tests, level, chance):
    return by_weights([(s, 1) for s, _ in calibration], [(s, 1) for s, _ in tests], level, chance)


def without_own_weight(calibration, tests, level, chance):
    """As if each test weighed next to nothing."""
    heavy = [(score, 1000 * weight) for score, weight in calibration]
    return by_weights(heavy, [(score, 1) for score, _ in tests], level, chance)


def with_equal_own_weight(calibration, tests, level, chance):
    return by_weights(calibration, [(score, 1) for score, _ in tests], level, chance)


def learnt(x, mixture):
    """A score that learns from the mixture: rare values are novel, and large ones of these."""
    return x - mixture.count(x) * 3


def plain(x, mixture):
    return x


CASES = [
    (weights, n_calibration, n_null, novel, level, score)
    for weights in ((1, 2, 4), (4, 2, 1), (1, 1, 6))
    for n_calibration, n_null, novel in ((3, 2, ()), (3, 1, (2,)), (2, 2, (2,)), (4, 1, ()))
    for level in (Fraction(1, 2), Fraction(2, 3))
    for score in (plain, learnt)
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(map(str, case[:5])) + case[5].__name__
)
def test_the_exact_rate_is_within_the_level(case):
    _, _, n_null, novel, level, _ = case
    rate = exact_fdr(by_weights, *case)
    assert rate <= level * Fraction(n_null, n_null + len(novel))


@pytest.mark.parametrize(
    "wrong", [without_weights, without_own_weight, with_equal_own_weight], ids=lambda f: f.__name__
)
def test_wrong_procedures_exceed_the_level_somewhere(wrong):
    assert any(
        exact_fdr(wrong, *case) > case[4] * Fraction(case[2], case[2] + len(case[3]))
        for case in CASES
    )


def test_some_exact_rate_is_not_far_below_the_level():
    rates = [exact_fdr(by_weights, *case) / case[4] for case in CASES if not case[3]]
    assert max(rates) > Fraction(1, 2)


def shifted(rng, n, m, tilt):
    """Scores and weights of normal rows; x is the first column, and the score follows it."""
    known_rows, tests = rng.normal(size=(n, 2)), rng.normal((tilt, 0), size=(m, 2))
    return (rows_of(known_rows, tilt), rows_of(tests, tilt))


def rows_of(x, tilt):
    return x.sum(axis=1), np.exp(tilt * x[:, 0] - tilt**2 / 2)


@pytest.mark.parametrize("tilt", [0.5, 1.0])
def test_a_known_shift_keeps_the_level_that_breaks_without_weights(tilt):
    rng, level, n, m, reps = np.random.default_rng(7), Fraction(1, 5), 300, 5, 1500
    rates = {"weighted": [], "plain": []}
    for seed in range(reps):
        (known_scores, known_weights), (scores, weights) = shifted(rng, n, m, tilt)
        whole = whole_weights(np.concatenate([known_weights, weights]))
        pairs = (known_scores, whole[:n]), (scores, whole[n:])
        rates["weighted"].append(weighted_step_up(*pairs, level, draw_chance(seed)).rejected.any())
        rates["plain"].append(cn.reject(known_scores, scores, level).any())
    error = float(np.std(rates["weighted"]) / np.sqrt(reps))
    assert float(level) / 2 < np.mean(rates["weighted"]) < float(level) + 3 * error
    assert np.mean(rates["plain"]) > 1.5 * float(level)


@pytest.mark.parametrize(
    ("value", "word"),
    [(np.nan, "missing"), (np.inf, "infinite"), (-1.0, "negative"), (0.0, "zero")],
)
def test_weights_that_are_no_weights_are_named(value, word):
    with pytest.raises(InputError, match=f"w: 1 of 3 weights are {word}, first in row 1"):
        as_row_weights([1.0, value, 2.0], 3, "w")


def test_weights_have_one_number_for_each_row():
    with pytest.raises(SampleError, match="one number for each of 3 rows"):
        as_row_weights([1.0, 2.0], 3, "w")
    with pytest.raises(InputError, match="must be numbers"):
        as_row_weights(["1", "2"], 2, "w")


@given(st.lists(st.floats(2.0**-20, 2.0**19), min_size=1, max_size=9))
def test_whole_weights_are_exact(values):
    whole = whole_weights(np.array(values))
    assert [Fraction(one, whole[0]) for one in whole] == [
        Fraction(value) / Fraction(values[0]) for value in values
    ]


def test_weights_too_far_apart_are_refused():
    whole_weights(np.array([1.0, 2.0**MOST_SPREAD_BITS]))
    with pytest.raises(InputError, match="too far apart"):
        whole_weights(np.array([1.0, 2.0 ** (MOST_SPREAD_BITS + 1)]))


def test_the_random_number_is_never_too_small_too_often():
    drawn = [draw_chance(seed) for seed in range(2000)]
    assert all(0 < u <= 1 for u in drawn)
    assert abs(np.mean([u <= Fraction(1, 4) for u in drawn]) - 0.25) < 3 * np.sqrt(0.1875 / 2000)


def test_effective_rows_count_equal_weights_fully():
    assert effective_rows(np.full(50, 0.3)) == pytest.approx(50)
    assert effective_rows(np.array([1.0, 1e-9])) == pytest.approx(1)

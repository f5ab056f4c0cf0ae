"""The bound on false rows: every order of small networks, simulated networks, and its parts."""

import math
from fractions import Fraction
from itertools import accumulate, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.certified import blocks_of, exact_miss, reference_bound, simulated_miss
from support.pooled import Agent, by_cut_through_ties, kept_without_floor, random_network

from conovel.errors import InputError
from conovel.stats.certificate import Block, chance_of_test, false_bound
from conovel.stats.certified import ListBounds, certificate_numbers, site_bounds
from conovel.stats.ranks import adjusted_pvalues
from conovel.stats.stepup import RankHistogram

CONFIDENCES = [Fraction(1, 3), Fraction(1, 2), Fraction(3, 4), Fraction(9, 10)]
SHARES = [Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)]


def cases(seed, number):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield random_network(rng), SHARES[rng.integers(3)], CONFIDENCES[rng.integers(4)]


# Every order of small networks --------------------------------------------------------------


def test_small_networks_keep_the_confidence_for_every_order():
    misses = [exact_miss(net, x, c) / (1 - c) for net, x, c in cases(0, 600)]
    assert max(misses) <= 1
    assert sum(miss > 0 for miss in misses) > 50  # the test sees lists with more false rows
    assert max(misses) >= Fraction(3, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_small_networks_keep_the_confidence_for_every_order(seed):
    assert all(exact_miss(net, x, c) <= 1 - c for net, x, c in cases(seed, 2000))


def test_one_agent_has_no_row_to_spare():
    """Rows one by one on the scale, all null: one row less, and the bound fails too often."""
    agent = [Agent(tuple(range(16)), 12)]
    for confidence in CONFIDENCES:
        bound = false_bound([Block(4, 12)], confidence)
        tighter = np.maximum(bound - 1, 0)
        misses = [
            exact_miss(agent, None, confidence, one, keep=kept_without_floor)
            for one in (bound, tighter)
        ]
        assert misses[0] <= 1 - confidence < misses[1]


def by_smallest_agent(agents, x, confidence):
    """INVALID: every agent is taken for the one with the fewest tests for a calibration row."""
    blocks = [b for b in blocks_of(agents, x) if b.n_test and b.n_part]
    least = min(blocks, key=lambda b: Fraction(b.n_test, b.n_calibration + 1))
    top = max(b.n_calibration for b in blocks)
    m = math.ceil(top * least.n_test / max(least.n_calibration, 1))
    return false_bound([Block(m, top)] * len(blocks), confidence)


def by_one_row_less(agents, x, confidence):
    """INVALID: b is one too small."""
    return np.maximum(false_bound(blocks_of(agents, x), confidence) - 1, 0)


@pytest.mark.parametrize("mutant", [by_smallest_agent, by_one_row_less])
def test_bounds_that_the_theorem_does_not_cover_are_caught(mutant):
    caught = 0
    for net, x, c in cases(0, 300):
        if len(net) > 1 and any(b.n_test and b.n_part for b in blocks_of(net, x)):
            bound = mutant(net, x, c)
            size = 1 + sum(agent.n_calibration for agent in net)
            bound = np.concatenate([bound, np.full(max(size - bound.size, 0), bound[-1])])
            caught += exact_miss(net, x, c, bound) > 1 - c
    assert caught > 3


def test_a_floor_that_cuts_through_ties_is_caught():
    agents = [Agent((1, 1, 1), 2)] * 3
    x, confidence = Fraction(1, 3), Fraction(1, 2)
    bound = false_bound([Block(1, 2, 1)] * 3, confidence)
    assert exact_miss(agents, x, confidence) == 0
    assert exact_miss(agents, x, confidence, bound, keep=by_cut_through_ties) == 1


def test_the_chance_of_a_test_counts_rows_that_are_gone():
    """Two agents in turn: after one calibration row of each, a test is likelier than m/(m + ℓ)."""
    assert chance_of_test([Block(1, 3), Block(1, 5)], 0) == 1 / 4
    assert chance_of_test([Block(1, 3), Block(1, 5)], 2) == 1 / 2
    assert chance_of_test([Block(1, 3, 2), Block(1, 5)], 2) == 1 / 3


# Simulated networks -------------------------------------------------------------------------

DESIGNS = {
    "one agent": [Block(333, 500)],
    "three agents": [Block(333, 500, 200)] * 3,
    "thirty agents": [Block(33, 70, 10)] * 30,
}


@pytest.mark.parametrize("design", DESIGNS)
def test_simulated_coverage_is_neither_too_low_nor_too_high(design):
    """At δ = .1: misses in at most δ, and in more than δ/4, where all rows are null."""
    miss = simulated_miss(DESIGNS[design], 0.9, repeats=400)
    assert 0.025 <= miss <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / 400)


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("delta", [0.05, 0.1])
def test_long_simulated_coverage(design, delta):
    error = math.sqrt(delta * (1 - delta) / 4000)
    miss = simulated_miss(DESIGNS[design], 1 - delta, repeats=4000, seed=1)
    assert delta / 2 - 2 * error <= miss <= delta + 2 * error


@pytest.mark.parametrize("others", [{"novel": 0.2}, {"ties": 20}, {"in_turn": True}])
def test_simulated_coverage_with_novelties_ties_and_unequal_agents(others):
    blocks = [Block(100, 300, 90), Block(333, 500, 150), Block(50, 900, 270)]
    miss = simulated_miss(blocks, 0.75, repeats=300, **others)
    assert miss <= 0.25 + 3 * math.sqrt(0.25 * 0.75 / 300)


# The bound itself ---------------------------------------------------------------------------

blocks = st.lists(
    st.builds(Block, st.integers(0, 60), st.integers(0, 90), st.none() | st.integers(0, 80)),
    min_size=1,
    max_size=4,
)


@given(blocks, st.sampled_from([Fraction(1, 2), Fraction(9, 10), Fraction(999, 1000)]))
def test_the_bound_is_a_nondecreasing_row_of_whole_numbers(some, confidence):
    bound = false_bound(some, confidence)
    assert bound.size == 1 + sum(b.n_calibration for b in some)
    assert (np.diff(bound) >= 0).all()
    assert 0 <= bound.min() <= bound.max() <= sum(b.n_test for b in some)


@given(blocks)
def test_more_confidence_allows_no_fewer_false_rows_at_the_first_row(some):
    assert false_bound(some, 0.99)[0] >= false_bound(some, 0.9)[0]


REFERENCES = [
    [Block(40, 60)],
    [Block(3, 200)],
    [Block(90, 30, 25)],
    [Block(33, 70, 10)] * 5,
    [Block(33, 70)] * 3,
    [Block(20, 40, 12), Block(5, 90, 30), Block(0, 50), Block(9, 9, 0)],
    [Block(300, 20), Block(30, 200, 50)],
    [Block(2, 8, 3), Block(3, 7, 5), Block(1, 9, 2)],
]


@pytest.mark.parametrize("blocks", REFERENCES)
@pytest.mark.parametrize("confidence", [Fraction(k, 100) for k in (10, 50, 90, 99)])
def test_the_bound_is_that_of_its_definition(blocks, confidence):
    assert false_bound(blocks, confidence).tolist() == reference_bound(blocks, confidence)


def test_no_rows_above_floors_are_no_false_rows():
    assert false_bound([Block(5, 9, 0)], 0.9).tolist() == [0] * 10
    assert false_bound([Block(0, 9)], 0.9).tolist() == [0] * 10


def test_without_calibration_rows_all_tests_may_be_false():
    assert false_bound([Block(5, 0)], 0.9).tolist() == [5]


@pytest.mark.parametrize("confidence", [0, 1, 1 - 1e-12, "much"])
def test_confidences_that_cannot_be_had_are_refused(confidence):
    with pytest.raises(InputError, match="confidence"):
        false_bound([Block(5, 9)], confidence)


# What follows from it -----------------------------------------------------------------------


@st.composite
def lists(draw):
    """Tests and calibration rows at up to five places, and a bound."""
    n = draw(st.integers(1, 5))
    tests, known = (draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)) for _ in range(2))
    steps = draw(st.lists(st.integers(0, 2), min_size=sum(known) + 1, max_size=sum(known) + 1))
    bound = np.array(list(accumulate(steps)))
    return ListBounds(np.cumsum(tests), np.cumsum(known), bound), tests


@given(lists(), st.lists(st.integers(0, 6), max_size=8))
def test_any_list_has_at_most_what_some_threshold_allows(made, places):
    bounds, _ = made
    by_threshold = [
        int(bounds.bound[c]) + sum(place > k for place in places)
        for k, c in enumerate(bounds.calibration)
    ]
    most = bounds.max_false(np.array(places, dtype=np.int64))
    assert 0 <= most <= min(len(places), *by_threshold)
    assert (bounds.at_most <= bounds.tests).all()


@given(lists())
def test_no_true_numbers_of_false_rows_contradict_what_follows(made):
    """Every V that keeps V <= b(C) at all places keeps all statements."""
    bounds, tests = made
    for false in product(*(range(n + 1) for n in tests)):
        total = list(accumulate(false))
        if all(v <= bounds.bound[c] for v, c in zip(total, bounds.calibration, strict=True)):
            assert all(v <= most for v, most in zip(total, bounds.at_most, strict=True))
            assert sum(tests) - sum(false) >= bounds.min_novelties
            last = bounds.last_place(Fraction(1, 2))
            if last >= 0:
                assert 2 * total[last] <= bounds.tests[last]
            rows, novel = bounds.telling()
            place = list(bounds.tests).index(rows) if rows else 0
            assert not rows or rows - total[place] >= novel


@given(lists())
def test_the_first_rows_have_what_any_list_of_them_has(made):
    bounds, tests = made
    places = np.repeat(np.arange(len(tests)), tests)
    rows = np.arange(1, places.size + 3)  # also more rows than there are
    whole = np.append(places, [len(tests)] * 2)
    by_lists = [k - bounds.max_false(whole[:k]) for k in rows]
    assert bounds.min_novelties_of_first(rows).tolist() == by_lists


def test_with_liars_only_whole_places_prove_novelties():
    counts = np.array([20, 30]), np.array([0, 1]), np.arange(3), np.array([9, 11])
    rows = np.array([1, 19, 20, 29, 30, 31])
    bounds = ListBounds(*counts)
    assert bounds.min_novelties_of_first(rows).tolist() == [0, 0, 9, 9, 10, 10]
    expected = bounds.expected_of_first(np.array([0.0, 5.5]), rows)
    assert expected.tolist() == [0, 0, 9, 9, 10, 10]  # 9·1 and 11·(1 - 1/2), or what is proven


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_what_is_expected_follows_from_adjusted_p_values(some):
    ranks = np.sort(some)
    bounds = site_bounds(RankHistogram(ranks, 19), 0.95)
    rows = np.arange(1, ranks.size + 1)
    false = np.arange(1.0, 21) * (ranks.size / 20)
    expected = bounds.expected_of_first(false, rows)
    estimates = np.maximum.accumulate(rows * (1 - adjusted_pvalues(ranks, 19)))
    least = bounds.min_novelties_of_first(rows)
    assert expected.tolist() == np.maximum(np.floor(estimates + 1e-9), least).tolist()


def test_places_without_tests_and_no_places_are_fine():
    rows = np.array([1, 2])
    empty = np.zeros(0, dtype=np.int64)
    none = ListBounds(empty, empty, np.zeros(1, dtype=np.int64))
    assert none.min_novelties_of_first(rows).tolist() == [0, 0]
    assert none.expected_of_first(np.zeros(0), rows).tolist() == [0, 0]
    late = ListBounds(np.array([0, 4]), np.array([0, 1]), np.array([0, 2]))
    assert late.min_novelties_of_first(rows).tolist() == [0, 0]
    assert late.expected_of_first(np.array([1.0, 1.0]), rows).tolist() == [0, 1]


def test_on_average_no_more_is_expected_than_there_is_until_all_are_read():
    rng, rows, excess = np.random.default_rng(0), np.array([10, 20, 40]), []
    for _ in range(300):
        scores = rng.normal(size=500) + 3 * (np.arange(500) < 40)
        ranks = 1 + (rng.normal(size=999)[:, None] >= scores).sum(axis=0)
        bounds = site_bounds(RankHistogram(ranks, 999), 0.95)
        novel = np.cumsum(np.argsort(-scores) < 40)[rows - 1]
        excess.append(bounds.expected_of_first(np.arange(1.0, 1001) / 2, rows) - novel)
    error = np.std(excess, axis=0) / np.sqrt(300)
    assert (np.mean(excess, axis=0) <= 3 * error).all()
    assert (np.mean(excess, axis=0) >= -2).all()  # nor is it far below


def test_few_rows_more_are_at_most_so_many_more_false_rows():
    bounds = ListBounds(np.array([8, 9, 9]), np.array([0, 9, 9]), np.arange(10))
    assert bounds.at_most.tolist() == [0, 1, 1]
    assert bounds.min_novelties == 8
    assert bounds.max_false(np.array([0, 1, 7])) == 2


def test_rows_of_possible_liars_do_not_count():
    counts = np.array([20, 30]), np.array([0, 1]), np.arange(3), np.array([9, 11])
    bounds = ListBounds(*counts)
    assert bounds.min_novelties == 10
    assert bounds.last_place(Fraction(1, 12)) == 0
    assert bounds.last_place(Fraction(1, 11)) == 1


def test_the_longest_list_is_found():
    bounds = ListBounds(np.array([8, 30, 40]), np.array([0, 1, 9]), np.arange(10))
    assert bounds.at_most.tolist() == [0, 1, 9]
    assert bounds.last_place(Fraction(1, 10)) == 1
    assert bounds.last_place(Fraction(1, 4)) == 2
    assert bounds.min_novelties == 31
    assert bounds.telling() == (30, 29)


def test_ranks_are_places():
    bounds = site_bounds(RankHistogram(np.array([1, 1, 3]), 3), 0.5)
    assert bounds.tests.tolist() == [2, 2, 3, 3]
    assert bounds.calibration.tolist() == [0, 1, 2, 3]


def test_numbers_of_a_certificate_follow_from_places():
    bounds = ListBounds(np.array([8, 30, 40]), np.array([0, 1, 9]), np.arange(10))
    numbers = certificate_numbers(bounds, np.array([0, 0, 1]), 50, Fraction(9, 10))
    assert numbers == {
        "confidence": "9/10",
        "n_test": 50,
        "n_flagged": 3,
        "max_false": 1,
        "min_novelties": 31,
        "most_novel": {"rows": 30, "min_novelties": 29},
    }

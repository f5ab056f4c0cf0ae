"""One calibration for a network: against its definition on scores, and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fixed_thresholds import fixed_threshold_evidence
from support.pooled import reference_floor, reference_masks
from support.strategies import levels

from conovel.errors import InputError, LevelError, SampleError
from conovel.stats.cells import (
    PooledBlock,
    common_weight,
    floor_cell,
)
from conovel.stats.grouped import PooledGroup, PooledOutcome, pooled_cut
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up

exact_levels = levels.map(lambda level: Fraction(str(level)))


def histogram(scores, n_cells, floor=0):
    return np.bincount([s for s in scores if s >= floor], minlength=n_cells)


def decide(agents, level, x, n_cells):
    """Floors, histograms, the rule and the masks, as a network does it; agents in cells."""
    floors, blocks = [], []
    for calibration, tests in agents:
        mixture = histogram([*calibration, *tests], n_cells)
        floors.append(floor_cell(mixture, len(calibration), x))
        counts = (histogram(rows, n_cells, floors[-1]) for rows in (tests, calibration))
        blocks.append(PooledBlock(len(tests), len(calibration), *counts))
    outcome = pooled_cut(blocks, level, x)
    return outcome, [
        outcome.rejects(np.array(tests, dtype=int), floor).tolist()
        for (_, tests), floor in zip(agents, floors, strict=True)
    ]


@st.composite
def networks(draw, top=12):
    """Scores of every agent's calibration and test rows.

    Most calibration rows are in the lowest cell and most tests in the highest cells, so that
    several agents take part and some rows are rejected; ties are common.
    """
    n_cells = draw(st.integers(2, top))
    anywhere = st.integers(0, n_cells - 1)
    high = st.integers(n_cells // 2, n_cells - 1)
    agents = []
    for _ in range(draw(st.integers(1, 4))):
        known = draw(st.lists(anywhere, max_size=4)) + [0] * draw(st.integers(0, 40))
        agents.append((known, draw(st.lists(anywhere | high | high, max_size=4))))
    if not any(tests for _, tests in agents):
        agents.append(([0] * 9, [n_cells - 1]))
    return agents, n_cells


shares = st.sampled_from([Fraction(1, d) for d in (2, 3, 5, 10)]) | exact_levels


@given(networks(), exact_levels, shares)
def test_the_rule_equals_its_definition_on_scores(network, level, x):
    agents, n_cells = network
    outcome, masks = decide(agents, level, x, n_cells)
    assert masks == reference_masks(agents, level, x)
    assert outcome.n_rejected == sum(map(sum, masks))


@given(networks(top=4), st.sampled_from([Fraction(1, 2), Fraction(9, 10)]))
def test_equality_points_are_reached(network, level):
    """With w = 1 and the whole level at one agent, w(1 + C) = αR is common."""
    agents, n_cells = network
    calibration, tests = max(agents, key=lambda agent: len(agent[1]))
    known = [*calibration, *[0] * len(tests)][: max(len(tests) - 1, 1)]
    _, masks = decide([(known, tests)], level, Fraction(1, 2), n_cells)
    assert masks == reference_masks([(known, tests)], level, Fraction(1, 2))


@given(networks(), exact_levels)
def test_one_agent_without_a_floor_is_benjamini_hochberg(network, level):
    agents, n_cells = network
    for calibration, tests in agents:
        if not tests or not calibration:
            continue
        counts = (histogram(rows, n_cells) for rows in (tests, calibration))
        block = PooledBlock(len(tests), len(calibration), *counts)
        outcome = pooled_cut([block], level, "1/2")
        assert outcome.level_used == level
        ranks = conformal_ranks(calibration, tests)
        expected = step_up([(ranks, len(calibration))], level).rejected[0]
        np.testing.assert_array_equal(outcome.rejects(tests, floor=0), expected)


@given(networks(), exact_levels, shares, st.data())
def test_order_of_agents_empty_agents_and_empty_cells_change_nothing(network, level, x, data):
    agents, n_cells = network
    _, masks = decide(agents, level, x, n_cells)
    order = data.draw(st.permutations(range(len(agents))))
    spread = [([3 * s + 1 for s in known], [3 * s + 1 for s in t]) for known, t in agents]
    spread = [spread[i] for i in order]
    _, other = decide([*spread, ([], [])], level, x, 3 * n_cells)
    assert other == [*(masks[i] for i in order), []]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=10),
    st.integers(0, 40),
    exact_levels,
)
def test_a_floor_is_the_lowest_cell_that_leaves_room(counts, n_calibration, x):
    def fits(cell):
        return sum(counts[cell:]) <= x * (n_calibration + 1)

    cell = floor_cell(counts, n_calibration, x)
    assert fits(cell)
    assert cell == 0 or not fits(cell - 1)


@given(networks(), exact_levels)
def test_floors_keep_the_rows_of_the_definition_and_see_the_mixture_alone(network, x):
    agents, n_cells = network
    for calibration, tests in agents:
        mixture = [*calibration, *tests]
        floor = floor_cell(histogram(mixture, n_cells), len(calibration), x)
        lowest = reference_floor(calibration, tests, x)
        assert [s for s in mixture if s >= floor] == [s for s in mixture if s >= lowest]
        swapped = mixture[::-1]
        known, rest = swapped[: len(calibration)], swapped[len(calibration) :]
        assert reference_floor(known, rest, x) == lowest


def test_an_agent_without_calibration_rows_has_no_rows_above_its_floor():
    floor = floor_cell([3, 1, 1], 0, "0.99")
    assert floor == 3
    thin, other = PooledBlock(5, 0, [0] * 3, [0] * 3), PooledBlock(3, 29, [0, 0, 2], [0, 2, 0])
    outcome = pooled_cut([thin, other], 0.1, 0.1)
    assert outcome == PooledOutcome(2, 2, 0, Fraction(1, 10), Fraction(1, 10))
    assert not outcome.rejects([0, 1, 2], floor).any()


def test_an_agent_without_tests_adds_its_calibration_rows():
    rows = [0, 0, 2], [0, 0, 0]
    with_tests, known_only = PooledBlock(3, 29, *rows), PooledBlock(0, 9, [0] * 3, [2, 2, 5])
    assert pooled_cut([with_tests], 0.1, 0.1).n_rejected == 2
    assert pooled_cut([with_tests, known_only], 0.1, 0.1).cell is None


def test_nothing_is_rejected_where_the_counts_do_not_allow_it():
    block = PooledBlock(3, 5, [0, 1], [0, 0])  # one row above each floor: x = 1/6, and w = 1/2
    nothing = PooledBlock(3, 5, [0, 0], [0, 0])
    at_equality = PooledOutcome(0, 2, 0, Fraction(1, 2), Fraction(1, 4))
    assert pooled_cut([block, block], "3/10", "1/2") == at_equality
    outcome = pooled_cut([block, block], "0.2999", "1/2")
    assert outcome == PooledOutcome(None, 0, 0, Fraction(1, 2), Fraction(2999, 12000), Fraction(0))
    assert not outcome.rejects([0, 1], floor=0).any()
    assert pooled_cut([nothing, nothing], "1/2", "1/2").cell is None


def test_how_many_rows_of_an_agent_matter_at_equality():
    """ℓ + 1 = 40, one test each: w h > 2 α(1 - h/40), and h = 2 is not enough for α = 1/38."""
    group = PooledGroup([PooledBlock(1, 39, [1], [19])] * 2, "1/2")
    assert group.level_used(Fraction(1, 38)) == Fraction(37, 40) / 38
    assert group.level_used(Fraction(1000, 38001)) == Fraction(1000, 38001) * Fraction(38, 40)


def test_unequal_agents_have_one_weight():
    large = PooledBlock(20, 1999, [0, 20], [1, 0])
    small = PooledBlock(20, 19, [0, 0], [0, 1])
    idle = PooledBlock(500, 9, [0, 0], [0, 0])
    assert common_weight([large]) == Fraction(1, 100)
    assert common_weight([large, small, idle]) == 1
    assert common_weight([idle]) == 0
    assert pooled_cut([large, small, idle], 0.1, 0.1).weight == 1


def test_counts_of_any_size_do_not_overflow():
    many = 2**62
    block = PooledBlock(many, many, [0, many // 4], [0, many // 4])
    assert pooled_cut([block, block], "1/2", "3/4").cell is None
    sure = PooledBlock(many, many, [0, many // 4], [many // 99, 0])
    outcome = pooled_cut([sure, sure], "1/2", "3/4")
    assert (outcome.cell, outcome.n_rejected) == (0, many // 2)


GOOD = PooledBlock(2, 19, [0, 1], [0, 1])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PooledBlock(1, 9, [2, 0], [0, 0]), InputError, "test_counts add up to 2"),
        (lambda: PooledBlock(1, 1, [1], [2]), InputError, "n_calibration is only 1"),
        (lambda: PooledBlock(1, 9, [1], [0, 0]), SampleError, "same cells, not 1 and 2"),
        (lambda: PooledBlock(1, 9, [-1], [0]), InputError, "from 0 on"),
        (lambda: PooledBlock(1, 9, [1.0], [0]), InputError, "whole numbers"),
        (lambda: PooledBlock(1, 9, [], []), SampleError, "one count for each cell"),
        (lambda: PooledBlock(-1, 9, [0], [0]), InputError, "n_test"),
        (lambda: pooled_cut([], 0.1, 0.1), InputError, "one for each agent"),
        (lambda: pooled_cut([(1, 2)], 0.1, 0.1), InputError, "PooledBlock"),
        (lambda: pooled_cut([GOOD, PooledBlock(1, 9, [1], [0])], 0.1, 0.1), SampleError, "cells"),
        (lambda: pooled_cut([PooledBlock(0, 9, [0], [1])], 0.1, 0.1), SampleError, "nothing"),
        (lambda: pooled_cut([GOOD], 1.5, 0.1), LevelError, "level"),
        (lambda: pooled_cut([GOOD], 0.1, 1), LevelError, "room must lie"),
        (lambda: pooled_cut([GOOD], 0.1, 0), LevelError, "room must lie"),
        (lambda: pooled_cut([GOOD, GOOD], 0.1, 0.09), InputError, "block 0 has 2 .* allows 1"),
        (
            lambda: pooled_cut([PooledBlock(1, 0, [0, 1], [0, 0]), GOOD], 0.1, 0.1),
            InputError,
            "block 0 has 1 mixture rows .* 0 calibration rows allows 0",
        ),
        (lambda: floor_cell([1], 3, 1.0), LevelError, "room must lie"),
        (lambda: floor_cell([1], -3, 0.1), InputError, "n_calibration"),
    ],
)
def test_what_would_break_the_theorem_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_evidence_above_fixed_thresholds():
    idle = PooledBlock(7, 3, [0, 0], [0, 0])
    assert fixed_threshold_evidence([idle]) == 0
    # m = 9, w = 2/19 and C = 1: idle rows count in m and in nothing else.
    assert fixed_threshold_evidence([GOOD, idle]) == 9 / Fraction(4, 19)

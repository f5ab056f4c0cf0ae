"""Groups of which only totals are known: what they may reject, and every order of the nulls."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pooled import (
    Agent,
    exact_group_fdr,
    random_network,
    reference_left,
)

from conovel.errors import InputError, SampleError
from conovel.stats.cells import PooledBlock, most_above
from conovel.stats.grouped import PooledGroup, grouped_cut, pooled_cut

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def totals_of(group):
    """The same group, of which only totals are told."""
    counts = (
        np.sum([getattr(b, f"{kind}_counts") for b in group.blocks], axis=0)
        for kind in ("test", "calibration")
    )
    sizes = [(b.n_test, b.n_calibration) for b in group.blocks]
    return PooledGroup.of_totals(sizes, *counts, group.room, group.expected)


@st.composite
def groups(draw):
    """Agents with rows above their floors, up to what there is room for; some have no tests."""
    n_cells, room = draw(st.integers(1, 4)), draw(st.sampled_from([HALF, THIRD, Fraction(1, 10)]))
    blocks = []
    for _ in range(draw(st.integers(2, 4))):
        size, m = draw(st.integers(0, 30)), draw(st.integers(0, 8))
        above = min(most_above(size, room), size)
        tests, known = [0] * n_cells, [0] * n_cells
        for _ in range(draw(st.integers(0, above)) if m else 0):
            rows = tests if draw(st.booleans()) and sum(tests) < m else known
            rows[draw(st.integers(0, n_cells - 1))] += 1
        blocks.append(PooledBlock(m, size, tests, known))
    if not any(b.n_test for b in blocks):
        blocks.append(PooledBlock(1, 9, [0] * n_cells, [0] * n_cells))
    return PooledGroup(blocks, room)


levels = st.sampled_from([Fraction(1, 10), THIRD, Fraction(9, 10)])


@given(groups(), levels)
def test_as_the_only_group_totals_reject_no_row_that_blocks_would_not(group, level):
    """If every agent that could take part does: then the weight is the same."""
    taking = [b for b in group.blocks if b.takes_part or not b.n_test]
    if not any(b.n_test for b in taking):
        return
    group = replace(group, blocks=taking)
    [by_blocks], [by_totals] = (grouped_cut([g], level) for g in (group, totals_of(group)))
    assert by_totals.weight == by_blocks.weight
    assert by_totals.level_used <= by_blocks.level_used
    assert by_totals.n_rejected <= by_blocks.n_rejected
    if by_totals.n_rejected:
        assert by_totals.cell >= by_blocks.cell


@given(groups(), levels)
def test_totals_are_decided_by_bounds_on_what_is_above_each_floor(group, level):
    found = totals_of(group)
    total = sum(b.n_above for b in group.blocks)
    bounds = [
        (b.n_test, b.n_calibration, min(most_above(b.n_calibration, group.room), total))
        for b in group.blocks
    ]
    bounds = [one for one in bounds if one[0] and one[2]]
    assert found.w == max((Fraction(m, size + 1) for m, size, _ in bounds), default=0)
    assert found.most == (
        sum(min(m, k) for m, _, k in bounds) if len(bounds) > 1 else found.n_test
    )
    if len(bounds) > 1:
        expected = reference_left(bounds, found.w, level, m_g=found.n_test, total=total)
        assert found.level_used(level) == expected


def test_where_floors_are_full_totals_say_all():
    rows = [PooledBlock(10, 29, [0, 1, 2], [2, 1, 0]), PooledBlock(20, 59, [0, 3, 3], [5, 0, 1])]
    for level in (Fraction(1, 10), HALF):
        [by_totals] = grouped_cut([totals_of(PooledGroup(rows, "1/5"))], level)
        assert by_totals == pooled_cut(rows, level, "1/5")
        assert by_totals.level_used < level


def test_one_agent_needs_no_room():
    block = PooledBlock(3, 29, [0, 2], [1, 4])
    alone = PooledGroup.of_totals([(3, 29)], block.test_counts, block.calibration_counts, None)
    assert grouped_cut([alone], "1/5") == grouped_cut([PooledGroup([block])], "1/5")
    # Agents without room for a row do not count: the whole level is left to the one that has it.
    with_thin = PooledGroup.of_totals([(3, 29), (5, 3)], [0, 2], [0, 1], "1/5")
    assert with_thin.level_used(HALF) == HALF
    assert with_thin.w == Fraction(1, 10)
    assert grouped_cut([with_thin], HALF)[0].n_rejected == 2


def test_the_total_above_floors_bounds_every_agent():
    """Three rows in all, where there is room for six at each of two agents."""
    group = PooledGroup.of_totals([(12, 11)] * 2, [0, 1], [1, 1], HALF)
    assert [member.n_above for member in group.members] == [3, 3]
    fuller = PooledGroup.of_totals([(12, 11)] * 2, [0, 6], [5, 1], HALF)
    assert group.level_used(HALF) > fuller.level_used(HALF)
    # w = 1, and h = 1 suffices: 1 > α 11/12 (1 + 2), as 3 - 1 rows are left for both agents.
    assert group.level_used(THIRD) == THIRD * Fraction(11, 12)
    assert group.level_used(Fraction(4, 11)) == Fraction(4, 11) * Fraction(10, 12)  # 1 = 4/12 · 3


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: PooledGroup.of_totals([(9, 9)] * 2, [5], [6], HALF),
            InputError,
            "11 mixture rows above floors, and a room of 1/2 at 2 agents allows 10",
        ),
        (
            lambda: PooledGroup.of_totals([(2, 9)] * 2, [5], [0], HALF),
            InputError,
            "add up to 5, and n_test is only 4",
        ),
        (
            lambda: PooledGroup.of_totals([(2, 9), (20, 3)], [5], [0], HALF),
            InputError,
            "5 test rows above floors, and a room of 1/2 at 2 agents allows 4",
        ),
        (lambda: PooledGroup.of_totals([], [1], [0], HALF), InputError, "n_test is only 0"),
        (lambda: PooledGroup.of_totals([(0, 9)], [0], [1], HALF), SampleError, "nothing to test"),
        (lambda: PooledGroup.of_totals([(-1, 9)], [0], [1], HALF), InputError, "n_test"),
        (lambda: PooledGroup.of_totals([(1, 9.5)], [0], [1], HALF), InputError, "n_calibration"),
        (
            lambda: PooledGroup.of_totals([(2, 9)] * 2, [1], [0], None),
            InputError,
            "2 agents needs a room",
        ),
        (
            lambda: PooledGroup([PooledBlock(1, 9, [1], [0])] * 2, HALF, sizes=[(1, 9)] * 2),
            InputError,
            "one block of totals",
        ),
    ],
)
def test_totals_that_no_agents_can_have_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_totals_are_refused_where_liars_are_tolerated():
    group = PooledGroup.of_totals([(5, 9)] * 3, [2], [0], HALF)
    assert grouped_cut([group], HALF)[0].n_rejected == 2
    with pytest.raises(InputError, match="with liars the counts of each agent"):
        grouped_cut([group], HALF, liars=1)


def test_an_agent_without_tests_may_add_calibration_rows():
    group = PooledGroup.of_totals([(3, 29), (2, 19), (0, 9)], [0, 2], [9, 0], "1/10")
    assert len(group.members) == 3
    assert group.most == 5
    assert group == replace(group)


# Every order --------------------------------------------------------------------------------


def by_totals(groups, level):
    return grouped_cut([g if g.room is None else totals_of(g) for g in groups], level)


def as_one_agent(groups, level):
    """INVALID: the totals of a group are taken for the rows of one agent."""
    return grouped_cut([PooledGroup(totals_of(group).blocks) for group in groups], level)


def rates(number, decide):
    """FDR over the level of small networks, of one group or two."""
    rng = np.random.default_rng(3)
    for _ in range(number):
        agents = [a for a in random_network(rng, most_orders=250) if a.n_test]
        cut = int(rng.integers(1, len(agents) + 1))
        groups = [part for part in (agents[:cut], agents[cut:]) if part]
        xs = [[HALF, THIRD, Fraction(2, 3)][rng.integers(3)] for _ in groups]
        level = [THIRD, HALF, Fraction(9, 10)][rng.integers(3)]
        yield exact_group_fdr(groups, level, xs, decide=decide) / level


def test_small_networks_keep_the_level_for_every_order():
    found = list(rates(300, by_totals))
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 100
    assert max(found) > Fraction(3, 4)


def test_totals_taken_for_one_agent_are_caught():
    """The highest row of the small agent is its test with probability 1/3."""
    agents = [Agent((0, 0, 1), 2), Agent((0,) * 31, 30)]
    fdr = [
        exact_group_fdr([agents], THIRD / 2, [THIRD], decide=d) for d in (by_totals, as_one_agent)
    ]
    assert fdr == [0, THIRD]

"""Which agents calibrate together: a pure function of numbers of rows."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.deciding.cell_groups import can_reject, divide, told_weights
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, needed_calibration, planned_calibration
from conovel.stats.cells import ROOMS, PooledBlock, RoomWanted, affordable_rooms, choose_room
from conovel.stats.grouped import PooledGroup, grouped_cut

SPEC = RunSpec.of(regime="joint", level="1/10")
numbers = st.builds(Numbers, st.integers(2, 3000), st.integers(0, 400))
networks = st.lists(numbers, min_size=1, max_size=6).map(
    lambda sizes: {f"{i:02d}": rows for i, rows in enumerate(sizes)}
)


def weight_of(rows, n_agents):
    return Fraction(rows.n_test, planned_calibration(rows, SPEC, n_agents) + 1)


def room(rows, w, n_agents):
    """The tests of an agent for which there is room, if a tenth of them is above a floor."""
    kept = min(planned_calibration(rows, SPEC, n_agents), needed_calibration(rows.n_test, w))
    return min(rows.n_test, 3 * (kept + 1))


def worth(group, agents):
    w = max(weight_of(agents[name], len(agents)) for name in group)
    m = sum(room(agents[name], w, len(agents)) for name in group)
    if len(group) == 1:
        m = agents[group[0]].n_test
    return m * math.sqrt(max(0, 1 - w / (Fraction(1, 100) * m)))


@given(networks)
def test_the_division_is_the_best_of_all_divisions_of_the_order(agents):
    found = divide(agents, SPEC, len(agents))
    order = sorted(
        (name for name in agents if agents[name].n_test),
        key=lambda name: (weight_of(agents[name], len(agents)), name),
    )
    if not order:
        assert found == ()
        return
    values = []
    for n in range(len(order)):
        for cuts in itertools.combinations(range(1, len(order)), n):
            parts = itertools.pairwise([0, *cuts, len(order)])
            values.append(sum(worth(order[a:b], agents) for a, b in parts))
    value = sum(worth(group.agents, agents) for group in found)
    assert value == pytest.approx(max(values))


@given(networks)
def test_groups_are_a_partition_and_weights_name_them(agents):
    groups = divide(agents, SPEC, len(agents))
    inside = [name for group in groups for name in group.agents]
    assert sorted(inside) == sorted(name for name in agents if agents[name].n_test)
    weights = [group.weight for group in groups]
    assert weights == sorted(weights)
    several = [group.weight for group in groups if len(group.agents) > 1]
    assert len(several) == len(set(several))
    for group in groups:
        assert group.weight == max(weight_of(agents[n], len(agents)) for n in group.agents)
    told = dict(zip(agents, told_weights(groups, list(agents)), strict=True))
    for a, b in itertools.combinations(agents, 2):
        together = any({a, b} <= set(group.agents) for group in groups)
        assert together is (told[a] == told[b] != 0)


def test_equal_agents_are_one_group_and_an_odd_one_is_by_itself():
    equal = dict.fromkeys("abcd", Numbers(100, 33))
    [group] = divide(equal, SPEC, 4)
    assert group.agents == tuple("abcd")
    groups = divide(equal | {"odd": Numbers(20, 2000)}, SPEC, 5)
    assert [group.agents for group in groups] == [tuple("abcd"), ("odd",)]
    assert told_weights(groups, [*"abcd", "odd"]) == (groups[0].weight,) * 4 + (0,)


def test_agents_that_would_have_no_room_above_a_floor_are_by_themselves():
    busy = dict.fromkeys("abc", Numbers(300, 1000))
    groups = divide(busy, SPEC, 3)
    assert [group.agents for group in groups] == [("a",), ("b",), ("c",)]
    assert told_weights(groups, "abc") == (0, 0, 0)


def test_where_nothing_can_be_rejected_there_is_one_group():
    thin = {"a": Numbers(4, 5), "b": Numbers(5, 3), "c": Numbers(3, 1)}
    assert len(divide(thin, SPEC, 3)) == 1


@given(numbers.filter(lambda rows: rows.n_test), st.fractions("1/1000", 50))
def test_calibration_rows_that_are_needed(rows, weight):
    needed = needed_calibration(rows.n_test, weight)
    assert Fraction(rows.n_test, needed + 1) <= weight
    assert needed == 30 or Fraction(rows.n_test, needed) > weight


def test_numbers_of_any_size_are_divided():
    huge = {"a": Numbers(2**64 - 1, 2**64 - 1), "b": Numbers(0, 1), "c": Numbers(1, 2**63)}
    assert sum(len(group.agents) for group in divide(huge, SPEC, 200)) == 3
    many = {f"{i:03d}": Numbers(50 + 7 * i, 10 + i * i % 91) for i in range(200)}
    assert 1 <= len(divide(many, SPEC, 200)) <= 200


def blocks_at_best(group, agents, x, spec):
    """Rows of a group of which only tests are above the floors, as many as x has room for."""
    blocks = []
    for name in group.agents:
        rows = agents[name]
        size = planned_calibration(rows, spec, len(agents))
        if x is not None and spec.train_fraction is None:
            size = min(size, needed_calibration(rows.n_test, group.weight))
        above = rows.n_test if x is None else min(rows.n_test, int(x * (size + 1)))
        blocks.append(PooledBlock(rows.n_test, size, [above], [0]))
    return blocks


def rooms_of(group, agents, spec):
    """Every x that the group may get, whatever rows it has in high cells."""
    if len(group.agents) == 1:
        return [None]
    blocks = blocks_at_best(group, agents, ROOMS[0], spec)
    wanted = [RoomWanted(0, b.n_test, b.n_calibration) for b in blocks]
    least = choose_room(wanted, spec.level)
    return [x for x in affordable_rooms(wanted, spec.level) if x >= least]


# Sizes at which some can reject and some cannot.
thin_networks = st.lists(
    st.builds(Numbers, st.integers(2, 60), st.integers(1, 40)), min_size=1, max_size=5
).map(lambda sizes: {f"{i:02d}": rows for i, rows in enumerate(sizes)})
specs = st.builds(
    lambda level, share: RunSpec.of(regime="joint", level=level, train_fraction=share),
    st.sampled_from(["1/20", "1/10", "1/3"]),
    st.none() | st.just("1/2"),
)


@given(thin_networks | networks, specs)
def test_a_group_can_reject_if_some_of_its_agents_can_at_best(agents, spec):
    """No room costs more than half of the level: so what the whole level can, twice of it does."""

    def rejects(level):
        for group in divide(agents, spec, len(agents)):
            for x in [None] if len(group.agents) == 1 else ROOMS:
                blocks = blocks_at_best(group, agents, x, spec)
                for n in range(1, len(blocks) + 1):
                    for some in itertools.combinations(blocks, n):
                        [outcome] = grouped_cut([PooledGroup(some, x)], level)
                        if outcome.n_rejected:
                            return True
        return False

    found = can_reject(agents, spec, len(agents))
    assert found or not rejects(spec.level)
    assert rejects(2 * spec.level) or not found


@given(thin_networks | networks, specs, st.data())
def test_where_no_group_can_reject_none_does(agents, spec, data):
    """Whatever x the groups get, whatever rejections they expect, and whoever has rows on top."""
    if can_reject(agents, spec, len(agents)):
        return
    groups = []
    for group in divide(agents, spec, len(agents)):
        x = data.draw(st.sampled_from(rooms_of(group, agents, spec)))
        blocks = [
            block if data.draw(st.booleans()) else replace(block, test_counts=[0])
            for block in blocks_at_best(group, agents, x, spec)
        ]
        groups.append(PooledGroup(blocks, x, expected=[data.draw(st.integers(1, 3000))]))
    if groups:
        assert sum(found.n_rejected for found in grouped_cut(groups, spec.level)) == 0


@pytest.mark.parametrize(
    ("sizes", "level", "expected"),
    [
        ([(60, 1), (2, 40)], "1/10", True),
        ([(6, 3)] * 2, "1/10", False),
        ([(6, 3)] * 30, "1/10", True),
        ([(10, 3)] * 2, "1/10", True),  # ℓ + 1 = 8, w = 3/8, and six tests: 3/8 <= 6/10
        ([(5, 20)] * 3, "1/10", False),
        ([(40, 0)] * 2, "1/10", False),
    ],
)
def test_who_can_reject(sizes, level, expected):
    agents = {f"{i:02d}": Numbers(*rows) for i, rows in enumerate(sizes)}
    spec = RunSpec.of(regime="joint", level=level)
    assert can_reject(agents, spec, len(agents)) is expected

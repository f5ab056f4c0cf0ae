"""Which agents calibrate together: a pure function of numbers of rows."""

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.spec.groups import (
    Numbers,
    divide,
    needed_calibration,
    planned_calibration,
    told_weights,
)
from conovel.spec.run_spec import RunSpec

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

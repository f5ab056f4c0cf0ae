"""Counts in cells, and the room above a floor: by definition and at each boundary."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.stats.cells import (
    ROOMS,
    CellHistogram,
    PooledBlock,
    RoomWanted,
    affordable_rooms,
    allowed_rooms,
    choose_room,
    reaches,
)
from conovel.stats.grouped import PooledGroup

TENTH = Fraction(1, 10)
CELLS = 6
cells = st.lists(st.integers(0, CELLS - 1), max_size=12)


def histogram_of(calibration, tests, **more):
    known, tested = (np.array(one, dtype=np.int64) for one in (calibration, tests))
    return CellHistogram.of(known, tested, CELLS, **more)


@given(cells, cells, st.integers(0, CELLS))
def test_a_histogram_counts_rows_by_cell(calibration, tests, likely):
    histogram = histogram_of(calibration, tests, likely=likely)
    assert histogram.calibration.tolist() == [calibration.count(c) for c in range(CELLS)]
    assert histogram.tests.tolist() == [tests.count(c) for c in range(CELLS)]
    assert (histogram.size, histogram.n_calibration) == (len(tests), len(calibration))
    assert histogram.n_likely == sum(c >= likely for c in calibration + tests)


def test_all_rows_are_likely_unless_told():
    assert histogram_of([0, 3], [1]).n_likely == 3


@given(cells, cells, st.integers(0, CELLS))
def test_above_a_cell_the_counts_stay_and_below_they_are_zero(calibration, tests, cell):
    above = histogram_of(calibration, tests, likely=2).above(cell)
    kept = histogram_of([c for c in calibration if c >= cell], [c for c in tests if c >= cell])
    assert above.calibration.tolist() == kept.calibration.tolist()
    assert above.tests.tolist() == kept.tests.tolist()
    assert above.likely == 2


@given(cells, st.fractions(TENTH, 1, max_denominator=30))
def test_the_floor_of_an_agent_alone_is_its_definition(calibration, level):
    """The lowest cell with 1 + C <= α(ℓ + 1), where C calibration rows lie at or above it."""
    most = level * (len(calibration) + 1)
    fits = [c for c in range(CELLS) if 1 + sum(one >= c for one in calibration) <= most]
    floor = histogram_of(calibration, []).floor_alone(level)
    assert floor == min(fits, default=CELLS)


def test_the_floor_of_an_agent_alone_by_hand():
    histogram = histogram_of([0, 0, 1, 2, 3, 3, 4], [])  # ℓ + 1 = 8
    assert histogram.floor_alone(Fraction(1, 2)) == 3  # 1 + 3 <= 4, and 1 + 4 > 4
    assert histogram.floor_alone(Fraction(3, 8)) == 4  # 1 + 1 <= 3, and 1 + 3 > 3
    assert histogram.floor_alone(Fraction(1, 9)) == CELLS  # not even 1 + 0


def test_a_row_in_the_cut_is_rejected():
    assert reaches(np.array([4, 5, 6]), 5).tolist() == [False, True, True]
    assert reaches(np.array([4, 5, 6]), np.array([4, 6, 6])).tolist() == [True, False, True]


def test_where_liars_are_tolerated_there_is_a_smaller_room():
    assert allowed_rooms(0) == ROOMS == tuple(sorted(ROOMS))
    assert allowed_rooms(1)[0] == Fraction(1, 40)
    assert allowed_rooms(1)[1:] == tuple(room for room in ROOMS if room <= Fraction(3, 10))


@pytest.mark.parametrize(
    ("agents", "room"),
    [
        # By numbers: x >= 15 % / (1 - α) · (m/(ℓ + 1) + α), which is (m/(ℓ + 1) + 1/10)/6 here.
        ([], "1/20"),
        ([(0, 0, 9)], "1/20"),
        ([(0, 50, 99)], "1/10"),  # exactly 1/10
        ([(0, 501, 999)], "3/20"),
        ([(0, 50, 98)], "3/20"),
        ([(0, 50, 100)], "1/10"),
        ([(0, 0, 9), (0, 501, 999)], "3/20"),  # the agent with the most tests for its normals
        ([(0, 900, 99)], "1/2"),  # more than there is
        # By what is wanted: x(ℓ + 1), rounded down, serves nine tenths of it.
        ([(10, 0, 99)], "1/10"),
        ([(10, 0, 89)], "1/10"),  # 9 of 10 are served
        ([(10, 0, 88)], "3/20"),  # 8 of 10 would be
        ([(11, 0, 98)], "3/20"),  # 9.9 rows are 9
        ([(100, 0, 99)], "1/2"),  # more than there is
        ([(10, 0, 89), (0, 0, 1000)], "1/10"),  # nobody is served with the room of others
        # With tests, (1 + α/w)/(1 - α) rows for each: 4/3 where w = 1/2.
        ([(58, 100, 199)] * 3, "7/20"),  # 70 of 77.3
        ([(59, 100, 199)] * 3, "2/5"),  # 70 of 78.7 would not be nine tenths
        ([(60, 100, 199)] * 30, "3/10"),  # a larger room would cost thirty agents too much
        ([(30, 100, 199)] * 30, "1/5"),  # 36 of 40 need no more than 1/5
    ],
)
def test_the_room_is_the_smallest_that_suffices(agents, room):
    assert choose_room([RoomWanted(*one) for one in agents], TENTH) == Fraction(room)


def test_a_large_room_leaves_most_of_the_level():
    """Seven tenths, with as many rows above the floors as there is room for."""
    for n_agents in range(2, 13):
        group, rest = [RoomWanted(0, 100, 199)] * n_agents, Fraction(7, 10) * TENTH
        affordable = affordable_rooms(group, TENTH)
        for room in ROOMS:
            above = int(room * 200)
            rows = [PooledBlock(100, 199, [min(above, 100)], [max(above - 100, 0)])] * n_agents
            is_cheap = PooledGroup(rows, room).level_used(TENTH) >= rest
            assert (room in affordable) is is_cheap
    assert affordable == [room for room in ROOMS if room <= Fraction(3, 10)]
    assert affordable_rooms(group[:2], TENTH) == list(ROOMS)


def test_with_liars_only_what_is_wanted_counts():
    assert choose_room([RoomWanted(0, 50, 99)], TENTH, liars=1) == Fraction(1, 40)
    assert choose_room([RoomWanted(10, 50, 99)], TENTH, liars=1) == TENTH

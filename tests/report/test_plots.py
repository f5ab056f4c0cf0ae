"""The geometry of the plots."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.report.picture import thinned
from conovel.report.plots import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Bar,
    Dot,
    p_value_plot,
    round_values,
    rounds_plot,
    score_plot,
    step_up_plot,
)
from conovel.report.view import Curve, Histogram


def curve(k, p_value, *, slope, rejected, whole=True):
    return Curve(["here"], len(k), rejected, rejected, slope, whole, k, p_value)


def test_dots_of_flagged_rows_lie_on_or_below_the_threshold_and_the_others_above():
    drawn = step_up_plot(
        curve([1, 2, 3, 4], [0.02, 0.02, 0.03, 0.2], slope=0.025, rejected=3), "step-up"
    )
    dots = [mark for mark in drawn.marks if isinstance(mark, Dot)]
    (limit,) = [mark for mark in drawn.marks if getattr(mark, "look", "") == "line limit"]
    height = float(limit.points.split()[0].split(",")[1])
    assert [dot.look for dot in dots].count("full") == 3
    assert all(dot.y >= height for dot in dots if dot.look == "full")  # downwards is larger
    assert all(dot.y < height for dot in dots if dot.look == "open")


def test_the_step_up_line_is_straight_through_the_origin_and_the_last_rejection():
    drawn = step_up_plot(curve([1, 2, 3], [0.01, 0.02, 0.5], slope=0.02, rejected=2), "step-up")
    line, limit = (
        [tuple(map(float, point.split(","))) for point in mark.points.split()]
        for look in ("line bound", "line limit")
        for mark in drawn.marks
        if getattr(mark, "look", "") == look
    )
    (x0, y0), (x1, y1) = line
    assert (x0, y0) == (LEFT, BOTTOM)
    at_two = x0 + (RIGHT - LEFT) * 2 / 3
    assert y0 + (y1 - y0) * (at_two - x0) / (x1 - x0) == pytest.approx(limit[0][1], abs=0.02)


@pytest.mark.parametrize("m", [50, 10**6])
def test_the_crossing_stays_in_sight_however_many_rows(m):
    p_values = np.concatenate([np.full(m // 10, 1e-4), np.linspace(0.5, 1, m - m // 10)])
    places = thinned(m, m // 10)
    line = curve(places.tolist(), p_values[places - 1].tolist(), slope=0.1 / m, rejected=m // 10)
    (limit,) = [m for m in step_up_plot(line, "step-up").marks if m.look == "line limit"]
    height = float(limit.points.split()[0].split(",")[1])
    assert (TOP + BOTTOM) / 2 < height < BOTTOM - 20


def test_one_sites_view_has_no_line_to_compare_with():
    drawn = step_up_plot(curve([1, 2], [0.1, 0.2], slope=0.1, rejected=1, whole=False), "step-up")
    assert not [mark for mark in drawn.marks if getattr(mark, "look", "") == "line bound"]
    assert "step-up line" not in [key.text for key in drawn.keys]


def test_bars_are_as_high_as_their_counts_and_stay_inside():
    histogram = Histogram([0, 0.25, 0.5, 0.75, 1], [8, 4, 0, 2], [6, 0, 0, 0])
    bars = [mark for mark in p_value_plot(histogram, "p").marks if isinstance(mark, Bar)]
    heights = [bar.height for bar in bars]
    assert [bar.look for bar in bars] == ["flagged", "tests", "tests", "tests"]
    assert heights == pytest.approx([3 * heights[3], heights[3], 2 * heights[3], heights[3]], 0.01)
    assert min(bar.y for bar in bars) >= TOP
    assert max(bar.y + bar.height for bar in bars) <= BOTTOM + 0.01


def test_scores_of_tests_go_up_and_of_normals_down():
    histogram = Histogram([0.0, 1.0, 2.0], [5, 5], [0, 5], [9, 1])
    bars = [mark for mark in score_plot(histogram, 1.0, "s").marks if isinstance(mark, Bar)]
    middle = (TOP + BOTTOM) / 2
    for bar in bars:
        assert (bar.y >= middle - 0.02) == (bar.look == "normals")
    # Known normals differ ninefold: threefold on a root scale.
    first, second = [bar.height for bar in bars if bar.look == "normals"]
    assert first == pytest.approx(3 * second, rel=0.01)


def test_a_wider_bin_is_lower():
    histogram = Histogram([0.0, 1.0, 5.0], [5, 5], [0, 0], [5, 5])
    bars = [mark for mark in score_plot(histogram, None, "s").marks if isinstance(mark, Bar)]
    first, second = [bar.height for bar in bars if bar.look == "tests"]
    assert first == pytest.approx(2 * second, rel=0.01)


def test_rounds_fall_from_left_to_right():
    drawn = rounds_plot([1000, 200, 150, 150], "rounds")
    dots = [mark for mark in drawn.marks if isinstance(mark, Dot)]
    assert [dot.x for dot in dots] == sorted(dot.x for dot in dots)
    assert [dot.y for dot in dots] == sorted(dot.y for dot in dots)
    assert "1,000, 200, 150, 150" in drawn.description


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(1, 8))
def test_round_values_lie_inside_and_are_few(low, span, most):
    high = low + span
    if not high > low:
        return
    values = round_values(low, high, most)
    assert len(values) <= most + 1
    slack = 1e-6 * max(abs(low), abs(high), 1)
    assert all(low - slack <= value <= high + slack for value in values)


def labels(ticks):
    return [tick.label for tick in ticks]


def test_plots_that_stand_beside_one_another_have_the_same_axes():
    near = Histogram([0, 1, 2, 3], [9, 0, 1], [0, 0, 1], [10, 0, 0])
    far = Histogram([-4, 0, 4, 8], [5, 3, 2], [0, 0, 2], [4, 3, 3])
    alone = [score_plot(one, None, "s") for one in (near, far)]
    assert labels(alone[0].x_ticks) != labels(alone[1].x_ticks)
    for common in (True, False):
        first, second = (score_plot(one, None, "s", [near, far], common) for one in (near, far))
        assert labels(first.y_ticks) == labels(second.y_ticks)
        assert (labels(first.x_ticks) == labels(second.x_ticks)) is common
    few = curve([1, 2], [0.01, 0.5], slope=0.02, rejected=1)
    many = curve([1, 2, 40], [0.1, 0.2, 0.9], slope=0.02, rejected=2)
    first, second = (step_up_plot(one, "step-up", [few, many]) for one in (few, many))
    assert first.x_ticks == second.x_ticks
    assert first.y_ticks == second.y_ticks

"""What is kept of a run for its plots: small, and equal to the decisions."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.report import render
from conovel.report.picture import (
    BINS,
    MOST_POINTS,
    Line,
    SiteRanks,
    most_novel,
    picture,
    score_histogram,
    thinned,
)


@given(st.integers(1, 10**7), st.integers(0, 10**7))
def test_thinning_is_bounded_rises_and_keeps_the_crossing(m, n_rejected):
    n_rejected = min(n_rejected, m)
    places = thinned(m, n_rejected)
    assert places.size <= MOST_POINTS + 2
    assert (np.diff(places) > 0).all()
    assert places[0] == 1
    assert places[-1] <= m
    for k in (n_rejected, n_rejected + 1):
        assert (k in places) == (1 <= k <= m)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=60),
    st.lists(st.integers(0, 20), min_size=1, max_size=60),
)
def test_calibration_rows_are_counted_through_the_ranks(calibration, tests):
    calibration, tests = np.array(calibration, float), np.array(tests, float)
    ranks = cn.conformal_ranks(calibration, tests)
    blank = np.zeros(tests.size, bool)
    block = SiteRanks(ranks, blank, calibration.size, np.arange(tests.size), scores=tests)
    drawn = score_histogram(block)
    edges = np.array(drawn["edges"])
    edges[0], edges[-1] = -1, 21  # whatever lies outside is in the outermost bins
    assert drawn["calibration"] == np.histogram(calibration, edges)[0].tolist()
    assert sum(drawn["tests"]) == tests.size
    assert len(drawn["tests"]) <= BINS


@pytest.mark.parametrize("scores", [[1e9, 1e9 + 1e-6], [0.0, 0.0], [0.5, np.inf]])
def test_scores_that_hardly_differ_or_are_endless_still_make_a_page(detection, scores):
    scores = np.array(scores)
    block = SiteRanks(np.array([1, 1]), np.array([True, True]), 19, np.arange(2), scores)
    drawn = json.loads(json.dumps(picture({"": block}, [Line(("",), Fraction(1, 20), 2)])))
    assert (drawn["sites"][""]["scores"] is None) == (not np.isfinite(scores).all())
    assert "● flagged" in render({**detection, "picture": drawn})


def test_p_values_on_an_edge_belong_to_the_bin_that_they_close():
    ranks = np.array([1, 2, 20])
    block = SiteRanks(ranks, ranks == 1, 19, np.arange(3))
    drawn = picture({"": block}, [Line(("",), Fraction(1, 20), 1)])["p_values"]
    assert drawn["tests"] == [1, 1, *[0] * 17, 1]
    assert drawn["rejected"] == [1, *[0] * 19]


def test_the_most_novel_rows_come_first_over_all_sites():
    few = SiteRanks(np.array([1, 3]), np.array([True, False]), 9, np.array(["a", "b"]))
    many = SiteRanks(
        np.array([1, 50]), np.array([True, False]), 99, np.array(["c", "d"]), np.array([0.9, 0.1])
    )
    listed = most_novel({"few": few, "many": many}, 3)
    assert [row["row"] for row in listed] == ["c", "a", "b"]


@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 3)), min_size=1, max_size=40),
    st.integers(1, 50),
)
def test_a_short_list_is_the_beginning_of_a_long_one(rows, most):
    ranks, scores = (np.array(column) for column in zip(*rows, strict=True))
    block = SiteRanks(ranks, ranks == 1, 9, np.arange(ranks.size), scores.astype(float))
    listed = most_novel({"": block}, most)
    assert listed == most_novel({"": block}, 100)[:most]
    keys = [(row["rank"], -row["score"]) for row in listed]
    assert keys == sorted((r, -s) for r, s in rows)[:most]


def test_a_million_rows_fit_in_a_small_page(detection):
    rng = np.random.default_rng(0)
    ranks = rng.integers(1, 10_001, size=10**6)
    names = np.array(["x" * 500] * ranks.size, dtype=object)
    block = SiteRanks(ranks, ranks < 50, 9_999, names, scores=-ranks / 7)
    line = Line(("",), Fraction(1, 10**7), int((ranks < 50).sum()))
    content = {**detection, "picture": picture({"": block}, [line])}
    assert len(json.dumps(content)) < 100_000
    assert len(render(content)) < 200_000


def test_pictures_agree_with_the_decisions(runs):
    for content in runs.values():
        drawn = content["picture"]
        assert sum(s["n_rejected"] for s in drawn["sites"].values()) == content["n_rejected"]
        if drawn["step_up"]:  # not in joint, where cells decide
            assert sum(c["n_rejected_here"] for c in drawn["step_up"]) == content["n_rejected"]
        for line in drawn["step_up"]:
            below = [
                k
                for k, p in zip(line["k"], line["p_value"], strict=True)
                if p <= line["slope"] * k * (1 + 1e-9)
            ]
            assert max(below, default=0) == line["n_rejected"]
        assert sum(drawn["p_values"]["rejected"]) == content["n_rejected"]


def test_no_histogram_of_scores_where_ranks_follow_from_scores_of_several_folds():
    ranks, rejected = np.array([3, 1, 2]), np.zeros(3, dtype=bool)
    block = SiteRanks(ranks, rejected, 4, np.arange(3), np.array([0.1, 0.2, 0.3]))
    assert score_histogram(block) is None
    assert score_histogram(replace(block, ranks=np.array([3, 2, 1])))["calibration"] is not None

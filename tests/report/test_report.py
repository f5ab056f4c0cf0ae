"""The report: its geometry, what it refuses, and that names in a run stay text."""

import copy
import json
import re
from fractions import Fraction
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DOCS

import conovel as cn
from conovel import demo
from conovel.errors import FileError, RunFileError
from conovel.report import network_content, of_detection, render
from conovel.report.drawing import BOTTOM, LEFT, RIGHT, TOP, Bar, Dot, round_values
from conovel.report.picture import SiteRanks, most_novel, picture, score_histogram
from conovel.report.picture_content import BINS, MOST_POINTS, Line, thinned
from conovel.report.plots import p_value_plot, rounds_plot, score_plot, step_up_plot
from conovel.report.story import story_of
from conovel.report.view import Curve, Histogram

STYLE = Path(cn.__file__).parent / "report" / "templates" / "style.css"
PLAIN = {"composite": "mean", "bits": 4, "scorer": "logistic", "train_fraction": 0.5}
SCRIPT = "<script>alert(1)</script>"


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def detection():
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    ids = [SCRIPT, *(f"row-{i}" for i in range(1, 100))][::-1]
    result = cn.AdaDetect("logistic").detect(rng.normal(size=(600, 3)), X_test, ids=ids)
    return {"command": "detect", **result.summary(), "picture": of_detection(result)}


@pytest.fixture(scope="module")
def rows():
    """Three sites whose novelties nobody can miss."""
    rng = np.random.default_rng(0)
    is_novel = np.arange(100) >= 85
    return {
        name: SimpleNamespace(
            X_null=rng.normal(size=(300, 3)),
            X_test=rng.normal(size=(100, 3)) + 5 * is_novel[:, None],
            is_novel=is_novel,
        )
        for name in ("north", "south", SCRIPT)
    }


@pytest.fixture(scope="module")
def runs(rows):
    agents = [cn.Agent(name, r.X_null, r.X_test) for name, r in rows.items()]
    truth = {name: r.is_novel for name, r in rows.items()}
    contents = {
        regime: network_content(cn.Network(agents, regime=regime, **PLAIN).run(), truth)
        for regime in ("isolated", "counts", "pooled", "split", "conservative", "full")
    }
    return json.loads(json.dumps(contents))


def sections(story):
    return {section.title: section for section in story.sections}


# Geometry


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


# Pictures


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
        assert sum(c["n_rejected_here"] for c in drawn["step_up"]) == content["n_rejected"]
        for line in drawn["step_up"]:
            below = [
                k
                for k, p in zip(line["k"], line["p_value"], strict=True)
                if p <= line["slope"] * k * (1 + 1e-9)
            ]
            assert max(below, default=0) == line["n_rejected"]
        assert sum(drawn["p_values"]["rejected"]) == content["n_rejected"]


# What pages say


def test_one_site(detection):
    story = story_of(detection)
    assert story.headline == f"{detection['n_rejected']} of 100 rows flagged as novel"
    assert "at most 0.1" in story.guarantee
    assert story.assumptions == detection["guarantee"]["assumptions"]
    assert list(sections(story)) == [
        "The most novel rows",
        "How it was decided",
        "Scores",
        "Resolution left",
        "Settings",
    ]
    first = sections(story)["The most novel rows"].tables[0].rows[0]
    assert "● flagged" in first


@pytest.mark.parametrize(
    "regime", ["isolated", "counts", "pooled", "split", "conservative", "full"]
)
def test_every_regime(runs, regime):
    story = story_of(runs[regime])
    assert not story.warnings
    assert f"{runs[regime]['n_rejected']:,} of " in story.headline
    assert "at most 10 %" in story.guarantee
    assert "novelties were found" in story.lead
    titles = sections(story)
    assert ("The counts" in titles) == (regime in ("counts", "split", "full"))
    assert "What was revealed to whom" in titles
    curves = [p for p in titles["How it was decided"].plots if "tep-up" in p.title]
    assert len(curves) == (3 if regime in ("isolated", "conservative") else 1)
    render(runs[regime])


def test_without_a_picture_one_is_made_from_the_ranks(runs):
    content = copy.deepcopy(runs["full"])
    drawn = content.pop("picture")
    story = story_of(content)
    assert "Scores" not in sections(story)
    with_picture = sections(story_of(runs["full"]))["How it was decided"].plots
    assert sections(story)["How it was decided"].plots == with_picture
    for name, site in content["decisions"].items():
        m = len(site["ranks"])
        site["ids"], site["scores"] = [f"{name}-{i}" for i in range(m)], [0.5] * m
    table = sections(story_of(content))["The most novel rows"].tables[0]
    assert table.rows[0][0].startswith(tuple(drawn["sites"]))
    content["decisions"]["north"]["scores"] = ["high"] * len(
        content["decisions"]["north"]["ranks"]
    )
    with pytest.raises(RunFileError, match=r"decisions\.north\.scores is not a list of numbers"):
        story_of(content)


@pytest.mark.parametrize("n", [-1, 10**4000])
def test_numbers_that_count_nothing_are_refused(runs, n):
    for path in (("n_tests",), ("agents", "north", "n_null"), ("messages", 0, 4)):
        content = copy.deepcopy(runs["full"])
        target = content["transcript"]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = n
        with pytest.raises(RunFileError, match="transcript"):
            story_of(content)


def test_one_sites_record_of_a_deployment(runs):
    content = copy.deepcopy(runs["full"])
    del content["picture"], content["truth"]
    content["command"] = "agent"
    content["decisions"] = {"north": content["decisions"]["north"]}
    transcript = content["transcript"]
    transcript["agents"] = {"north": transcript["agents"]["north"]}
    for round_ in transcript["rounds"]:
        round_["counts"] = {"north": round_["counts"]["north"]}
    story = story_of(content)
    assert "rows of north flagged" in story.headline
    assert ("flagged over all sites", str(content["n_rejected"])) in story.facts
    assert not story.warnings
    assert "all sites together" in story.lead
    assert "this site sent or received" in sections(story)["Messages"].words[0]
    others = [row for row in sections(story)["The sites"].tables[0].rows if row[0] != "north"]
    assert len(others) == 2
    assert all(row[2:] == ["", "", "", "", "not known", "", ""] for row in others)
    counts = sections(story)["The counts"]
    assert counts.tables[0].columns == ["round", "p-values counted", "north"]
    assert counts.plots == sections(story_of(runs["full"]))["The counts"].plots


def test_the_operators_record_has_no_rows(runs):
    content = {"command": "run", "guarantee": runs["full"]["guarantee"], "terms": {"level": "0.1"}}
    content["transcript"] = runs["full"]["transcript"]
    story = story_of(content)
    assert story.headline.startswith(f"{runs['full']['n_rejected']} of 300")
    assert "The most novel rows" not in sections(story)
    content["transcript"] = runs["isolated"]["transcript"]
    assert story_of(content).headline == "Every site decided for itself"


def test_a_run_that_was_broken_off_says_so(runs):
    content = {"command": "run", "state": "failed", "message": "south vanished"}
    content["transcript"] = {**runs["full"]["transcript"], "outcome": None}
    story = story_of(content)
    assert "nothing was decided" in story.headline
    assert (story.warnings, story.guarantee) == (["south vanished"], "")


def test_a_run_that_was_changed_is_shown_with_what_does_not_hold(runs):
    content = copy.deepcopy(runs["full"])
    site = content["decisions"]["north"]
    site["rejected"][site["rejected"].index(True)] = False
    story = story_of(content)
    assert any(sentence.startswith("north did not reject") for sentence in story.warnings)
    assert any("are drawn as flagged" in sentence for sentence in story.warnings)
    assert "What does not hold" in render(content)


def test_dropouts_are_named_and_their_assumption_with_them(rows):
    agents = [cn.Agent(name, r.X_null, r.X_test) for name, r in rows.items()]
    network = cn.Network(agents, regime="counts", on_dropout="conservative", **PLAIN)
    story = story_of(network_content(network.run(dropouts={"south": "counts"})))
    table = sections(story)["The sites"].tables[0]
    assert [row[1] for row in table.rows if row[0] == "south"] == ["lost in the counts"]
    assert "no site was lost because of what others counted" in story.assumptions
    assert not story.warnings


def test_an_unproven_setting_is_not_promised(runs):
    content = copy.deepcopy(runs["counts"])
    content["transcript"]["pi0"] = "quantile"
    assert "no proof covers" in story_of(content).guarantee


def chosen(content):
    return sections(story_of(content))["How the score was chosen"].tables


def test_a_selection_is_shown_with_its_criteria(detection):
    selection = {"candidates": ["a", "b"], "rejections": [3, 5], "excess": [1.5, 2.25]}
    (table,) = chosen({**detection, "selection": selection, "scorer": "b"})
    assert table.columns == ["candidate", "choice", "rejections", "excess"]
    assert table.rows == [["a", "○", "3", "1.500"], ["b", "● chosen", "5", "2.250"]]
    nested = {
        "scorer": {"candidates": ["a", "b"], "chosen": "a", "gain": [1, 2]},
        "composite": {"candidates": ["mean", "max"], "chosen": 1, "gain": [3, 4]},
    }
    tables = chosen({**detection, "selection": nested, "scorer": "b"})
    assert [table.caption for table in tables] == ["Scorer", "Composite"]
    marked = [row[0] for table in tables for row in table.rows if row[1] == "● chosen"]
    assert marked == ["a", "max"]


def test_each_sites_choice_is_a_line(runs):
    content = copy.deepcopy(runs["full"])
    selection = {"candidates": ["mean", "local"], "chosen": "mean", "enrichment": [2.5, 2.25]}
    for site in content["decisions"].values():
        site["choices"] = {"composite": selection}
    (table,) = chosen(content)
    assert table.caption == "Composite, by enrichment (● chosen)"
    assert [row[0] for row in table.rows] == list(content["decisions"])
    assert table.rows[0][1:] == ["● 2.500", "2.250"]
    words = sections(story_of(content))["How the score was chosen"].words
    assert any("far tail" in sentence for sentence in words)
    content["decisions"]["north"]["choices"] = {"composite": {**selection, "enrichment": ["x", 1]}}
    with pytest.raises(RunFileError, match=r"choices\.composite\.enrichment is not a list"):
        story_of(content)


def test_a_selection_without_end_is_cut_short(detection):
    deep = {}
    for _ in range(900):
        deep = {"again": deep}
    assert "How the score was chosen" not in sections(story_of({**detection, "selection": deep}))


# Names are anybody's


def test_names_stay_text(detection, runs):
    for content in (detection, runs["full"], runs["isolated"]):
        page = Page(render({**content, "scorer": SCRIPT, "null": SCRIPT}))
        assert "script" not in page.tags
        assert SCRIPT in "".join(page.words)
        assert not [name for name in page.attributes if name.startswith("on")]


@pytest.mark.parametrize("name", ['" onload="alert(1)', "</title><img src=x onerror=alert(1)>"])
def test_names_cannot_leave_attributes_or_titles(rows, name):
    agents = [cn.Agent(n, rows["north"].X_null, rows["north"].X_test) for n in (name, "other")]
    page = Page(render(network_content(cn.Network(agents, regime="counts", **PLAIN).run())))
    assert name in "".join(page.words)
    assert "img" not in page.tags
    assert not [attribute for attribute in page.attributes if attribute.startswith("on")]


def test_half_a_character_and_endless_names_do_no_harm(detection):
    content = copy.deepcopy(detection)
    content["picture"]["most_novel"][0]["row"] = "\ud800" + "x" * 10**6
    page = render(content)
    page.encode("utf-8")
    assert len(page) < 200_000


# Refusals


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("command",), None, "command is not a text"),
        (("n_rejected",), "many", "n_rejected is not a whole number"),
        (("n_test",), -1, "n_test is not a whole number"),
        (("level",), "2", "level is not a level between 0 and 1"),
        (("guarantee",), "yes", "guarantee is not an object"),
        (("picture", "format"), "other", "picture.format is not conovel-picture-1"),
        (("picture", "p_values", "edges"), [0, 0], "picture.p_values.edges are not ascending"),
        (("picture", "p_values", "tests"), [1], "picture.p_values.tests has 1 counts for 20 bins"),
        (("picture", "step_up", 0, "slope"), 0, "picture.step_up[0].slope is not above zero"),
        (("picture", "step_up", 0, "slope"), float("nan"), "step_up[0].slope is not a number"),
        (("picture", "step_up", 0, "k"), [], "picture.step_up[0].k is not one place for each"),
        (("picture", "most_novel", 0, "rank"), True, "most_novel[0].rank is not a whole number"),
        (("picture", "sites", "", "scores", "calibration"), None, "scores.calibration"),
    ],
)
def test_a_wrong_field_is_named(detection, path, value, words):
    content = copy.deepcopy(detection)
    *way, last = path
    target = content
    for step in way:
        target = target[step]
    target[last] = value
    with pytest.raises(RunFileError) as caught:
        render(content)
    assert words in str(caught.value)


def _fields(content, path=()):
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict) or (
            isinstance(value, list) and value[:1] and isinstance(value[0], dict)
        ):
            yield from _fields(value if isinstance(value, dict) else value[:1], (*path, key))


@pytest.mark.parametrize("damage", ["remove", "null", "text", "list", "number"])
def test_no_damage_ends_in_anything_but_a_page_or_a_named_error(detection, runs, damage):
    refused = 0
    for whole in (
        detection,
        runs["full"],
        {k: v for k, v in runs["split"].items() if k != "picture"},
    ):
        for *way, last in list(_fields(whole)):
            content = copy.deepcopy(whole)
            target = content
            for step in way:
                target = target[step]
            if damage == "remove":
                del target[last]
            else:
                target[last] = {"null": None, "text": "x", "list": [[]], "number": 1e400}[damage]
            try:
                render(content)
            except RunFileError:
                refused += 1
    assert refused > 50


# Experiments


@pytest.fixture
def experiment(tmp_path):
    (tmp_path / "sweep.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{SCRIPT}</svg>')
    return {
        "command": "reproduce",
        "experiment": "shift",
        "settings": {"trials": 3, "scorers": ["forest"]},
        "tables": [
            {
                "title": "Power",
                "columns": ["δ", "regime", "ours"],
                "rows": [["0", SCRIPT, "0.9 ± 0.1"], ["2", "full", 0.91]],
            }
        ],
        "figures": ["sweep.svg"],
    }


def test_an_experiment_is_its_tables_and_figures(experiment, tmp_path):
    story = story_of(experiment, tmp_path)
    table = sections(story)["Power"].tables[0]
    assert table.rows[1] == ["2", "full", "0.91"]
    assert table.text == {1}
    page = Page(render(experiment, tmp_path))
    assert page.tags.count("img") == 1
    assert "script" not in page.tags  # the figure is an image; nothing in it runs


@pytest.mark.parametrize(
    "name", ["../sweep.svg", "/etc/passwd", "sweep.png", "link.svg", "no.svg"]
)
def test_only_drawings_beside_the_file_are_taken(experiment, tmp_path, name):
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "link.svg").symlink_to(tmp_path / "sweep.svg")
    (folder / "sweep.png").write_bytes(b"")
    with pytest.raises(FileError if name == "no.svg" else RunFileError, match=name):
        story_of({**experiment, "figures": [name]}, folder)


def test_figures_too_large_for_the_page_are_left_out_and_named(experiment, tmp_path):
    (tmp_path / "huge.svg").write_text("x" * 700_000)
    story = story_of({**experiment, "figures": ["huge.svg", "sweep.svg"]}, tmp_path)
    assert story.warnings == ["figure huge.svg is too large for this page"]
    assert len(sections(story)["Figures"].figures) == 1


def test_uneven_tables_are_refused(experiment):
    experiment["tables"][0]["rows"].append(["1"])
    with pytest.raises(RunFileError, match=r"tables\[0\]\.rows\[2\] does not have 3 cells"):
        story_of({**experiment, "figures": []})


# The command and the docs


def test_the_documented_example_writes_a_page(tmp_path, monkeypatch):
    docs = (DOCS / "report.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", docs, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/report.md", "exec"), {})
    assert "rows flagged as novel" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_demo_ends_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "Network", partial(cn.Network, **PLAIN))
    demo.main()
    assert "conovel-demo.html" in capsys.readouterr().out
    page = (tmp_path / "conovel-demo.html").read_text(encoding="utf-8")
    assert "novelties were found" in page
    assert "What does not hold" not in page


def test_a_detection_on_files_can_be_reported(conovel, tmp_path):
    rng = np.random.default_rng(0)
    np.savetxt(
        tmp_path / "null.csv", rng.normal(size=(300, 2)), delimiter=",", header="a,b", comments=""
    )
    rows = [f"{SCRIPT},{x},{y}" for x, y in rng.normal(5, 1, size=(40, 2))]
    (tmp_path / "test.csv").write_text("\n".join(["txn,a,b", *rows]))
    options = ("--id", "txn", "--scorer", "logistic", "--out", "flagged.csv")
    run = conovel("detect", "--null", "null.csv", "--test", "test.csv", *options, cwd=tmp_path)
    assert "conovel report flagged.json" in run.stdout
    assert conovel("report", "flagged.json", cwd=tmp_path).returncode == 0
    page = Page((tmp_path / "flagged.html").read_text(encoding="utf-8"))
    assert page.words.count(SCRIPT) >= 20
    assert "script" not in page.tags


def test_the_command_writes_beside_the_run_or_where_it_is_told(conovel, runs, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(runs["full"]))
    run = conovel("report", "run.json", cwd=tmp_path)
    assert (run.returncode, "written to run.html" in run.stdout) == (0, True)
    conovel("report", "run.json", "-o", "other.html", cwd=tmp_path)
    page = (tmp_path / "other.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert conovel("verify", "run.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ('{"a":' * 10**5, "cannot be read"),
        ("[]", "does not hold a JSON object"),
        ("{}", "command is missing"),
        ('{"command": "network"}', "transcript is missing"),
        ('{"command": "detect"}', "n_rejected is missing"),
        ('{"command": "network", "transcript": {"format": 1}}', "this is not a transcript"),
    ],
)
def test_bad_files_are_one_clear_line(conovel, tmp_path, text, words):
    (tmp_path / "run.json").write_text(text)
    run = conovel("report", "run.json", cwd=tmp_path)
    assert (run.returncode, words in run.stderr) == (2, True)
    assert "run.json" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.html"))


# Colours


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted([luminance(one), luminance(other)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def palettes():
    blocks = re.findall(r":root \{(.*?)\}", STYLE.read_text(encoding="utf-8"), re.DOTALL)
    names = ("light", "dark", "print")
    return {
        name: dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        for name, block in zip(names, blocks, strict=True)
    }


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_text_stands_out_and_fills_differ_without_hue(theme):
    colours = palettes()[theme]
    for text in ("ink", "soft", "accent", "doubt"):
        for ground in ("ground", "paper"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    # WCAG 2.2 asks 3:1 of graphics; bars are outlined in the accent.
    assert contrast(colours["accent"], colours["tests"]) >= 3
    assert contrast(colours["normals"], colours["paper"]) >= 3

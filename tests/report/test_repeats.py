"""The page about several runs: how often rows were flagged, and nothing of one run alone."""

import copy
import json

import numpy as np
import pytest
from support.reports import PLAIN, SCRIPT, Page, has_reasons, sections

import conovel as cn
from conovel.errors import RunFileError
from conovel.report import network_content, of_detection, render
from conovel.report.page import story_of


@pytest.fixture(scope="module")
def repeated_detection():
    rng = np.random.default_rng(0)
    X_test = np.vstack([rng.normal(size=(80, 3)), rng.normal(5, 1, size=(20, 3))])
    ids = [SCRIPT, *(f"row-{i}" for i in range(1, 100))][::-1]
    detector = cn.AdaDetect("logistic", level=0.2, repeats=4)
    result = detector.detect(rng.normal(size=(900, 3)), X_test, ids=ids)
    assert result.n_rejected
    plain = {"command": "detect", **result.summary(), "picture": of_detection(result)}
    return result, json.loads(json.dumps(plain))


@pytest.fixture(scope="module")
def repeated_run(rows):
    agents = [cn.Agent(name, site.X_null, site.X_test) for name, site in rows.items()]
    network = cn.Network(agents, regime="full", level=0.3, repeats=3, **PLAIN)
    run = network.run()
    assert run.n_rejected
    truth = {name: site.is_novel for name, site in rows.items()}
    return run, json.loads(json.dumps(network_content(run, truth)))


def test_a_detection_says_how_often_each_row_was_flagged(repeated_detection):
    result, content = repeated_detection
    story = story_of(content)
    assert "tested in 4 runs" in story.lead
    table = sections(story)["The most novel rows"].tables[0]
    assert table.columns == ["row", "decision", "flagged in", "e-value"]
    flagged = [row for row in table.rows if "not" not in row[1]]
    assert len(flagged) == result.n_rejected
    times = dict(zip(map(str, result.ids), result.times_flagged, strict=True))
    assert all(row[2] == f"{times[row[0]]} of 4 runs" for row in table.rows)
    counted = sections(story)["How it was decided"].tables[0].rows
    assert [int(row[1]) for row in counted] == np.bincount(result.times_flagged)[::-1].tolist()
    assert "p-value" not in render(content).split("<main")[-1]


def test_a_network_says_it_too_and_shows_runs_and_counts(repeated_run):
    run, content = repeated_run
    story = story_of(content)
    assert story.warnings == []
    assert f"{run.n_rejected} of 300 rows flagged" in story.headline
    assert "This is a simulation" in story.lead
    parts = sections(story)
    assert len(parts["The runs"].tables[0].rows) == 3
    rounds = parts["The counts of the evidence"].tables[0].rows
    assert [int(row[1]) for row in rounds] == [round_.k for round_ in run.evidence_rounds]
    assert [int(row[2]) for row in rounds] == [round_.total for round_ in run.evidence_rounds]
    page = Page(render(content))
    assert page.tags.count("script") == (2 if has_reasons(content) else 0)  # data and code


def test_a_file_without_a_picture_is_drawn_from_its_decisions(repeated_run):
    run, content = repeated_run
    plain = json.loads(json.dumps(run.to_dict()))
    drawn, given = story_of(plain), story_of(content)
    tables = [sections(story)["The most novel rows"].tables[0].rows for story in (drawn, given)]
    assert tables[0] == tables[1]
    plain["n_rejected"] += 1
    with pytest.raises(RunFileError, match="decisions cannot be drawn"):
        story_of(plain)


def test_a_changed_decision_is_a_warning(repeated_run):
    content = copy.deepcopy(repeated_run[1])
    content["decisions"]["north"]["times_flagged"][0] += 1
    assert any("times_flagged" in warning for warning in story_of(content).warnings)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("repeats", "seeds"), [1]),
        (("repeats", "n_rejected"), "many"),
        (("picture", "format"), "conovel-picture-1"),
        (("picture", "times", "tests"), [1, 2]),
        (("picture", "rows"), [3]),
        (("level",), "2"),
    ],
)
def test_a_file_may_hold_anything(repeated_detection, path, value):
    content = copy.deepcopy(repeated_detection[1])
    holder = content
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    with pytest.raises(RunFileError):
        story_of(content)

"""The box on top of a page, read from a file that may hold anything."""

import copy

import pytest

import conovel as cn
from conovel.errors import RunFileError
from conovel.report import render
from conovel.report.page import story_of

DRIFT = cn.Finding(
    "drift",
    "column '<b>' changes along the known normals",
    "leave it out",
    ("<b>",),
    "north",
    {"since": 40.0, "p_value": 0.001},
    ((10.0, 1.0), (30.0, 2.0), (50.0, 4.0)),
)
THIN = cn.Finding("thin_calibration", "18 calibration rows", "add known normals", agent="va")


def with_warnings(detection, *findings):
    return copy.deepcopy(detection) | {"warnings": [one.to_dict() for one in findings]}


def test_a_broken_promise_is_the_headline(detection):
    story = story_of(with_warnings(detection, THIN, DRIFT))
    assert story.headline == "The known normals of north are not like today's rows"
    assert "the 10 % promise presumes they are" in story.lead
    speaking, knowing = story.findings  # read back as written
    assert speaking == ("What speaks against this result", [DRIFT])
    assert knowing == ("Worth knowing", [THIN])
    assert story.facts[0] == ("false alarms, promised on average but in doubt", "10 %")
    assert "This promise is in doubt" in story.caveats[0]
    (plot,) = story.finding_plots
    assert "along the known normals of north" in plot.title
    page = render(with_warnings(detection, THIN, DRIFT))
    assert page.index("What speaks against this result") < page.index("What is guaranteed")
    assert "&lt;b&gt;" in page
    assert "column '<b>'" not in page


def test_other_findings_leave_the_headline(detection):
    story = story_of(with_warnings(detection, THIN))
    assert "rows flagged as novel" in story.headline
    assert story.findings == [("Worth knowing", [THIN])]
    assert story.facts[0] == ("false alarms, at most on average", "10 %")
    assert "What speaks against" not in render(with_warnings(detection, THIN))
    assert story_of(detection).findings == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "doom"}, "no kind of finding"),
        ({"message": 3}, "message is not a text"),
        ({"numbers": {"since": "x"}}, "since is not a number"),
        ({"trace": [[1]]}, "not a list of places"),
        ({"trace": [["a", 1]]}, "not a list of numbers"),
        ({"columns": "a"}, "columns is not a list"),
    ],
)
def test_a_malformed_finding_is_refused(detection, change, words):
    run = with_warnings(detection, DRIFT)
    run["warnings"][0] |= change
    with pytest.raises(RunFileError, match=words):
        story_of(run)


def test_the_page_of_a_check():
    found = {
        "command": "check", "p_value": 0.001, "exchangeable": False, "n_rows": 60,
        "n_latest": 12, "n_flagged": 9, "level": "1/10",
        "columns": [
            {"column": "heat", "p_value": 0.001, "since": 40, "before": 1.0, "after": 4.0,
             "trace": [[10, 1.0], [50, 4.0]]}
        ],
    }  # fmt: skip
    story = story_of(found)
    assert story.headline == "The known normals are not exchangeable in their order"
    assert story.sections[0].tables[0].rows == [["heat", "40", "1", "4", "0.001"]]
    assert "9 of the latest 12" in render(found)

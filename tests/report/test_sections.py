"""How the score was chosen, as a page shows it."""

import copy

import pytest
from support.reports import sections

from conovel.errors import RunFileError
from conovel.report.page import story_of


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

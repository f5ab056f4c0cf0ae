"""Contents that are wrong are refused, and the field is named."""

import copy

import pytest

from conovel.errors import RunFileError
from conovel.report import render
from conovel.report.page import story_of


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


def _fields(content, path=()):
    items = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict) or (
            isinstance(value, list) and value[:1] and isinstance(value[0], dict)
        ):
            yield from _fields(value if isinstance(value, dict) else value[:1], (*path, key))


def count_refused(whole, damage):
    """Damage one field at a time; count what ends in an error that names it, not in a page."""
    refused = 0
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
    return refused


DAMAGES = ("remove", "null", "text", "list", "number")


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damage_ends_in_anything_but_a_page_or_a_named_error(detection, runs, damage):
    assert count_refused(detection, damage) + count_refused(runs["full"], damage) > 50


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_nor_does_damage_to_a_run_without_a_picture(runs, damage):
    bare = {key: value for key, value in runs["split"].items() if key != "picture"}
    assert count_refused(bare, damage) > 30

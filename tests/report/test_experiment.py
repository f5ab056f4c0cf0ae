"""The page of an experiment: its tables and figures."""

import pytest
from support.reports import SCRIPT, Page, sections

from conovel.errors import FileError, RunFileError
from conovel.report import render
from conovel.report.page import story_of


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

"""What a result says of how it was made, and ``conovel repeat``."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.cli.made import described
from conovel.report.page import story_of

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def table(seed, n, n_novel=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:n_novel] += 5
    return pd.DataFrame(X, columns=list("abc"))


def run(*arguments, code=0):
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    assert outcome.exit_code == code, (outcome.output, outcome.exception)
    return outcome.output


def refused(*arguments):
    """Return the words of the error that a command ends with."""
    outcome = CliRunner().invoke(app, list(map(str, arguments)))
    return str(outcome.exception)


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """A folder with a result of `detect` and one of `simulate`."""
    folder = tmp_path_factory.mktemp("made")
    table(1, 300).to_csv(folder / "normal.csv", index=False)
    table(2, 80, 10).to_csv(folder / "today.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        detect = "detect --null normal.csv --test today.csv --scorer logistic"
        run(*detect.split(), "--seed", 7, "--out", "flagged.csv")
        agents = [f"--agent={name}=normal.csv,today.csv" for name in ("north", "south")]
        run(
            "simulate",
            *agents,
            "--scorer",
            "logistic",
            "--regime",
            "counts,joint",
            "--out",
            "s.json",
        )
    return folder


@pytest.fixture
def folder(templates, tmp_path, monkeypatch):
    shutil.copytree(templates, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(path, **made):
    content = json.loads(Path(path).read_text())
    content["made"] |= made
    Path(path).write_text(json.dumps(content))


def test_a_result_says_how_it_was_made(folder):
    made = json.loads(Path("flagged.csv.json").read_text())["made"]
    assert made["command"][:3] == ["detect", "--null", "normal.csv"]
    assert made["conovel"] == cn.__version__
    assert (made["seed"], made["columns"], made["folder"]) == (7, ["a", "b", "c"], ".")
    assert made["files"]["today.csv"] == described(Path("today.csv"))
    assert set(made["files"]) == {"normal.csv", "today.csv"}
    story = story_of(json.loads(Path("flagged.csv.json").read_text()))
    (section,) = [section for section in story.sections if section.title == "How it was made"]
    points = dict(section.points)
    assert points["seed"] == "7"
    assert "--null normal.csv" in points["command"]
    assert made["files"]["today.csv"]["sha256"] in points["today.csv"]


@pytest.mark.parametrize("name", ["flagged.csv.json", "s.counts.json", "s.joint.json"])
def test_the_same_files_give_the_same_result(folder, name, monkeypatch):
    before = sorted(folder.rglob("*"))
    assert "the same again" in run("repeat", name)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert "the same again" in run("repeat", f"../{name}")
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "elsewhere"])


def test_what_differs_is_named(folder):
    decisions = pd.read_csv("flagged.csv")
    decisions.loc[3, "score"] += 0.25
    decisions.to_csv("flagged.csv", index=False)
    content = json.loads(Path("flagged.csv.json").read_text())
    Path("flagged.csv.json").write_text(json.dumps(content | {"n_rejected": 1}))
    output = run("repeat", "flagged.csv.json", code=3)
    assert f"differs: n_rejected: 1 then, {content['n_rejected']} now" in output
    assert "differs: flagged.csv: 1 of 80 rows in column score" in output


def test_other_files_are_refused(folder):
    table(3, 80).to_csv("today.csv", index=False)
    assert "today.csv is not the file of then" in refused("repeat", "flagged.csv.json")
    Path("today.csv").unlink()
    assert "today.csv does not exist" in refused("repeat", "flagged.csv.json")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"command": ["federation", "demo"]}, "federation cannot be repeated"),
        ({"command": "detect --test x"}, "not a list of words"),
        ({"command": ["detect", 3]}, "not a list of words"),
        ({"command": ["detect"] * 2000}, "not a list of words"),
        ({"command": []}, "does not say how it was made"),
        ({"command": ["detect", "--ledger=x.json", "--out", "y.csv"]}, "depends on more"),
        ({"command": ["detect", "--verdicts", "x", "--out", "y.csv"]}, "depends on more"),
        ({"command": ["detect", "--null", "normal.csv"]}, "has no --out"),
        ({"folder": "nowhere/at/all"}, "where the command was given, is not there"),
    ],
)
def test_a_hostile_or_old_file_is_refused(folder, made, words):
    edit("flagged.csv.json", **made)
    assert words in refused("repeat", "flagged.csv.json")


def test_a_command_of_a_file_writes_nothing_but_a_temporary_file(folder):
    edit(
        "flagged.csv.json",
        command=[
            *["detect", "--null", "normal.csv", "--test", "today.csv"],
            "--out=stolen.csv",
            "--out",
            "normal.csv",
        ],
    )
    before = Path("normal.csv").read_bytes()
    CliRunner().invoke(app, ["repeat", "flagged.csv.json"])
    assert Path("normal.csv").read_bytes() == before
    assert not Path("stolen.csv").exists()


def test_rows_have_numbers_without_ids(folder):
    assert pd.read_csv("flagged.csv")["row"].tolist() == list(range(80))
    pieces = "detect --null normal.csv --test today.csv --scorer logistic --seed 7 --memory 2GB"
    run(*pieces.split(), "--out", "pieces.csv")
    assert Path("pieces.csv").read_bytes() == Path("flagged.csv").read_bytes()


def test_without_out_the_first_rows_are_listed(folder):
    command = "detect --null normal.csv --test today.csv --scorer logistic --seed 7"
    output = run(*command.split())
    decisions = pd.read_csv("flagged.csv")
    first = decisions.sort_values(["rank", "score"], ascending=[True, False]).iloc[0]
    lines = output.splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["row"])
    assert lines[at + 1].split()[0] == str(first.row)
    assert first.reason_1.split()[0] in lines[at + 1]
    assert "--out flagged.csv" in lines[-1]
    assert max(map(len, lines)) <= 80


def test_the_list_of_a_watch_has_reasons_and_columns(folder):
    (folder / "inbox").mkdir()
    for day in (1, 2):
        table(10 + day, 60, 6).to_csv(folder / "inbox" / f"{day}.csv", index=False)
    watch = "watch inbox --null normal.csv --ledger month.json --out list.csv --once --every 0.05"
    run(*watch.split())
    listed = pd.read_csv("list.csv")
    assert {"batch", "row", "reasons", "a", "b", "c"} <= set(listed.columns)
    assert listed["reasons"].notna().all()
    row = listed[listed.batch == "2.csv"].iloc[0]
    assert row.a == pytest.approx(table(12, 60, 6)["a"].iloc[row.row])
    (folder / "inbox" / "1.csv").unlink()
    run(*watch.split())  # a file is gone: its reasons are still there, its columns are not
    again = pd.read_csv("list.csv")
    assert again["reasons"].tolist() == listed["reasons"].tolist()
    assert again.loc[again.batch == "1.csv", "a"].isna().all()

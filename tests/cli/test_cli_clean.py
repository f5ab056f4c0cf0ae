"""``conovel clean``: the list grows with verdicts, and what is read back is not trusted."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from conovel.cli import app

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output or result.exception
    return result.output


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code != 0
    return str(result.exception)


def normals(n=300, n_novel=12):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(n, 3)).round(4), columns=list("abc"))
    rows.loc[: n_novel - 1, ["a", "b"]] += 5
    rows["who"] = rng.choice(["=x", "-y", "it's, z"], n)
    return rows


def judge(path="look.csv", **more):
    """Fill in verdicts as an analyst does: large sums are novel."""
    listed = pd.read_csv(path)
    listed["verdict"] = np.where(listed["a"] + listed["b"] > 5, "novel", "normal")
    listed.assign(**more).to_csv(path, index=False)
    return listed


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    normals().to_csv("normal.csv", index=False)
    return tmp_path


def test_a_round_trip_by_the_commands_of_the_help(here):
    assert "10 rows to look at" in done("clean", "normal.csv", "--budget", 20)
    assert "10 of 20 listed" in done("clean", "normal.csv", "--budget", 20)  # all still wait
    judge()
    done("clean", "normal.csv", "--budget", 20)
    listed = judge(kind="mule")
    assert len(listed) == listed["id"].nunique() == 20
    assert "the budget is used" in done("clean", "normal.csv", "--budget", 20)
    out = done("clean", "normal.csv", "--out", "clean.csv", "--known-out", "novel.csv")
    assert "12 rows of 20 judged rows are novel and removed" in " ".join(out.split())
    left, novel = pd.read_csv("clean.csv"), pd.read_csv("novel.csv")
    pd.testing.assert_frame_equal(left, normals()[12:].reset_index(drop=True))
    pd.testing.assert_frame_equal(novel.drop(columns="kind"), normals()[:12])
    assert set(novel["kind"]) == {"mule"}
    normals(100).assign(txn=range(100)).to_csv("today.csv", index=False)
    files = ["--null", "clean.csv", "--test", "today.csv", "--known", "novel.csv"]
    done("detect", *files, "--id", "txn", "--scorer", "logistic", "--out", "flagged.csv")
    assert pd.read_csv("flagged.csv")["rejected"][:12].mean() > 0.5


def test_tests_and_json(here):
    normals(100, 20).assign(txn=range(100)).to_csv("today.csv", index=False)
    more = ["--test", "today.csv", "--id", "txn", "--json"]
    said = json.loads(done("clean", "normal.csv", "--list", "my.csv", *more))
    assert (said["listed"], said["waiting"], said["list"]) == (10, 10, "my.csv")
    judge("my.csv")
    out = ["--out", "clean.parquet", "--json"]
    said = json.loads(done("clean", "normal.csv", "--list", "my.csv", *out))
    assert said["n_left"] == 300 - said["n_novel"] == len(pd.read_parquet("clean.parquet"))


def test_columns_called_as_those_of_a_list_stay_apart(here):
    normals().assign(verdict=1, note=2).to_csv("normal.csv", index=False)
    done("clean", "normal.csv", "--exclude", "verdict,note")
    listed = judge()
    assert {"column verdict", "column note"} <= set(listed.columns)
    done("clean", "normal.csv", "--out", "clean.csv")
    assert list(pd.read_csv("clean.csv").columns) == [*"abc", "who", "verdict", "note"]


def test_semicolons_and_decimal_commas_come_back_as_they_were(here):
    rows = normals().drop(columns="who")
    rows.to_csv("normal.csv", index=False, sep=";", decimal=",")
    done("clean", "normal.csv")
    listed = pd.read_csv("look.csv", decimal=",")
    listed["verdict"] = np.where(listed["a"] + listed["b"] > 5, "novel", "")
    listed.to_csv("look.csv", index=False)
    done("clean", "normal.csv", "--out", "clean.csv")
    left = pd.read_csv("clean.csv", sep=";", decimal=",")
    pd.testing.assert_frame_equal(left, rows.drop(index=_novel(listed)).reset_index(drop=True))


def _novel(listed):
    of = listed["id"][listed["verdict"] == "novel"]
    return of.str.extract(r"row(\d+)-")[0].astype(int).tolist()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (
            lambda f: f.assign(id=f["id"].str.replace("row", "")),
            "is no row of these known normals",
        ),
        (lambda f: f.assign(id="row999999-0123456789ab"), "is no row of these known normals"),
        (lambda f: f.assign(id=f["id"].str[:-1] + "z"), "is no row of these known normals"),
        (lambda f: f.assign(id=f["id"].iloc[0]), "stands there twice"),
        (lambda f: f.assign(verdict="fraud"), "is 'fraud': write novel, normal, unclear"),
        (lambda f: f.drop(columns="verdict"), "has no column 'verdict'"),
        (lambda f: f.drop(columns="id"), "has no column 'id'"),
        (lambda f: f.assign(verdict=""), "has no verdicts"),
    ],
)
def test_a_list_that_was_changed_is_refused_by_name(here, change, what):
    done("clean", "normal.csv")
    change(judge()).to_csv("look.csv", index=False)
    assert what in refused("clean", "normal.csv", "--out", "clean.csv")
    assert not (here / "clean.csv").exists()


def test_a_list_of_other_rows_is_refused(here):
    done("clean", "normal.csv")
    judge()
    normals().sample(frac=1, random_state=1).to_csv("normal.csv", index=False)  # sorted anew
    assert "list the rows again" in refused("clean", "normal.csv", "--out", "clean.csv")


def test_other_bytes_are_refused(here):
    (here / "look.csv").write_bytes(b"\xff\xfe\x00verdict")
    assert "not in UTF-8" in refused("clean", "normal.csv")
    (here / "look.csv").write_bytes(b"")
    assert "no column 'id'" in refused("clean", "normal.csv")
    (here / "look.csv").write_bytes(b"x" * (64 * 2**20 + 1))
    assert "too large" in refused("clean", "normal.csv")


def test_files_that_do_not_fit_are_refused_by_name(here):
    for name in ("--list", "--out", "--known-out"):
        assert "name the" in refused("clean", "normal.csv", name, "rows.txt")
    assert "does not exist" in refused("clean", "none.csv")
    with (here / "normal.csv").open("r+b") as file:
        file.truncate(260_000_000)
    assert "normal.csv and its tests are too large" in refused("clean", "normal.csv")

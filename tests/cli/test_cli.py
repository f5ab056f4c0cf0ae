"""The command line, as a user calls it."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
import typer
from typer.testing import CliRunner

from conovel.cli import PANELS, app
from conovel.spec.version import __version__


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")
    null = pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc"))
    null.to_parquet(folder / "normal.parquet")
    test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    test = pd.DataFrame(test, columns=list("abc"))
    test.insert(0, "txn", [f"t{i}" for i in range(100)])
    test.to_csv(folder / "today.csv", index=False)
    (folder / "parts").mkdir()
    test[:40].to_parquet(folder / "parts" / "1.parquet")
    test[40:].to_parquet(folder / "parts" / "2.parquet")
    return folder


@pytest.fixture
def detect(conovel, folder):
    def run(*more, test="today.csv"):
        options = ("--null", "normal.parquet", "--test", test)
        return conovel("detect", *options, *more, cwd=folder)

    return run


@pytest.mark.parametrize("out", ["decisions.parquet", "decisions.csv"])
def test_detect_writes_decisions_and_a_summary(detect, folder, out):
    run = detect("--id", "txn", "--scorer", "logistic", "--out", out)
    assert run.returncode == 0, run.stderr
    assert "rows flagged" in run.stdout
    assert "at most 0.1" in run.stdout
    frame = (pd.read_parquet if out.endswith("parquet") else pd.read_csv)(folder / out)
    decided = ["id", "score", "rank", "p_value", "adjusted_p_value", "rejected"]
    assert list(frame) == [*decided, "reason_1", "reason_2", "reason_3", "pattern"]
    assert frame["reason_1"].notna().equals(frame["rejected"])
    assert frame["pattern"].notna().equals(frame["rejected"])
    assert list(frame["id"]) == [f"t{i}" for i in range(100)]
    summary = json.loads((folder / f"{out}.json").read_text())
    assert summary["n_rejected"] == frame["rejected"].sum() >= 8
    assert not list(folder.glob(".decisions*"))


def test_a_folder_is_read_like_the_file_it_was_cut_from(detect):
    options = ("--id", "txn", "--scorer", "logistic", "--json")
    whole, parts = detect(*options), detect(*options, test="parts")
    skip = {"test", "read_as"}
    first, second = (json.loads(run.stdout) for run in (whole, parts))
    assert {k: v for k, v in first.items() if k not in skip} == {
        k: v for k, v in second.items() if k not in skip
    }


def test_options_reach_the_detector(detect):
    run = detect(
        *("--columns", "a,b", "--scorer", "logistic,extra-trees", "--pi0", "storey"),
        *("--seed", "4", "--train-fraction", "0.6", "--level", "1/5", "--json"),
    )
    summary = json.loads(run.stdout)
    assert summary["level"] == "1/5"
    assert summary["n_train"] == 360
    assert summary["pi0"] is not None
    assert len(summary["selection"]["candidates"]) == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--test", "missing.csv"], "missing.csv does not exist"),
        ([], "also has 'txn', which normal.parquet lacks: name the column of row ids with --id"),
        (
            ["--id", "nope", "--columns", "a"],
            "has no column 'nope': there are 'txn', 'a'",
        ),
        (["--columns", "a,z"], "has no column 'z'"),
        (["--columns", "a", "--level", "1.5"], "level must lie strictly between 0 and 1"),
        (["--columns", "a", "--scorer", "magic"], "no scorer is called 'magic'"),
        (["--columns", "a", "--pi0", "magic"], "pi0 must be None, 'storey' or 'quantile'"),
        (["--columns", "a", "--out", "no/where.csv"], "the folder no does not exist"),
        (["--columns", "a", "--out", "d.txt"], "name the output .csv, .parquet, .jsonl or .xlsx"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(detect, more, words):
    run = detect(*more)
    assert run.returncode == 2
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert "Traceback" not in run.stderr


def test_a_broken_file_is_named(detect, folder):
    (folder / "broken.parquet").write_bytes(b"PAR1 this is not parquet")
    run = detect("--columns", "a", test="broken.parquet")
    assert (run.returncode, "broken.parquet cannot be read" in run.stderr) == (2, True)
    (folder / "words.doc").write_text("a")
    run = detect("--columns", "a", test="words.doc")
    assert (run.returncode, "expected .csv, .csv.gz" in run.stderr) == (2, True)


def test_warnings_are_one_line_on_standard_error(detect):
    run = detect("--columns", "a", "--scorer", "logistic", "--level", "0.001", "--json")
    assert run.returncode == 0
    assert "no row can be flagged at level" in run.stderr
    assert json.loads(run.stdout)["n_rejected"] == 0


def test_help_and_version(conovel):
    assert "detect" in conovel("--help").stdout
    assert f"conovel {__version__}" in conovel("--version").stdout
    assert conovel("detect").returncode == 2


def test_the_installed_command_answers():
    command = [sys.executable, "-c", "from conovel.cli import main; main()", "detect"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "--test" in run.stderr


@pytest.fixture(scope="module")
def holes(folder):
    """Files without rows, and files with a column that nobody filled in."""
    frame = pd.read_parquet(folder / "normal.parquet")
    for name, part in {
        "empty": frame[:0],
        "hole": frame[:50].assign(b=None),
        "nan": frame[:50].assign(b=np.nan),
    }.items():
        part.to_csv(folder / f"{name}.csv", index=False)
        part.to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("option", ["--test", "--null"])
@pytest.mark.parametrize("name", ["empty", "hole", "nan"])
def test_files_without_rows_or_values_are_named_and_nothing_is_left(
    detect, holes, memory, ending, option, name
):
    run = detect(option, f"{name}.{ending}", "--columns", "a,b", "--out", "no.parquet", *memory)
    assert run.returncode == 2, run.stderr
    if name == "empty":
        assert f"{name}.{ending} has no rows" in run.stderr
    else:
        assert "'b'" in run.stderr
        assert "entirely missing" in run.stderr
        assert "leave the column out or fill it in" in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert not list(holes.glob("*no.parquet*"))


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_of_one_name_are_named(detect, folder, memory, ending):
    table = pa.table([pa.array([1.0, 2.0])] * 3, names=["a", "b", "a"])
    write = pa_csv.write_csv if ending == "csv" else pa_parquet.write_table
    write(table, folder / f"twice.{ending}")
    run = detect("--test", f"twice.{ending}", "--out", "no.parquet", *memory)
    assert run.returncode == 2
    assert f"twice.{ending} has more than one column called 'a': rename them" in run.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--columns", "a,a"], "the column 'a' is asked for twice"),
        (["--columns", "a,txn", "--id", "txn"], "'txn' names the rows and is never a feature"),
        (["--columns", "a,txn"], "normal.parquet has no column 'txn'"),
        (["--null", "today.csv"], "'txn' has 100 different texts in 200 rows"),
    ],
)
def test_features_must_be_numbers_and_named_once(detect, more, words):
    run = detect(*more)
    assert run.returncode == 2
    assert words in run.stderr


def test_a_missing_file_is_named_before_anything_slow_is_loaded(folder):
    commands = [
        "detect --null nothing.csv --test today.csv",
        "detect --detector nothing --test today.csv",
        "fit --null nothing.csv --out kept",
        "check nothing.csv",
        "evaluate --data nothing.csv --label y",
        "schema nothing.csv",
        "watch . --ledger month.json --null nothing.csv",
        "ledger nothing.json",
        "report nothing.json",
        "verify nothing.json",
        "inspect nothing",
        "agent nothing.toml",
        "coordinate nothing.toml",
        "run --federation nothing.toml",
        "status nothing.toml",
        "stop nothing.toml",
        "audit nothing.toml",
    ]
    code = """
import sys
from conovel.cli import main
for command in sys.argv[1:]:
    sys.argv = ["conovel", *command.split()]
    try:
        main()
    except SystemExit as end:
        slow = {"numpy", "pandas", "pyarrow", "sklearn", "numba", "matplotlib"} & {*sys.modules}
        print(end.code, sorted(slow))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("does not exist") == len(commands)
    assert done.stdout.splitlines() == ["2 []"] * len(commands)


def test_the_help_tells_errors_and_answers_apart(conovel):
    told = " ".join(conovel("--help").stdout.split())
    assert "2, the input cannot be used" in told
    assert "3, the work is done and the answer is no" in told


def test_help_shows_many_options_in_panels():
    shown = CliRunner().invoke(app, ["detect", "--help"], env={"COLUMNS": "80"}).output
    assert all(f"─ {panel} ─" in shown for panel in ("Options", "Columns", "Large files"))
    few = CliRunner().invoke(app, ["verify", "--help"], env={"COLUMNS": "80"}).output
    assert "─ What is checked" not in few


def test_every_panel_names_options_that_exist():
    group = typer.main.get_command(app)
    known = {param.name for command in group.commands.values() for param in command.params}
    named = [name for names in PANELS.values() for name in names]
    assert set(named) <= known
    assert len(named) == len(set(named))

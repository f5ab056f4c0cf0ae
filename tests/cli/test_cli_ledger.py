"""``conovel fit``, ``detect --detector``, ``detect --ledger`` and ``watch``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.cli.tables import FileOptions
from conovel.cli.watch import Watcher, _kept_test
from conovel.cli.watch_list import ListFile
from conovel.errors import ConovelError

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def table(seed, n=80, n_novel=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:n_novel] += 5
    return pd.DataFrame(X, columns=list("abc")).assign(txn=[f"{seed}-{i}" for i in range(n)])


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with files, a detector and an inbox."""
    folder = tmp_path_factory.mktemp("made")
    table(0, 600, 0).drop(columns="txn").to_csv(folder / "normal.csv", index=False)
    table(1, 150, 20).to_csv(folder / "past.csv", index=False)
    for day in (2, 3, 4):
        table(day).to_csv(folder / f"day{day}.csv", index=False)
    (folder / "inbox").mkdir()
    files = ["--null", folder / "normal.csv", "--unlabelled", folder / "past.csv"]
    options = ["--scorer", "logistic", "--id", "txn", "--out", folder / "d.conovel"]
    result = run("fit", *files, *options)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """A copy of it, as the current folder."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


def put(name):
    """Let a file arrive, complete for some time."""
    path = Path("inbox", name)
    path.write_bytes(Path(name).read_bytes())
    os.utime(path, (time.time() - 60, time.time() - 60 + len(os.listdir("inbox"))))


def watch(*options):
    arguments = ["--detector", "d.conovel", "--ledger", "m.json", "--id", "txn", "--once"]
    return run("watch", "inbox", *arguments, *options)


def test_fit_says_what_it_kept(here):
    options = ["--null", "normal.csv", "--scorer", "isolation-forest", "--out", "one.conovel"]
    said = json.loads(run("fit", *options, "--json").output)
    assert (said["n_unlabelled"], said["columns"]) == (0, ["a", "b", "c"])
    assert said["n_train"] + said["n_calibration"] == 600
    assert said["digest"] == cn.KeptDetector.load("one.conovel").digest


def test_fit_with_known_novelties_and_confidence(here):
    table(7, 25, 25).drop(columns="txn").assign(kind="mule account").to_csv(
        "known.csv", index=False
    )
    files = ["--null", "normal.csv", "--unlabelled", "past.csv", "--known", "known.csv"]
    options = ["--scorer", "logistic", "--id", "txn", "--explain", "--out", "c.conovel"]
    result = run("fit", *files, *options, "--confidence", "0.9")
    assert result.exit_code == 0, result.output
    assert "25 train" in result.output
    assert "probability 0.9" in " ".join(result.output.split())
    kept = cn.KeptDetector.load("c.conovel")
    assert (kept.n_known, str(kept.confidence)) == (25, "9/10")
    assert kept.novelties.kinds == ("mule account",) * 25
    told = json.loads(run("fit", *files, *options, "--json").output)
    assert (told["n_known"], told["confidence"]) == (25, None)
    assert 0 < told["long_run"]["low"] < told["long_run"]["high"] < 1
    options = ["--detector", "c.conovel", "--id", "txn", "--out", "flagged.csv"]
    result = run("detect", "--test", "day2.csv", *options, "--level", "0.3")
    assert result.exit_code == 0, result.output
    assert run("verify", "flagged.csv.json").exit_code == 0, run(
        "verify", "flagged.csv.json"
    ).output
    assert run("report", "flagged.csv.json").exit_code == 0
    flagged = pd.read_csv("flagged.csv")
    assert flagged["rejected"].any()
    assert (flagged.loc[flagged["rejected"], "known_kind"] == "mule account").any()
    content = json.loads(Path("flagged.csv.json").read_text())
    for change in ({"confidence": "1/2"}, {"confidence": "2"}, {"n_calibration": 2**40}):
        Path("other.json").write_text(json.dumps(content | change))
        assert run("verify", "other.json").exit_code != 0


def test_a_kept_detector_decides_as_in_python_and_is_verified(here):
    options = ["--detector", "d.conovel", "--id", "txn", "--out", "flagged.csv"]
    result = run("detect", "--test", "day2.csv", *options)
    assert result.exit_code == 0, result.output
    kept = cn.KeptDetector.load("d.conovel").detect(table(2).drop(columns="txn"))
    assert pd.read_csv("flagged.csv")["rejected"].tolist() == kept.rejected.tolist()
    assert run("verify", "flagged.csv.json").exit_code == 0
    assert run("report", "flagged.csv.json").exit_code == 0


@pytest.mark.parametrize("source", [["--detector", "d.conovel"], ["--null", "normal.csv"]])
def test_a_ledger_lists_and_refuses(here, source):
    fast = [] if source[0] == "--detector" else ["--scorer", "logistic"]
    for day in (2, 3):
        out = ["--ledger", "m.json", "--out", f"flagged{day}.csv"]
        result = run("detect", *source, "--test", f"day{day}.csv", "--id", "txn", *out, *fast)
        assert result.exit_code == 0, result.output
        assert f"day{day}.csv is batch {day - 1}" in result.output
        assert f"of day{day}.csv: {day}-0" in result.output
        assert run("verify", f"flagged{day}.csv.json").exit_code == 0, run(
            "verify", f"flagged{day}.csv.json"
        ).output
        assert run("report", f"flagged{day}.csv.json", "-o", "page.html").exit_code == 0
        assert f"day{day}.csv is batch {day - 1}. The list of all" in Path("page.html").read_text()
    told = json.loads(Path("flagged3.csv.json").read_text())["ledger"]
    assert told["n_listed"] == cn.Ledger.load("m.json").n_listed >= 14
    again = ["--ledger", "m.json", "--id", "txn", *fast]
    refused = run("detect", *source, "--test", "day3.csv", *again)
    assert "seen these rows" in str(refused.exception)


def test_the_list_is_shown_and_written(here):
    options = ["--detector", "d.conovel", "--id", "txn", "--ledger", "m.json"]
    for day in (2, 3):
        assert run("detect", "--test", f"day{day}.csv", *options).exit_code == 0
    shown = run("ledger", "m.json", "--out", "list.csv")
    assert shown.exit_code == 0, shown.output
    listed = cn.Ledger.load("m.json").listed()
    assert pd.read_csv("list.csv")["id"].tolist() == [row.id for row in listed]
    assert f"{len(listed)} of 160 rows in all batches" in shown.output
    told = json.loads(run("ledger", "m.json", "--json").output)
    assert [batch["name"] for batch in told["batches"]] == ["day2.csv", "day3.csv"]
    assert len(told["list"]) == len(listed)
    assert "is not a ledger" in str(run("ledger", "normal.csv").exception)


def test_reasons_come_with_a_detector_that_has_normals(here):
    fit = ["--null", "normal.csv", "--unlabelled", "past.csv", "--id", "txn", "--explain"]
    assert run("fit", *fit, "--scorer", "logistic", "--out", "why.conovel").exit_code == 0
    options = ["--detector", "why.conovel", "--id", "txn", "--out", "why.csv"]
    assert run("detect", "--test", "day2.csv", *options).exit_code == 0
    first = pd.read_csv("why.csv")["reason_1"][:8]
    assert first.str.contains(" high: ").all()


def test_a_network_lists_over_its_batches(here):
    options = ["--regime", "full", "--scorer", "logistic", "--id", "txn", "--ledger", "ledgers"]
    for day in (2, 3):
        agents = [f"{name}=normal.csv,day{day}.csv" for name in ("north", "south")]
        texts = [part for agent in agents for part in ("--agent", agent)]
        result = run("simulate", *texts, *options, "--out", "run.json")
        assert result.exit_code == 0, result.output
        assert f"batch {day - 1}; rows on the list so far: " in result.output
    assert run("verify", "run.json").exit_code == 0
    assert run("report", "run.json").exit_code == 0
    assert cn.Ledger.load("ledgers/north.json").n_listed > 8
    several = run("simulate", *texts, "--regime", "full,joint", "--ledger", "ledgers")
    assert "belongs to one regime" in str(several.exception)


def test_final_decisions_begin_with_their_ledger(here):
    options = ["--detector", "d.conovel", "--id", "txn", "--ledger", "f.json"]
    result = run("detect", "--test", "day2.csv", *options, "--final", "--batches", "2")
    assert result.exit_code == 0, result.output
    assert "Decisions are" in result.output
    ledger = cn.Ledger.load("f.json")
    assert (ledger.final, ledger.n_batches) == (True, 2)
    assert run("detect", "--test", "day3.csv", *options).exit_code == 0
    refused = run("detect", "--test", "day4.csv", *options)
    assert "the ledger is full" in str(refused.exception)
    plain = run("detect", "--test", "day4.csv", *options[:-1], "m.json")
    assert plain.exit_code == 0
    late = run("detect", "--test", "day2.csv", *options[:-1], "m.json", "--final")
    assert "was begun without --final" in str(late.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["detect", "--test", "day2.csv"], "give the known normals with --null, or a detector"),
        (
            ["detect", "--test", "day2.csv", "--detector", "d.conovel", "--null", "normal.csv"],
            "leave --null",
        ),
        (["detect", "--test", "day2.csv", "--detector", "normal.csv"], "not a detector"),
        (["detect", "--test", "day2.csv", "--null", "x", "--final"], None),
        (["watch", "inbox", "--ledger", "m.json"], "either --detector"),
        (["watch", "nowhere", "--ledger", "m.json", "--null", "normal.csv"], "not a folder"),
        (
            ["watch", "inbox", "--ledger", "m", "--null", "normal.csv", "--out", "inbox/l.csv"],
            "would be tested as a new file",
        ),
        (["fit", "--null", "normal.csv", "--out", "no/d.conovel"], "does not exist"),
        (["fit", "--null", "normal.csv", "--scorer", "mlp", "--out", "e"], "(--unlabelled)"),
    ],
)
def test_bad_options_are_named(here, options, message):
    error = run(*options).exception
    assert isinstance(error, ConovelError)
    assert message is None or message in str(error)


def test_columns_of_every_kind_and_other_dialects(here):
    """A semicolon, a decimal comma, categories and missing values, in fit, detect and watch."""
    for name, seed, n, k in (("n", 0, 500, 0), ("u", 1, 150, 20), ("t", 2, 80, 8)):
        frame = table(seed, n, k).assign(colour=np.where(np.arange(n) % 3, "red", "blue"))
        frame.loc[::9, "b"] = np.nan
        frame.to_csv(f"{name}.csv", index=False, sep=";", decimal=",")
    options = ["--exclude", "txn", "--scorer", "logistic", "--out", "k.conovel"]
    result = run("fit", "--null", "n.csv", "--unlabelled", "u.csv", *options)
    assert result.exit_code == 0, result.output
    assert cn.KeptDetector.load("k.conovel").schema["colour"].kind == "category"
    result = run("detect", "--detector", "k.conovel", "--test", "t.csv", "--out", "o.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv("o.csv")["rejected"][:8].all()
    put("t.csv")
    result = run("watch", "inbox", "--detector", "k.conovel", "--ledger", "k.json", "--once")
    assert result.output.startswith("t.csv: 80 rows"), result.output
    refit = ["--null", "n.csv", "--exclude", "txn", "--ledger", "r.json", "--once"]
    result = run("watch", "inbox", *refit)
    assert result.output.startswith("t.csv: 80 rows"), result.output


def test_each_file_is_tested_once_whatever_happens(here, monkeypatch):
    put("day2.csv")
    assert watch("--out", "list.csv").output.startswith("day2.csv: 80 rows, ")
    put("day3.csv")
    Path("inbox/.day4.csv").write_text("hidden")
    Path("inbox/notes.txt").write_text("other")
    assert watch("--out", "list.csv").output.startswith("day3.csv: ")
    assert watch("--out", "list.csv").output == ""
    names = [entry.name for entry in cn.Ledger.load("m.json").entries]
    assert names == ["day2.csv", "day3.csv"]
    listed = pd.read_csv("list.csv")
    assert len(listed) == cn.Ledger.load("m.json").n_listed
    assert listed["id"][0] == "2-0"
    # Killed after the ledger was written and before the list was: the next watch writes it.
    put("day4.csv")
    monkeypatch.setattr(ListFile, "write", lambda self: None)
    watch("--out", "list.csv")
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert watch("--out", "list.csv").output == ""
    assert len(pd.read_csv("list.csv")) == cn.Ledger.load("m.json").n_listed


def test_a_day_that_is_not_like_the_known_normals_is_named(here):
    table(5, n_novel=80).to_csv("day5.csv", index=False)
    put("day2.csv")
    put("day5.csv")
    told = watch().output.splitlines()
    doubts = [line for line in told if "the promise may not apply" in line]
    assert len(doubts) == 1
    assert doubts[0].startswith("day5.csv: ")


def test_a_file_that_cannot_be_tested_is_named_and_tried_again_when_it_changes(here, capsys):
    put("day2.csv")
    Path("inbox/bad.csv").write_text("a,b\n1,2\n")
    os.utime("inbox/bad.csv", (1, 1))
    result = watch()
    assert result.exit_code == 3
    assert "bad.csv: not tested: " in result.output
    assert "has no column 'c'" in result.output
    watcher = Watcher(
        Path("inbox"),
        Path("m.json"),
        _kept_test(Path("d.conovel"), Path("m.json"), None, FileOptions(id_column="txn")),
        None,
    )
    watcher.look(2.0)
    watcher.look(2.0)
    assert capsys.readouterr().out.count("bad.csv: ") == 1
    Path("inbox/bad.csv").write_bytes(Path("day3.csv").read_bytes())
    watcher.look(2.0)  # it is new, and may not be complete
    assert watcher.waiting
    watcher.look(2.0)
    assert not watcher.waiting
    assert "bad.csv: 80 rows" in capsys.readouterr().out
    Path("inbox/day2.csv").write_bytes(Path("day4.csv").read_bytes())
    watcher.look(0.0)
    assert "day2.csv: changed after it was tested" in capsys.readouterr().out
    Path("inbox/copy.csv").write_bytes(Path("day3.csv").read_bytes())
    watcher.look(0.0)
    assert "copy.csv: not tested: the ledger has seen these rows" in capsys.readouterr().out
    assert len(cn.Ledger.load("m.json").entries) == 2


@pytest.mark.slow
def test_a_watch_survives_being_killed(here):
    program = Path(sys.executable).with_name("conovel")
    command = [program, "watch", "inbox", "--detector", "d.conovel"]
    command += ["--ledger", "m.json", "--id", "txn", "--every", "0.05", "--out", "list.csv"]
    rng = np.random.default_rng(0)
    for day in range(10, 40):
        table(day).to_csv(f"inbox/day{day}.csv", index=False)
    for _ in range(8):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        time.sleep(rng.uniform(1.5, 4))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if Path("m.json").exists():
            cn.Ledger.load("m.json")
    watch("--out", "list.csv")
    ledger = cn.Ledger.load("m.json")
    assert sorted(e.name for e in ledger.entries) == [f"day{day}.csv" for day in range(10, 40)]
    assert len(pd.read_csv("list.csv")) == ledger.n_listed

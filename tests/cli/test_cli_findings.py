"""Files with every mistake that people make: message, exit code and result."""

import json

import numpy as np
import pandas as pd
import pytest

import conovel as cn

RNG = np.random.default_rng(8)


def plain(n, m, novel=12):
    rows = pd.DataFrame(RNG.normal(size=(n + m, 3)), columns=["flow", "heat", "load"])
    rows.loc[n : n + novel - 1, ["flow", "heat", "load"]] += 4.0
    return rows[:n].reset_index(drop=True), rows[n:].reset_index(drop=True)


def with_id(null, test):
    return null.assign(no=range(len(null))), test.assign(no=range(1000, 1000 + len(test)))


def with_label(null, test):
    return null.assign(fraud=0), test.assign(fraud=(test.index < 12).astype(int))


def with_units(null, test):
    return null.assign(watt=RNG.lognormal(3, 0.3, len(null))), test.assign(
        watt=1000 * RNG.lognormal(3, 0.3, len(test))
    )


def with_drift(null, test):
    n = len(null)
    return (
        null.assign(heat=null.heat + np.arange(n) / 100),
        test.assign(heat=test.heat + (n + np.arange(len(test))) / 100),
    )


def with_values(null, test):
    words = np.array([["yes", "no"], ["True", "False"]])
    return tuple(
        frame.assign(paid=words[i][np.arange(len(frame)) % 2])
        for i, frame in enumerate((null, test))
    )


def with_constant(null, test):
    return null.assign(site=7), test.assign(site=7)


def with_shared_rows(null, test):
    return pd.concat([null, test[:30]], ignore_index=True), test


TROUBLES = {
    "id": (with_id, "column 'no' looks like a row number or an id", "--exclude 'no'"),
    "label": (with_label, "column 'fraud' is 0 in all known normals", "--exclude 'fraud'"),
    "units": (with_units, "times larger in the test rows", "give both samples the same unit"),
    "values": (with_values, "no value of column 'paid' is in both samples", "in the same way"),
    "drift": (with_drift, "column 'heat' changes along the known normals", "a fresh sample"),
    "constant": (with_constant, "column 'site' never changes", "--exclude 'site'"),
    "shared_rows": (with_shared_rows, "30 of 150 test rows are known normals", "remove them"),
}


def write(folder, null, test):
    null.to_csv(folder / "normal.csv", index=False)
    test.to_csv(folder / "today.csv", index=False)


def flat(text):
    """Join the lines of a box."""
    return " ".join(text.replace("|", " ").split())


@pytest.mark.parametrize("kind", TROUBLES)
def test_detect_says_what_is_wrong_and_how_to_mend_it(conovel, tmp_path, kind):
    spoil, message, fix = TROUBLES[kind]
    write(tmp_path, *spoil(*plain(400, 150)))
    files = ("--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic")
    run = conovel("detect", *files, "--out", "flagged.csv", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert message in flat(run.stdout)
    assert fix in flat(run.stdout)
    summary = json.loads((tmp_path / "flagged.csv.json").read_text())
    assert kind in [finding["kind"] for finding in summary["warnings"]]
    quiet = conovel("detect", *files, "--no-check", "--json", cwd=tmp_path)
    skipped = json.loads(quiet.stdout)
    assert skipped["warnings"] == []
    assert skipped["n_rejected"] == summary["n_rejected"]
    assert conovel("report", "flagged.csv.json", cwd=tmp_path).returncode == 0
    page = (tmp_path / "flagged.csv.html").read_text()
    title = "Worth knowing" if kind == "constant" else "What speaks against this result"
    assert title in page
    assert title in run.stdout
    assert "What to do:" in page
    assert conovel("verify", "flagged.csv.json", cwd=tmp_path).returncode == 0


REFUSED = {
    "text ids": (
        lambda rows: rows.assign(txn=[f"t{i}" for i in rows.index]),
        "'txn'",
        "--exclude 'txn'",
    ),
    "all constant": (lambda rows: rows[[]].assign(a=1, b=2), "constant", "nothing to tell"),
}


@pytest.mark.parametrize("trouble", REFUSED)
def test_certain_mistakes_are_errors(conovel, tmp_path, trouble):
    spoil, what, fix = REFUSED[trouble]
    write(tmp_path, *map(spoil, plain(100, 40)))
    files = ("--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic")
    run = conovel("detect", *files, cwd=tmp_path)
    assert run.returncode == 2
    assert what in run.stderr
    assert fix in run.stderr
    assert run.stdout == ""


def test_clean_files_have_no_box(conovel, tmp_path):
    write(tmp_path, *plain(400, 150))
    files = ("--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic")
    run = conovel("detect", *files, cwd=tmp_path)
    assert "speaks against" not in run.stdout
    assert "guaranteed" in run.stdout


def test_duplicate_ids(conovel, tmp_path):
    null, test = plain(400, 150)
    write(tmp_path, null, test.assign(txn=[f"t{i // 2}" for i in range(150)]))
    files = ("--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic", "--id", "txn")
    assert "75 ids name more than one test row" in flat(
        conovel("detect", *files, cwd=tmp_path).stdout
    )


def test_thin_calibration_in_a_network(conovel, tmp_path):
    for name, n in (("va", 36), ("north", 400)):
        null, test = plain(n, 150)
        null.to_csv(tmp_path / f"{name}0.csv", index=False)
        test.to_csv(tmp_path / f"{name}1.csv", index=False)
    members = [
        w for name in ("va", "north") for w in ("--agent", f"{name}={name}0.csv,{name}1.csv")
    ]
    settings = ("--regime", "counts", "--scorer", "logistic", "--train-fraction", "0.5")
    run = conovel("simulate", *members, *settings, "--out", "run.json", cwd=tmp_path)
    words = "18 calibration rows, no row of va can be flagged unless at least 158 of the 300 rows"
    assert words in flat(run.stdout)
    assert words in flat(run.stderr)  # told before the run
    assert "use regime='joint'" in flat(run.stdout)
    assert conovel("report", "run.json", cwd=tmp_path).returncode == 0
    assert "18 calibration rows" in (tmp_path / "run.html").read_text()


def test_many_findings_do_not_fill_the_terminal(conovel, tmp_path):
    null, test = plain(40, 60)
    null.to_csv(tmp_path / "n.csv", index=False)
    test.to_csv(tmp_path / "t.csv", index=False)
    members = [w for i in range(15) for w in ("--agent", f"a{i}=n.csv,t.csv")]
    settings = ("--regime", "counts", "--scorer", "logistic", "--json")
    run = conovel("simulate", *members, *settings, cwd=tmp_path)
    assert run.stderr.count("calibration rows, no row of") == 10
    assert "further findings are in the result" in run.stderr
    (result,) = json.loads(run.stdout)
    assert len(result["warnings"]) == 15


def test_check_has_an_exit_code_a_page_and_a_picture(conovel, tmp_path):
    write(tmp_path, *with_drift(*plain(400, 150)))
    options = ("--scorer", "logistic", "--out", "check.json", "--plot", "drift.png")
    run = conovel("check", "normal.csv", *options, cwd=tmp_path)
    assert run.returncode == 3
    assert "heat" in run.stdout
    assert (tmp_path / "drift.png").stat().st_size > 1000
    assert conovel("report", "check.json", cwd=tmp_path).returncode == 0
    assert "not exchangeable in their order" in (tmp_path / "check.html").read_text()
    fine = conovel(
        "check", "normal.csv", "--exclude", "heat", *options[:2], "--json", cwd=tmp_path
    )
    assert fine.returncode == 0
    assert json.loads(fine.stdout)["exchangeable"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_check_by_texts_says_when_a_column_changes(conovel, tmp_path, suffix):
    """Text dates come as objects, which have no NumPy scalars."""
    null, _ = with_drift(*plain(400, 150))
    days = pd.date_range("2026-01-01", periods=len(null))
    null = null.assign(time=days.strftime("%Y-%m-%dT12:00:00"))
    getattr(null, f"to_{suffix}")(tmp_path / f"normal.{suffix}", index=False)
    options = ("--order", "time", "--scorer", "logistic")
    run = conovel("check", f"normal.{suffix}", *options, cwd=tmp_path)
    assert run.returncode == 3, run.stderr
    assert "Traceback" not in run.stderr
    by_text = cn.check(null, order="time", scorer="logistic")
    dates = pd.to_datetime(null["time"]).to_numpy()
    by_date = cn.check(null.drop(columns="time"), order=dates, scorer="logistic")
    assert by_text.since.startswith("2026-")
    assert by_date.since.isoformat() == by_text.since


@pytest.fixture
def labelled(tmp_path):
    rows = pd.DataFrame(RNG.normal(size=(900, 3)), columns=["flow", "heat", "load"])
    novel = RNG.random(900) < 0.08
    rows.loc[novel, ["flow", "heat", "load"]] += 4.0
    rows = rows.assign(row=range(1, 901), fraud=novel.astype(int), worn=novel & (rows.flow > 4))
    rows.astype({"worn": int}).to_csv(tmp_path / "past.csv", index=False)
    return tmp_path


def test_evaluate_names_ids_and_labels_then_runs(conovel, labelled):
    command = ("evaluate", "--data", "past.csv", "--label", "fraud", "--scorer", "logistic")
    refused = conovel(*command, cwd=labelled)
    assert refused.returncode == 2
    assert "'row' looks like an id and 'worn' looks like a further label" in refused.stderr
    assert "--exclude 'row,worn'" in refused.stderr
    more = ("--exclude", "row,worn", "--trials", "3", "--out", "result.json")
    run = conovel(*command, *more, cwd=labelled)
    assert run.returncode == 0, run.stderr
    assert max(map(len, run.stdout.splitlines())) <= 80
    result = json.loads((labelled / "result.json").read_text())
    assert len(result["trials"]) == 3
    assert result["power"] > 0.5
    assert result["fdp"] <= 0.3
    assert set(result["standard_error"]) == {"fdp", "power"}
    assert conovel("report", "result.json", cwd=labelled).returncode == 0
    assert "of the flagged rows were false alarms" in (labelled / "result.html").read_text()
    by_row = conovel(
        *command, "--exclude", "worn", "--order", "row", "--trials", "2", cwd=labelled
    )
    assert by_row.returncode == 0, by_row.stderr
    assert "rows by order" in by_row.stdout

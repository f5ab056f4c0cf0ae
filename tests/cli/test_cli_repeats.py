"""`--repeats` on the command line: the printed result, the file of decisions, verify, report."""

import csv
import json

import numpy as np
import pytest
from support.forgeries import assert_every_forgery_is_found

from conovel.cli.results import _with_ranks


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    for name, n, n_novel in (("null", 900, 0), ("test", 120, 30)):
        rows = rng.normal(size=(n, 2))
        rows[:n_novel] += 5
        text = "id,a,b\n" + "\n".join(f"r{i},{a},{b}" for i, (a, b) in enumerate(rows.tolist()))
        (tmp_path / f"{name}.csv").write_text(text)
    return ["--null", tmp_path / "null.csv", "--test", tmp_path / "test.csv", "--id", "id"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_detect_writes_how_often_and_verify_derives_it(files, tmp_path, conovel, kind):
    out = tmp_path / f"out.{kind}"
    result = tmp_path / f"out.{kind}.json"
    options = ["--scorer", "logistic", "--level", "0.2", "--repeats", "4"]
    done = conovel("detect", *files, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    assert "4, which flag" in done.stdout
    assert " of 4" in done.stdout
    if kind == "csv":
        rows = list(csv.DictReader(out.open()))
        told = ["id", "times_flagged", "flagged_in_runs", "e_value", "rejected"]
        assert list(rows[0])[:5] == told
        assert all(row["flagged_in_runs"].count("F") == int(row["times_flagged"]) for row in rows)
    checked = conovel("verify", result)
    assert checked.returncode == 0, checked.stdout
    assert "follow from the flags" in checked.stdout
    assert "not checked: repeats.seeds" in checked.stdout
    run = _with_ranks(json.loads(result.read_text()), result)
    assert run["n_rejected"]
    assert_every_forgery_is_found(run)
    page = conovel("report", result)
    assert page.returncode == 0, page.stderr
    assert "of 4 runs" in result.with_suffix(".html").read_text()
    out.unlink()
    without = conovel("verify", result)
    assert without.returncode == 0
    assert "its flags are not here" in without.stdout
    assert "not checked: repeats.n_rejected" in without.stdout


def test_pieces_are_refused_with_what_to_do(files, tmp_path, conovel):
    done = conovel(
        "detect", *files, "--out", tmp_path / "o.csv", "--memory", "1GB", "--repeats", "2"
    )
    assert done.returncode != 0
    assert "repeats is for rows in memory" in " ".join(done.stderr.split())


def test_simulate_prints_writes_and_verifies_it(tmp_path, conovel):
    out = tmp_path / "run.json"
    options = ["--nulls", "1500", "--tests", "300", "--scorer", "logistic", "--level", "0.5"]
    done = conovel("simulate", *options, "--repeats", "3", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "in runs" in done.stdout
    checked = conovel("verify", out)
    assert checked.returncode == 0, checked.stdout
    run = json.loads(out.read_text())
    assert len(run["runs"]) == 3
    run["decisions"]["agent-1"]["rejected"][0] ^= True
    out.write_text(json.dumps(run))
    assert ".rejected.0 is True, and follows to be False" in conovel("verify", out).stdout


def test_lots_for_ties_are_a_setting_that_verify_knows(files, tmp_path, conovel):
    out = tmp_path / "out.csv"
    options = ["--scorer", "logistic", "--level", "0.2", "--ties"]
    done = conovel("detect", *files, "--out", out, *options, "random")
    assert done.returncode == 0, done.stderr
    result = tmp_path / "out.csv.json"
    assert json.loads(result.read_text())["ties"] == "random"
    checked = conovel("verify", result)
    assert checked.returncode == 0, checked.stdout
    refused = conovel("detect", *files, "--out", out, *options, "favour")
    assert refused.returncode != 0
    assert "ties must be 'against' or 'random'" in " ".join(refused.stderr.split())

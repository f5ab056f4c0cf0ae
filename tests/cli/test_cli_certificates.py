"""Certificates on the command line: printed, in JSON, and checked again."""

import json

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    test = rng.normal(size=(300, 3))
    test[:80] += 3
    for name, rows in {"null": rng.normal(size=(900, 3)), "test": test}.items():
        pd.DataFrame(rows, columns=list("abc")).to_csv(tmp_path / f"{name}.csv", index=False)
    pd.DataFrame(rng.normal(size=(120, 3)), columns=list("abc")).to_csv(
        tmp_path / "few.csv", index=False
    )
    return tmp_path


def detect(capsys, monkeypatch, folder, *more, null="null.csv"):
    out = folder / "out.csv"
    names = ["--null", folder / null, "--test", folder / "test.csv", "--scorer", "logistic"]
    return invoke(capsys, monkeypatch, "detect", *names, "--out", out, *more), out


def test_detect_prints_a_certificate_that_verify_computes_again(capsys, monkeypatch, folder):
    found, out = detect(capsys, monkeypatch, folder, "--certificate", "0.9")
    assert found.code == 0
    assert "With 90 % probability at most" in " ".join(found.out.split())
    record = out.with_name("out.csv.json")
    assert json.loads(record.read_text())["certificate"]["confidence"] == "9/10"
    assert invoke(capsys, monkeypatch, "verify", record).code == 0
    content = json.loads(record.read_text())
    content["certificate"]["max_false"] += 1
    record.write_text(json.dumps(content))
    wrong = invoke(capsys, monkeypatch, "verify", record)
    assert wrong.code == 3
    assert "certificate.max_false" in wrong.out


@pytest.mark.parametrize("more", [(), ("--memory", "1GB")])
def test_detect_flags_the_longest_list_with_a_confidence(capsys, monkeypatch, folder, more):
    settings = "--confidence", "0.9", "--level", "0.3", *more
    found, out = detect(capsys, monkeypatch, folder, *settings)
    assert found.code == 0
    assert "With a probability of at least 0.9" in " ".join(found.out.split())
    content = json.loads(out.with_name("out.csv.json").read_text())
    assert content["confidence"] == "9/10"
    assert content["n_rejected"] == pd.read_csv(out)["rejected"].sum() > 0
    assert invoke(capsys, monkeypatch, "verify", out.with_name("out.csv.json")).code == 0


def test_detect_says_what_is_proven_where_nothing_is_flagged(capsys, monkeypatch, folder):
    found, out = detect(capsys, monkeypatch, folder, "--level", "0.01", null="few.csv")
    assert "No single row can be flagged at 1 %. But at least" in " ".join(found.out.split())
    proof = json.loads(out.with_name("out.csv.json").read_text())["certificate"]
    assert proof["min_novelties"] > 0
    assert invoke(capsys, monkeypatch, "verify", out.with_name("out.csv.json")).code == 0


def test_a_confidence_for_a_ledger_is_refused(capsys, monkeypatch, folder):
    settings = "--confidence", "0.9", "--ledger", folder / "month.json"
    found, _ = detect(capsys, monkeypatch, folder, *settings)
    assert found.code == 2
    assert "--confidence is about one list" in " ".join(found.err.split())


def test_simulate_prints_and_writes_a_certificate(capsys, monkeypatch, tmp_path):
    out, small = tmp_path / "run.json", ["--nulls", 900, "--tests", 300, "--scorer", "logistic"]
    settings = ["--regime", "joint", *small, "--out", out]
    found = invoke(capsys, monkeypatch, "simulate", *settings, "--certificate", "0.9")
    assert "With 90 % probability at most" in " ".join(found.out.split())
    assert "certificate" in json.loads(out.read_text())
    assert invoke(capsys, monkeypatch, "verify", out).code == 0
    more = ["--confidence", "0.8", "--level", "0.5", "--certificate", "0.9"]
    found = invoke(capsys, monkeypatch, "simulate", *settings, *more)
    assert "With a probability of at least 0.8" in " ".join(found.out.split())
    assert json.loads(out.read_text())["certified"]["confidence"] == "4/5"
    assert invoke(capsys, monkeypatch, "verify", out).code == 0


def test_simulate_refuses_regimes_without_one_scale(capsys, monkeypatch):
    found = invoke(capsys, monkeypatch, "simulate", "--regime", "counts", "--confidence", "0.9")
    assert found.code == 2
    assert "Use 'joint' or 'together'" in " ".join(found.err.split())

"""``conovel detect --weights``: a column of both files, or an estimate."""

import json

import numpy as np
import pandas as pd
import pytest

TILT = 0.7
FILES = ("--null", "null.csv", "--test", "test.csv", "--scorer", "logistic")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("weights")
    rng = np.random.default_rng(0)
    null, test = rng.normal(size=(500, 3)), rng.normal((TILT, 0, 0), size=(100, 3))
    test[90:, 1] += 6
    for name, X in (("null", null), ("test", test)):
        frame = pd.DataFrame(X, columns=list("abc"))
        frame["w"] = np.exp(TILT * frame.a)
        frame.to_csv(place / f"{name}.csv", index=False)
    return place


def test_a_column_weighs_and_is_no_feature(conovel, folder):
    written = []
    for name, more in (("all.csv", ()), ("some.csv", ("--columns", "a,b,c"))):
        weights = ("--weights", "w", "--out", name, "--json")
        done = conovel("detect", *FILES, *weights, *more, cwd=folder)
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert summary["weights"]["source"] == "column 'w'"
        assert summary["weights"]["estimated"] is False
        assert 100 < summary["weights"]["effective_calibration_rows"] < summary["n_calibration"]
        written.append(pd.read_csv(folder / name))
    assert written[0].equals(written[1])
    assert list(written[0].columns[:6]) == [
        "row", "score", "p_value", "weight", "needs_flagged", "rejected"
    ]  # fmt: skip
    assert written[0].rejected[90:].sum() > 5
    done = conovel("verify", "all.csv.json", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "follow from the numbers of rows that each row needs" in done.stdout
    page = conovel("report", "all.csv.json", "--out", "page.html", cwd=folder)
    assert page.returncode == 0, page.stderr
    assert "Each known normal counts by its weight" in (folder / "page.html").read_text("utf-8")


def test_changed_decisions_are_seen(conovel, folder):
    out = ("--weights", "w", "--out", "x.csv")
    assert conovel("detect", *FILES, *out, cwd=folder).returncode == 0
    rows = pd.read_csv(folder / "x.csv")
    rows["rejected"] = True
    rows.to_csv(folder / "x.csv", index=False)
    done = conovel("verify", "x.csv.json", cwd=folder)
    assert done.returncode == 3
    assert "rejected" in done.stdout


def test_an_estimate_is_approximate(conovel, folder):
    done = conovel("detect", *FILES, "--weights", "estimate", "--exclude", "w", cwd=folder)
    said = " ".join(done.stdout.split())
    assert "presumed Approximate: the weights are estimated" in said
    assert "The weights are estimated" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--weights", "v"), "null.csv has none of that name"),
        (("--weights", "w", "--memory", "1GB", "--out", "y.csv"), "does not work with --memory"),
        (("--weights", "w", "--ledger", "l.json"), "does not work with --ledger"),
        (("--weights", "w", "--verdicts", "v.json"), "does not work with --verdicts"),
        (("--weights", "w", "--repeats", "3"), "do not work with repeats"),
        (("--weights", "w", "--certificate", "0.9"), "with weights evidence decides"),
    ],
)
def test_what_does_not_go_together_is_named(conovel, folder, more, words):
    done = conovel("detect", *FILES, *more, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr

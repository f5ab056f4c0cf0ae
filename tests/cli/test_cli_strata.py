"""`--strata` on the command line: decisions, JSON, reports, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, n, shares in (("null", 1200, [0.6, 0.3, 0.1]), ("test", 240, [0.2, 0.3, 0.5])):
        strata = rng.choice(3, size=n, p=shares)
        rows = rng.normal(size=(n, 3)) + 3 * strata[:, np.newaxis]
        if name == "test":
            rows[:40, 1:] += [5, -5]
        frame = pd.DataFrame(rows, columns=list("abc")).assign(plant=strata, shift=strata % 2)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        for j in range(2):
            frame.iloc[j::2].to_csv(tmp_path / f"{name}{j}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("more", [(), ("--memory", "1GB")])
def test_detect_writes_strata_that_verify_and_report_read(conovel, folder, more):
    names = "--null", "null.csv", "--test", "test.csv", "--scorer", "logistic"
    done = conovel(
        "detect", *names, "--strata", "plant,shift", "--out", "o.csv", *more, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert "2, 0: " in done.stdout
    record = json.loads((folder / "o.csv.json").read_text())
    assert record["strata"]["columns"] == ["plant", "shift"]
    assert sum(one["n_rejected"] for one in record["strata"]["strata"]) == record["n_rejected"] > 9
    assert set(pd.read_csv(folder / "o.csv")["stratum"]) == {"0, 0", "1, 1", "2, 0"}
    assert conovel("verify", "o.csv.json", cwd=folder).returncode == 0
    assert conovel("report", "o.csv.json", cwd=folder).returncode == 0
    assert "By stratum" in (folder / "o.csv.html").read_text(encoding="utf-8")


def test_simulate_with_strata(conovel, folder):
    agents = [word for j in range(2) for word in ("--agent", f"a{j}=null{j}.csv,test{j}.csv")]
    done = conovel("simulate", *agents, "--strata", "plant", "--out", "run.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "within each stratum (plant)" in " ".join(done.stdout.split())
    assert conovel("verify", "run.json", cwd=folder).returncode == 0
    assert conovel("report", "run.json", cwd=folder).returncode == 0
    assert "Strata of a0" in (folder / "run.html").read_text(encoding="utf-8")


def test_a_detector_with_strata_tests_and_watches(conovel, folder):
    fit = "fit", "--null", "null.csv", "--unlabelled", "test0.csv", "--scorer", "logistic"
    done = conovel(*fit, "--strata", "plant", "--out", "k.conovel", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "within strata of plant" in done.stdout
    (folder / "inbox").mkdir()
    rows = pd.read_csv(folder / "test1.csv").assign(txn=lambda frame: np.arange(len(frame)))
    rows.loc[110:, "plant"] = 9
    rows.to_csv(folder / "inbox" / "today.csv", index=False)
    test = "--detector", "k.conovel", "--id", "txn"
    done = conovel("detect", *test, "--test", "inbox/today.csv", "--out", "o.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    out = pd.read_csv(folder / "o.csv").set_index("id")
    assert out.index[~out["tested"]].tolist() == list(range(110, 120))
    assert set(out["stratum"].astype(str)) == {"0", "1", "2", "9"}
    assert conovel("verify", "o.csv.json", cwd=folder).returncode == 0
    assert conovel("report", "o.csv.json", cwd=folder).returncode == 0
    assert "By stratum" in (folder / "o.csv.html").read_text(encoding="utf-8")
    done = conovel("watch", "inbox", *test, "--ledger", "l.json", "--once", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "10 rows in 1 stratum of 'plant' are not tested" in done.stdout + done.stderr
    done = conovel("ledger", "l.json", cwd=folder)
    assert "within each stratum" in " ".join(done.stdout.split())


def test_a_list_with_strata_without_a_detector(conovel, folder):
    names = "--null", "null.csv", "--test", "test.csv", "--scorer", "logistic"
    done = conovel(
        "detect", *names, "--strata", "plant", "--ledger", "l.json", "--out", "o.csv", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert conovel("verify", "o.csv.json", cwd=folder).returncode == 0


@pytest.mark.slow
def test_watch_with_strata_without_a_detector(conovel, folder):
    (folder / "inbox").mkdir()
    (folder / "test1.csv").rename(folder / "inbox" / "test1.csv")
    watch = "watch", "inbox", "--null", "null.csv", "--strata", "plant", "--ledger", "w.json"
    done = conovel(*watch, "--once", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "120 rows" in done.stdout + done.stderr


def test_what_is_refused_is_named(conovel, folder):
    names = "--null", "null.csv", "--test", "test.csv", "--strata"
    given = "--detector", "null.csv", "--strata", "plant"
    for done in (
        conovel("detect", *given, "--test", "test.csv", cwd=folder),
        conovel("watch", ".", *given, "--ledger", "l.json", cwd=folder),
    ):
        assert done.returncode == 2
        assert "a detector has its strata" in done.stderr
    done = conovel("detect", *names, "a", cwd=folder)
    assert done.returncode == 2
    assert "more than 100 different values" in done.stderr
    done = conovel("detect", *names, "town", cwd=folder)
    assert done.returncode == 2
    assert "no column 'town'" in done.stderr

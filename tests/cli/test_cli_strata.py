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


def test_what_is_refused_is_named(conovel, folder):
    names = "--null", "null.csv", "--test", "test.csv", "--strata"
    done = conovel("detect", *names, "plant", "--ledger", "l.json", cwd=folder)
    assert done.returncode == 2
    assert "--strata" in done.stderr
    done = conovel("detect", *names, "a", cwd=folder)
    assert done.returncode == 2
    assert "more than 100 different values" in done.stderr
    done = conovel("detect", *names, "town", cwd=folder)
    assert done.returncode == 2
    assert "no column 'town'" in done.stderr

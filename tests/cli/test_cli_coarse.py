"""Commands say how few rows could be flagged where none is, and what would help."""

import json

import numpy as np
import pandas as pd

WORDS = "with 63 calibration rows, no row can be flagged unless at least 8 of the 50 rows are"


def flat(text):
    return " ".join(text.replace("|", " ").split())


def write(folder, n=126, m=50):
    rng = np.random.default_rng(0)
    for name, size in (("normal", n), ("today", m)):
        frame = pd.DataFrame(rng.normal(size=(size, 2)), columns=["a", "b"])
        frame.to_csv(folder / f"{name}.csv", index=False)


def test_detect_in_the_terminal_in_json_and_on_the_page(conovel, tmp_path):
    write(tmp_path)
    files = ("--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic")
    settings = ("--train-fraction", "0.5", "--out", "out.csv")
    run = conovel("detect", *files, *settings, cwd=tmp_path)
    assert flat(run.stdout).count(WORDS) == 1  # said once: under what is worth knowing
    assert "train_fraction=0" in flat(run.stdout)
    plain = json.loads(conovel("detect", *files, *settings, "--json", cwd=tmp_path).stdout)
    assert plain["resolution"] == f"{WORDS} flagged at once"
    assert plain["warnings"][0]["message"] == plain["resolution"]
    (summary,) = tmp_path.glob("*.json")
    assert conovel("report", summary.name, cwd=tmp_path).returncode == 0
    (page,) = tmp_path.glob("*.html")
    assert f"{WORDS} flagged at once" in page.read_text()


def test_evaluate_says_it_before_and_after(conovel, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(150, 2)), columns=["a", "b"])
    frame.assign(fraud=np.arange(150) % 25 == 0).to_csv(tmp_path / "past.csv", index=False)
    options = ("--data", "past.csv", "--label", "fraud", "--scorer", "logistic", "--trials", "2")
    options += ("--train-fraction", "0.5")
    run = conovel("evaluate", *options, "--test-share", "0.6", "--out", "worth.json", cwd=tmp_path)
    assert "are flagged at once" in flat(run.stderr)  # told before the first trial
    assert "are flagged at once" in flat(run.stdout)
    assert "What to do: add known normals" in flat(run.stdout)
    assert conovel("report", "worth.json", cwd=tmp_path).returncode == 0
    assert "are flagged at once" in (tmp_path / "worth.html").read_text()


def test_simulate_tells_an_agent_that_cannot_flag(conovel, tmp_path):
    for name, n in (("va", 8), ("north", 80), ("south", 90)):
        write(tmp_path, n, 40)
        for old, new in (("normal", "0"), ("today", "1")):
            (tmp_path / f"{old}.csv").rename(tmp_path / f"{name}{new}.csv")
    members = [
        w
        for name in ("va", "north", "south")
        for w in ("--agent", f"{name}={name}0.csv,{name}1.csv")
    ]
    settings = ("--regime", "isolated", "--scorer", "logistic", "--out", "run.json")
    run = conovel("simulate", *members, *settings, cwd=tmp_path)
    assert "no row of va can be flagged at level" in flat(run.stdout)
    assert conovel("report", "run.json", cwd=tmp_path).returncode == 0
    assert "no row could be" in (tmp_path / "run.html").read_text()

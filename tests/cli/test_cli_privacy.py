"""``conovel privacy`` says how long it takes and how far it is, and its table fits a terminal."""

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke

from conovel.cli.privacy import in_minutes

RNG = np.random.default_rng(0)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, n in (("null", 120), ("test", 60)):
        frame = pd.DataFrame(RNG.normal(size=(n, 2)), columns=["a", "b"])
        frame.to_csv(f"{name}.csv", index=False)
    command = ["privacy", "--null", "null.csv", "--test", "test.csv", "--scorer", "logistic"]
    return invoke(capsys, monkeypatch, *command, "--shadows", 16, "--bits", "compact,4")


def test_an_estimate_and_progress_are_told_before_the_result(run):
    assert run.code == 0
    said = run.err.splitlines()
    assert said[0] == "conovel: this takes less than a minute"
    assert said[1:] == [f"conovel: {n} of 16 agents drawn" for n in (4, 8, 12, 16)]


def test_the_table_fits_80_columns_with_whole_cells(run):
    lines = run.out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line for line in lines if line.lstrip().startswith("rows that train")]
    assert len(cells) == 4  # two attacks on two ways to send a model, each in one line
    assert all(line.count("±") == 2 for line in cells)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "less than a minute"), (65, "about 1 minute"), (700, "about 12 minutes")],
)
def test_a_duration_in_words(seconds, words):
    assert in_minutes(seconds) == words

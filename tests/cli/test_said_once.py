"""What a note or a warning said is not said again in a box below it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import conovel

MAIN = "from conovel.cli import main; main()"
SOURCE = str(Path(conovel.__file__).parents[1])
RNG = np.random.default_rng(3)


def write(folder, n=400, **spoilt):
    for name, size in (("normal", n), ("today", 150)):
        rows = pd.DataFrame(RNG.normal(size=(size, 3)), columns=["flow", "heat", "load"])
        for column, spoil in spoilt.items():
            rows[column] = spoil(rows, name)
        rows.to_csv(folder / f"{name}.csv", index=False)


def run(folder, stderr):
    files = ["--null", "normal.csv", "--test", "today.csv", "--scorer", "logistic"]
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "detect", *files],
        cwd=folder,
        env=os.environ | {"COLUMNS": "400", "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
    )
    return done.stdout


CASES = {
    "drift": (
        400,
        {
            "heat": lambda rows, name: (
                rows.heat + (np.arange(len(rows)) / 90 if name == "normal" else 5)
            )
        },
        "column 'heat' changes along",
    ),
    "constant": (400, {"site": lambda rows, name: 7}, "column 'site' never changes"),
    "none": (10, {}, "no row can be flagged at level 1/10"),
    "thin": (40, {}, "no row can be flagged unless at least"),
}


@pytest.mark.parametrize(
    "case", [next(iter(CASES)), *(pytest.param(c, marks=pytest.mark.slow) for c in [*CASES][1:])]
)
def test_where_both_streams_are_read_together_it_is_said_once(tmp_path, case):
    n, spoilt, words = CASES[case]
    write(tmp_path, n, **spoilt)
    assert run(tmp_path, subprocess.STDOUT).count(words) == 1
    # Standard output alone says all of it.
    assert run(tmp_path, subprocess.DEVNULL).count(words) == 1


def test_a_short_headline_stays_with_what_was_found_later(tmp_path):
    shift = {name: lambda rows, which: 0.01 * np.arange(len(rows)) + 9 * (which == "today")
             for name in ("heat",)}  # fmt: skip
    write(tmp_path, 400, **shift)
    text = run(tmp_path, subprocess.STDOUT)
    assert "The known normals are not like today's rows; the 10 % promise presumes" in text
    assert "A note above says what was seen, and what to do." in text


def test_a_check_with_an_id_says_that_nothing_else_speaks_against_the_rows(tmp_path):
    write(tmp_path, 400, no=lambda rows, name: np.arange(len(rows)))
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "check", "normal.csv", "--scorer", "logistic"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": SOURCE}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "column 'no' looks like a row number" in done.stdout
    assert "nothing else speaks against these known normals" in done.stdout

"""Every table and panel fits 80 columns, and no number in it is cut or broken."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.cli import main
from conovel.cli.run import _print_account
from conovel.cli.show import print_numbers
from conovel.spec.exits import NO

LONG = "Rotational speed of the second spindle [rpm], as the control unit reports it"
ID = "identification number of the observation in the system of the manufacturer"
LARGE = 9_876_543_210


def rows(n, novel=0, drift=0.0):
    rng = np.random.default_rng(n)
    frame = pd.DataFrame(rng.normal(1e9, 1e7, size=(n, 3)).round(), columns=[LONG, "[b]", "c"])
    frame[LONG] += drift * 1e7 * np.linspace(0, 8, n)
    frame.iloc[n - novel :, 0] += 1e8
    names = [f"observation-{i:030d}" for i in range(n)]
    return frame.assign(**{ID: names, "label": [0] * (n - novel) + [1] * novel})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a folder with a long name [of no use] for the results")
    for name, frame in {
        "normal": rows(400),
        "drifting normals [of last year]": rows(401, drift=1),
        "today": rows(90, novel=20),
    }.items():
        frame.drop(columns="label").to_csv(folder / f"{name}.csv", index=False)
    rows(300, novel=40).drop(columns=ID).to_csv(folder / "labelled.csv", index=False)
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = LogisticRegression().fit(X, (X[:, 0] > 0).astype(int))
    (folder / "model of the second spindle.bin").write_bytes(cn.encode(model, bits=4))
    return folder


@pytest.fixture
def conovel(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["conovel", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code
        assert code in (None, 0, NO)
        return capsys.readouterr().out

    return run


def assert_fits(printed):
    assert printed.strip()
    wide = [line for line in printed.splitlines() if len(line) > 80]
    assert not wide, wide[0]
    cut = re.search(r"\d…|…\d", printed)
    assert not cut, printed[max(cut.start() - 40, 0) : cut.end() + 40] if cut else ""


FILES = ["--test", "today.csv", "--id", ID, "--scorer", "logistic", "--out", "flagged.parquet"]
QUOTED = f'"{ID}"'
NETWORK = ["--agents", 3, "--nulls", 60, "--tests", 40, "--scorer", "logistic"]
CHEAP = ["--scorer", "logistic", "--out", "what was found about the second spindle.json"]
MONTH = "month of the second spindle.json"
COMMANDS = {
    "detect": [["detect", "--null", "normal.csv", *FILES]],
    "a panel of findings": [["detect", "--null", "drifting normals [of last year].csv", *FILES]],
    "pieces": [["detect", "--null", "normal.csv", *FILES, "--memory", "1GB"]],
    "repeats": [["detect", "--null", "normal.csv", *FILES, "--repeats", 3]],
    "check": [["check", "drifting normals [of last year].csv", "--exclude", QUOTED, *CHEAP]],
    "evaluate": [
        ["evaluate", "--data", "labelled.csv", "--label", "label", "--trials", 2, *CHEAP]
    ],
    "kept": [
        ["fit", "--null", "normal.csv", "--exclude", QUOTED, "--explain", "--out", "d.conovel"],
        [
            "detect",
            "--detector",
            "d.conovel",
            "--test",
            "today.csv",
            "--id",
            ID,
            "--ledger",
            MONTH,
        ],
        ["ledger", MONTH],
    ],
    "simulate": [["simulate", *NETWORK, "--regime", "joint,counts", "--repeats", 2]],
    "inspect": [["inspect", "model of the second spindle.bin"]],
    "limit": [["limit", "--shifts", "0,123456.789"]],
}


@pytest.mark.parametrize("commands", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.filterwarnings("ignore")
def test_what_a_command_prints_fits(conovel, commands):
    for command in commands:
        assert_fits(conovel(*command))


def test_names_with_brackets_are_whole(conovel):
    said = " ".join(conovel(*COMMANDS["check"][0]).split())
    assert LONG in said


@pytest.mark.parametrize("n_columns", [4, 7, 12])
@pytest.mark.parametrize("number", [7, LARGE])
def test_large_numbers_are_not_cut(capsys, monkeypatch, n_columns, number):
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["agent", *(f"bytes of {j}" for j in range(n_columns))]
    cells = [f"{number + j:,}" for j in range(n_columns)]
    agents = ["north", "a-very-long-name-of-an-agent-that-goes-on-and-on-and-on"]
    print_numbers("joint [of all]", heads, [[name, *cells] for name in agents], [["all", *cells]])
    printed = capsys.readouterr().out
    assert_fits(printed)
    assert all(printed.count(cell) >= 3 for cell in cells)
    assert printed.count("north") == 1


def test_an_account_of_a_run_that_was_broken_off_has_the_number_of_its_error(capsys):
    account = {"state": "failed", "message": "south is lost", "terms": {}, "transcript": {}}
    for fault, number in (("SiteVanishedError", " [conovel explain CN-528]"), ("CODES", "")):
        _print_account(account | {"fault": fault, "code": "a text of the coordinator"})
        printed = capsys.readouterr().out
        assert printed.startswith(f"broken off: south is lost{number}\n")


def test_an_account_of_a_federation_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"{'north-east-' * 5}{j}" for j in range(3)]
    moved = {"sent": LARGE, "received": LARGE}
    _print_account(
        {
            "state": "done",
            "terms": {"run_id": "f" * 32, "spec": {"regime": "full", "counting": "committed"}},
            "outcome": {
                "participants": names,
                "n_tests": LARGE,
                "rounds": 12,
                "n_rejected": LARGE,
                "k": LARGE,
                "slope": "123456789/987654321098765",
            },
            "transcript": {"totals": {"by_agent": dict.fromkeys(names, moved)}},
            "guarantee": "at most 10 % of the flagged rows are false alarms",
            "unpublished": {names[0]: "no space left on [the] device"},
        }
    )
    printed = capsys.readouterr().out
    assert_fits(printed)
    assert printed.count(f"{LARGE:,} bytes out") == 3

"""What comes from outside is printed as text: no terminal sequences, forged lines or markup."""

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import conovel
from conovel.cli import main
from conovel.cli.show import print_fitted, print_json, styled, text_table
from conovel.spec.exits import NO
from conovel.spec.shown import printable

FORGED = "day9.csv: 80 rows, 0 flagged"
# A screen that is cleared, a line that nobody wrote, markup, and a name that reads backwards.
HOSTILE = f"a\x1b[2J\x9b1A\x07\r\n{FORGED}\u2028[red]x[bold]\u202egnp\u200b"
CLI = Path(conovel.__file__).parent / "cli"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    normal, today = (pd.DataFrame(rng.normal(size=(n, 2)), columns=["v", "w"]) for n in (300, 60))
    today[:8] += 6
    normal.to_csv("normal.csv", index=False)
    today.to_csv("today.csv", index=False)
    names = [f"{HOSTILE}{i}" for i in range(60)]
    normal.rename(columns={"v": HOSTILE}).to_csv("hostile-normal.csv", index=False)
    today.rename(columns={"v": HOSTILE}).assign(id=names).to_csv("hostile.csv", index=False)
    return tmp_path


@pytest.fixture
def run(here, monkeypatch, capsys):
    """Run the command line as a person does; return all that it printed."""

    def run(*arguments, code=0):
        monkeypatch.setattr(sys, "argv", ["conovel", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert ended.value.code == code, said
        return said.out + said.err

    return run


def check(said, *, named=True):
    for line in said.split("\n"):
        assert line.isprintable(), ascii(line)
        assert not line.strip(" |").startswith(("day9.csv:", "x[bold]")), line
    if named:
        assert "\\x1b[2J" in said
        assert "[red]" in said


def test_a_column_and_an_id_in_detect(run):
    options = ["--scorer", "logistic", "--id", "id", "--out", "out.csv"]
    files = ["--null", "hostile-normal.csv", "--test", "hostile.csv"]
    check(run("detect", *files, *options))


def test_a_column_in_an_error(run):
    check(run("detect", "--null", "hostile-normal.csv", "--test", "today.csv", code=2))
    check(
        run("detect", "--null", "hostile-normal.csv", "--test", "x", "--columns", "n", code=2),
        named=False,
    )
    check(run("detect", "--null", "normal.csv", "--test", "hostile.csv", code=2))


def test_a_column_in_a_schema_and_in_findings(run):
    constant = pd.read_csv("hostile.csv").assign(w=1.0).drop(columns="id")
    constant.to_csv("constant.csv", index=False)
    said = run("schema", "--null", "hostile-normal.csv", "--test", "constant.csv")
    check(said, named=False)
    assert HOSTILE in tomllib.loads(said)["columns"]  # a script reads the same name
    Path("s.toml").write_text(said)
    options = ["--scorer", "logistic", "--schema", "s.toml"]
    check(run("detect", "--null", "hostile-normal.csv", "--test", "constant.csv", *options))


@pytest.mark.parametrize("name", [f"{HOSTILE}.csv", os.fsdecode(b"caf\xe9.csv")])
def test_a_file_name_in_an_error(run, name):
    Path(name).write_text("v\n1\n")
    check(run("detect", "--null", "normal.csv", "--test", name, code=2), named=name[0] == "a")


def test_a_file_name_in_a_ledger(run):
    name = f"{HOSTILE}.csv"
    Path(name).write_bytes(Path("today.csv").read_bytes())
    ledger = ["--ledger", "m.json"]
    check(run("detect", "--null", "normal.csv", "--test", name, "--scorer", "logistic", *ledger))
    check(run("ledger", "m.json"))
    told = run("ledger", "m.json", "--json")
    check(told, named=False)
    assert json.loads(told)["batches"][0]["name"] == name


def test_a_file_name_in_watch(run):
    Path("inbox").mkdir()
    Path("inbox", f"{HOSTILE}.csv").write_bytes(Path("today.csv").read_bytes())
    Path("inbox", f"{HOSTILE}2.csv").write_text("v\n1\n")
    for path in Path("inbox").iterdir():
        os.utime(path, (1, 1))
    options = ["--null", "normal.csv", "--ledger", "m.json", "--once"]
    said = run("watch", "inbox", *options, code=NO)
    check(said)
    assert len(said.splitlines()) == 2


def test_the_name_of_an_agent(run):
    agents = [f"{name}=normal.csv,today.csv" for name in ("north", "[red]x[/red]")]
    options = ["--agent", agents[0], "--agent", agents[1], "--scorer", "logistic"]
    said = run("simulate", *options, "--regime", "full,isolated", "--out", "r.json")
    assert said.count("[red]x[/red]") >= 2


def test_a_crash_is_printed_as_text(here):
    text = (
        f"import sys; from conovel import cli; cli.app = lambda **_: {{}}[{HOSTILE!r}]; cli.main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "KeyError" in ended.stderr
    check(ended.stderr, named=False)


def test_tables_and_texts_hold_no_markup(capsys):
    table = text_table()
    table.add_row(HOSTILE, styled((HOSTILE, "bold")))
    print_fitted(styled(HOSTILE))
    print_fitted(HOSTILE)
    print_json({HOSTILE: "\udcff"})
    said = capsys.readouterr().out
    check(said)
    assert json.loads(said.splitlines()[-1]) == {HOSTILE: "\udcff"}


def test_every_character_is_printable_or_spelled_out():
    for number in range(0x110000):
        said = printable(chr(number))
        assert said == chr(number) or (said.isascii() and said.isprintable()), hex(number)
    assert printable("Größe 3\u00a0m [x]") == "Größe 3\u00a0m [x]"
    for number in [
        *range(0x20),
        *range(0x7F, 0xA0),
        0x200E,
        *range(0x2028, 0x202F),
        0x2066,
        0xFEFF,
    ]:
        assert printable(chr(number)) != chr(number)


def test_commands_print_by_the_functions_of_one_module_alone():
    found = []
    for path in CLI.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.ImportFrom) and node.module == "rich.markup":
                name = node.module
            if name in ("print", "typer.echo", "typer.secho", "Console", "Table", "rich.markup"):
                found.append((path.name, name))
    assert [one for one in found if one[0] != "show.py"] == []

"""The help teaches, the shell completes, and ``python -m conovel`` is the same command line."""

import os
import subprocess
import sys

import pytest
from support.commands import invoke
from support.paths import ROOT
from typer.main import get_command

from conovel.cli import app

BASH = {"_CONOVEL_COMPLETE": "complete_bash", "COMP_CWORD": "1"}


def every_command(command=None, path=()):
    """The path of each command, and of each group of commands."""
    command = command or get_command(app)
    yield path
    for name, part in sorted(getattr(command, "commands", {}).items()):
        yield from every_command(part, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_help_shows_no_type_that_teaches_nothing(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke(capsys, monkeypatch, *path, "--help")
    assert shown.code == 0
    assert "Usage: conovel" in shown.out
    assert "<bool>" not in shown.out
    assert "<list" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_types_that_teach_are_shown(capsys, monkeypatch):
    shown = invoke(capsys, monkeypatch, "detect", "--help").out
    assert "<path>" in shown
    assert "<int range>" in shown


def test_python_m_conovel_is_the_command_line():
    command = [sys.executable, "-m", "conovel", "detect", "--help"]
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Usage: conovel detect" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [("conovel ev", ["evaluate"]), ("conovel re", ["reproduce", "report", "repeat"])],
)
def test_the_shell_completes_commands(words, offered, capsys, monkeypatch):
    for name, value in BASH.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_WORDS", words)
    assert invoke(capsys, monkeypatch).out.split() == offered


def test_the_script_for_a_shell_calls_conovel(capsys, monkeypatch):
    monkeypatch.setenv("_CONOVEL_COMPLETE", "source_bash")
    script = invoke(capsys, monkeypatch).out
    assert "_CONOVEL_COMPLETE=complete_bash" in script
    assert "complete -o default -F _conovel_completion conovel" in script

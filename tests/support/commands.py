"""The command line in this process."""

import sys
from types import SimpleNamespace

from conovel.cli import main


def invoke(capsys, monkeypatch, *arguments):
    """Run a command; give its exit code and what it said."""
    monkeypatch.setattr(sys, "argv", ["conovel", *map(str, arguments)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    said = capsys.readouterr()
    return SimpleNamespace(code=code, out=said.out, err=said.err)

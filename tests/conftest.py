"""What all tests share: one Hypothesis profile, and the command line as a fixture.

Every run draws the same examples and has no deadline; `HYPOTHESIS_PROFILE=explore` draws
fresh examples, and more of them.
"""

import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import settings

from conovel.cli import main

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def conovel(monkeypatch, capsys):
    """Run the command line in this process; give back its exit code and what it printed."""

    def run(*args, cwd=None):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["conovel", *map(str, args)])
            if cwd is not None:
                patch.chdir(cwd)
            with pytest.raises(SystemExit) as exited:
                main()
        printed = capsys.readouterr()
        return SimpleNamespace(
            returncode=exited.value.code or 0, stdout=printed.out, stderr=printed.err
        )

    return run

"""The page about the command line, written by typer from the commands themselves."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from paths import GENERATED, write_if_changed

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

PAGE = GENERATED / "cli.md"


def text() -> str:
    """Return what ``typer utils docs`` says about the application."""
    command = [sys.executable, "-m", "typer", "conovel.cli", "utils", "docs", "--name", "conovel"]
    made = subprocess.run(
        [*command, "--title", "The command line"], capture_output=True, text=True, check=True
    )
    return made.stdout


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the page before Sphinx looks for sources."""
    app.connect("builder-inited", lambda app: write_if_changed(PAGE, text()))
    return {"parallel_read_safe": True}

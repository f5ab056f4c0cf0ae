"""What a command takes for a table: a file, a folder, an address, or ``-`` for standard input."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from conovel.cli.show import ADDRESSES
from conovel.errors import InputError

_folder: tempfile.TemporaryDirectory[str] | None = None  # of copies; gone when the process ends


def local_path(text: str) -> Path:
    """Give the path at which a table can be read; what is elsewhere is copied first."""
    from conovel.rows.fetched import copy_input, fetch, is_address, without_secrets  # noqa: PLC0415

    if text != "-" and not is_address(text):
        return Path(text)
    if text == "-":
        if "-" in ADDRESSES.values():
            raise InputError("standard input can be read once: give a file instead of one -")
        path, shown = copy_input(sys.stdin.buffer, _new_folder()), "-"
    else:
        path, shown = fetch(text, _new_folder()), without_secrets(text)
    ADDRESSES[str(path)] = shown
    return path


def _new_folder() -> Path:
    global _folder  # noqa: PLW0603  (one folder of a process)
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="conovel-")
    return Path(tempfile.mkdtemp(dir=_folder.name))

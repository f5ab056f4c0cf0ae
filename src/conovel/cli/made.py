"""How a result was made: the part `made` of its file, by which ``conovel repeat`` makes it again.

It holds versions, the time, the command, the columns, and sizes and digests of the files. Numbers
that decide are never read from it.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

# The words of the command that runs; none where a function was called instead.
WORDS: ContextVar[tuple[str, ...]] = ContextVar("words of the command", default=())
_ENDS = 64 << 20  # bytes at either end of a file that the digest of a large one is about
_LIBRARIES = "numpy", "scikit-learn"


def made(
    out: Path, files: Iterable[Path | None], columns: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """Describe how the result beside `out` is made, as JSON types.

    Parameters
    ----------
    out : Path
        The file that is written.
    files : iterable of Path or None
        The files that were read.
    columns : sequence of str
        The columns that the score used.
    more
        What else is worth knowing, such as the seed.
    """
    present = [path for path in files if path is not None and path.is_file()]
    return {
        "conovel": version("conovel"),
        "python": platform.python_version(),
        **{name: version(name) for name in _LIBRARIES},
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": list(WORDS.get()),
        "folder": _from_folder_of(out),
        "files": {str(path): described(path) for path in present},
        **({"columns": list(map(str, columns))} if len(columns) else {}),
        **more,
    }


def described(path: Path) -> dict[str, Any]:
    """Return the size of a file and its SHA-256: of both ends, where it is larger than 128 MB."""
    size, digest = path.stat().st_size, hashlib.sha256()
    with path.open("rb") as file:
        if size <= 2 * _ENDS:
            digest.update(file.read())
        else:
            digest.update(file.read(_ENDS))
            file.seek(size - _ENDS)
            digest.update(file.read(_ENDS))
    name = "sha256" if size <= 2 * _ENDS else "sha256_of_ends"
    return {"bytes": size, name: digest.hexdigest()}


def _from_folder_of(out: Path) -> str:
    """Return where the command was given, as seen from the folder of its result."""
    try:
        return Path(os.path.relpath(Path.cwd(), out.parent.resolve())).as_posix()
    except ValueError:  # on another drive
        return "."

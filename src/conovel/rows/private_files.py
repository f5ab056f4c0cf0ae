"""Files and folders that only their owner can read, whatever the umask.

Decisions, records and detectors name rows or follow from them. A file that its owner has opened
to others on purpose keeps its mode when it is written again.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_IMODE

FILE_MODE, FOLDER_MODE = 0o600, 0o700
UMASK = 0o077  # for processes whose files we do not write ourselves


def make_private_file(path: Path) -> None:
    """Make an empty file for its owner alone; one of the same name is removed before.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_private_file(Path(folder) / "x")
    ...     oct((Path(folder) / "x").stat().st_mode & 0o777)
    '0o600'
    """
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))


def make_private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone.

    A folder that exists keeps its mode.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def keep_mode(path: Path, replacement: Path) -> None:
    """Give the file that will replace `path` its mode, if `path` exists and is the user's own."""
    try:
        status = path.stat()
    except OSError:
        return
    if status.st_uid == replacement.stat().st_uid:
        replacement.chmod(S_IMODE(status.st_mode))

"""``--log-file``: what a command does, line by line, in a file that only its owner can read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from conovel.errors import FileError, InputError
from conovel.spec.version import __version__

VARIABLE = "CONOVEL_LOG_LEVEL"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def begin_log(path: Path, command: str) -> None:
    """Append what conovel and NVFlare say to a file, until the process ends."""
    from conovel.rows.private_files import FILE_MODE  # noqa: PLC0415

    level = os.environ.get(VARIABLE, "INFO").upper()
    if level not in LEVELS:
        raise InputError(f"{VARIABLE} must be one of {', '.join(LEVELS)}, not {level!r}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, FILE_MODE))
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from None
    handler.setFormatter(_OneLine(_LINE))
    for name in ("nvflare", "conovel"):  # what NVFlare says goes nowhere else
        logger = logging.getLogger(name)
        for earlier in [one for one in logger.handlers if isinstance(one, logging.FileHandler)]:
            logger.removeHandler(earlier)  # of a command that ran before in this process
            earlier.close()
        logger.addHandler(handler)
    own = logging.getLogger("conovel")
    own.setLevel(level)
    own.info("conovel %s %s", __version__, command)


class _OneLine(logging.Formatter):
    """Writes each record in one line: names of files and columns may hold anything."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        from conovel.cli.show import addressed  # noqa: PLC0415
        from conovel.spec.shown import printable  # noqa: PLC0415

        return printable(addressed(super().formatMessage(record)))

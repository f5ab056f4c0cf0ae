"""What is wrong in a CSV file, and where: the line as an editor shows it.

The header is line 1, and blank lines and lines within quotes count. Libraries count rows, so the
line of a row is looked up when there is something to say about it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from conovel.errors import ConovelError, FileError
from conovel.rows.dialects import SPELLED, Dialect

_MOST = 10_000_000  # rows that are gone through to find a line
_SHOWN = 60  # characters of a value or a line
_WIDTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): (.*)", re.DOTALL
)
_ROW = re.compile(r"first in row (\d+)")


def line_of(path: Path, dialect: Dialect, row: int) -> int | None:
    """Give the line at which a row of a CSV file begins; row 0 is the first below the header.

    None where it cannot be told.
    """
    if not 0 <= row < _MOST:
        return None
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            text = io.TextIOWrapper(
                stream, encoding=dialect.encoding, errors="replace", newline=""
            )
            reader = csv.reader(text, delimiter=dialect.separator)
            before, seen = 0, -2  # the header is row -1
            for values in reader:
                seen += bool(values)  # blank lines are no rows
                if values and seen == row:
                    return before + 1
                before = reader.line_num
    except (pa.ArrowException, OSError, csv.Error, ValueError):
        pass
    return None


def malformed(
    path: Path, dialect: Dialect, names: Sequence[str], error: Exception
) -> FileError | None:
    """Say in plain words what pyarrow found wrong in a CSV file; None for anything else."""
    if found := _WIDTH.search(str(error)):
        place = _place(path, dialect, found[1])
        return FileError(
            f"{place}: {found[3]} value{'s' * (found[3] != '1')} where the header has {found[2]}:"
            f" {_short(found[4])}: put values with a {SPELLED.get(dialect.separator, 'separator')}"
            " in quotes, close open quotes, or give the --separator"
        )
    if not (found := _VALUE.search(str(error))):
        return None
    place, index = _place(path, dialect, found[2]), int(found[1])
    name = names[index] if index < len(names) else str(index + 1)
    if "UTF8" in found[4]:
        return FileError(
            f"{place}: a text in column {name!r} is not {dialect.encoding}: give the --encoding,"
            " such as cp1252"
        )
    value = _short(found[4].removeprefix("invalid value ").strip("'"))
    what = "true or false" if found[3] == "bool" else "a number"
    return FileError(
        f"{place}: {value} in column {name!r} is not {what}, as those above it are: mark it as"
        f" missing (--na {value}), or take the column as a category (--kind '{name}=category')"
    )


def _place(path: Path, dialect: Dialect, counted: str | None) -> str:
    """Name the file and the line; pyarrow counts the header as row 1."""
    line = line_of(path, dialect, int(counted) - 2) if counted else None
    return f"{path}, line {line}" if line else str(path)


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= _SHOWN else f"{one_line[:_SHOWN]}…")


def relocated(error: ConovelError, path: Path, dialect: Dialect | None, first: int) -> str:
    """Give the message of an error about some rows of a file, with the place in the file."""

    def place(found: re.Match[str]) -> str:
        row = first + int(found[1])
        line = None if dialect is None else line_of(path, dialect, row)
        return f"first in line {line}" if line else f"first in row {row}"

    return _ROW.sub(place, str(error))

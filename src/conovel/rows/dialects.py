"""How the texts of a CSV file are written: found out from its first bytes, or said by the user.

Only what is looked at is decided here; pyarrow parses the files.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from conovel.errors import ColumnError, FileError, InputError
from conovel.rows.spelling import NA_MARKERS

_HEAD = 1 << 16  # bytes that are looked at
_ROWS = 2000
_SEPARATORS = (",", ";", "\t", "|")
_LOOSE = (".txt", ".data")  # endings of texts in which spaces may stand between values
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_COMMA_NUMBER = re.compile(r"\s*[+-]?\d*,\d+\s*")
_POINT_NUMBER = re.compile(r"\s*[+-]?\d*\.\d+\s*")
_NUMBER = re.compile(r"\s*[+-]?\d+([.,]\d+)?\s*")
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
# What separators are called.
SPELLED = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


@dataclass(frozen=True)
class ReadingOptions:
    """What a user says about files; what is None is found out."""

    # separator, decimal, encoding: of CSV files: what stands between values, the decimal sign, the
    # character encoding
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na: tuple[str, ...] = ()  # further texts that stand for a missing value
    # exclude, ignore: columns that are no features; those to exclude must be there
    exclude: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    # Columns that are read as texts, even where the first ones look like numbers
    texts: tuple[str, ...] = ()
    # Columns that are read if they are there, and are no features: a schema was made from them
    also: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # columns that need not be there
    is_whole: bool = False  # whether a schema names all columns, so that any other is a mistake
    unpacked: str | None = None  # what a file may take in memory, see conovel.rows.unpacked
    # Of CSV files: whether the first line has the names; if not, what the columns are called
    header: bool = True
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = {name: sign for sign, name in SPELLED.items()} | {"\\t": "\t"}
        if self.separator is not None:
            sign = names.get(self.separator, self.separator)
            object.__setattr__(self, "separator", sign)
            if len(sign) != 1 or sign in '"\r\n':
                raise InputError(f"the separator must be one character, not {self.separator!r}")
        if self.decimal not in (None, ".", ","):
            raise InputError(f"the decimal sign must be '.' or ',', not {self.decimal!r}")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, TypeError, ValueError):
                raise InputError(f"no character encoding is called {self.encoding!r}") from None


AS_FOUND = ReadingOptions()


@dataclass(frozen=True)
class Dialect:
    """How one CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    na: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # of the columns, where the file has no line of names
    is_aligned: bool = False  # whether several spaces may stand between two values

    def options(self) -> dict[str, Any]:
        """Give pyarrow's options."""
        whole = [mark for mark in self.na if mark.lstrip("+-").isdigit()]
        # Numbers of a column with fractions are often written with a zero behind the point.
        own = [*self.na, *(f"{mark}{self.decimal}0" for mark in whole)]
        markers = sorted({*NA_MARKERS, *own})
        return {
            "read_options": pa_csv.ReadOptions(
                encoding=self.encoding, column_names=self.names or None
            ),
            "parse_options": pa_csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=True
            ),
            "convert_options": pa_csv.ConvertOptions(
                null_values=markers, strings_can_be_null=True, decimal_point=self.decimal
            ),
        }

    def describe(self) -> str:
        """Say in words how the file is written."""
        sign = SPELLED.get(self.separator, repr(self.separator))
        point = "point" if self.decimal == "." else "comma"
        header = ", no header" if self.names else ""
        return f"separator {sign}, decimal {point}, {self.encoding}{header}"


def without_compression(path: Path) -> str:
    """Return the name of a file in lower case, without an ending such as ".gz"."""
    name = path.name.lower()
    return next((name.removesuffix(end) for end in _COMPRESSED if name.endswith(end)), name)


def require_text_name(path: Path) -> None:
    """Refuse a file whose name is not UTF-8, which pyarrow cannot open and no list can name."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise FileError(f"{path} cannot be read, its name is not UTF-8: rename it") from None


def sniff(path: Path, reading: ReadingOptions = AS_FOUND) -> Dialect:
    """Find out how a CSV file is written, as far as it was not said."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            head = stream.read(_HEAD)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    encoding = reading.encoding or _encoding(head)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    is_cut_off = len(head) == _HEAD
    separator = reading.separator or _separator(text, is_cut_off, path)
    is_aligned = separator == " " and squeezed(text) != text
    rows = _rows(squeezed(text) if is_aligned else text, separator, is_cut_off)
    if reading.header and len(rows) > 1 and all(map(_NUMBER.fullmatch, rows[0])):
        raise ColumnError(
            f"the first line of {path} holds numbers: write a line with the names of the columns"
            " above it, or say that it has none with --no-header (in Python header=False), and"
            " name the columns with --columns"
        )
    decimal = reading.decimal or _decimal(rows[1:], separator)
    names = () if reading.header else _names(path, rows, reading.names)
    return Dialect(separator, decimal, encoding, reading.na, names, is_aligned)


def squeezed(text: str) -> str:
    r"""Leave one space between values that spaces and tabs align, and none at the ends of lines.

    Examples
    --------
    >>> squeezed("  1.5   a\n20.0 \tb \n")
    '1.5 a\n20.0 b\n'
    """
    return re.sub(r"^ | (?=\r?$)", "", re.sub(r"[ \t]+", " ", text), flags=re.MULTILINE)


def _names(path: Path, rows: Sequence[Sequence[str]], given: tuple[str, ...]) -> tuple[str, ...]:
    """Name the columns of a file that has no line of names: as the user says, or x1, x2, ..."""
    width = len(rows[0]) if rows else 0
    if given and width and len(given) != width:
        raise ColumnError(
            f"{path} has {width} values in its first line, and --columns names {len(given)}"
            " columns: without a header, name all of them in their order"
        )
    return given or tuple(f"x{j}" for j in range(1, width + 1)) or ("x1",)


def _encoding(head: bytes) -> str:
    for mark, encoding in _BOMS.items():
        if head.startswith(mark):
            return encoding
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        cut_off = len(head) == _HEAD and error.start > _HEAD - 4
        return "utf-8" if cut_off else "cp1252"
    return "utf-8"


def _rows(text: str, separator: str, is_cut_off: bool) -> list[list[str]]:
    """Cut the beginning of a file into rows; a value in quotes may have several lines."""
    # A row may be longer than what is looked at, and a quote may be open at its end.
    rows_of_site = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = list(islice((row for row in rows_of_site if row), _ROWS + 1))
    return rows[:-1] if len(rows) > _ROWS or (is_cut_off and len(rows) > 1) else rows


def _separator(text: str, is_cut_off: bool, path: Path) -> str:
    """Take the separator that cuts all rows into the same number of values, the most of them."""
    if without_compression(path).endswith(".tsv"):
        return "\t"
    best, widest = ",", 1
    cut = {separator: _rows(text, separator, is_cut_off) for separator in _SEPARATORS}
    for separator, rows in cut.items():
        widths = {len(row) for row in rows}
        if len(widths) == 1 and (width := widths.pop()) > widest:
            best, widest = separator, width
    if widest == 1 and without_compression(path).endswith(_LOOSE):
        widths = {len(row) for row in _rows(squeezed(text), " ", is_cut_off)}
        if len(widths) == 1 and widths != {1}:
            return " "
    if widest == 1 and any(cut.values()):  # none fits all rows: the one that cuts the first most
        best = max(_SEPARATORS, key=lambda sign: len(cut[sign][0]) if cut[sign] else 0)
    return best


def _decimal(rows: Sequence[Sequence[str]], separator: str) -> str:
    if separator == ",":
        return "."
    values = [value for row in rows for value in row]
    commas = any(map(_COMMA_NUMBER.fullmatch, values))
    return "," if commas and not any(map(_POINT_NUMBER.fullmatch, values)) else "."


_MOST = 10_000_000  # rows that are gone through to find a line
_LONGEST_SHOWN = 60  # characters of a value or a line
_WIDTH = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+): (.*)", re.DOTALL
)
_ROW = re.compile(r"first in row (\d+)")


def line_of(path: Path, dialect: Dialect, row: int) -> int | None:
    """Give the line at which a row of a CSV file begins; row 0 is the first that is no header.

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
            before, seen = 0, -1 if dialect.names else -2  # a header is row -1
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
    if match := _WIDTH.search(str(error)):
        place = _place(path, dialect, match[1])
        return FileError(
            f"{place}: {match[3]} value{'s' * (match[3] != '1')} where the header has {match[2]}:"
            f" {_short(match[4])}: put values with a {SPELLED.get(dialect.separator, 'separator')}"
            " in quotes, close open quotes, or give the --separator"
        )
    if not (match := _VALUE.search(str(error))):
        return None
    place, index = _place(path, dialect, match[2]), int(match[1])
    name = names[index] if index < len(names) else str(index + 1)
    if "UTF8" in match[4]:
        return FileError(
            f"{place}: a text in column {name!r} is not {dialect.encoding}: give the --encoding,"
            " such as cp1252"
        )
    value = _short(match[4].removeprefix("invalid value ").strip("'"))
    what = "true or false" if match[3] == "bool" else "a number"
    return FileError(
        f"{place}: {value} in column {name!r} is not {what}, as those above it are: mark it as"
        f" missing (--na {value}), or take the column as a category (--kind '{name}=category')"
    )


def _place(path: Path, dialect: Dialect, counted: str | None) -> str:
    """Name the file and the line; pyarrow counts from 1, and the header if there is one."""
    before = 1 if dialect.names else 2
    line = line_of(path, dialect, int(counted) - before) if counted else None
    return f"{path}, line {line}" if line else str(path)


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= _LONGEST_SHOWN else f"{one_line[:_LONGEST_SHOWN]}…")


def relocated(message: object, path: Path, dialect: Dialect | None, first: int) -> str:
    """Give a message or an error about some rows of a file, with the place in the file."""

    def place(match: re.Match[str]) -> str:
        row = first + int(match[1])
        line = None if dialect is None else line_of(path, dialect, row)
        return f"first in line {line}" if line else f"first in row {row}"

    return _ROW.sub(place, str(message))

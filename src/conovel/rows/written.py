"""Tables out: CSV, Parquet, JSON lines and Excel files, some rows at a time.

The bytes depend on the rows alone: no file has the time at which it was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from conovel.errors import FileError, MissingExtraError

ENDINGS = ".csv, .parquet, .jsonl or .xlsx"
_FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".xlsx": "excel",
}
_BATCH = 1 << 14  # rows that are Python objects at a time
_MOST_ROWS = 1_048_575  # of a sheet, below its heads
_LONGEST = 32_767  # characters of a cell
_EXACT = 1 << 53  # a larger whole number loses digits in a cell
_MADE = datetime(2000, 1, 1, tzinfo=UTC)  # in every workbook, so that equal rows give equal bytes


class Writer(Protocol):
    """What writers of all formats have in common."""

    def write_table(self, table: pa.Table) -> None:
        """Append some rows."""


def written_as(path: Path) -> str:
    """Name the format in which a table is written, by the ending of its file."""
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        raise FileError(f"{path}: name the output {ENDINGS}")
    if form == "excel" and find_spec("xlsxwriter") is None:
        raise MissingExtraError("xlsxwriter", "excel")
    return form


@contextmanager
def writer(path: Path, form: str, schema: pa.Schema) -> Iterator[Writer]:
    """Open a file for tables with the same columns."""
    kinds: Mapping[str, Callable[..., Any]] = {
        "csv": pa_csv.CSVWriter,
        "parquet": pa_parquet.ParquetWriter,
        "json": _Lines,
        "excel": _Sheet,
    }
    with kinds[form](str(path), schema) as opened:
        yield opened


class _Lines:
    """Writes one JSON object in each line; what is no number, such as infinity, is null."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self._file = Path(path).open("w", encoding="utf-8", newline="\n")  # noqa: SIM115

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write_table(self, table: pa.Table) -> None:
        """Append some rows."""
        for batch in table.to_batches(_BATCH):
            for row in batch.to_pylist():
                plain = {name: _plain(value) for name, value in row.items()}
                self._file.write(f"{json.dumps(plain, ensure_ascii=False)}\n")


class _Sheet:
    """Writes the only sheet of a workbook. A text is never a formula or a link."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        import xlsxwriter  # noqa: PLC0415

        self._path, self._n = path, 0
        folder = str(Path(path).parent)  # for its temporary files, which are as private
        self._book = xlsxwriter.Workbook(path, {"constant_memory": True, "tmpdir": folder})
        self._book.set_properties({"created": _MADE})
        self._sheet = self._book.add_worksheet("rows")
        for place, name in enumerate(schema.names):
            self._write(place, name)

    def __enter__(self) -> _Sheet:
        return self

    def __exit__(self, *_: object) -> None:
        self._book.close()

    def write_table(self, table: pa.Table) -> None:
        """Append some rows."""
        if self._n + table.num_rows > _MOST_ROWS:
            raise FileError(
                f"a sheet has at most {_MOST_ROWS:,} rows: name the output .parquet or .csv"
            )
        for batch in table.to_batches(_BATCH):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                self._n += 1
                for place, value in enumerate(row):
                    self._write(place, value)

    def _write(self, place: int, value: Any) -> None:
        plain = _plain(value)
        if plain is None:
            return
        if isinstance(plain, bool):
            self._sheet.write_boolean(self._n, place, plain)
        elif isinstance(plain, int | float) and abs(plain) <= _EXACT:
            self._sheet.write_number(self._n, place, _Exact(plain))
        elif self._sheet.write_string(self._n, place, str(plain)):
            raise FileError(
                f"a cell holds at most {_LONGEST:,} characters: name the output .parquet or .csv"
            )


class _Exact(float):
    """A number of which all digits are written; xlsxwriter formats a plain one to 16 of 17."""

    def __format__(self, spec: str) -> str:
        return repr(float(self))


def _plain(value: Any) -> Any:
    """Give a value as JSON has it: a date as text, and no number that is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

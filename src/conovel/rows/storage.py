"""Rows in and decisions out: files or folders of them, through pyarrow."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from conovel.errors import ColumnError, FileError, SampleError
from conovel.rows.datafiles import (
    FileState,
    agree_on_features,
    agree_on_ids,
    changed,
    column_names,
    first_line,
    open_files,
    original_types,
    require_columns,
    require_unchanged,
)
from conovel.rows.dialects import AS_FOUND, ReadingOptions
from conovel.rows.private_files import FILE_MODE, keep_mode, make_private_file
from conovel.rows.written import writer, written_as
from conovel.stats.words import listed, not_there

_log = logging.getLogger(__name__)

_LARGE = 250_000_000  # bytes of files that are read in pieces without being asked


@dataclass(frozen=True, eq=False)
class Sample:
    """Feature columns of a file, and its id column if one was named."""

    features: pa.Table
    ids: NDArray[Any] | None


def read_features(
    path: Path, types: pa.Schema, id_column: str | None = None, reading: ReadingOptions = AS_FOUND
) -> Sample:
    """Read a file, or a folder of files of one format."""
    files = open_files(path, reading)
    needed = types if id_column is None else types.append(agree_on_ids(files, id_column))
    table = pa.concat_tables([file.read(needed) for file in files])
    if not table.num_rows:
        raise SampleError(f"{path} has no rows")
    _log.info("read %r: %d rows, %d columns", str(path), table.num_rows, table.num_columns)
    ids = table[id_column].to_numpy() if id_column is not None else None
    return Sample(table.select(types.names), ids)


def read_pair_of_files(
    null: Path,
    test: Path,
    columns: Sequence[str] | None,
    id_column: str | None,
    reading: ReadingOptions = AS_FOUND,
) -> tuple[Sample, Sample]:
    """Read known normals and test rows; the features are those of :func:`pick_features`."""
    types = pick_columns(null, test, columns, id_column, reading)
    return (
        read_features(null, types, None, reading),
        read_features(test, types, id_column, reading),
    )


def pick_columns(
    null: Path,
    test: Path,
    columns: Sequence[str] | None,
    id_column: str | None,
    reading: ReadingOptions = AS_FOUND,
) -> pa.Schema:
    """Name the features, and the columns that are read beside them: `also` of the reading."""
    features = pick_features(null, test, columns, id_column, reading)
    both = [open_files(path, reading) for path in (null, test)]
    also = [
        name
        for name in reading.also
        if name != id_column and all(name in file.schema.names for files in both for file in files)
    ]
    return pa.schema([*features, *agree_on_features(both, also)])


def read_table(
    path: Path, reading: ReadingOptions = AS_FOUND, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read some columns of one sample, or all of them, but those to exclude."""
    files = open_files(path, reading)
    require_columns(files, reading.exclude)
    names = [name for name in columns or column_names(files) if name not in reading.exclude]
    return read_features(
        path, agree_on_features([files], names, stacklevel=4), None, reading
    ).features


def pick_features(
    null: Path,
    test: Path,
    columns: Sequence[str] | None,
    id_column: str | None,
    reading: ReadingOptions = AS_FOUND,
) -> pa.Schema:
    """Name the features, by default all columns of the null files, and give each one type.

    The null files need no id column. Test files with further columns are refused, because
    nobody can tell whether they were meant to be features. The type of a feature is the same
    in all files of both samples, see :mod:`conovel.rows.tables`.
    """
    normals, tests = open_files(null, reading), open_files(test, reading)
    left_out = {id_column, *reading.exclude, *reading.ignore}
    present = {*column_names(normals), *column_names(tests)}
    if unknown := [name for name in reading.exclude if name not in present]:
        instead = not_there(unknown[0], sorted(present))
        raise ColumnError(f"there is no column {listed(unknown)} to exclude: {instead}")
    if reading.is_whole and (more := sorted(present - {*(columns or ()), *left_out})):
        raise ColumnError(
            f"{null} or {test} also has {', '.join(map(repr, more[:5]))}, which the schema does"
            ' not name: add it there, with kind = "ignore" if it is no feature, or --exclude it'
        )
    if columns is None:
        columns = [c for c in column_names(normals) if c not in left_out]
        extra = [c for c in column_names(tests) if c not in {*columns, *left_out}]
        if extra and (lacking := [c for c in columns if c not in column_names(tests)]):
            raise ColumnError(
                f"{test} has {listed(extra)} where {null} has {listed(lacking)}: give both the"
                " same names, pick the features with --columns, or say --no-header if the first"
                " lines have values"
            )
        if extra:
            raise ColumnError(
                f"{test} also has {', '.join(map(repr, extra))}, which {null} lacks: name the"
                " column of row ids with --id, leave columns out with --exclude, or pick the"
                " features with --columns"
            )
        if not columns:
            raise ColumnError(f"{null} has no feature columns")
    # A column that the schema says may be missing need not be there, in either sample.
    wanted = [c for c in columns if c in present or c not in reading.missing]
    return agree_on_features([normals, tests], require_features(wanted, id_column), stacklevel=4)


def require_features(columns: Sequence[str], id_column: str | None) -> list[str]:
    """Check the names of the features: each once, and not the one that names the rows."""
    if twice := [name for name, n in Counter(columns).items() if n > 1]:
        raise ColumnError(f"the column {twice[0]!r} is asked for twice: name it once")
    if id_column in columns:
        raise ColumnError(
            f"the column {id_column!r} names the rows and is never a feature: leave it out of the"
            " columns"
        )
    return list(columns)


def are_large(*paths: Path) -> bool:
    """Tell whether files, or all files of folders, are better read in pieces."""
    files = [file for path in paths for file in ([path, *path.rglob("*")])]
    return sum(file.stat().st_size for file in files if file.is_file()) > _LARGE


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Read some columns of a file of decisions as plain lists."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for file in open_files(path):
        require_columns([file], names)
        types = pa.schema([file.schema.field(name) for name in names])
        for name, values in file.read(types).to_pydict().items():
            columns[name] += _whole(values) if file.format == "excel" else values
    return columns


def _whole(values: list[Any]) -> list[Any]:
    """Give whole numbers of a sheet, which has floats alone, as they were written."""
    floats = [value for value in values if isinstance(value, float)]
    is_whole = all(value.is_integer() for value in floats)
    return [int(v) if is_whole and isinstance(v, float) else v for v in values]


def read_originals(
    path: Path, before: FileState, n_rows: int, reading: ReadingOptions = AS_FOUND
) -> dict[str, pa.ChunkedArray]:
    """Read all columns of a file or folder as they are in it, to copy them beside n decisions."""
    require_unchanged(path, before)
    table = _as_is(path, reading)
    require_unchanged(path, before)
    if table.num_rows != n_rows:
        raise changed(path)
    return {name: table[name] for name in table.column_names}


def _as_is(path: Path, reading: ReadingOptions) -> pa.Table:
    files = open_files(path, reading)
    types = original_types(files)
    return pa.concat_tables([file.read(types) for file in files])


def read_table_as_text(
    path: Path, reading: ReadingOptions = AS_FOUND
) -> dict[str, list[str | None]]:
    """Read all columns of a file as texts."""
    table = _as_is(path, reading)
    return {
        name: [None if value is None else str(value) for value in table[name].to_pylist()]
        for name in table.column_names
    }


def beside(path: Path) -> Path:
    """Name the JSON file that belongs to a file of decisions."""
    return path.with_name(f"{path.name}.json")


def write_table(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns, whole or not at all, for their owner alone."""
    table, form = pa.table(dict(columns)), written_as(path)
    if form == "csv":
        table = neutral_table(table)

    def write(temporary: Path) -> None:
        with writer(temporary, form, table.schema) as file:
            file.write_table(table)

    _atomically(path, write)
    _log.info("wrote %r: %d rows", str(path), table.num_rows)


def write_rows(path: Path, columns: Mapping[str, Any], separator: str = ",") -> None:
    """Write rows of a user's file again, every text as it was, whole or not at all.

    :func:`write_table` marks texts that a spreadsheet would compute; rows that are detected in
    later must be spelled as before.
    """
    table = pa.table(dict(columns))
    if written_as(path) == "parquet":
        _atomically(path, lambda temporary: pa_parquet.write_table(table, str(temporary)))
        return
    data = pa.BufferOutputStream()
    try:  # quotes where some text needs them, else none
        pa_csv.write_csv(
            table, data, pa_csv.WriteOptions(delimiter=separator, quoting_style="none")
        )
    except pa.ArrowInvalid:
        data = pa.BufferOutputStream()
        pa_csv.write_csv(table, data, pa_csv.WriteOptions(delimiter=separator))
    _atomically(path, lambda temporary: temporary.write_bytes(data.getvalue()))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    _atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_durably(path: Path, data: bytes) -> None:
    """Write bytes, whole or not at all, and wait until the disk has them.

    A process that is killed, or a machine that loses power, leaves the old file or the new one.
    """

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    _atomically(path, write)
    if os.name == "posix":  # the new name of the file is in the folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which is another file beside it.

    The system drops the lock when the process ends, however it ends. A second process waits, or
    without `wait` gets a :class:`FileError`.
    """
    beside = path.with_name(f".{path.name}.lock")
    try:
        file = os.fdopen(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE_MODE), "a+b")
    except OSError as error:
        raise FileError(f"{path} cannot be written: {first_line(error)}") from None
    with file:
        try:
            import fcntl  # noqa: PLC0415

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            raise FileError(f"{path} cannot be locked: this system has no POSIX locks") from None
        except BlockingIOError:
            raise FileError(f"{path} is in use by another process") from None
        yield


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        hint = f": did you mean {beside(path)}?" if beside(path).exists() else ""
        raise FileError(
            f"{path} cannot be read, it is not JSON ({first_line(error)}){hint}"
        ) from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(content, dict):
        raise FileError(f"{path} does not hold a JSON object")
    return content


def read_bytes(path: Path, most: int) -> bytes:
    """Read a file of at most so many bytes."""
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {first_line(error)}") from None


def require_writable(path: Path) -> None:
    """Fail before the work, not after it, when the output has nowhere to go."""
    if not path.parent.is_dir():
        raise FileError(f"{path}: the folder {path.parent} does not exist")
    written_as(path)


def _atomically(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_private_file(temporary)
        write(temporary)
        keep_mode(path, temporary)
        os.replace(temporary, path)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be written: {first_line(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)


_FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"  # a text that begins with apostrophes gets one more
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def neutral_texts(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    r"""Return texts with an apostrophe before those that begin like a formula."""
    is_formula = pc.and_not(
        pc.match_substring_regex(values, _FORMULA), pc.match_substring_regex(values, _NUMBER)
    )
    if not pc.any(is_formula).as_py():
        return values
    mark, nothing = (pa.scalar(text, type=values.type) for text in ("'", ""))
    return pc.if_else(is_formula, pc.binary_join_element_wise(mark, values, nothing), values)


def original_text(text: str) -> str:
    """Return what :func:`neutral_texts` made a text of.

    Examples
    --------
    >>> original_text("'=1+1"), original_text("it's"), original_text("''-x")
    ('=1+1', "it's", "'-x")
    """
    return text[1:] if text.startswith("'") and re.match(_FORMULA, text) else text


def neutral_table(table: pa.Table) -> pa.Table:
    """Return a table whose texts and names can be written as CSV for a spreadsheet."""
    names = neutral_texts(pa.array(table.column_names, pa.string())).to_pylist()
    columns = [_neutral_column(column) for column in table.columns]
    return pa.table(columns, names=names)


def _neutral_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
        column = column.cast(kind.value_type)
    return neutral_texts(column) if _is_text(column.type) else column


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
    )

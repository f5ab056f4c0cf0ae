"""Rows in and decisions out: CSV and Parquet files or folders, through pyarrow."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from conovel.errors import ColumnError, FileError, SampleError
from conovel.site.datafiles import (
    FORMATS,
    agree_on_features,
    agree_on_ids,
    column_names,
    first_line,
    open_files,
    require_columns,
)


@dataclass(frozen=True, eq=False)
class Sample:
    """Feature columns of a file, and its id column if one was named."""

    features: pa.Table
    ids: NDArray[Any] | None


def read_sample(path: Path, types: pa.Schema, id_column: str | None = None) -> Sample:
    """Read a CSV or Parquet file, or a folder of either.

    Parameters
    ----------
    path : Path
        File or folder; the ending tells the format.
    types : Schema
        Features and their types, see :func:`pick_features`.
    id_column : str, optional
        Column that names the rows. It is never a feature.
    """
    files = open_files(path)
    needed = types if id_column is None else types.append(agree_on_ids(files, id_column))
    table = pa.concat_tables([file.read(needed) for file in files])
    if not table.num_rows:
        raise SampleError(f"{path} has no rows")
    ids = table[id_column].to_numpy() if id_column is not None else None
    return Sample(table.select(types.names), ids)


def read_pair_of_files(
    null: Path, test: Path, columns: Sequence[str] | None, id_column: str | None
) -> tuple[Sample, Sample]:
    """Read known normals and test rows; the features are those of :func:`pick_features`."""
    types = pick_features(null, test, columns, id_column)
    return read_sample(null, types), read_sample(test, types, id_column)


def pick_features(
    null: Path, test: Path, columns: Sequence[str] | None, id_column: str | None
) -> pa.Schema:
    """Name the features, by default all columns of the null files, and give each one type.

    The null files need no id column. Test files with further columns are refused, because
    nobody can tell whether they were meant to be features. The type of a feature is the same
    in all files of both samples, see :mod:`conovel.site.representation`.
    """
    known, tests = open_files(null), open_files(test)
    if columns is None:
        columns = [c for c in column_names(known) if c != id_column]
        if extra := [c for c in column_names(tests) if c not in (*columns, id_column)]:
            raise ColumnError(
                f"{test} also has {', '.join(map(repr, extra))}, which {null} lacks: name the"
                " column of row ids with --id, or pick the features with --columns"
            )
        if not columns:
            raise ColumnError(f"{null} has no feature columns")
    return agree_on_features([known, tests], require_features(columns, id_column), stacklevel=4)


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


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 where there is nothing."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Read some columns of a file of decisions as plain lists."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    for file in open_files(path):
        require_columns([file], names)
        types = pa.schema([file.schema.field(name) for name in names])
        for name, values in file.read(types).to_pydict().items():
            found[name] += values
    return found


def write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns as CSV or Parquet, whole or not at all."""
    table = pa.table(dict(columns))
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise FileError(f"{path}: name the output .csv or .parquet")
    write = pa_csv.write_csv if kind == "csv" else pa_parquet.write_table
    _atomically(path, lambda temporary: write(table, str(temporary)))


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, whole or not at all."""
    _atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
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
    if path.suffix.lower() not in FORMATS:
        raise FileError(f"{path}: name the output .csv or .parquet")


def _atomically(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {first_line(error)}") from None
    finally:
        temporary.unlink(missing_ok=True)

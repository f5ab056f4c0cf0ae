"""Rows in and decisions out: CSV and Parquet files or folders, through pyarrow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from conovel.errors import ColumnError, FileError

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


@dataclass(frozen=True, eq=False)
class Sample:
    """Feature columns of a file, and its id column if one was named."""

    features: pa.Table
    ids: NDArray[Any] | None


def read_sample(
    path: Path, *, columns: Sequence[str] | None = None, id_column: str | None = None
) -> Sample:
    """Read a CSV or Parquet file, or a folder of either.

    Parameters
    ----------
    path : Path
        File or folder; the ending tells the format.
    columns : sequence of str, optional
        Feature columns; all but the id column by default.
    id_column : str, optional
        Column that names the rows. It is never a feature.
    """
    dataset = open_dataset(path)
    wanted = pick_columns(path, dataset.schema.names, columns, id_column)
    needed = [*wanted, *([id_column] if id_column and id_column not in wanted else [])]
    try:
        table = dataset.to_table(columns=needed)
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path} cannot be read: {first_line(error)}") from None
    ids = table[id_column].to_numpy() if id_column else None
    return Sample(table.select(wanted), ids)


def read_pair_of_files(
    null: Path, test: Path, columns: Sequence[str] | None, id_column: str | None
) -> tuple[Sample, Sample]:
    """Read known normals and test rows; the features are those of :func:`pick_features`."""
    columns = pick_features(null, test, columns, id_column)
    return read_sample(null, columns=columns), read_sample(
        test, columns=columns, id_column=id_column
    )


def pick_features(
    null: Path, test: Path, columns: Sequence[str] | None, id_column: str | None
) -> list[str]:
    """Name the features: by default all columns of the null file.

    The null file needs no id column. A test file with further columns is refused, because
    nobody can tell whether they were meant to be features.
    """
    if columns is None:
        columns = [c for c in open_dataset(null).schema.names if c != id_column]
        present = open_dataset(test).schema.names
        if extra := [c for c in present if c not in (*columns, id_column)]:
            raise ColumnError(
                f"{test} also has {', '.join(map(repr, extra))}, which {null} lacks: name the"
                " column of row ids with --id, or pick the features with --columns"
            )
    return list(columns)


def pick_columns(
    path: Path, present: Sequence[str], columns: Sequence[str] | None, id_column: str | None
) -> list[str]:
    """Name the feature columns of one file: all but the id column, or those asked for."""
    wanted = list(columns) if columns else [c for c in present if c != id_column]
    if missing := [c for c in [*wanted, id_column] if c is not None and c not in present]:
        raise ColumnError(
            f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(present)}"
        )
    return wanted


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 where there is nothing."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def open_dataset(path: Path) -> pa_dataset.Dataset:
    """Open a file or folder lazily, its format told by its ending."""
    if not path.exists():
        raise FileError(f"{path} does not exist")
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.suffix.lower() in _FORMATS)
    formats = {_FORMATS.get(f.suffix.lower()) for f in files}
    if len(formats) != 1 or None in formats:
        raise FileError(f"{path}: expected .csv or .parquet files, of one kind")
    try:
        return pa_dataset.dataset([str(f) for f in files], format=formats.pop())
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{path} cannot be read: {first_line(error)}") from None


def write_table(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Write columns as CSV or Parquet, whole or not at all."""
    table = pa.table(dict(columns))
    kind = _FORMATS.get(path.suffix.lower())
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
    if path.suffix.lower() not in _FORMATS:
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


def first_line(error: Exception) -> str:
    """Say what an error of another library says, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__

"""The files of a sample, and the one type in which each of their columns is read.

Every file says for itself how it holds a column; a folder may hold several answers, and the
known normals other ones than the test rows. All files of both samples are asked before any row
is read, and a column is read in the same type from all of them
(:mod:`conovel.site.representation`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs
import pyarrow.parquet as pa_parquet

from conovel.errors import ColumnError, FileError
from conovel.site.representation import as_floats, common_kind, round_to, warn_rounded

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}
_SHOWN = 5  # how many columns an error spells out
_UNTYPED = {"int64", "float64", "null"}  # what pyarrow takes the first numbers of a CSV file for


@dataclass(frozen=True, eq=False)
class DataFile:
    """One CSV or Parquet file.

    Parameters
    ----------
    path : Path
    """

    path: Path

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its ending."""
        return FORMATS[self.path.suffix.lower()] == "parquet"

    @cached_property
    def fragment(self) -> pa_dataset.Fragment:
        """What pyarrow reads it with."""
        form = pa_dataset.ParquetFileFormat() if self.is_parquet else pa_dataset.CsvFileFormat()
        # pyarrow's local paths are absolute.
        return form.make_fragment(str(self.path.absolute()), pa_fs.LocalFileSystem())

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns, with the types that it says it has."""
        try:
            if self.is_parquet:
                return _distinct(self.path, pa_parquet.read_schema(self.path))
            with pa_csv.open_csv(self.path) as reader:
                return _distinct(self.path, reader.schema)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, error) from None

    def number_type(self, name: str) -> pa.DataType:
        """Give the type of a column as a feature.

        Numbers in a CSV file have no type: the first rows may be whole numbers or empty, and
        later ones not. They are all read as float64.
        """
        kind = self.schema.field(name).type
        return pa.float64() if not self.is_parquet and _kind(kind) in _UNTYPED else kind

    def types_read(self, types: pa.Schema) -> pa.Schema:
        """Say in which types the columns of `types` are read, before they are converted."""
        if self.is_parquet:
            return pa.schema([self.schema.field(name) for name in types.names])
        return pa.schema(
            [
                (f.name, self.number_type(f.name) if pa.types.is_floating(f.type) else f.type)
                for f in types
            ]
        )

    def read(self, types: pa.Schema) -> pa.Table:
        """Read the columns of `types` in these types."""
        require_columns([self], types.names)
        try:
            table = self.fragment.to_table(schema=self.types_read(types), columns=types.names)
            return converted(table, types, self.path)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, error) from None


def open_files(path: Path) -> list[DataFile]:
    """Give a file, or the files of a folder in the order of their names."""
    if not path.exists():
        raise FileError(f"{path} does not exist")
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.rglob("*") if f.suffix.lower() in FORMATS)
    formats = {FORMATS.get(f.suffix.lower()) for f in files}
    if len(formats) != 1 or None in formats:
        raise FileError(f"{path}: expected .csv or .parquet files, of one kind")
    return list(map(DataFile, files))


def column_names(files: Sequence[DataFile]) -> list[str]:
    """Name the columns that any of the files has, in the order in which they are met."""
    return list(dict.fromkeys(name for file in files for name in file.schema.names))


def require_columns(files: Iterable[DataFile], names: Sequence[str]) -> None:
    """Check that every file has the columns."""
    for file in files:
        if missing := [name for name in names if name not in file.schema.names]:
            present = file.schema.names
            listed = ", ".join(present[:20]) + (", ..." if len(present) > 20 else "")
            raise ColumnError(
                f"{file.path} has no column {', '.join(map(repr, missing[:_SHOWN]))};"
                f" it has {listed}"
            )


def agree_on_features(
    samples: Sequence[Sequence[DataFile]], names: Sequence[str], stacklevel: int = 3
) -> pa.Schema:
    """Give each feature one type over all files of all samples that are compared.

    Raises
    ------
    ColumnError
        If a file lacks a feature, or holds something else than numbers in it.
    """
    kinds: dict[str, set[str]] = {}
    fields = []
    for files in samples:
        require_columns(files, names)
    for name in names:
        types = {file.number_type(name) for files in samples for file in files}
        for files in samples:
            _require_numbers(name, files)
        found = {kind for kind in map(_kind, types) if kind is not None} - {"null"}
        kinds[f"column {name!r}"] = found
        # Files that agree are read as they are.
        fields.append(
            types.pop() if len(types) == 1 else _FLOATS[common_kind({*found, "float64"})]
        )
    warn_rounded(kinds, stacklevel + 1)
    return pa.schema(list(zip(names, fields, strict=True)))


def agree_on_ids(files: Sequence[DataFile], name: str) -> pa.Field:
    """Give the column of row names one type over all files: their own, or text."""
    require_columns(files, [name])
    types = {file.schema.field(name).type for file in files} - {pa.null()}
    if len(types) == 1:
        return pa.field(name, types.pop())
    whole = bool(types) and all(map(pa.types.is_integer, types))
    return pa.field(name, pa.int64() if whole else pa.string())


def converted(table: pa.Table, types: pa.Schema, path: Path) -> pa.Table:
    """Bring columns to the types agreed on."""
    columns = [
        column
        if column.type == field.type
        else _as_floats(column, field.type, f"{path}: column {field.name!r}")
        if pa.types.is_floating(field.type)
        else column.cast(field.type)
        for column, field in zip(table.select(types.names).columns, types, strict=True)
    ]
    return pa.table(columns, schema=types)


def unreadable(path: Path, error: Exception) -> FileError:
    """Say that a file cannot be read, with what the library says of it."""
    return FileError(f"{path} cannot be read: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Say what an error of another library says, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


_FLOATS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}


def _as_floats(column: pa.ChunkedArray, kind: pa.DataType, label: str) -> pa.Array:
    values = as_floats(column.to_numpy())
    return pa.array(round_to(values, np.dtype(kind.to_pandas_dtype()).name, label))


def _distinct(path: Path, schema: pa.Schema) -> pa.Schema:
    twice = [name for name, n in Counter(schema.names).items() if n > 1]
    if twice:
        listed = ", ".join(map(repr, twice[:_SHOWN]))
        raise ColumnError(f"{path} has more than one column called {listed}: rename them")
    return schema


def _kind(kind: pa.DataType) -> str | None:
    """Name a kind of numbers as `conovel.site.representation` does; None for anything else."""
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).name)
    return None


def _require_numbers(name: str, files: Sequence[DataFile]) -> None:
    for file in files:
        kind = file.number_type(name)
        if _kind(kind) is None:
            raise ColumnError(
                f"{file.path}: not numeric: {name!r} ({kind}): encode it as numbers or leave it"
                " out"
            )
    if all(pa.types.is_null(file.number_type(name)) for file in files):
        raise ColumnError(
            f"{files[0].path}: column {name!r} is entirely missing: leave the column out or fill"
            " it in"
        )

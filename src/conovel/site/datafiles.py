"""The files of a sample, and the one type in which each of their columns is read.

CSV, Parquet, Arrow and Excel files are read through pyarrow and fastexcel.

Every file says for itself how it holds a column; a folder may hold several answers, and the
known normals other ones than the test rows. All files of both samples are asked before any row
is read, and a column is read in the same type from all of them
(:mod:`conovel.site.representation`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs
import pyarrow.parquet as pa_parquet

from conovel.errors import ColumnError, FileError, MissingExtraError
from conovel.site.dialects import AS_FOUND, Dialect, Reading, sniff, without_compression
from conovel.site.lines import malformed
from conovel.site.representation import as_floats, common_kind, round_to, warn_rounded
from conovel.site.unpacked import require_room
from conovel.stats.words import listed, not_there

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".xlsx": "excel",
}
_ENDINGS = ".csv, .csv.gz, .tsv, .parquet, .feather, .arrow or .xlsx"
_SHOWN = 5  # how many columns an error spells out
_UNTYPED = {"int64", "float64", "null"}  # what pyarrow takes the first numbers of a CSV file for


@dataclass(frozen=True, eq=False)
class DataFile:
    """One file of a sample.

    Parameters
    ----------
    path : Path
    reading : Reading
        What the user says about it.
    """

    path: Path
    reading: Reading = AS_FOUND

    @property
    def format(self) -> str:
        """The format: csv, parquet, arrow or excel, by its ending."""
        return str(format_of(self.path))

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet."""
        return self.format == "parquet"

    @cached_property
    def dialect(self) -> Dialect:
        """How a CSV file is written."""
        return sniff(self.path, self.reading)

    def describe(self) -> str:
        """Say in words how the file is read."""
        return f"CSV, {self.dialect.describe()}" if self.format == "csv" else self.format

    @cached_property
    def fragment(self) -> pa_dataset.Fragment:
        """What pyarrow reads it with."""
        if self.format == "csv":
            form = pa_dataset.CsvFileFormat(**self.dialect.options())
        else:
            is_arrow = self.format == "arrow"
            form = pa_dataset.IpcFileFormat() if is_arrow else pa_dataset.ParquetFileFormat()
        # pyarrow's local paths are absolute.
        return form.make_fragment(str(self.path.absolute()), pa_fs.LocalFileSystem())

    @cached_property
    def sheet(self) -> pa.Table:
        """The first sheet of an Excel file."""
        try:
            import fastexcel  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("fastexcel", "excel") from None
        self.require_room(())
        try:
            sheet = fastexcel.read_excel(self.path).load_sheet(0, schema_sample_rows=None)
            return pa.table(sheet.to_arrow())
        except fastexcel.FastExcelError as error:
            raise unreadable(self.path, error) from None

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns, with the types that it says it has."""
        try:
            if self.is_parquet:
                return _distinct(self.path, pa_parquet.read_schema(self.path))
            if self.format == "arrow":
                return _distinct(self.path, self.fragment.physical_schema)
            if self.format == "excel":
                return _distinct(self.path, self.sheet.schema)
            with pa_csv.open_csv(self.path, **self.dialect.options()) as reader:
                return _distinct(self.path, reader.schema)
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: Exception) -> FileError:
        """Say what is wrong with the file, and of a CSV file in which line."""
        found = None
        if self.format == "csv" and isinstance(error, pa.ArrowInvalid):
            names = self.schema.names if "schema" in vars(self) else ()
            found = malformed(self.path, self.dialect, names, error)
        return found or unreadable(self.path, error)

    def require_room(self, names: Collection[str]) -> None:
        """Refuse a file whose columns take too much memory when they are unpacked."""
        separator = self.dialect.separator if self.format == "csv" else ","
        require_room(self.path, self.format, names, separator, self.reading.unpacked)

    def feature_type(self, name: str) -> pa.DataType:
        """Give the type of a column as a feature.

        Values in a CSV file have no type: the first rows may be whole numbers or empty, and
        later ones not. Numbers are all read as float64, and what is no number as text.
        """
        kind = self.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if name in self.reading.texts or _is_text(kind):
            return pa.string()
        if self.format != "csv":
            return kind
        if _kind(kind) in _UNTYPED:
            return pa.float64()
        return kind if pa.types.is_boolean(kind) else pa.string()

    def types_read(self, types: pa.Schema) -> pa.Schema:
        """Say in which types the columns of `types` are read, before they are converted."""
        if self.format != "csv":
            return pa.schema([self.schema.field(name) for name in types.names])
        return pa.schema(
            [
                (f.name, self.feature_type(f.name) if pa.types.is_floating(f.type) else f.type)
                for f in types
            ]
        )

    def read(self, types: pa.Schema) -> pa.Table:
        """Read the columns of `types` in these types."""
        require_columns([self], types.names)
        if self.format == "excel":
            return self.converted(self.sheet, types)
        try:
            self.require_room(types.names)
            table = self.fragment.to_table(schema=self.types_read(types), columns=types.names)
            return self.converted(table, types)
        except (pa.ArrowException, OSError) as error:
            raise self.unreadable(error) from None

    def converted(self, table: pa.Table, types: pa.Schema) -> pa.Table:
        """Bring columns to the types agreed on, with what is marked as missing taken out."""
        if self.reading.na and self.format != "csv":
            table = _without_marked(table, types.names, self.reading.na)
        return converted(table, types, self.path)


def format_of(path: Path) -> str | None:
    """Return the format of a file by its ending; None if no such format is read."""
    return FORMATS.get(Path(without_compression(path)).suffix)


def open_files(path: Path, reading: Reading = AS_FOUND) -> list[DataFile]:
    """Give a file, or the files of a folder in the order of their names.

    Other files in the folder are passed over, and so is what is hidden.
    """
    if not path.exists():
        raise FileError(f"{path} does not exist")
    files = [path]
    if path.is_dir():
        found = (f for f in path.rglob("*") if f.is_file() and format_of(f))
        files = sorted(f for f in found if not f.name.startswith((".", "_", "~")))
    formats = {format_of(f) for f in files}
    if len(formats) != 1 or None in formats:
        several = f", of one kind, not of {len(formats)}" if len(formats) > 1 else ""
        raise FileError(f"{path}: expected {_ENDINGS} files{several}")
    return [DataFile(file, reading) for file in files]


def describe_files(paths: Iterable[Path], reading: Reading = AS_FOUND) -> dict[str, str]:
    """Say in words how each file is read; of a folder, what its first file is like."""
    return {str(path): open_files(path, reading)[0].describe() for path in paths}


def column_names(files: Sequence[DataFile]) -> list[str]:
    """Name the columns that any of the files has, in the order in which they are met."""
    return list(dict.fromkeys(name for file in files for name in file.schema.names))


def require_columns(files: Iterable[DataFile], names: Sequence[str]) -> None:
    """Check that every file has the columns."""
    for file in files:
        if missing := [name for name in names if name not in file.schema.names]:
            raise ColumnError(
                f"{file.path} has no column {listed(missing, _SHOWN)}:"
                f" {not_there(missing[0], file.schema.names)}"
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
        types = {file.feature_type(name) for files in samples for file in files}
        for files in samples:
            _require_values(name, files)
        types = {kind for kind in types if not pa.types.is_null(kind)}
        found = {kind for kind in map(_kind, types) if kind is not None}
        kinds[f"column {name!r}"] = found
        # Files that agree are read as they are.
        if len(types) == 1:
            fields.append(types.pop())
        elif all(_kind(kind) is not None for kind in types):
            fields.append(_FLOATS[common_kind({*found, "float64"})])
        else:
            fields.append(pa.string())
    warn_rounded(kinds, stacklevel + 1)
    return pa.schema(list(zip(names, fields, strict=True)))


def are_numbers(types: pa.Schema) -> bool:
    """Tell whether all columns are numbers or booleans."""
    return all(_kind(field.type) is not None for field in types)


def not_numbers(types: pa.Schema, path: Path) -> ColumnError:
    """Say which columns are not numbers."""
    found = [f"{field.name!r} ({field.type})" for field in types if _kind(field.type) is None]
    return ColumnError(
        f"{path}: not numeric: {', '.join(found[:_SHOWN])}: encode them as numbers or leave them"
        " out"
    )


def agree_on_ids(files: Sequence[DataFile], name: str) -> pa.Field:
    """Give the column of row names one type over all files: their own, or text."""
    require_columns(files, [name])
    types = {file.schema.field(name).type for file in files} - {pa.null()}
    if len(types) == 1:
        return pa.field(name, types.pop())
    whole = bool(types) and all(map(pa.types.is_integer, types))
    return pa.field(name, pa.int64() if whole else pa.string())


def original_types(files: Sequence[DataFile]) -> pa.Schema:
    """Give the types in which columns are copied: of CSV files, texts as they stand there.

    Columns whose types differ between files, or that not all files have, are left out.
    """
    if not all(file.is_parquet for file in files):
        names = [n for n in column_names(files) if all(n in file.schema.names for file in files)]
        return pa.schema([(name, pa.string()) for name in names])
    first, *others = files
    return pa.schema([f for f in first.schema if all(f in list(o.schema) for o in others)])


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


def _is_text(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind))


def _require_values(name: str, files: Sequence[DataFile]) -> None:
    for file in files:
        kind = file.feature_type(name)
        if _kind(kind) is None and not (_is_text(kind) or pa.types.is_temporal(kind)):
            raise ColumnError(
                f"{file.path}: not numeric: {name!r} ({kind}): encode it as numbers or leave it"
                f" out with --exclude {name!r}"
            )
    if all(pa.types.is_null(file.feature_type(name)) for file in files):
        raise ColumnError(
            f"{files[0].path}: column {name!r} is entirely missing: leave the column out or fill"
            " it in"
        )


def _without_marked(table: pa.Table, names: Sequence[str], markers: Sequence[str]) -> pa.Table:
    """Make the values that are marked as missing null; CSV files are read so already."""
    for name in names:
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        marks: list[str] | list[float] = list(markers)
        if not _is_text(column.type):
            marks = [float(mark) for mark in markers if _spells_number(mark)]
        if not marks or (_kind(column.type) is None and not _is_text(column.type)):
            continue
        marked = pc.is_in(column, pa.array(marks).cast(column.type, safe=False))
        column = pc.if_else(marked, pa.scalar(None, column.type), column)
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def _spells_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

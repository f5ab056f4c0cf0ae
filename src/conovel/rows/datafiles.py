"""The files of a sample, and the one type in which each of their columns is read.

CSV, Parquet, Arrow and Excel files are read through pyarrow and fastexcel.

Every file says for itself how it holds a column; a folder may hold several answers, and the
known normals other ones than the test rows. All files of both samples are asked before any row
is read, and a column is read in the same type from all of them
(:mod:`conovel.rows.tables`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.dataset as pa_dataset
import pyarrow.fs as pa_fs
import pyarrow.parquet as pa_parquet

from conovel.errors import ColumnError, FileError
from conovel.rows.column_types import (
    common_field,
    converted,
    is_text,
    kind_of_numbers,
    kind_of_values,
    without_marked,
)
from conovel.rows.dialects import (
    AS_FOUND,
    Dialect,
    ReadingOptions,
    malformed,
    require_text_name,
    sniff,
    without_compression,
)
from conovel.rows.tables import warn_rounded
from conovel.rows.unpacked import read_aligned, read_objects, read_sheet, require_room
from conovel.stats.words import joined, listed, not_there

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".data": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".xlsx": "excel",
}
READ_ERRORS = (pa.ArrowException, OSError, UnicodeError)  # of pyarrow, about a file
ENDINGS = ".csv, .csv.gz, .tsv, .txt, .data, .jsonl, .parquet, .feather, .arrow or .xlsx"
_UNTYPED = {"int64", "float64", "null"}  # what pyarrow takes the first numbers of a CSV file for


@dataclass(frozen=True, eq=False)
class DataFile:
    """One file of a sample."""

    path: Path
    reading: ReadingOptions = AS_FOUND  # what the user says about it

    @property
    def format(self) -> str:
        """The format: csv, parquet, arrow, json or excel, by its ending."""
        return str(format_of(self.path))

    @property
    def is_sheet(self) -> bool:
        """Whether it is read as a whole, whatever its size."""
        if self.format == "csv":
            return self.dialect.is_aligned
        return self.format in ("excel", "json")

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
        """All rows: of the first sheet of an Excel file, of JSON objects or of aligned texts."""
        self.require_room(())
        if self.format != "csv":
            return read_sheet(self.path) if self.format == "excel" else read_objects(self.path)
        try:
            return read_aligned(self.path, self.dialect)
        except READ_ERRORS as error:
            raise self.unreadable(error) from None

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns, with the types that it says it has."""
        if self.is_sheet:
            return _distinct(self.path, self.sheet.schema)
        try:
            if self.is_parquet:
                return _distinct(self.path, pa_parquet.read_schema(self.path))
            if self.format == "arrow":
                return _distinct(self.path, self.fragment.physical_schema)
            with pa_csv.open_csv(self.path, **self.dialect.options()) as reader:
                return _distinct(self.path, reader.schema)
        except READ_ERRORS as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: Exception) -> FileError:
        """Say what is wrong with the file, and of a CSV file in which line."""
        problem = None
        if self.format == "csv" and isinstance(error, UnicodeError):
            problem = FileError(
                f"{self.path} is no text in {self.dialect.encoding}: give --encoding"
            )
        if self.format == "csv" and isinstance(error, pa.ArrowInvalid):
            names = self.schema.names if "schema" in vars(self) else ()
            problem = malformed(self.path, self.dialect, names, error)
        return problem or unreadable(self.path, error)

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
        if name in self.reading.texts or is_text(kind):
            return pa.string()
        if self.format != "csv":
            return kind
        if kind_of_numbers(kind) in _UNTYPED:
            return pa.float64()
        return kind if pa.types.is_boolean(kind) else pa.string()

    def kind_of_values(self, name: str) -> str | None:
        """Name the kind of values in a column; None where they have no type, as in a CSV file."""
        return None if self.format == "csv" else kind_of_values(self.schema.field(name).type)

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
        if self.is_sheet:
            return self.converted(self.sheet.select(types.names), types)
        try:
            self.require_room(types.names)
            table = self.fragment.to_table(schema=self.types_read(types), columns=types.names)
            return self.converted(table, types)
        except READ_ERRORS as error:
            raise self.unreadable(error) from None

    def converted(self, table: pa.Table, types: pa.Schema) -> pa.Table:
        """Bring columns to the types agreed on, with what is marked as missing taken out."""
        if self.reading.na:
            columns = [without_marked(table[name], self.reading.na) for name in types.names]
            table = pa.table(columns, names=types.names)
        decimal = self.dialect.decimal if self.format == "csv" else "."
        return converted(table, types, self.path, decimal)


def format_of(path: Path) -> str | None:
    """Return the format of a file by its ending; None if no such format is read."""
    return FORMATS.get(Path(without_compression(path)).suffix)


def may_be_note(path: Path) -> bool:
    """Tell whether a file may be a note to readers as well as a table, such as README.txt."""
    return without_compression(path).endswith(".txt")


def open_files(path: Path, reading: ReadingOptions = AS_FOUND) -> list[DataFile]:
    """Give a file, or the files of a folder in the order of their names.

    Other files in the folder are passed over, and so is what is hidden. A text (.txt) is taken
    for a table only where the folder has nothing else.
    """
    if not path.exists():
        raise FileError(f"{path} does not exist")
    files = [path]
    if path.is_dir():
        readable = (f for f in path.rglob("*") if f.is_file() and format_of(f))
        files = sorted(f for f in readable if not f.name.startswith((".", "_", "~")))
        files = [f for f in files if not may_be_note(f)] or files
    formats = {format_of(f) for f in files}
    if len(formats) != 1 or None in formats:
        several = f", of one kind, not of {len(formats)}" if len(formats) > 1 else ""
        raise FileError(f"{path}: expected {ENDINGS} files{several}")
    for file in files:
        require_text_name(file)
    return [DataFile(file, reading) for file in files]


# Path, bytes and time of the last change of each file.
FileState = tuple[tuple[str, int, int], ...]


def state_of(path: Path) -> FileState:
    """Give what tells one state of a file or a folder from another, without reading it."""
    state = []
    for file in open_files(path):
        try:
            status = file.path.stat()
        except OSError as error:
            raise unreadable(file.path, error) from None
        state.append((str(file.path), status.st_size, status.st_mtime_ns))
    return tuple(state)


def require_unchanged(path: Path, before: FileState) -> None:
    """Refuse a file or a folder that is not the one that was read before."""
    if differing := {name for name, *_ in set(state_of(path)) ^ set(before)}:
        raise changed(Path(min(differing)))


def changed(path: Path) -> FileError:
    """Say that a file that is read a second time is not what it was the first time."""
    what = "has changed" if path.exists() else "is gone"
    return FileError(
        f"{path} {what} since it was first read: start again, and leave it as it is until the"
        " decisions are written"
    )


def describe_files(paths: Iterable[Path], reading: ReadingOptions = AS_FOUND) -> dict[str, str]:
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
                f"{file.path} has no column {listed(missing, 5)}:"
                f" {not_there(missing[0], file.schema.names)}"
            )


def agree_on_features(
    samples: Sequence[Sequence[DataFile]], names: Sequence[str], stacklevel: int = 3
) -> pa.Schema:
    """Give each feature one type over all files of all samples that are compared."""
    kinds: dict[str, set[str]] = {}
    fields = []
    for files in samples:
        require_columns(files, names)
    csv_files = [file for files in samples for file in files if file.format == "csv"]
    decimals = {file.dialect.decimal for file in csv_files}
    for name in names:
        types = {file.feature_type(name) for files in samples for file in files}
        for files in samples:
            _require_values(name, files)
        types = {kind for kind in types if not pa.types.is_null(kind)}
        number_kinds = {kind for kind in map(kind_of_numbers, types) if kind is not None}
        kinds[f"column {name!r}"] = number_kinds
        value_kinds = (file.kind_of_values(name) for files in samples for file in files)
        fields.append(common_field(name, types, set(filter(None, value_kinds)), decimals))
    warn_rounded(kinds, stacklevel + 1)
    return pa.schema(fields)


def are_numbers(types: pa.Schema) -> bool:
    """Tell whether all columns are numbers or booleans."""
    return all(kind_of_numbers(field.type) is not None for field in types)


def not_numbers(types: pa.Schema, path: Path) -> ColumnError:
    """Say which columns are not numbers."""
    columns = [
        f"{field.name!r} ({field.type})" for field in types if kind_of_numbers(field.type) is None
    ]
    return ColumnError(
        f"{path}: not numeric: {joined(columns)}: encode them as numbers or leave them out"
    )


def agree_on_ids(files: Sequence[DataFile], name: str) -> pa.Field:
    """Give the column of row names one type over all files: their own, or text."""
    require_columns(files, [name])
    types = {file.schema.field(name).type for file in files} - {pa.null()}
    for kind in types:
        if not _has_values(kind):
            raise ColumnError(
                f"{files[0].path}: column {name!r} cannot name rows, it holds {kind}: name them by"
                " texts or numbers"
            )
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


def unreadable(path: Path, error: Exception) -> FileError:
    """Say that a file cannot be read, with what the library says of it."""
    return FileError(f"{path} cannot be read: {first_line(error)}")


def first_line(error: Exception) -> str:
    """Say what an error of another library says, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _distinct(path: Path, schema: pa.Schema) -> pa.Schema:
    twice = [name for name, n in Counter(schema.names).items() if n > 1]
    if twice:
        raise ColumnError(
            f"{path} has more than one column called {listed(twice, 5)}: rename them"
        )
    return schema


def _has_values(kind: pa.DataType) -> bool:
    """Return whether a column holds numbers, texts or times, and not bytes or lists."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_known = kind_of_numbers(kind) is not None or is_text(kind)
    return is_known or bool(pa.types.is_temporal(kind))


def _require_values(name: str, files: Sequence[DataFile]) -> None:
    for file in files:
        kind = file.feature_type(name)
        if not _has_values(kind):
            raise ColumnError(
                f"{file.path}: not numeric: {name!r} ({kind}): encode it as numbers or leave it"
                f" out with --exclude {name!r}"
            )

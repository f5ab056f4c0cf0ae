"""Known novelties in a file: few rows, read in memory, with the columns of the other samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from conovel.errors import ColumnError
from conovel.rows.datafiles import column_names, open_files, require_columns
from conovel.rows.dialects import AS_FOUND, ReadingOptions
from conovel.rows.pairs import KIND
from conovel.rows.storage import Sample, pick_features, read_features, read_pair_of_files
from conovel.stats.words import listed


class KnownTable(NamedTuple):
    """Known novelties as they are in a file."""

    features: pa.Table  # with the columns and types of the other samples
    kinds: tuple[str, ...] | None  # of which kind each is, where a column says so

    def frame(self) -> pa.Table:
        """Give them as they are given in memory, with their kinds in a column of this name."""
        if self.kinds is None:
            return self.features
        if KIND in self.features.column_names:
            raise ColumnError(
                f"a feature is called {KIND!r}, as kinds of known novelties are: rename it in all"
                " files, or leave --kind-column"
            )
        return self.features.append_column(KIND, pa.array(self.kinds, pa.string()))


@dataclass(frozen=True)
class KnownFile:
    """A file or folder of known novelties, and what the user says about it."""

    path: Path
    # The column that says of which kind each is. None is the column `kind`, if there is one and
    # it is no feature.
    kind_column: str | None = None

    def reading_of_others(self, reading: ReadingOptions, null: Path, test: Path) -> ReadingOptions:
        """Say how the other samples are read: without excluding what only this file has."""
        others, own = (
            {name for path in paths for name in column_names(open_files(path, reading))}
            for paths in ((null, test), (self.path,))
        )
        kept = (name for name in reading.exclude if name in others or name not in own)
        return replace(reading, exclude=tuple(kept))

    def pick(
        self,
        null: Path,
        test: Path,
        columns: Sequence[str] | None,
        id_column: str | None,
        reading: ReadingOptions,
    ) -> tuple[pa.Schema, ReadingOptions, KnownTable]:
        """Name the features, say how the other samples are read, and read this file."""
        of_both = self.reading_of_others(reading, null, test)
        types = pick_features(null, test, columns, id_column, of_both)
        return types, of_both, self.read(types, id_column, reading, picked=columns is not None)

    def read(
        self,
        types: pa.Schema,
        id_column: str | None = None,
        reading: ReadingOptions = AS_FOUND,
        *,
        picked: bool = False,
    ) -> KnownTable:
        """Read all rows, in the types that the other samples have.

        A column that names the rows, or that is excluded or ignored, is passed over. Others are
        refused, unless the features were picked by name.
        """
        files = open_files(self.path, reading)
        features = pa.schema([field for field in types if field.name not in reading.also])
        kinds = self.kind_column or KIND
        if self.kind_column is not None:
            require_columns(files, [kinds])
            if kinds in features.names:
                raise ColumnError(
                    f"{self.path}: the column {kinds!r} is a feature and cannot say of which kind"
                    " a row is: leave it out of the features with --exclude, or name another"
                    " column with --kind-column"
                )
        present = set(column_names(files))
        passed = {*features.names, kinds, id_column, *reading.exclude, *reading.ignore}
        if not picked and (more := sorted(present - passed)):
            raise ColumnError(
                f"{self.path} also has {listed(more)}, which the known normals lack: name the"
                " column of kinds with --kind-column, leave columns out with --exclude, or pick"
                " the features with --columns"
            )
        table = read_features(self.path, features, None, reading).features
        unnamed = self.kind_column is None and kinds in {*features.names, *reading.exclude}
        if unnamed or kinds not in present:
            return KnownTable(table, None)
        column = pa.schema([(kinds, pa.string())])
        texts = read_features(self.path, column, None, reading).features[kinds].to_pylist()
        return KnownTable(table, tuple("" if text is None else text for text in texts))


def read_samples_of_files(
    null: Path,
    test: Path,
    columns: Sequence[str] | None,
    id_column: str | None,
    reading: ReadingOptions,
    known_rows: KnownFile | None,
) -> tuple[Sample, Sample, pa.Table | None]:
    """Read known normals, test rows and known novelties, if there are any, into memory."""
    of_both = reading if known_rows is None else known_rows.reading_of_others(reading, null, test)
    normals, tests = read_pair_of_files(null, test, columns, id_column, of_both)
    if known_rows is None:
        return normals, tests, None
    types, picked = normals.features.schema, columns is not None
    return normals, tests, known_rows.read(types, id_column, reading, picked=picked).frame()

"""Rows of files that need not fit into memory, in pieces of one size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset

from conovel.errors import FileError
from conovel.files import first_line, open_dataset, pick_columns
from conovel.rows import read_rows
from conovel.scoring import Matrix


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows: checked features, and their names if there are any."""

    start: int
    values: Matrix
    ids: Any = None  # a pyarrow ChunkedArray

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Source:
    """A file or a folder of files, of which only a piece is in memory at a time.

    Parameters
    ----------
    path : Path
        File or folder, CSV or Parquet. Files are read in the order of their names.
    columns : sequence of str, optional
        Feature columns; all but the id column by default.
    id_column : str, optional
        Column that names the rows.
    """

    path: Path
    columns: Sequence[str] | None = None
    id_column: str | None = None

    @cached_property
    def dataset(self) -> pa_dataset.Dataset:
        """The files, opened lazily."""
        return open_dataset(self.path)

    @cached_property
    def features(self) -> list[str]:
        """Names of the feature columns."""
        return pick_columns(self.path, self.dataset.schema.names, self.columns, self.id_column)

    @property
    def files(self) -> list[str]:
        """The files, in the order in which they are read."""
        return list(self.dataset.files)

    def count_known(self) -> int | None:
        """Count the rows where that takes no reading: Parquet files say how many they have."""
        if not isinstance(self.dataset.format, pa_dataset.ParquetFileFormat):
            return None
        try:
            return int(self.dataset.count_rows())
        except (pa.ArrowException, OSError):
            return None  # reading will find out which file it was

    def digest(self) -> str:
        """Digest of what tells one state of the files from another, without reading them."""
        states = [(f, (s := Path(f).stat()).st_size, s.st_mtime_ns) for f in self.files]
        told = [states, self.dataset.schema.to_string(), self.features, self.id_column]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read the rows in order, `size` at a time.

        Raises
        ------
        FileError
            If a file cannot be read; it is named.
        ColumnError
            If a value is not a finite number.
        """
        needed = list(dict.fromkeys([*self.features, *filter(None, [self.id_column])]))
        start = 0
        for path, table in _tables(self.dataset, needed, size):
            last = start + table.num_rows - 1
            try:
                rows = read_rows(table.select(self.features), f"{path} (rows {start} to {last})")
            except pa.ArrowException as error:
                raise FileError(f"{path} cannot be read: {first_line(error)}") from None
            yield Piece(start, rows.values, table[self.id_column] if self.id_column else None)
            start += table.num_rows


def _tables(
    dataset: pa_dataset.Dataset, columns: Sequence[str], size: int
) -> Iterator[tuple[str, pa.Table]]:
    """Cut what the files give, in blocks of their own choosing, into tables of one size."""
    waiting: list[pa.RecordBatch] = []
    n_waiting, path = 0, ""
    for path, batch in _batches(dataset, columns, size):
        waiting.append(batch)
        n_waiting += batch.num_rows
        while n_waiting >= size:
            table = pa.Table.from_batches(waiting)
            yield path, table.slice(0, size)
            waiting = table.slice(size).to_batches()
            n_waiting -= size
    if n_waiting:
        yield path, pa.Table.from_batches(waiting)


def _batches(
    dataset: pa_dataset.Dataset, columns: Sequence[str], size: int
) -> Iterator[tuple[str, pa.RecordBatch]]:
    for fragment in dataset.get_fragments():
        try:
            # Little is read ahead: what is scored meanwhile takes longer than reading.
            yield from (
                (fragment.path, batch)
                for batch in fragment.to_batches(
                    schema=dataset.schema,
                    columns=list(columns),
                    batch_size=size,
                    batch_readahead=2,
                    fragment_readahead=1,
                )
                if batch.num_rows
            )
        except (pa.ArrowException, OSError) as error:
            raise FileError(f"{fragment.path} cannot be read: {first_line(error)}") from None

"""Rows of files that need not fit into memory, in pieces of one size."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from conovel.errors import ColumnError, MissingValueError
from conovel.rows.datafiles import (
    READ_ERRORS,
    DataFile,
    FileState,
    agree_on_features,
    agree_on_ids,
    column_names,
    open_files,
    original_types,
    require_columns,
    require_unchanged,
    state_of,
    unreadable,
)
from conovel.rows.dialects import AS_FOUND, ReadingOptions, relocated
from conovel.rows.encoding import FeatureMap
from conovel.rows.samples import read_rows
from conovel.rows.storage import require_features
from conovel.rows.tables import LARGEST, Rows, as_floats, kind_of, require_finite
from conovel.scorers.base import Matrix, Vector
from conovel.scorers.content import hash_columns

T = TypeVar("T")
_THREADS = 2  # beside those that read and score
_READING = {"buffer_size": 1 << 20, "pre_buffer": False}  # never a whole row group


class Part(NamedTuple):
    """Rows of one file, from row `first` of it on, as the file gave them."""

    file: DataFile
    first: int
    table: pa.Table

    @contextmanager
    def located(self) -> Iterator[None]:
        """Say in errors about these rows where in the file they are."""
        try:
            yield
        except MissingValueError:
            raise  # most often no mistake, and its line is not worth another look
        except ColumnError as error:
            dialect = self.file.dialect if self.file.format == "csv" else None
            message = relocated(error, self.file.path, dialect, self.first)
            raise type(error)(message) from None


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows: checked features, and their names if there are any.

    They are kept as the columns that the file gave: most passes need a hash and a few rows.
    """

    start: int
    columns: Sequence[Vector]
    ids: Any = None  # a pyarrow ChunkedArray

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """:func:`conovel.scorers.content.content_hash` of the rows."""
        return hash_columns(self.columns, len(self))

    def rows(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> Matrix:
        """Give some rows, or all; negative zeros are made positive."""
        rows = np.stack([column[chosen] for column in self.columns], axis=1)
        rows += 0.0
        return rows


@dataclass(frozen=True, eq=False)
class FileSource:
    """A file or a folder of files, of which only a piece is in memory at a time."""

    # File or folder, CSV or Parquet. Files are read in the order of their names.
    path: Path
    columns: Sequence[str] | None = None  # feature columns; all but the id column by default
    id_column: str | None = None  # column that names the rows
    # Columns with the types that were agreed on with the other sample, instead of `columns`; see
    # conovel.rows.storage.pick_features
    types: pa.Schema | None = None
    reading: ReadingOptions = AS_FOUND  # what the user says about the files
    # What makes features of the columns, where they are not all plain numbers
    encoder: FeatureMap | None = None
    # In which state the files are read, every time; by default the one in which they are now
    state: FileState = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", self.state or state_of(self.path))

    @cached_property
    def files(self) -> list[DataFile]:
        """The files, in the order in which they are read."""
        return open_files(self.path, self.reading)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that are read, and their types."""
        if self.types is not None:
            return self.types
        names = self.columns or [c for c in column_names(self.files) if c != self.id_column]
        return agree_on_features([self.files], require_features(names, self.id_column))

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return list(self.schema.names if self.encoder is None else self.encoder.features)

    @cached_property
    def _id_types(self) -> pa.Schema:
        fields = [agree_on_ids(self.files, self.id_column)] if self.id_column else []
        return pa.schema(fields)

    @cached_property
    def _all_types(self) -> pa.Schema:
        return pa.schema([*self.schema, *self._id_types])

    def count_known(self) -> int | None:
        """Count the rows where that takes no reading: Parquet files say how many they have."""
        if not all(file.is_parquet for file in self.files):
            return None
        try:
            return sum(int(file.fragment.count_rows()) for file in self.files)
        except (pa.ArrowException, OSError):
            return None  # reading will find out which file it was

    def digest(self) -> str:
        """Digest of what tells one state of the files from another, without reading them."""
        facts: list[Any] = [*self.state]
        facts += [[[f.name, str(f.type)] for f in self._all_types], self.id_column]
        facts += [repr(self.reading), self.encoder and self.encoder.identity()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read the rows in order, `size` at a time."""
        return self.mapped(size, lambda piece: piece)

    def mapped(self, size: int, work: Callable[[Piece], T]) -> Iterator[T]:
        """Do some work on every piece, a few at a time, and give the results in order."""
        with ThreadPoolExecutor(_THREADS) as pool:
            tables = zip(count(0, size), self._tables(self._all_types, size), strict=False)
            promises = (
                pool.submit(lambda start, parts: work(self._piece(start, parts)), start, parts)
                for start, parts in tables
            )
            yield from in_order(promises, _THREADS)

    def features_in(self, size: int) -> Iterator[Part]:
        """Read the features before they are encoded, at most `size` rows at a time."""
        for parts in self._tables(self.schema, size):
            yield from parts

    def originals(self, size: int) -> Iterator[pa.Table]:
        """Read all columns as they are in the files, `size` rows at a time."""
        types = original_types(self.files)
        for parts in self._tables(types, size):
            yield pa.concat_tables([part.table for part in parts])

    def rows_at(self, chosen: NDArray[np.intp], size: int) -> tuple[Rows, NDArray[Any] | None]:
        """Read some rows, in ascending order of their places, and their names if they have any."""
        taken = [self._all_types.empty_table()]
        for start, parts in zip(count(0, size), self._tables(self._all_types, size), strict=False):
            first, last = np.searchsorted(chosen, [start, start + size])
            if first < last:
                table = pa.concat_tables([part.table for part in parts])
                taken.append(table.take(pa.array(chosen[first:last] - start)))
        table = pa.concat_tables(taken)
        values = np.zeros((0, len(self.features)))
        if table.num_rows:
            values = self._piece(0, [Part(self.files[0], 0, table)]).rows()
        frame = nw.from_native(table.select(self.schema.names), eager_only=True)
        ids = None if self.id_column is None else table[self.id_column].to_numpy()
        return Rows(values, tuple(self.features), frame, encoder=self.encoder), ids

    def _tables(self, types: pa.Schema, size: int) -> Iterator[list[Part]]:
        require_unchanged(self.path, self.state)
        yield from _cut(_blocks(self.files, types, size), size)
        require_unchanged(self.path, self.state)

    def _piece(self, start: int, parts: Sequence[Part]) -> Piece:
        table = pa.concat_tables([part.table for part in parts])
        names = table[self.id_column] if self.id_column else None
        if self.encoder is not None:
            encoded = [self._encode(part) for part in parts]
            return Piece(
                start, [np.concatenate(same) for same in zip(*encoded, strict=True)], names
            )
        clean = _clean_columns(table.select(self.schema.names))
        if clean is None:  # numbers of another kind, or something is wrong: say what
            values = [self._read(part) for part in parts]
            clean = list(np.concatenate(values).T)
        return Piece(start, clean, names)

    def _read(self, part: Part) -> Matrix:
        try:
            with part.located():
                return read_rows(part.table.select(self.schema.names), str(part.file.path)).values
        except pa.ArrowException as error:
            raise unreadable(part.file.path, error) from None

    def _encode(self, part: Part) -> list[Vector]:
        assert self.encoder is not None  # noqa: S101
        frame, name = part.table.select(self.schema.names), str(part.file.path)
        with part.located():
            features = self.encoder.encode_frame(nw.from_native(frame, eager_only=True), name)
            require_finite(np.stack(features, axis=1), self.features, name)
        return features


def _clean_columns(table: pa.Table) -> list[Vector] | None:
    """Give columns that are all finite numbers as float64; else nothing."""
    columns = [column.to_numpy() for column in table.columns]
    if any(kind_of(column.dtype) is None for column in columns):
        return None
    floats = [as_floats(column) for column in columns]
    # A NaN fails both comparisons.
    clean = all(c.min() >= -LARGEST and c.max() <= LARGEST for c in floats)
    return floats if clean else None


def _blocks(files: Sequence[DataFile], types: pa.Schema, size: int) -> Iterator[Part]:
    """Give what the files give, in blocks of their own choosing, each with its file."""
    for file in files:
        first = 0
        for table in _batches(file, types, size):
            yield Part(file, first, table)
            first += table.num_rows


def _cut(blocks: Iterable[Part], size: int) -> Iterator[list[Part]]:
    """Cut blocks into pieces of one size, each a list of parts."""
    piece: list[Part] = []
    lacking = size
    for block in blocks:
        taken = 0
        while taken < block.table.num_rows:
            rows = block.table.slice(taken, lacking)
            piece.append(Part(block.file, block.first + taken, rows))
            taken, lacking = taken + rows.num_rows, lacking - rows.num_rows
            if not lacking:
                yield piece
                piece, lacking = [], size
    if piece:
        yield piece


def _batches(file: DataFile, types: pa.Schema, size: int) -> Iterator[pa.Table]:
    """Read one file from its beginning, never much more of it than `size` rows at a time."""
    names = types.names
    require_columns([file], names)
    try:
        if file.is_parquet:
            # A scan of a data set would decode a whole row group, and read more ahead.
            with pa_parquet.ParquetFile(file.path, **_READING) as opened:
                for batch in opened.iter_batches(size, columns=names):
                    yield file.converted(pa.Table.from_batches([batch]), types)
        elif file.is_sheet:
            yield file.read(types)
        else:
            scan = {"schema": file.types_read(types), "batch_size": size, "batch_readahead": 2}
            for batch in file.fragment.to_batches(columns=names, **scan):
                yield file.converted(pa.Table.from_batches([batch]), types)
    except READ_ERRORS as error:
        raise file.unreadable(error) from None


T_co = TypeVar("T_co", covariant=True)


class Promise(Protocol[T_co]):
    """A result that will be there."""

    def result(self) -> T_co:
        """Wait for it."""


def in_order(promises: Iterable[Promise[T]], n_waiting: int) -> Iterator[T]:
    """Wait for results in their order, while so many later ones are already under way.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order((pool.submit(pow, n, 2) for n in range(5)), n_waiting=2))
    [0, 1, 4, 9, 16]
    """
    waiting: deque[Promise[T]] = deque()
    for promise in promises:
        waiting.append(promise)
        if len(waiting) > n_waiting:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

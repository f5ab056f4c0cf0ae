"""One row source: rows in memory, or rows of files, encoded once and kept in a folder.

Both say how many rows there are, give some of them by their places, and give all of them chunk by
chunk. Rows that are kept are memory-mapped: a chunk at a time is in memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from conovel.errors import FileError, SampleError
from conovel.rows.encoding import FeatureMap
from conovel.rows.pieces import FileSource, Piece
from conovel.rows.private_files import make_private_file
from conovel.rows.tables import Rows
from conovel.rows.work_folder import WorkFolder
from conovel.scorers.base import Matrix, Vector
from conovel.spec.made_from import Contents

# Rows that are taken at a time: each of them may bring 64 kB of its neighbours into memory.
_TAKEN = 1024


class RowSource(Protocol):
    """One sample of a site, wherever its rows are; :class:`conovel.rows.tables.Rows` is one."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the features, where they have any."""

    @property
    def encoder(self) -> FeatureMap | None:
        """What made the features, where columns were not plain numbers."""

    @property
    def contents(self) -> Contents | None:
        """What tells whether a schema was made from these rows."""

    @property
    def width(self) -> int:
        """The number of features."""

    def __len__(self) -> int: ...

    def take(self, places: NDArray[np.intp]) -> Matrix:
        """Give the rows at some places, in this order."""

    def chunks(self) -> Iterator[tuple[int, Matrix]]:
        """Give all rows in their order: where each chunk begins, and its rows."""

    def in_memory(self) -> Rows:
        """Give all rows."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of files, encoded and kept in a work folder."""

    source: FileSource  # the files; originals and names are read from them
    work: WorkFolder  # has the features by rows, the hash of each row, and the names in parts
    name: str  # under which they are kept
    size: int  # rows of a chunk
    n: int
    # low, high: of shape (d,); the range of each feature
    low: Vector
    high: Vector
    contents: None = None  # a schema is compared with the files before they are encoded

    def __len__(self) -> int:
        return self.n

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(self.source.features)

    @property
    def encoder(self) -> FeatureMap | None:
        """What made the features, where columns were not plain numbers."""
        return self.source.encoder

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.low.size)

    def take(self, places: NDArray[np.intp]) -> Matrix:
        """Give the rows at some places, in this order."""
        mapped = self._rows
        taken = np.empty((len(places), self.width))
        for start in range(0, len(places), _TAKEN):
            here = slice(start, start + _TAKEN)
            taken[here] = mapped.values[places[here]]
            mapped.release()
        return taken

    def chunks(self) -> Iterator[tuple[int, Matrix]]:
        """Give all rows in their order: where each chunk begins, and its rows."""
        for start in range(0, self.n, self.size):
            yield start, self.chunk(start)

    def in_memory(self) -> Rows:
        """Give all rows."""
        return Rows(self.take(np.arange(self.n)), self.columns, encoder=self.encoder)

    def chunk(self, start: int) -> Matrix:
        """Give the rows of the chunk that begins at row `start`."""
        rows = np.array(self._rows.values[start : start + self.size])
        self._rows.release()
        return rows

    def hashes(self) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Give the hash of the content of each row, chunk by chunk."""
        mapped = self._hashes
        for start in range(0, self.n, self.size):
            yield start, np.array(mapped.values[start : start + self.size, 0])
            mapped.release()

    def ids(self, start: int) -> Any:
        """Give the names of the rows of a chunk as an arrow array, or None if rows have none."""
        return self.work.read("id", start)["id"] if self.source.id_column else None

    @cached_property
    def _rows(self) -> _Mapped:
        return _mapped(self.work, f"{self.name}.rows", np.float64, self.n)

    @cached_property
    def _hashes(self) -> _Mapped:
        return _mapped(self.work, f"{self.name}.hashes", np.uint64, self.n)


class _Mapped(NamedTuple):
    """A file of numbers that is read where it is looked at."""

    memory: mmap.mmap
    values: NDArray[Any]

    def release(self) -> None:
        """Take what was read out of this process's memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.memory.madvise(mmap.MADV_DONTNEED)


def _mapped(work: WorkFolder, name: str, dtype: type, n: int) -> _Mapped:
    path = work.folder / name
    try:
        with path.open("rb") as file:
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read, start again: {error}") from None
    return _Mapped(memory, np.frombuffer(memory, dtype).reshape(n, -1))


class _Read(NamedTuple):
    """A piece of the files, ready to be kept."""

    piece: Piece
    rows: Matrix
    hashes: NDArray[np.uint64]
    low: Vector
    high: Vector


def store_rows(
    source: FileSource, work: WorkFolder, name: str, size: int, tell: Callable[[int], None]
) -> StoredRows:
    """Read files once, check every value, and keep the features; or take up what was kept."""
    kept = work.load(name)
    if kept is None:
        kept = _store(source, work, name, size, tell)
        work.save(name, kept)  # last: rows that have this note are whole
    return StoredRows(source, work, name, size, int(kept["n"]), kept["low"], kept["high"])


def _store(
    source: FileSource, work: WorkFolder, name: str, size: int, tell: Callable[[int], None]
) -> dict[str, NDArray[Any]]:
    paths = [work.folder / f"{name}.{what}" for what in ("rows", "hashes")]
    low = np.full(len(source.features), np.inf)
    high, n = -low, 0
    try:
        for path in paths:
            make_private_file(path)
        with paths[0].open("wb") as rows, paths[1].open("wb") as hashes:
            for read in source.mapped(size, _read):
                rows.write(read.rows.data)
                hashes.write(read.hashes.data)
                low, high = np.minimum(low, read.low), np.maximum(high, read.high)
                start, ids = read.piece.start, read.piece.ids
                if ids is not None and not work.has("id", start):
                    work.write("id", start, {"id": ids})
                n += len(read.rows)
                tell(len(read.rows))
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{work.folder} cannot be written: {error}") from None
    if not n:
        raise SampleError(f"{source.path} has no rows")
    return {"n": np.array(n), "low": low, "high": high}


def _read(piece: Piece) -> _Read:
    low, high = (np.array([f(column) for column in piece.columns]) for f in (np.min, np.max))
    return _Read(piece, piece.rows(), piece.hashes, low, high)

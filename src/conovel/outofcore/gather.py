"""What the scorer learns from, out of files of any size: two passes, bounded memory.

The first pass counts rows, and by the hash of their content how many fall into each of many
cells. No row occurs more often than its cell counts, so that the second pass knows for nearly
every row that none of its copies will be taken (:mod:`conovel.sampling`), and keeps the
others, each distinct row once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.outofcore.source import Piece
from conovel.sampling import copies_taken, thin
from conovel.scoring import Matrix, Mixture, Vector

T = TypeVar("T")


class Mapped(Protocol):
    """Does some work on every piece of a sample and gives the results in order."""

    def __call__(self, work: Callable[[Piece], T], /) -> Iterable[T]:
        """Do the work."""


@dataclass(eq=False)
class Survey:
    """What one pass over a sample learns: its size, and the range of every column."""

    n: int = 0
    low: Vector | float = np.inf
    high: Vector | float = -np.inf

    def join(self, other: Survey) -> None:
        """Take in what was seen of further rows."""
        self.n += other.n
        self.low = np.minimum(self.low, other.low)
        self.high = np.maximum(self.high, other.high)

    @property
    def extremes(self) -> Matrix:
        """Two rows with the same columns that are constant as in all rows."""
        return np.stack([self.low, self.high])


class Cells:
    """Upper bounds on how often a row occurs, from counts by the upper bits of its hash.

    Parameters
    ----------
    bits : int
        There are ``2**bits`` cells of four bytes; with more of them, the bounds are closer.
    """

    def __init__(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._counts = np.zeros(1 << bits, dtype=np.uint32)

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Count rows."""
        np.add.at(self._counts, hashes >> self._shift, np.uint32(1))

    def bound(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Bound the number of copies of each row."""
        return np.asarray(self._counts[hashes >> self._shift], dtype=np.int64)


@dataclass(eq=False)
class Tally:
    """Distinct rows with how often they occurred, put together bit by bit."""

    rows: list[Matrix] = field(default_factory=list)
    copies: list[NDArray[np.int64]] = field(default_factory=list)
    n_loose: int = 0

    def add(self, rows: Matrix) -> None:
        """Add rows, and join equal ones once there are as many new ones as distinct ones."""
        self.rows.append(rows)
        self.copies.append(np.ones(len(rows), dtype=np.int64))
        self.n_loose += len(rows)
        if self.n_loose > max(len(self.rows[0]), 1 << 16):
            self.joined()

    def joined(self) -> tuple[Matrix, NDArray[np.int64]]:
        """Give the distinct rows in canonical order and their copies."""
        mixture = Mixture.of(np.concatenate(self.rows))
        copies = np.zeros(len(mixture.distinct), dtype=np.int64)
        np.add.at(copies, mixture.position, np.concatenate(self.copies))
        self.rows, self.copies, self.n_loose = [mixture.distinct], [copies], 0
        return mixture.distinct, copies


@dataclass(frozen=True, eq=False)
class Training:
    """What a scorer is fitted on."""

    null_train: Matrix
    sample: Mixture  # of the mixture, by content


def survey(source: Mapped, cells: Cells, tell: Callable[[int], None]) -> Survey:
    """Do the first pass over one sample; `tell` hears how many rows were read."""

    def look(piece: Piece) -> tuple[Survey, NDArray[np.uint64]]:
        low, high = ([f(column) for column in piece.columns] for f in (np.min, np.max))
        return Survey(len(piece), np.array(low), np.array(high)), piece.hashes

    seen = Survey()
    for part, hashes in source(look):
        seen.join(part)
        cells.add(hashes)
        tell(part.n)
    return seen


def gather(
    null: Mapped,
    test: Mapped,
    is_train: NDArray[np.bool_],
    rate: float,
    cells: Cells,
    tell: Callable[[int], None],
) -> Training:
    """Do the second pass over both samples.

    Parameters
    ----------
    null, test : callables
        Do some work on every piece of a sample.
    is_train : bool array
        Which known normals train; the others belong to the mixture.
    rate : float
        Which part of the mixture is taken.
    cells : Cells
        Counts of both samples.
    tell : callable
        Hears how many rows were read.
    """
    rate = min(rate, 1.0)
    tally, null_train = Tally(), []

    def wanted(piece: Piece) -> NDArray[np.bool_]:
        hashes = piece.hashes
        return copies_taken(cells.bound(hashes), hashes, rate) > 0

    def split(piece: Piece) -> tuple[int, Matrix, Matrix]:
        train = is_train[piece.start : piece.start + len(piece)]
        return len(piece), piece.rows(train), piece.rows(wanted(piece) & ~train)

    for n, train, rows in null(split):
        null_train.append(train)
        tally.add(rows)
        tell(n)
    for n, rows in test(lambda piece: (len(piece), piece.rows(wanted(piece)))):
        tally.add(rows)
        tell(n)
    sample = thin(*tally.joined(), rate)
    if not sample.position.size:
        raise SampleError("the sample to train on is empty: raise max_train_rows")
    return Training(np.concatenate(null_train), sample)

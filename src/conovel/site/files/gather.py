"""What the scorer learns from, out of files of any size: one pass or two, bounded memory.

The first pass counts rows, and by the hash of their content how many fall into each of many
cells. No row occurs more often than its cell counts, so that the second pass knows for nearly
every row that none of its copies will be taken (:mod:`conovel.site.blocks`), and keeps the
others, each distinct row once.

Where the number of rows is known beforehand, the first pass keeps the rows of which copies
would be taken if they occurred a few times. When it is over and no cell counts more than
that, nothing was missed, and there is no second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from conovel.rows.pieces import Piece
from conovel.scorers.base import Matrix, Mixture, TrainingSet, Vector, content_hash
from conovel.site.blocks import copies_taken, thin
from conovel.site.checks.sample import Strided

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

    @property
    def most(self) -> int:
        """No row occurs more often than this."""
        return int(self._counts.max())


@dataclass(eq=False)
class RowCounter:
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


@dataclass(eq=False)
class Gathering:
    """Rows that may be learnt from, put together piece by piece.

    Parameters
    ----------
    is_train : bool array
        Which known normals train; the others belong to the mixture.
    rate : float
        Which part of the mixture is taken.
    bound : callable
        Bounds the number of copies of each row, given their hashes.
    """

    is_train: NDArray[np.bool_]
    rate: float
    bound: Callable[[NDArray[np.uint64]], NDArray[np.int64]]
    tally: RowCounter = field(default_factory=RowCounter)
    null_train: list[Matrix] = field(default_factory=list)

    def pick(self, piece: Piece, hashes: NDArray[np.uint64], known: bool) -> tuple[Matrix, Matrix]:
        """Give the rows of a piece that train, and those that the sample may need."""
        wanted = copies_taken(self.bound(hashes), hashes, self.rate) > 0
        train = np.zeros(len(piece), dtype=np.bool_)
        if known:
            train = self.is_train[piece.start : piece.start + len(piece)]
        return piece.rows(train), piece.rows(wanted & ~train)

    def add(self, picked: tuple[Matrix, Matrix]) -> None:
        """Take in what was picked, in the order of the pieces."""
        self.null_train.append(picked[0])
        self.tally.add(picked[1])

    def training(self) -> TrainingSet:
        """Take the sample."""
        return TrainingSet(np.concatenate(self.null_train), thin(*self.tally.joined(), self.rate))


@dataclass(eq=False)
class Early(Gathering):
    """Gathers in the first pass, as if every row occurred a few times.

    Parameters
    ----------
    copies : int
        So many times.
    room : int
        Rows to hold at most. Where there are more, some row occurs very often.
    """

    copies: int = 1
    room: int = 0
    loose: list[Matrix] = field(default_factory=list)

    def add(self, picked: tuple[Matrix, Matrix]) -> None:
        """Take in what was picked, or give up."""
        self.room -= len(picked[1])
        if self.room < 0:
            self.loose.clear()
        else:
            self.null_train.append(picked[0])
            self.loose.append(picked[1])

    def settled(self, cells: Cells) -> TrainingSet | None:
        """Take the sample, if nothing can have been missed."""
        if self.room < 0 or cells.most > self.copies:
            return None
        rows = np.concatenate(self.loose)
        hashes = content_hash(rows)
        self.tally.add(rows[copies_taken(cells.bound(hashes), hashes, self.rate) > 0])
        return self.training()


def survey(
    source: Mapped,
    cells: Cells,
    tell: Callable[[int], None],
    looked: Strided,
    early: Early | None = None,
    known: bool = False,
) -> Survey:
    """Do the first pass over one sample.

    Parameters
    ----------
    source : callable
        Does some work on every piece of the sample.
    cells : Cells
        Counts its rows.
    tell : callable
        Hears how many rows were read.
    looked : Strided
        Keeps the rows that checks look at.
    early : Early, optional
        Picks rows on the way.
    known : bool
        Whether it is the sample of known normals.
    """

    def look(piece: Piece) -> tuple[Survey, NDArray[np.uint64], Any, tuple[Matrix, int, slice]]:
        choice = looked.choice(piece.start)
        some = piece.rows(choice), piece.start, choice
        hashes = piece.hashes
        low, high = ([f(column) for column in piece.columns] for f in (np.min, np.max))
        picked = early.pick(piece, hashes, known) if early else None
        return Survey(len(piece), np.array(low), np.array(high)), hashes, picked, some

    seen = Survey()
    for part, hashes, picked, some in source(look):
        seen.join(part)
        looked.take(*some)
        cells.add(hashes)
        if early and picked:
            early.add(picked)
        tell(part.n)
    return seen


def gather(
    null: Mapped, test: Mapped, gathering: Gathering, tell: Callable[[int], None]
) -> TrainingSet:
    """Do the second pass over both samples.

    Parameters
    ----------
    null, test : callables
        Do some work on every piece of a sample.
    gathering : Gathering
        Picks the rows.
    tell : callable
        Hears how many rows were read.
    """
    for source, known in ((null, True), (test, False)):

        def look(piece: Piece, known: bool = known) -> tuple[int, tuple[Matrix, Matrix]]:
            return len(piece), gathering.pick(piece, piece.hashes, known)

        for n, picked in source(look):
            gathering.add(picked)
            tell(n)
    return gathering.training()

"""Samples of the mixture that are drawn by what a row holds, never by where it stands.

A classifier that trains on a part of the mixture must not learn which rows are calibration
rows. So the part is a fixed function of the mixture as an unordered multiset: of a row that
occurs c times, ``floor(c · rate + u)`` copies are taken, where u in [0, 1) is a hash of the
row's content. A row that occurs once is taken with probability `rate`, and of a row that
fills half of the mixture its share is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.scorers.base import Matrix, Mixture, ScoreModel, TrainingSet, Vector
from conovel.scorers.content import content_hash
from conovel.spec.training import MAX_TRAIN_ROWS, n_training
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.levels import Level
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import RankHistogram

_DRAW_BITS = 33  # the lower bits of the hash; folds are assigned by the upper ones


def draws(hashes: NDArray[np.uint64]) -> Vector:
    """Turn hashes into numbers from 0 up to, not including, 1."""
    lower = hashes & np.uint64((1 << _DRAW_BITS) - 1)
    return np.asarray(lower * 2.0**-_DRAW_BITS)


def copies_taken(
    copies: NDArray[np.int64], hashes: NDArray[np.uint64], rate: float
) -> NDArray[np.int64]:
    """Say how many of the copies of each distinct row are taken: all, from a rate of 1.

    Proof: Corollary 2 (docs/theory.md#cor-files).

    Examples
    --------
    >>> import numpy as np
    >>> hashes = np.arange(4, dtype=np.uint64) << np.uint64(31)  # u = 0, 1/4, 1/2, 3/4
    >>> copies_taken(np.array([1, 1, 1, 10]), hashes, rate=0.5)
    array([0, 0, 1, 5])
    """
    return np.floor(copies * min(rate, 1.0) + draws(hashes)).astype(np.int64)


def thin(distinct: Matrix, copies: NDArray[np.int64], rate: float) -> Mixture:
    """Take a sample of a mixture given by its distinct rows, in order, and their copies.

    Proof: Corollary 2 (docs/theory.md#cor-files).
    """
    taken = copies_taken(copies, content_hash(distinct), rate)
    kept = np.flatnonzero(taken)
    if not kept.size:
        raise SampleError("the sample to train on is empty: raise max_train_rows")
    return Mixture(distinct[kept], np.repeat(np.arange(kept.size), taken[kept]))


def training_sample(mixture: Mixture, most: int) -> Mixture:
    """Return the mixture, or a sample of about `most` rows where it has more.

    Proof: Corollary 2 (docs/theory.md#cor-files), Theorem 1 (docs/theory.md#thm-valid).
    """
    n = mixture.position.size
    if n <= most:
        return mixture
    return thin(mixture.distinct, np.bincount(mixture.position), most / n)


class TrainingRows(NamedTuple):
    """From how many rows of a site one model is learnt: known before any is looked at."""

    n_null: int  # known normals, those that train and those that calibrate
    n_train: int  # how many of them train
    n_by_rule: int  # how many would train by the site's own rule, train_share
    # Calibration and test rows, from which the model learns to tell them. None where it learns
    # from known normals alone.
    n_mixture: int | None
    most: int  # no more than this many train


def require_two(n: int) -> None:
    """Check that there are known normals for both purposes."""
    if n < 2:
        raise SampleError(
            f"X_null has {n} row: at least 2 are needed, one to train and one to calibrate"
        )


def split_null(
    n: int, train_fraction: Level, seed: int, most: int | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split n known normals at random into training and calibration positions.

    No more than `most` train; those that are spared calibrate.
    """
    return split_by_number(n, n_training(n, train_fraction, most), seed)


def split_by_number(n: int, n_train: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split n known normals at random, `n_train` of them to train on.

    Proof: Theorem 1 (docs/theory.md#thm-valid).
    """
    require_two(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])


def split_fresh(
    train_only: NDArray[np.bool_], n_train: int, seed: int, most: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split known normals of which some never calibrate; those train first, at most `most`.

    Of the others as many train as are lacking, but for one. Which ones follows from numbers of
    rows and the seed.

    Proof: Theorem 20 (docs/theory.md#thm-verdicts).
    """
    only, fresh = np.flatnonzero(train_only), np.flatnonzero(~train_only)
    if not only.size:
        return split_by_number(fresh.size, n_train, seed)
    if only.size > most:
        only = only[split_by_number(only.size, most, seed)[0]]
    n_more = max(min(n_train - only.size, fresh.size - 1), 0)
    if not n_more:
        return only, fresh
    train, calibration = split_by_number(fresh.size, n_more, seed)
    return np.sort(np.append(only, fresh[train])), fresh[calibration]


def mask_of(positions: NDArray[np.intp], n: int) -> NDArray[np.bool_]:
    """Mark some of n rows."""
    mask = np.zeros(n, dtype=np.bool_)
    mask[positions] = True
    return mask


class RankedPart(NamedTuple):
    """Scores and ranks of the tested rows among test rows `start` to `stop`."""

    start: int
    stop: int
    scores: Vector
    ranks: NDArray[np.int64]


class GiveParts(Protocol):
    """Gives scores and ranks in the order of the rows."""

    def __call__(self, stage: str | None = None, /) -> Iterable[RankedPart]:
        """Give all parts; progress is told of the stage, where it has a name."""


@dataclass(frozen=True, eq=False)
class Ranked:
    """The tested rows of a site, scored and ranked."""

    tested: NDArray[np.bool_]  # of shape (m,); which test rows are tested
    calibration_scores: Vector  # of shape (ℓ,); in the order of the calibration rows
    parts: GiveParts  # gives scores and ranks of the tested rows, part by part

    @classmethod
    def of(
        cls,
        tested: NDArray[np.bool_],
        calibration_scores: Vector,
        scores: Vector,
        ranks: NDArray[np.int64],
    ) -> Ranked:
        """Note scores and ranks in memory."""
        part = RankedPart(0, tested.size, scores, ranks)
        return cls(tested, calibration_scores, lambda _=None: [part])

    @property
    def scores(self) -> Vector:
        """The score of each test row, NaN where it is not tested."""
        scores = np.full(self.tested.size, np.nan)
        scores[self.tested] = np.concatenate([part.scores for part in self.parts()])
        return scores

    @property
    def ranks(self) -> NDArray[np.int64]:
        """The rank of each test row, 0 where it is not tested."""
        ranks = np.zeros(self.tested.size, dtype=np.int64)
        ranks[self.tested] = np.concatenate([part.ranks for part in self.parts()])
        return ranks

    @cached_property
    def histogram(self) -> RankHistogram:
        """Count how often each rank occurs, in memory that grows with ℓ only."""
        n_calibration = self.calibration_scores.size
        counts = np.zeros(n_calibration + 2, dtype=np.int64)
        for part in self.parts():
            counts += np.bincount(part.ranks, minlength=n_calibration + 2)
        return RankHistogram.of_counts(counts, n_calibration)

    def in_cells(
        self, cells_of: Callable[[Vector], NDArray[np.int64]], likely: int
    ) -> CellHistogram:
        """Count the rows in each cell; rows from the cell `likely` on are likely novelties."""
        tests = np.zeros(N_CELLS, dtype=np.int64)
        for part in self.parts():
            tests += np.bincount(cells_of(part.scores), minlength=N_CELLS)
        calibration = np.bincount(cells_of(self.calibration_scores), minlength=N_CELLS)
        return CellHistogram(calibration, tests, likely)


@dataclass(frozen=True, eq=False)
class Block:
    """Rows in memory that are trained on together: all of an agent's, or 1/K in `split`."""

    null_train: Matrix  # of shape (k, d)
    rows: Matrix  # of shape (n, d); the calibration rows, then the test rows of the block
    n_calibration: int
    tested: NDArray[np.bool_]  # of shape (m,); which test rows are in it
    max_train_rows: int = MAX_TRAIN_ROWS  # about so many rows of the mixture are learnt from
    known_rows: Matrix | None = None  # of shape (k, d); known novelties

    @property
    def n_mixture(self) -> int:
        """How many rows the mixture has."""
        return len(self.rows)

    @cached_property
    def _mixture(self) -> Mixture:
        return Mixture.of(self.rows)

    @cached_property
    def training(self) -> TrainingSet:
        """What is learnt from: of a very large mixture, a sample by content."""
        sample = training_sample(self._mixture, self.max_train_rows)
        return TrainingSet(self.null_train, sample, self.known_rows)

    def rank(self, model: ScoreModel, name: str = "") -> Ranked:
        """Score all rows and rank the tested ones; `name` is for rows kept in a folder.

        Proof: Theorem 1 (docs/theory.md#thm-valid), Lemma 2 (docs/theory.md#lem-ranks).
        """
        calibration, tests = np.split(self._mixture.score(model), [self.n_calibration])
        return Ranked.of(self.tested, calibration, tests, ranks_among(calibration, tests))


def ranks_among(calibration: Vector, tests: Vector) -> NDArray[np.int64]:
    """Rank test scores; without any calibration row every rank is 1.

    Proof: Lemma 2 (docs/theory.md#lem-ranks).
    """
    if not calibration.size or not tests.size:
        return np.ones(tests.size, dtype=np.int64)
    return conformal_ranks(calibration, tests)

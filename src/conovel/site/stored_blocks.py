"""Rows kept in a folder that are trained on together: learn from some, score and rank all.

Only a few chunks of rows are in memory at a time. Every part that is done is kept in the folder,
so that a run that was broken off goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.rows.stored import StoredRows
from conovel.rows.work_folder import WorkFolder
from conovel.scorers.base import Matrix, Mixture, ScoreModel, TrainingSet, Vector, is_by_row
from conovel.site.blocks import Ranked, RankedPart, copies_taken, thin
from conovel.site.engines import Engine, MemoryPlan, release_unused, require_room_to_fit

Progress: TypeAlias = Callable[[str, int, int | None], None]
_MODEL_ROWS = 512  # rows of either kind whose scores stand for the model
_ROUNDS_PER_PASS = 64  # rounds whose places are gathered in one pass over the hashes


def silent(stage: str, done: int, total: int | None) -> None:
    """Tell nobody how far it is."""


@dataclass(frozen=True, eq=False)
class Store:
    """How a site works whose rows are kept in a folder."""

    work: WorkFolder
    memory: int  # what may be used, in bytes
    # Whether the user named the memory. Then a fit that needs more is refused.
    is_limit: bool
    plan: MemoryPlan
    engine: Engine  # who scores
    # Told the stage, how many rows are done and how many there are, if known
    on_progress: Progress = silent

    def begin(self, stage: str, total: int | None = None, done: int = 0) -> Callable[[int], None]:
        """Begin a stage; what is given back is told how many more are done."""
        release_unused()
        self.on_progress(stage, done, total)

        def tell(n: int) -> None:
            nonlocal done
            done += n
            self.on_progress(stage, done, total)

        return tell


class Chosen(NamedTuple):
    """Some rows of a sample, all of which belong to the mixture."""

    source: StoredRows
    mask: NDArray[np.bool_]

    def hashes(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint64]]]:
        """Give places and hashes of the chosen rows, chunk by chunk."""
        for start, hashes in self.source.hashes():
            here = np.flatnonzero(self.mask[start : start + hashes.size])
            yield start + here, hashes[here]

    def starts(self) -> list[int]:
        """Return where the chunks begin that have chosen rows."""
        size = self.source.size
        return [s for s in range(0, self.mask.size, size) if self.mask[s : s + size].any()]

    def rows(self, start: int) -> Matrix:
        """Give the chosen rows of a chunk."""
        return self.source.chunk(start)[self.mask[start : start + self.source.size]]


@dataclass(frozen=True, eq=False)
class StoredBlock:
    """Rows in a folder that are trained on together; see :class:`conovel.site.blocks.Block`."""

    null: StoredRows
    test: StoredRows
    # is_train, is_calibration: of shape (n,); known normals of the block
    is_train: NDArray[np.bool_]
    is_calibration: NDArray[np.bool_]
    tested: NDArray[np.bool_]  # of shape (m,); test rows of the block
    max_train_rows: int  # about so many rows of the mixture are learnt from
    store: Store
    known_rows: Matrix | None = None  # of shape (k, d); known novelties

    @property
    def n_calibration(self) -> int:
        """How many rows calibrate."""
        return int(self.is_calibration.sum())

    @property
    def n_mixture(self) -> int:
        """How many rows the mixture has."""
        return self.n_calibration + int(self.tested.sum())

    @cached_property
    def null_train(self) -> Matrix:
        """The known normals that train."""
        return self.null.take(np.flatnonzero(self.is_train))

    @cached_property
    def training(self) -> TrainingSet:
        """What is learnt from: of a very large mixture, a sample by content.

        Fails before the work where fitting on so many rows would break the budget.
        """
        store, n_mixture = self.store, self.n_mixture
        n_fitted = int(self.is_train.sum()) + min(self.max_train_rows, n_mixture)
        if store.is_limit:
            require_room_to_fit(n_fitted, self.null.width, store.memory)
        rate = self.max_train_rows / n_mixture
        sample = draw_sample(self._mixture, rate, store.plan.cell_bits)
        return TrainingSet(self.null_train, sample, self.known_rows)

    @property
    def _mixture(self) -> tuple[Chosen, Chosen]:
        return Chosen(self.null, self.is_calibration), Chosen(self.test, self.tested)

    def rank(self, model: ScoreModel, name: str = "") -> Ranked:
        """Score all rows and rank the tested ones among the calibration rows.

        A model that scores by rows gets them chunk by chunk. Any other gets them in batches that
        do not depend on which of the rows are calibration rows.

        Proof: Corollary 2 (docs/theory.md#cor-files), Lemma 2 (docs/theory.md#lem-ranks).
        """
        work = self.store.work
        work = WorkFolder.at(work.folder / name, work.key) if name else work
        work.insist(self._digest(model))
        calibration_rows, tests = self._mixture
        if is_by_row(model):
            calibration = self._calibrate(model, calibration_rows, work)
            self._rank(model, tests, np.sort(calibration), work)
        else:
            by_place = self._score_in_rounds(model, work)
            calibration, scores = by_place[0][self.is_calibration], by_place[1]
            ordered = np.sort(calibration)
            for start in tests.starts():
                here = slice(start, start + self.test.size)
                _keep(work, start, scores[here][self.tested[here]], ordered)
        return Ranked(self.tested, calibration, partial(self._parts, work))

    def _digest(self, model: ScoreModel) -> str:
        """Digest of a model by its scores of some rows, and of the number of rows that train."""
        samples = self.null, self.test
        rows = [one.take(np.arange(min(len(one), _MODEL_ROWS))) for one in samples]
        scores = model.score(np.concatenate(rows))
        n_train = int(self.is_train.sum())
        return hashlib.sha256(scores.tobytes() + n_train.to_bytes(8, "little")).hexdigest()

    def _calibrate(self, model: ScoreModel, calibration: Chosen, work: WorkFolder) -> Vector:
        """Score the calibration rows, in their order."""
        starts = calibration.starts()
        missing = [start for start in starts if not work.has("null", start)]
        tell = self.store.begin("scoring known normals", len(starts), len(starts) - len(missing))
        pieces = ((start, calibration.rows(start)) for start in missing)
        for start, scores in self.store.engine.scores(model, pieces):
            work.write("null", start, {"score": scores})
            tell(1)
        parts = [work.read("null", start)["score"].to_numpy() for start in starts]
        return np.concatenate([np.zeros(0), *parts])

    def _rank(
        self, model: ScoreModel, tests: Chosen, calibration: Vector, work: WorkFolder
    ) -> None:
        """Score the tested rows, and rank them among ascending calibration scores."""
        starts = tests.starts()
        missing = [start for start in starts if not work.has("test", start)]
        n_tested = int(self.tested.sum())
        n_done = self.test.size * (len(starts) - len(missing))
        tell = self.store.begin("scoring", n_tested, min(n_done, n_tested))
        pieces = ((start, tests.rows(start)) for start in missing)
        for start, scores in self.store.engine.scores(model, pieces):
            _keep(work, start, scores, calibration)
            tell(scores.size)

    def _parts(self, work: WorkFolder, stage: str | None = None, /) -> Iterator[RankedPart]:
        """Give scores and ranks in the order of the rows; progress is told of the stage."""
        tell = self.store.begin(stage, self.test.n) if stage else None
        for start in range(0, self.test.n, self.test.size):
            stop = min(start + self.test.size, self.test.n)
            scores, ranks = np.zeros(0), np.zeros(0, dtype=np.int64)
            if work.has("test", start):
                part = work.read("test", start)
                scores, ranks = part["score"].to_numpy(), part["rank"].to_numpy()
            yield RankedPart(start, stop, scores, ranks)
            if tell:
                tell(stop - start)

    def _score_in_rounds(self, model: ScoreModel, work: WorkFolder) -> list[Vector]:
        """Score rows by a model that may score a row in another way in another batch.

        Batches of consecutive rows would say which rows are calibration rows. Here a batch is a
        function of the mixture as a multiset: rows go to rounds by a hash of their content,
        whichever sample they are in, and the distinct rows of a round are scored in one call, in
        canonical order. With one round this is the call that is made in memory. Only the number
        of rows decides how many rounds there are.
        """
        samples, n_mixture = self._mixture, self.n_mixture
        n_rounds = -(-n_mixture // self.test.size)
        tell = self.store.begin("scoring in rounds", n_mixture)
        by_place = [np.full(sample.mask.size, np.nan) for sample in samples]
        for first in range(0, n_rounds, _ROUNDS_PER_PASS):
            numbers = range(first, min(first + _ROUNDS_PER_PASS, n_rounds))
            missing = [one for one in numbers if not work.has("round", one)]
            if missing:
                rounds = _places_of_rounds(samples, n_rounds, missing)
                for one, scores in self._scored_rounds(model, rounds):
                    work.write("round", one, {"score": scores})
                    tell(scores.size)
            for one, places in _places_of_rounds(samples, n_rounds, numbers).items():
                if not sum(own.size for own in places):
                    continue
                scores = work.read("round", one)["score"].to_numpy()
                parts = np.split(scores, [places[0].size])
                for to, own, part in zip(by_place, places, parts, strict=True):
                    to[own] = part
        return by_place

    def _scored_rounds(
        self, model: ScoreModel, rounds: Mapping[int, Sequence[NDArray[np.intp]]]
    ) -> Iterator[tuple[int, Vector]]:
        def batches() -> Iterator[tuple[tuple[int, NDArray[np.intp]], Matrix]]:
            for one, places in rounds.items():
                rows = [s.source.take(own) for s, own in zip(self._mixture, places, strict=True)]
                if sum(map(len, rows)):
                    mixture = Mixture.of(np.concatenate(rows))
                    yield (one, mixture.position), mixture.distinct

        for (one, position), scores in self.store.engine.scores(model, batches()):
            yield one, scores[position]


def _keep(work: WorkFolder, start: int, scores: Vector, calibration: Vector) -> None:
    """Keep scores and ranks; scores are searched for in their order, for the cache."""
    order = np.argsort(scores)
    ranks = np.empty(scores.size, dtype=np.int64)
    below = np.searchsorted(calibration, scores[order], side="left")
    ranks[order] = calibration.size + 1 - below
    work.write("test", start, {"score": scores, "rank": ranks})


def _places_of_rounds(
    samples: Sequence[Chosen], n_rounds: int, numbers: Sequence[int]
) -> dict[int, list[NDArray[np.intp]]]:
    """Return for some rounds the places of their rows in each sample."""
    places_by_round: dict[int, list[NDArray[np.intp]]] = {one: [] for one in numbers}
    for sample in samples:
        parts: dict[int, list[NDArray[np.intp]]] = {one: [] for one in numbers}
        for places, hashes in sample.hashes():
            rounds = (hashes % np.uint64(n_rounds)).astype(np.intp)
            for one in numbers:
                parts[one].append(places[rounds == one])
        for one in numbers:
            places_by_round[one].append(np.concatenate(parts[one]))
    return places_by_round


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


def draw_sample(mixture: Sequence[Chosen], rate: float, cell_bits: int) -> Mixture:
    """Draw what :func:`conovel.site.blocks.training_sample` draws, in bounded memory.

    A first pass counts how many hashes fall into each of ``2**cell_bits`` cells. No row occurs
    more often than its cell counts, so that nearly every row is known not to be drawn. The others
    are read, and counted exactly.

    Proof: Corollary 2 (docs/theory.md#cor-files).
    """
    shift = np.uint64(64 - cell_bits)
    cells = np.zeros(1 << cell_bits, dtype=np.uint32)
    for sample in mixture:
        for _, hashes in sample.hashes():
            np.add.at(cells, hashes >> shift, np.uint32(1))
    counter = RowCounter()
    for sample in mixture:
        for places, hashes in sample.hashes():
            bound = cells[hashes >> shift].astype(np.int64)
            drawn = copies_taken(bound, hashes, rate) > 0
            counter.add(sample.source.take(places[drawn]))
    if not sum(map(len, counter.rows)):
        raise SampleError("the sample to train on is empty: raise max_train_rows")
    return thin(*counter.joined(), rate)

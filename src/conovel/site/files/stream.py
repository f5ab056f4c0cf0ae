"""Two samples in files, gone through piece by piece: learn from some rows, score and rank all.

Every part that is done is kept in a folder, so that a run that was broken off goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.rows.pieces import FileSource, mask_of
from conovel.rows.tables import Rows, warn_constant
from conovel.rows.work_folder import Work
from conovel.scorers.base import Matrix, Mixture, ScoreModel, TrainingSet, Vector, is_by_row
from conovel.site.checks.sample import Looked, Strided, most_rows
from conovel.site.engines import Engine
from conovel.site.files.gather import Cells, Early, Gathering, gather, survey
from conovel.site.files.rounds import Sample, scores_by_rounds
from conovel.site.memory import MemoryPlan, release_unused, require_room_to_fit
from conovel.spec.version import __version__

Progress: TypeAlias = Callable[[str, int, int | None], None]
# Given the numbers of known normals and of test rows: which of the known normals train.
Split: TypeAlias = Callable[[int, int], NDArray[np.intp]]
_PRINTED = 512  # rows of either kind whose scores stand for the model


def silent(stage: str, done: int, total: int | None) -> None:
    """Tell nobody how far it is."""


class Stream:
    """The rows of one site.

    Parameters
    ----------
    null, test : FileSource
        Known normals and rows to test, with the same features.
    memory : int
        What may be used, in bytes.
    engine : Engine
        Who scores.
    folder : Path
        Where parts are kept.
    settings : list
        What the parts depend on besides the files; plain JSON types.
    tell : callable
        Told the stage, how many rows are done and how many there are, if known.
    is_asked : bool
        Whether the user named the memory. Then a fit that needs more is refused.

    Attributes
    ----------
    n_null, n_test : int
        Numbers of rows, once they were learnt from.
    looked : Looked
        The rows that checks look at, once rows were learnt from.
    """

    def __init__(
        self,
        null: FileSource,
        test: FileSource,
        memory: int,
        engine: Engine,
        folder: Path,
        settings: Sequence[Any],
        tell: Progress = silent,
        *,
        is_asked: bool = True,
    ) -> None:
        self.null, self.test, self.memory, self._is_asked = null, test, memory, is_asked
        self.plan = MemoryPlan.of(memory, len(null.features))
        self._engine, self._tell = engine, tell
        told = [__version__, null.digest(), test.digest(), self.plan.piece, *settings]
        self.work = Work.at(folder, hashlib.sha256(json.dumps(told).encode()).hexdigest())
        self.n_null = self.n_test = 0

    def part(self, null: NDArray[np.bool_], test: NDArray[np.bool_], name: str) -> Stream:
        """Give a stream of some of the rows, which keeps its own parts in this one's folder."""
        return Stream(
            replace(self.null, only=null),
            replace(self.test, only=test),
            self.memory,
            self._engine,
            self.work.folder / name,
            settings=[self.work.key],
            tell=self._tell,
            is_asked=self._is_asked,
        )

    def learn(self, split: Split, most: int, name: str = "training") -> TrainingSet:
        """Choose what is learnt from: a pass or two over both samples, or what they found before.

        Parameters
        ----------
        split : callable
            Says which known normals train; the others calibrate.
        most : int
            About so many rows of the mixture are learnt from.
        name : str
            Under which the rows are kept in the folder.
        """
        found = self.work.load(name)
        if found is None:
            found = self._find_training(split, most)
            self.work.save(name, found)
        columns, encoder = tuple(self.null.features), self.null.encoder
        warn_constant(*(Rows(seen, columns, encoder=encoder) for seen in found["extremes"]))
        self.n_null, self.n_test = found["sizes"].tolist()
        self.looked = Looked(
            found["looked_null"],
            found["looked_test"],
            columns,
            columns if encoder is None else encoder.source,
            self.n_null,
            self.n_test,
        )
        self._is_train = self._mask(split)
        return TrainingSet(found["null_train"], Mixture(found["distinct"], found["position"]))

    def _find_training(self, split: Split, most: int) -> dict[str, NDArray[Any]]:
        samples = self.null, self.test
        null, test = (partial(sample.mapped, self.plan.piece) for sample in samples)
        cells = Cells(self.plan.cell_bits)
        sizes = [sample.count_known() or 0 for sample in samples]
        early = None
        if all(sizes):
            self.n_null, self.n_test = sizes
            copies = self._few_copies(most)
            early = Early(
                *self._wanted(split, most),
                lambda hashes: np.full(hashes.size, copies),
                copies=copies,
                room=2 * copies * most,
            )
        tell = self.teller("reading", sum(sizes) if early else None)
        looked = [Strided(most_rows(len(self.null.features))) for _ in samples]
        seen = (
            survey(null, cells, tell, looked[0], early, known=True),
            survey(test, cells, tell, looked[1], early),
        )
        self.n_null, self.n_test = (s.n for s in seen)
        for sample, found in zip(samples, seen, strict=True):
            if not found.n:
                raise SampleError(f"{sample.path} has no rows")
        as_told = sizes == [self.n_null, self.n_test]
        training = early.settled(cells) if early and as_told else None
        if training is None:
            tell = self.teller("choosing what to learn from", self.n_null + self.n_test)
            gathering = Gathering(*self._wanted(split, most), cells.bound)
            training = gather(null, test, gathering, tell)
        return {
            "null_train": training.null_train,
            "distinct": training.mixture.distinct,
            "position": training.mixture.position,
            "sizes": np.array([self.n_null, self.n_test]),
            "extremes": np.stack([s.extremes for s in seen]),
            "looked_null": looked[0].rows,
            "looked_test": looked[1].rows,
        }

    def _wanted(self, split: Split, most: int) -> tuple[NDArray[np.bool_], float]:
        """Which known normals train, and which part of the mixture is to be taken.

        Fails before the work where fitting on so many rows would break the budget.
        """
        is_train = self._mask(split)
        n_train = int(is_train.sum())
        n_mixture = self.n_null - n_train + self.n_test
        n_fitted = n_train + min(most, n_mixture)
        if self._is_asked:
            require_room_to_fit(n_fitted, len(self.null.features), self.memory)
        return is_train, most / n_mixture

    def _few_copies(self, most: int) -> int:
        """How many copies of a row the first pass may reckon with: a sixteenth of the budget."""
        return max(1, self.memory // 16 // (8 * len(self.null.features) * max(most, 1)))

    def _mask(self, split: Split) -> NDArray[np.bool_]:
        return mask_of(split(self.n_null, self.n_test), self.n_null)

    def rank(self, model: ScoreModel, training: TrainingSet) -> Vector:
        """Score all rows and rank the tested ones; give the calibration scores, ascending.

        A model that scores by rows gets them piece by piece. Any other gets them in batches that
        do not depend on which of the rows are calibration rows.

        Parameters
        ----------
        model : ScoreModel
        training : TrainingSet
            What it was fitted on.
        """
        self.work.insist(_print_of(model, training))
        tests = None if is_by_row(model) else self._score_by_rounds(model)
        calibration = self._calibrate(model)
        if tests is None:
            self._rank(model, calibration)
            return calibration
        for piece in self.test.pieces(self.plan.piece):
            scores = tests[piece.start : piece.start + len(piece)]
            self._write_ranks(piece.start, piece.ids, scores, calibration)
        return calibration

    def parts(self, stage: str | None = None) -> Iterator[pa.Table]:
        """Give scores and ranks in the order of the rows, with the rows' names if they have any.

        Parameters
        ----------
        stage : str, optional
            What progress is told of.
        """
        tell = self.teller(stage, self.n_test) if stage else None
        for start in self._starts(self.n_test):
            part = self.work.read("test", start)
            yield part
            if tell:
                tell(part.num_rows)

    def teller(self, stage: str, total: int | None, done: int = 0) -> Callable[[int], None]:
        """Begin a stage; what is given back is told how many more are done."""
        release_unused()
        self._tell(stage, done, total)

        def tell(n: int) -> None:
            nonlocal done
            done += n
            self._tell(stage, done, total)

        return tell

    def _calibrate(self, model: ScoreModel) -> Vector:
        size, is_train = self.plan.piece, self._is_train
        starts = self._calibrating()
        missing = {s for s in starts if not self.work.has("null", s)}

        def pieces() -> Iterator[tuple[int, Matrix]]:
            for piece in self.null.pieces(size):
                if piece.start in missing:
                    yield piece.start, piece.rows(~is_train[piece.start : piece.start + size])

        tell = self.teller("scoring known normals", len(starts), len(starts) - len(missing))
        if missing:
            for start, scores in self._engine.scores(model, pieces()):
                self.work.write("null", start, {"score": scores})
                tell(1)
        parts = [self.work.read("null", start)["score"].to_numpy() for start in starts]
        return np.sort(np.concatenate(parts))

    def _rank(self, model: ScoreModel, calibration: Vector) -> None:
        size = self.plan.piece
        starts = self._starts(self.n_test)
        missing = {s for s in starts if not self.work.has("test", s)}
        tell = self.teller("scoring", self.n_test, size * (len(starts) - len(missing)))
        if not missing:
            return
        pieces = (
            ((piece.start, piece.ids), piece.rows())
            for piece in self.test.pieces(size)
            if piece.start in missing
        )
        for (start, ids), scores in self._engine.scores(model, pieces):
            self._write_ranks(start, ids, scores, calibration)
            tell(len(scores))

    def _score_by_rounds(self, model: ScoreModel) -> Vector:
        """Score all rows by rounds; keep the parts of known normals, give the scores of tests."""
        size, is_train = self.plan.piece, self._is_train
        samples = Sample(self.null, ~is_train), Sample(self.test, np.ones(self.n_test, np.bool_))
        total = int(sum(sample.scored.sum() for sample in samples))
        tell = self.teller("scoring in rounds", total)
        known, tests = scores_by_rounds(model, samples, size, self._engine, self.work, tell)
        for start in self._calibrating():
            here = slice(start, start + size)
            self.work.write("null", start, {"score": known[here][~is_train[here]]})
        return tests

    def _calibrating(self) -> list[int]:
        """Where the pieces begin that have calibration rows."""
        size, is_train = self.plan.piece, self._is_train
        return [s for s in self._starts(self.n_null) if not is_train[s : s + size].all()]

    def _write_ranks(self, start: int, ids: Any, scores: Vector, calibration: Vector) -> None:
        columns = {"score": scores, "rank": _ranks(calibration, scores)}
        self.work.write("test", start, columns if ids is None else {"id": ids, **columns})

    def _starts(self, n: int) -> range:
        return range(0, n, self.plan.piece)


def _ranks(calibration: Vector, scores: Vector) -> NDArray[np.int64]:
    """Rank scores among ascending calibration scores.

    In their order, because a search finds neighbours of what it found before in the cache.
    """
    order = np.argsort(scores)
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[order] = calibration.size + 1 - np.searchsorted(calibration, scores[order], side="left")
    return ranks


def _print_of(model: ScoreModel, training: TrainingSet) -> str:
    """Digest of a model, by its scores of some rows."""
    rows = np.concatenate([training.null_train[:_PRINTED], training.mixture.distinct[:_PRINTED]])
    return hashlib.sha256(model.score(rows).tobytes()).hexdigest()

"""AdaDetect on files of any size: the same decisions, in bounded memory.

The path: survey both samples → gather what the scorer learns from → fit → score the
calibration rows → score and rank the test rows, part by part → count the ranks → decide →
write. Every part that is done is kept until the output is there, so that a run that was
broken off goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel import __version__
from conovel.detector import AdaDetect, outline, seeds
from conovel.errors import FileError, InputError, ScorerError
from conovel.files import pick_features, require_writable
from conovel.guarantee import Guarantee, one_site
from conovel.levels import as_level
from conovel.named import as_candidates
from conovel.outofcore.decisions import Decider, count_ranks, write_rows
from conovel.outofcore.engines import Engine, LocalEngine
from conovel.outofcore.gather import Cells, Training, gather, survey
from conovel.outofcore.memory import DEFAULT_MEMORY, Plan, as_memory, require_room_to_fit
from conovel.outofcore.sketch import Sketch
from conovel.outofcore.source import Source
from conovel.outofcore.work import Work
from conovel.pi0 import as_estimator
from conovel.rows import Rows, warn_constant
from conovel.scoring import FittedScorer, Matrix, Mixture, Vector
from conovel.selection import Selection, fit_best
from conovel.splitting import as_share, split_null
from conovel.stepup import (
    RankHistogram,
    Resolution,
    StepUp,
    resolution,
    step_up_counts,
    warn_resolution,
)

Progress = Callable[[str, int, int | None], None]
_PROBE = 512  # rows whose scores stand for the model


@dataclass(frozen=True, eq=False)
class FileDetection:
    """What was decided about rows that are in files; see :class:`conovel.detector.Detection`."""

    out: Path
    n_train: int
    histogram: RankHistogram
    sketch: Sketch
    stepup: StepUp
    scorer: str
    selection: Selection | None
    guarantee: Guarantee

    @property
    def n_calibration(self) -> int:
        """Size ℓ of the calibration sample."""
        return self.histogram.n_calibration

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return self.stepup.n_rejected

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        return resolution(self.n_calibration, self.histogram.size, self.level)

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        k = np.array([self.n_rejected]) if self.n_rejected else np.array([], dtype=np.int64)
        return outline(
            self.stepup,
            n_train=self.n_train,
            n_calibration=self.n_calibration,
            n_test=self.histogram.size,
            largest_rejected_rank=int(self.histogram.smallest(k).max(initial=0)),
            scorer=self.scorer,
            selection=self.selection,
            guarantee=self.guarantee,
        )


def detect_files(
    detector: AdaDetect,
    null: Path,
    test: Path,
    out: Path,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    memory: int | str = DEFAULT_MEMORY,
    engine: Engine | None = None,
    on_progress: Progress | None = None,
) -> FileDetection:
    """Decide which rows of files are novelties, and write the decisions.

    The output has the bytes that reading everything into memory gives, whatever the budget
    and the engine. If it is broken off, the same call goes on where it stopped.

    Parameters
    ----------
    detector : AdaDetect
        Scorer, level and all other settings.
    null, test : Path
        Known normals and rows to test: CSV or Parquet files, or folders of them.
    out : Path
        File of decisions, .csv or .parquet.
    columns, id_column
        Features and the column that names the rows; see :func:`conovel.files.pick_features`.
    memory : int or str
        What may be used, in bytes or as "1.5GB"; known normals take 24 bytes each beyond.
    engine : Engine, optional
        Who scores; threads by default.
    on_progress : callable, optional
        Told the stage, how many rows are done and how many there are, if known.
    """
    require_writable(out)
    features = pick_features(null, test, columns, id_column)
    samples = Source(null, features), Source(test, features, id_column)
    run = _Run(
        detector, samples, as_memory(memory), engine or LocalEngine(), on_progress or _silent
    )
    work = Work.beside(out, run.key())
    try:
        result = run.go(work, out)
    except (InputError, FileError):
        work.clear()  # the same inputs would only fail again
        raise
    work.clear()
    return result


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


class _Run:
    """One run, stage by stage."""

    def __init__(
        self,
        detector: AdaDetect,
        samples: tuple[Source, Source],
        memory: int,
        engine: Engine,
        tell: Progress,
    ) -> None:
        self.detector, self.engine, self.tell = detector, engine, tell
        self.null, self.test = samples
        self.memory, self.plan = memory, Plan.of(memory, len(self.null.features))
        self.level, self.estimator = as_level(detector.level), as_estimator(detector.pi0)
        self.split_seed, scorer_seed = seeds(detector.random_state)
        self.candidates = as_candidates(detector.scorer, scorer_seed)

    def key(self) -> str:
        """Digest of all that the output depends on, and of the size of the parts."""
        told = [
            __version__,
            [self.null.digest(), self.test.digest()],
            [repr(candidate) for candidate in self.candidates],
            [str(self.level), repr(self.estimator), str(self.detector.train_fraction)],
            [self.split_seed, self.detector.max_train_rows, self.plan.piece],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def go(self, work: Work, out: Path) -> FileDetection:
        """Do what is not done yet."""
        training, (self.n_null, self.n_test) = self._learn_from(work)
        is_train = self._is_train()
        self.tell("fitting the score model", 0, None)
        model = fit_best(self.candidates, training.null_train, training.mixture)
        work.insist(_print_of(model, training))
        calibration = self._calibrate(work, model, is_train)
        self._rank(work, model, calibration)
        self.tell("deciding", 0, None)
        starts = self._starts(self.n_test)
        sketch = Sketch(calibration)
        parts = map(sketch.see, (work.read("test", s) for s in starts))
        histogram = count_ranks(parts, calibration.size)
        outcome = step_up_counts([histogram], self.level, self.estimator)
        decider = Decider(histogram, outcome.limits[0])
        decided = map(decider.decide, self._told("writing", work, starts))
        write_rows(out, map(sketch.draw, decided), work.folder)
        return FileDetection(
            out=out,
            n_train=len(training.null_train),
            histogram=histogram,
            sketch=sketch,
            stepup=outcome,
            scorer=model.name,
            selection=model.selection,
            guarantee=one_site(self.level, self.estimator),
        )

    def _learn_from(self, work: Work) -> tuple[Training, tuple[int, int]]:
        """Read both samples twice, or take up what was found then."""
        found = work.load("training")
        if found is None:
            cells = Cells(self.plan.cell_bits)
            known = [sample.count_known() for sample in (self.null, self.test)]
            tell = self._teller("reading", None if None in known else sum(filter(None, known)))
            null, test = (
                partial(sample.mapped, self.plan.piece) for sample in (self.null, self.test)
            )
            seen = [survey(sample, cells, tell) for sample in (null, test)]
            self.n_null, self.n_test = (s.n for s in seen)
            is_train = self._is_train()
            most, n_train = self.detector.max_train_rows, int(is_train.sum())
            n_mixture = self.n_null - n_train + self.n_test
            n_fitted = n_train + min(most, n_mixture)
            require_room_to_fit(n_fitted, len(self.null.features), self.memory)
            training = gather(
                null,
                test,
                is_train,
                most / n_mixture,
                cells,
                self._teller("choosing what to learn from", self.n_null + self.n_test),
            )
            found = {
                "null_train": training.null_train,
                "distinct": training.mixture.distinct,
                "position": training.mixture.position,
                "sizes": np.array([self.n_null, self.n_test]),
                "extremes": np.stack([s.extremes for s in seen]),
            }
            work.save("training", found)
        columns = tuple(self.null.features)
        warn_constant(*(Rows(extremes, columns) for extremes in found["extremes"]))
        mixture = Mixture(found["distinct"], found["position"])
        n_null, n_test = found["sizes"].tolist()
        return Training(found["null_train"], mixture), (n_null, n_test)

    def _is_train(self) -> NDArray[np.bool_]:
        share = as_share(self.detector.train_fraction, self.n_null, self.n_test, self.level)
        train, calibration = split_null(
            self.n_null, share, self.split_seed, self.detector.max_train_rows
        )
        if self.estimator is None:
            warn_resolution([(self.n_test, calibration.size)], self.level)
        is_train = np.zeros(self.n_null, dtype=np.bool_)
        is_train[train] = True
        return is_train

    def _calibrate(self, work: Work, model: FittedScorer, is_train: NDArray[np.bool_]) -> Vector:
        """Score the calibration rows; in ascending order."""
        size = self.plan.piece
        starts = [s for s in self._starts(self.n_null) if not is_train[s : s + size].all()]

        def pieces() -> Iterator[tuple[int, Matrix]]:
            for piece in self.null.pieces(size):
                if piece.start in missing:
                    calibrates = ~is_train[piece.start : piece.start + len(piece)]
                    yield piece.start, piece.rows(calibrates)

        missing = {s for s in starts if not work.has("null", s)}
        tell = self._teller("scoring known normals", len(starts), len(starts) - len(missing))
        if missing:
            for start, scores in self.engine.scores(model, pieces()):
                work.write("null", start, {"score": scores})
                tell(1)
        return np.sort(np.concatenate([work.read("null", s)["score"].to_numpy() for s in starts]))

    def _rank(self, work: Work, model: FittedScorer, calibration: Vector) -> None:
        """Score and rank the test rows, part by part."""
        size = self.plan.piece
        starts = self._starts(self.n_test)
        missing = {s for s in starts if not work.has("test", s)}
        tell = self._teller("scoring", self.n_test, size * (len(starts) - len(missing)))
        if not missing:
            return
        pieces = (
            ((piece.start, piece.ids), piece.rows())
            for piece in self.test.pieces(size)
            if piece.start in missing
        )
        for (start, ids), scores in self.engine.scores(model, pieces):
            columns = {"score": scores, "rank": _ranks(calibration, scores)}
            work.write("test", start, columns if ids is None else {"id": ids, **columns})
            tell(len(scores))

    def _starts(self, n: int) -> range:
        return range(0, n, self.plan.piece)

    def _told(self, stage: str, work: Work, starts: range) -> Iterator[Any]:
        tell = self._teller(stage, self.n_test)
        for start in starts:
            part = work.read("test", start)
            yield part
            tell(part.num_rows)

    def _teller(self, stage: str, total: int | None, done: int = 0) -> Callable[[int], None]:
        self.tell(stage, done, total)

        def tell(n: int) -> None:
            nonlocal done
            done += n
            self.tell(stage, done, total)

        return tell


def _ranks(calibration: Vector, scores: Vector) -> NDArray[np.int64]:
    """Rank scores among ascending calibration scores.

    In their order, because a search finds neighbours of what it found before in the cache.
    """
    order = np.argsort(scores)
    ranks = np.empty(scores.size, dtype=np.int64)
    ranks[order] = calibration.size + 1 - np.searchsorted(calibration, scores[order], side="left")
    return ranks


def _print_of(model: FittedScorer, training: Training) -> str:
    """Digest of a model, by its scores of some rows; each must not depend on the others."""
    rows = np.concatenate([training.null_train[:_PROBE], training.mixture.distinct[:_PROBE]])
    scores = model.score(rows)
    steps = (1, 7, 64)  # a few rows alone, then in company
    pieces = [rows[: steps[0]], rows[1 : 1 + steps[1]], rows[8 : 8 + steps[2]], rows[72:]]
    apart = np.concatenate([model.score(piece) for piece in pieces if len(piece)])
    if not np.array_equal(scores, apart):
        raise ScorerError(
            f"{model.name} scores a row in another way when other rows are around it: it cannot"
            " be used on files that are read in pieces"
        )
    return hashlib.sha256(scores.tobytes()).hexdigest()

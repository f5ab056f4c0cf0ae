"""One agent's rows in memory, and the work on them in the regime `consensus`.

The test rows are divided into two folds. What scores a fold has learnt from known normals and
from the other fold. Calibration rows are only compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelRefusedError
from conovel.models.quantized.dense import QuantizedDense
from conovel.models.quantized.forest import QuantizedForest
from conovel.models.wire import Surrogate, schema_digest
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, Mixture, Scale, Vector, mean_of
from conovel.site.blocks import training_sample
from conovel.site.consensus import (
    ConsensusScore,
    FoldTraining,
    cells_of,
    draw_folds,
    first_model,
    second_model,
)
from conovel.site.explain.column_views import views_of
from conovel.site.explain.explainer import Explainer
from conovel.site.site import LocalSite, Site
from conovel.site.work import SiteWork
from conovel.spec.consensus import N_FOLDS
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import FoldHistogram, FoldHistograms, conforming_limit
from conovel.stats.ranks import conformal_ranks


class FoldWork(Site):
    """What sites do in the regime `consensus`, wherever their rows are."""

    def _describe(self, null_train: Matrix, index: int, names: Sequence[str]) -> dict[str, bytes]:
        """Describe the own normals for all peers."""
        self._name = names[index]
        clipped = self._bounds(null_train).clip(null_train)
        self._first = first_model(clipped, self.spec.bits, schema_digest(self.columns, 4))
        return {name: self._first for i, name in enumerate(names) if i != index}

    def _second_model(self, training: FoldTraining, own: Surrogate) -> bytes:
        """Learn a second model and note how its scorer was chosen."""
        schema = schema_digest(self.columns, 4)
        blob, fitted = second_model(
            self.work.candidates,
            training,
            own,
            self.spec.bits,
            self.spec.seed,
            schema,
            self._bounds(training.null_train),
        )
        if fitted is not None and fitted.selection:
            self.choices["scorer"] = fitted.selection
        return blob

    def _scores(self, models: Mapping[str, tuple[bytes, ...]]) -> list[ConsensusScore]:
        """Return the score of each fold."""
        return [
            ConsensusScore(
                {name: self._decode_one(name, both[f]) for name, both in models.items()}
            )
            for f in range(N_FOLDS)
        ]

    def _decode_one(self, peer: str, blob: bytes) -> Surrogate:
        """Decode a model; only those on grids have the same bits at every agent."""
        surrogate = super()._decode_one(peer, blob)
        if not isinstance(surrogate, QuantizedForest | QuantizedDense):
            raise ModelRefusedError(f"the model of {peer} is not on grids", peer)
        return surrogate


class ConsensusSite(FoldWork, LocalSite):
    """One agent's rows and the work on them; see :class:`conovel.site.site.LocalSite`.

    Attributes
    ----------
    folds : int array of shape (m,)
        The fold of each test row.
    cells_by_agent : dict of int arrays of shape (m,)
        The cell of each test row by the model of each agent alone.
    """

    def __init__(self, null: Rows, test: Rows, work: SiteWork) -> None:
        super().__init__(null, test, work)
        self.folds: NDArray[np.int64] = draw_folds(len(test), self.spec.seed)
        self.cells_by_agent: dict[str, NDArray[np.uint8]] = {}

    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Describe the own normals, for all peers; `weight` says who is a type, nothing more."""
        return self._describe(self._null_train, index, names)

    def refit(self, models: Mapping[str, bytes]) -> Sequence[bytes]:
        """Set roaming rows aside by the peers' first models, and learn from the others."""
        peers, own = self._decode(models), self._decode_one("this site", self._first)
        found = []
        for fold in range(N_FOLDS):
            rows = self.test.values[self.folds != fold]
            mixture = (
                training_sample(Mixture.of(rows), self.work.max_train_rows) if len(rows) else None
            )
            training = FoldTraining.of(self._null_train, mixture, own, peers)
            found.append(self._second_model(training, own))
        return found

    def compare(self, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
        """Count rows by the score of each fold, made of the second models of all agents."""
        scores, n_test = self._scores(models), len(self.test)
        self.cells = cells = np.zeros(n_test, dtype=np.int64)
        self.cells_by_agent = {name: np.zeros(n_test, dtype=np.uint8) for name in sorted(models)}
        self.n_calibration = len(self._calibration)
        views = views_of(self.null.encoder, self.null.columns or range(self.null.width))
        self.explainer = Explainer(MeanScore(tuple(scores)), self._null_train, views)
        return FoldHistograms(tuple(self._count(f, one, cells) for f, one in enumerate(scores)))

    def _count(self, fold: int, score: ConsensusScore, noted: NDArray[np.int64]) -> FoldHistogram:
        """Score all rows for one fold, and note what the rows of the fold got."""
        known, tests = (score.score(rows) for rows in (self._calibration, self.test.values))
        here, cells = self.folds == fold, cells_of(tests)
        self.tested[here] = True
        self.scores[here] = tests[here]
        if known.size and here.any():  # of a single test row one fold is empty
            self.test_ranks[here] = conformal_ranks(known, tests[here])
        else:
            self.test_ranks[here] = 1
        noted[here] = cells[here]
        for name, own in score.cells_by_agent(self.test.values[here]).items():
            self.cells_by_agent[name][here] = own
        by_own = cells_of(score.models[self._name].score(self._calibration))
        return FoldHistogram(
            count_cells(cells_of(known)),
            count_cells(cells[here]),
            count_cells(cells[~here]),
            conforming_limit(count_cells(by_own), self.spec.level),
        )

    @cached_property
    def _known(self) -> tuple[Matrix, Matrix]:
        """The rows of null_train, and the calibration rows."""
        rows = self.null.values
        if len(rows) < 2:  # too few to have both: nothing calibrates
            return rows, rows[:0]
        train, calibration = self._split(len(rows), len(self.test))
        return rows[train], rows[calibration]

    @property
    def _null_train(self) -> Matrix:
        return self._known[0]

    @property
    def _calibration(self) -> Matrix:
        return self._known[1]


@dataclass(frozen=True, eq=False)
class MeanScore:
    """The mean of the scores of all folds, by which rows are explained."""

    scores: tuple[ConsensusScore, ...]
    scale: Scale = "ordinal"

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        return mean_of([one.score(rows) for one in self.scores])


def count_cells(cells: NDArray[np.int64]) -> tuple[int, ...]:
    """Count how many rows are in each cell."""
    return tuple(np.bincount(cells, minlength=N_CELLS).tolist())


def open_site(null: Rows, test: Rows, work: SiteWork) -> LocalSite:
    """Return the site that does the work of a run's regime on rows in memory."""
    return (ConsensusSite if work.spec.regime.composite_null else LocalSite)(null, test, work)

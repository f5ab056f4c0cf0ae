"""An agent whose rows are in files, in the regime `consensus`.

Rows are scored twice, once for each fold. They are read once more when decisions are written, to
say to whose normals each of them conforms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.rows.pieces import mask_of
from conovel.scorers.base import Matrix, Mixture
from conovel.site.consensus import ConsensusScore, FoldTraining, cells_of, draw_folds
from conovel.site.consensus_site import FoldWork, MeanScore, count_cells
from conovel.site.explain.column_views import views_of
from conovel.site.explain.explainer import Explainer
from conovel.site.explain.reasons import Reasons, most_novel
from conovel.site.files.site import FileSite
from conovel.site.files.stream import Stream
from conovel.site.output import count_ranks, with_reasons, write_rows
from conovel.site.roaming import Roaming
from conovel.site.sketch import Sketch
from conovel.spec.consensus import N_FOLDS, Agreed
from conovel.stats.cells import N_CELLS, reaches
from conovel.stats.consensus import FoldHistogram, FoldHistograms, conforming_limit


class FileConsensusSite(FoldWork, FileSite):
    """One agent's rows in files; see :class:`conovel.site.consensus_site.ConsensusSite`."""

    @cached_property
    def folds(self) -> NDArray[np.int64]:
        """The fold of each test row."""
        return draw_folds(self.facts.n_test, self.spec.seed)

    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Describe the own normals, for all peers; `weight` says who is a type, nothing more."""
        return self._describe(self._training.null_train, index, names)

    def refit(self, models: Mapping[str, bytes]) -> Sequence[bytes]:
        """Set roaming rows aside by the peers' first models, and learn from the others."""
        peers, own = self._decode(models), self._decode_one("this site", self._first)
        found = []
        for fold in range(N_FOLDS):
            training = FoldTraining.of(*self._other_fold(fold), own, peers)
            found.append(self._second_model(training, own))
        return found

    def _other_fold(self, fold: int) -> tuple[Matrix, Mixture | None]:
        """Return null_train, and the test rows of the other fold if it has any."""
        tests = self.folds != fold
        if not tests.any():
            return self._training.null_train, None
        other = self._all.part(self._is_train, tests, f"fold-{fold}")
        learnt = other.learn(lambda n, _: np.arange(n), self.work.max_train_rows)
        return learnt.null_train, learnt.mixture

    def compare(self, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
        """Count rows by the score of each fold, made of the second models of all agents."""
        self._both = self._scores(models)
        views = views_of(self._all.test.encoder, self.columns)
        self._explainer = Explainer(MeanScore(tuple(self._both)), self._training.null_train, views)
        scored = [self._scored(fold, score) for fold, score in enumerate(self._both)]
        self._streams = [stream for stream, _ in scored]
        by_own, first = self._by_own_model(), scored[0][1]
        self.sketch = Sketch(first)
        self.histogram = count_ranks(map(self.sketch.see, self._parts()), first.size)
        return FoldHistograms(
            tuple(
                self._counts(fold, stream, cells_of(known), by_own[fold])
                for fold, (stream, known) in enumerate(scored)
            )
        )

    def agree(self, agreed: Agreed | None) -> None:
        """Take what all agents agreed on; decisions are written and explained after that."""
        if agreed is None:
            raise InputError("the decisions of consensus need what all agents agreed on")
        self._agreed = agreed

    def write(self, path: Path, limit: int, reasons: Reasons | None = None) -> None:
        """Write the decisions piece by piece, as `conovel.SiteResult` has them."""
        pieces = self._all.test.pieces(self._all.plan.piece)
        both = zip(pieces, self._parts("writing"), strict=True)
        decided = (self._decide(part, piece.rows(), piece.start) for piece, part in both)
        seen = map(self._seen.see, decided)
        write_rows(path, with_reasons(seen, reasons), self._all.work.folder)

    def _most_novel(self, limit: int, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of the most novel rejected rows, and the order of their novelty."""
        columns = [(part["rank"].to_numpy(), part["score"].to_numpy()) for part in self._parts()]
        ranks, scores = map(np.concatenate, zip(*columns, strict=True))
        rejected = reaches(cells_of(scores), np.array(self._agreed.cells)[self.folds])
        rows = np.flatnonzero(rejected)
        return most_novel(rows, ranks[rows], scores[rows], most)

    @cached_property
    def _is_train(self) -> NDArray[np.bool_]:
        """Which known normals train."""
        facts = self.facts
        return mask_of(self._split(facts.n_null, facts.n_test)[0], facts.n_null)

    def _scored(self, fold: int, score: ConsensusScore) -> tuple[Stream, NDArray[np.float64]]:
        """Score all rows for one fold; give the calibration scores."""
        facts = self.facts
        every = np.ones(facts.n_null, dtype=np.bool_), np.ones(facts.n_test, dtype=np.bool_)
        stream = self._all.part(*every, f"score-{fold}")
        training = self._learn(stream)
        return stream, stream.rank(score, training)

    def _counts(
        self, fold: int, stream: Stream, known: NDArray[np.int64], by_own: NDArray[np.int64]
    ) -> FoldHistogram:
        counts = np.zeros((N_FOLDS, N_CELLS), dtype=np.int64)
        start = 0
        for part in stream.parts():
            cells = cells_of(part["score"].to_numpy())
            np.add.at(counts, (self.folds[start : start + cells.size], cells), 1)
            start += cells.size
        tests, others = (tuple(counts[f].tolist()) for f in (fold, 1 - fold))
        limit = conforming_limit(count_cells(by_own), self.spec.level)
        return FoldHistogram(count_cells(known), tests, others, limit)

    def _by_own_model(self) -> list[NDArray[np.int64]]:
        """Return the cells of the calibration rows by the own second models."""
        size = self._all.plan.piece
        found: list[list[NDArray[np.int64]]] = [[] for _ in self._both]
        for piece in self._all.null.pieces(size):
            rows = piece.rows(~self._is_train[piece.start : piece.start + size])
            for cells, score in zip(found, self._both, strict=True):
                cells.append(cells_of(score.models[self._name].score(rows)))
        return [np.concatenate(cells) for cells in found]

    def _parts(self, stage: str | None = None) -> Iterator[pa.Table]:
        """Give scores and ranks in the order of the rows, each by the score of its fold."""
        start = 0
        first, second = self._streams
        for one, two in zip(first.parts(stage), second.parts(), strict=True):
            folds = self.folds[start : start + one.num_rows]
            start += one.num_rows
            columns = {
                name: np.where(folds == 0, one[name].to_numpy(), two[name].to_numpy())
                for name in ("score", "rank")
            }
            names = {"id": one["id"]} if "id" in one.column_names else {}
            yield pa.table(names | columns)

    def _decide(self, part: pa.Table, rows: Matrix, start: int) -> pa.Table:
        agreed = self._agreed
        folds = self.folds[start : start + part.num_rows]
        cells = cells_of(part["score"].to_numpy())
        by_agent = {name: np.zeros(len(rows), dtype=np.int64) for name in self._both[0].models}
        for fold, score in enumerate(self._both):
            here = folds == fold
            for name, own in score.cells_by_agent(rows[here]).items():
                by_agent[name][here] = own
        p_values = part["rank"].to_numpy() / (self.histogram.n_calibration + 1)
        spelled = Roaming.of(folds, by_agent, agreed).spelled
        rejected = reaches(cells, np.array(agreed.cells)[folds])
        return (
            part.append_column("p_value", pa.array(p_values))
            .append_column("tested", pa.array(np.ones(len(rows), dtype=np.bool_)))
            .append_column("normal_at", pa.array(spelled.tolist()))
            .append_column("rejected", pa.array(rejected))
        )

"""A site's work in the regime `consensus`, wherever its rows are.

The test rows are divided into two folds. What scores a fold has learnt from known normals and
from the other fold. Calibration rows are only compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelRefusedError, SampleError
from conovel.models.quantized.dense import QuantizedDense
from conovel.models.quantized.forest import QuantizedForest
from conovel.models.wire import Surrogate, schema_digest
from conovel.scorers.base import Matrix, Scale, Vector, mean_of
from conovel.site.blocks import Ranked, RankedPart, mask_of
from conovel.site.consensus import (
    ConsensusScore,
    FoldTraining,
    cells_of,
    draw_folds,
    first_model,
    second_model,
)
from conovel.spec.consensus import N_FOLDS
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import FoldHistogram, FoldHistograms, conforming_limit

if TYPE_CHECKING:
    from conovel.site.site import Site


def models(site: Site, index: int, names: Sequence[str], weight: Fraction) -> dict[str, bytes]:
    """Describe the own normals, for all peers; `weight` says who is a type, nothing more."""
    site.folds = draw_folds(len(site.test), site.spec.seed)
    site.own_block = site.block_of(*_split(site), np.arange(len(site.test)))
    clipped = site.bounds(site.own_block.null_train).clip(site.own_block.null_train)
    site.first_model = first_model(clipped, site.spec.bits, schema_digest(site.columns, 4))
    site.own_name = names[index]
    return {name: site.first_model for i, name in enumerate(names) if i != index}


def refit(site: Site, models: Mapping[str, bytes]) -> list[bytes]:
    """Set roaming rows aside by the peers' first models, and learn from the others.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    folds = _folds_of(site)
    peers = [_decode(site, peer, blob) for peer, blob in models.items()]
    own = _decode(site, "this site", site.first_model)
    blobs = []
    for fold in range(N_FOLDS):
        tests, mixture = np.flatnonzero(folds != fold), None
        if tests.size:
            train, none = _split(site)[0], np.zeros(0, dtype=np.intp)
            mixture = site.block_of(train, none, tests).training.mixture
        training = FoldTraining.of(site.own_block.null_train, mixture, own, peers)
        blobs.append(_second_model(site, training, own))
    return blobs


def compare(site: Site, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
    """Count rows by the score of each fold, made of the second models of all agents.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    folds, block = _folds_of(site), site.own_block
    scores = [
        ConsensusScore({name: _decode(site, name, both[f]) for name, both in models.items()})
        for f in range(N_FOLDS)
    ]
    site.explain_by(MeanScore(tuple(scores)), block.null_train)
    by_fold = [block.rank(score, f"fold-{fold}") for fold, score in enumerate(scores)]
    site.ranked = replace(by_fold[0], parts=partial(_joined_parts, folds, by_fold))
    site.cells_of = cells_of
    site.cells_by_agent = _cells_by_agent(site, folds, scores)
    pairs = enumerate(zip(scores, by_fold, strict=True))
    return FoldHistograms(tuple(_count(site, folds == f, *pair) for f, pair in pairs))


def _folds_of(site: Site) -> NDArray[np.int64]:
    if site.folds is None:
        raise SampleError(f"the regime {site.spec.regime.name!r} has no folds")
    return site.folds


def _split(site: Site) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Say which known normals train and which calibrate."""
    n = len(site.null)
    if n < 2:  # too few to have both: nothing calibrates
        return np.arange(n), np.zeros(0, dtype=np.intp)
    return site.split(n)


def _decode(site: Site, peer: str, blob: bytes) -> Surrogate:
    """Decode a model; only those on grids have the same bits at every agent."""
    surrogate = site.decode(peer, blob)
    if not isinstance(surrogate, QuantizedForest | QuantizedDense):
        raise ModelRefusedError(f"the model of {peer} is not on grids", peer)
    return surrogate


def _second_model(site: Site, training: FoldTraining, own: Surrogate) -> bytes:
    """Learn a second model and note how its scorer was chosen."""
    blob, fitted = second_model(
        site.work.candidates,
        training,
        own,
        site.spec.bits,
        site.spec.seed,
        schema_digest(site.columns, 4),
        site.bounds(training.null_train),
    )
    if fitted is not None and fitted.selection:
        site.choices["scorer"] = fitted.selection
    return blob


def _joined_parts(
    folds: NDArray[np.int64], by_fold: Sequence[Ranked], stage: str | None = None, /
) -> Iterator[RankedPart]:
    """Give scores and ranks in the order of the rows, each by the score of its fold."""
    first, second = by_fold
    for one, two in zip(first.parts(stage), second.parts(), strict=True):
        is_first = folds[one.start : one.stop] == 0
        scores = np.where(is_first, one.scores, two.scores)
        yield one._replace(scores=scores, ranks=np.where(is_first, one.ranks, two.ranks))


def _cells_by_agent(
    site: Site, folds: NDArray[np.int64], scores: Sequence[ConsensusScore]
) -> dict[str, NDArray[np.uint8]]:
    """Return the cell of each test row by the model of each agent alone, for its fold."""
    cells = {name: np.zeros(folds.size, dtype=np.uint8) for name in sorted(scores[0].models)}
    for start, rows in site.test.chunks():
        for fold, score in enumerate(scores):
            here = np.flatnonzero(folds[start : start + len(rows)] == fold)
            for name, own in score.cells_by_agent(rows[here]).items():
                cells[name][start + here] = own
    return cells


def _count(
    site: Site, in_fold: NDArray[np.bool_], score: ConsensusScore, ranked: Ranked
) -> FoldHistogram:
    """Count the rows of one fold, and those of the other, by the score of this fold."""
    counts = np.zeros((2, N_CELLS), dtype=np.int64)
    for part in ranked.parts():
        here = in_fold[part.start : part.stop].astype(np.intp)
        np.add.at(counts, (here, cells_of(part.scores)), 1)
    others, tests = (tuple(one.tolist()) for one in counts)
    by_own = cells_of(_calibration_scores(site, score.models[site.own_name]))
    limit = conforming_limit(count_cells(by_own), site.spec.level)
    return FoldHistogram(count_cells(cells_of(ranked.calibration_scores)), tests, others, limit)


def _calibration_scores(site: Site, model: Surrogate) -> Vector:
    """Score the calibration rows by the own model alone."""
    calibrates = mask_of(_split(site)[1], len(site.null))
    parts = [
        model.score(rows[calibrates[start : start + len(rows)]])
        for start, rows in site.null.chunks()
    ]
    return np.concatenate(parts)


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

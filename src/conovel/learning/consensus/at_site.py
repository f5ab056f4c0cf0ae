"""A site's work in the regime `consensus`: its numbers of each round, and its rows in cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.learning.base import Party, insist
from conovel.learning.consensus.learner import CommonLearner, PlacedRows, distance_cells
from conovel.learning.together.at_site import SiteLearner, TogetherScore, shared_known
from conovel.learning.together.moments import Whole
from conovel.learning.together.way import NUMBER
from conovel.scorers.base import Matrix
from conovel.scorers.content import content_hash
from conovel.site.blocks import draws, mask_of
from conovel.spec.training import MAX_TRAIN_ROWS
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import SharedHistogram, conforming_limit

_MOST_LEARNT = 4 * MAX_TRAIN_ROWS  # mixture rows of all agents together; of more, a sample


class ConsensusLearner(SiteLearner):
    """What a site remembers from round to round; see :class:`CommonLearner`."""

    learner: CommonLearner
    rows: PlacedRows

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self._is_begun = False

    def begin(self, site: Any, weight: object) -> bytes:
        """Return how many mixture rows the site has; `weight` says who is a type, nothing more."""
        self._site = site
        train, self._calibration = split(site)
        self._block = site.block_of(train, self._calibration, np.arange(len(site.test)))
        self._n_mixture = self._calibration.size + len(site.test)
        return np.array([self._n_mixture], NUMBER).tobytes()

    def go_on(self, totals: bytes) -> bytes | None:
        """Take the totals; return the numbers of the next round, None if there is none."""
        if self._is_begun:
            return super().go_on(totals)
        self._is_begun = True
        insist(len(totals) == NUMBER.itemsize, "it does not tell one number of mixture rows")
        n_rows = int(np.frombuffer(totals, NUMBER)[0])
        insist(n_rows >= self._n_mixture, "the mixtures of all have fewer rows than this one")
        party, site = self._party, self._site
        mixture = sampled(site, self._calibration, min(1.0, _MOST_LEARNT / max(n_rows, 1)))
        self.rows = PlacedRows(
            self._block.null_train, mixture, shared_known(site), place=party.index
        )
        n_columns = self.rows.values.shape[1]
        self.learner = CommonLearner(n_columns, len(party.agents), party.spec.seed)
        return self._answer()

    def compare(self, site: Any) -> SharedHistogram:
        """Count the rows of the site in the cells of the score.

        Proof: Theorem 16 (docs/theory.md#thm-consensus).
        """
        block, learner, party = self._block, self.learner, self._party
        model = TogetherScore(learner, learner.centre)
        site.explain_by(model, block.null_train)
        site.ranked, site.cells_of = block.rank(model), learner.cells
        tests, calibration, trained = (RowCounts(learner, n) for n in (None, None, N_CELLS))
        cells = np.concatenate([learner.cells(part.scores) for part in site.ranked.parts()])
        away = [
            distance_cells(tests.add(rows, cells[start : start + len(rows)]))
            for start, rows in site.test.chunks()
        ]
        by_agent = np.concatenate(away, axis=1).astype(np.uint8)
        site.cells_by_agent = dict(zip(party.agents, by_agent, strict=True))
        cells, start = learner.cells(site.ranked.calibration_scores), 0
        conforming = np.zeros(N_CELLS + 1, dtype=np.int64)
        for rows in taken(site.null, self._calibration):
            distances = calibration.add(rows, cells[start : start + len(rows)])
            conforming += np.bincount(
                distance_cells(distances[party.index]), minlength=N_CELLS + 1
            )
            start += len(rows)
        # Of null_train all rows are counted by the agent that is nearest, wherever their score is.
        trained.add(block.null_train, learner.cells(model.score(block.null_train)))
        return SharedHistogram(
            calibration=tuple(calibration.cells.tolist()),
            tests=tuple(tests.cells.tolist()),
            floor=learner.floor,
            near_calibration=tuple(calibration.near.tolist()),
            near_tests=tuple(tests.near.tolist()),
            near_trained=tuple(trained.near.tolist()),
            n_tail=int(trained.cells[learner.tail :].sum()),
            conforms=conforming_limit(conforming[:N_CELLS].tolist(), party.spec.level),
        )


class RowCounts:
    """Rows in each cell, and below a floor by the agent whose normals are nearest."""

    def __init__(self, learner: CommonLearner, floor: int | None = None) -> None:
        self._learner, self._floor = learner, learner.floor if floor is None else floor
        self.cells = np.zeros(N_CELLS, dtype=np.int64)
        self.near = np.zeros(len(learner.described), dtype=np.int64)

    def add(self, rows: Matrix, cells: Whole) -> Matrix:
        """Count rows in these cells; return their distances from the normals of each agent."""
        self.cells += np.bincount(cells, minlength=N_CELLS)
        distances = self._learner.distances(rows)
        if np.isfinite(distances).any():
            nearest = distances.argmin(axis=0)[cells < self._floor]
            self.near += np.bincount(nearest, minlength=self.near.size)
        return distances


def split(site: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Say which known normals train and which calibrate."""
    n = len(site.null)
    if n < 2:  # too few to have both: nothing calibrates
        return np.arange(n), np.zeros(0, dtype=np.intp)
    train, calibration = site.split(n)
    return train, calibration


def taken(source: Any, places: NDArray[np.intp]) -> Iterator[Matrix]:
    """Give the rows at these places, piece by piece."""
    is_taken = mask_of(places, len(source))
    for start, rows in source.chunks():
        yield rows[is_taken[start : start + len(rows)]]


def sampled(site: Any, calibration: NDArray[np.intp], rate: float) -> Matrix:
    """Return the mixture, or a sample of it by what a row holds.

    Whether a row is taken depends on nothing but the row and the rate, which is the same at all
    agents. So the rows that all agents take together do not depend on where a row is tested.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    pieces = [*taken(site.null, calibration), *taken(site.test, np.arange(len(site.test)))]
    pieces = [np.ascontiguousarray(rows, dtype=np.float64) for rows in pieces]
    if rate < 1:
        pieces = [rows[draws(content_hash(rows)) < rate] for rows in pieces]
    return np.concatenate(pieces)

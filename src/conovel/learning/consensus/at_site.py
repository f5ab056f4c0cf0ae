"""A site's work in the regime `consensus`: its numbers of each round, and its rows in cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.learning.base import Party, insist
from conovel.learning.consensus.learner import CommonLearner, PlacedRows
from conovel.learning.together.at_site import SiteLearner, TogetherScore
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
        site.own_block = site.block_of(train, self._calibration, np.arange(len(site.test)))
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
        self.rows = PlacedRows(site.own_block.null_train, mixture, party.index)
        self.learner = CommonLearner(
            self.rows.values.shape[1], len(party.agents), party.spec.seed % 2**64
        )
        return self._answer()

    def compare(self, site: Any) -> SharedHistogram:
        """Count the rows of the site in the cells of the score.

        Proof: Theorem 16 (docs/theory.md#thm-consensus).
        """
        block, learner, level = site.own_block, self.learner, site.spec.level
        model = TogetherScore(learner, learner.centre)
        site.explain_by(model, block.null_train)
        site.ranked = ranked = block.rank(model)
        site.cells_of = learner.cells
        tests = np.zeros(N_CELLS, dtype=np.int64)
        for part in ranked.parts():
            tests += np.bincount(learner.cells(part.scores), minlength=N_CELLS)
        site.cells_by_agent = self._cells_by_agent(site)
        calibration = np.bincount(learner.cells(ranked.calibration_scores), minlength=N_CELLS)
        own = np.zeros(N_CELLS, dtype=np.int64)
        for rows in taken(site.null, self._calibration):
            cells = learner.distances(rows)[self._party.index]
            if cells is not None:
                own += np.bincount(cells, minlength=N_CELLS)
        limit = conforming_limit(own.tolist(), level)
        return SharedHistogram(tuple(calibration.tolist()), tuple(tests.tolist()), limit)

    def _cells_by_agent(self, site: Any) -> dict[str, NDArray[np.uint8]]:
        """Return the cell of each test row's distance from the normals of each agent."""
        names = self._party.agents
        # A row is as far as can be from the normals of an agent that told nothing of them.
        cells = {name: np.full(len(site.test), N_CELLS, dtype=np.uint8) for name in names}
        for start, rows in site.test.chunks():
            for name, own in zip(names, self.learner.distances(rows), strict=True):
                if own is not None:
                    cells[name][start : start + len(rows)] = own
        return cells


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

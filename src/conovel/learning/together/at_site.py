"""A site's work while agents learn together: its numbers of each round, and its rows in cells."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from conovel.errors import OutcomeMismatchError
from conovel.learning.base import Party
from conovel.learning.together.learner import EDGES, AgentRows, Learner
from conovel.learning.together.moments import Whole
from conovel.learning.together.way import NUMBER
from conovel.scorers.base import Matrix, Scale, Vector
from conovel.site.common_scale import merged_edges
from conovel.spec.bodies import COORDINATOR
from conovel.stats.cells import N_CELLS, CellHistogram


@dataclass(frozen=True, eq=False)
class TogetherScore:
    """The score of one agent's rows: the one that all learnt, beside the centre of its normals."""

    learner: Learner
    centre: Whole
    scale: Scale = "log-odds"
    by_row: bool = True  # scores each row by itself, in a fixed order of operations

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        return self.learner.score(rows, self.centre)


class SiteLearner:
    """What a site remembers from round to round; see :class:`Learner`."""

    learner: Learner
    rows: AgentRows
    _own: Whole  # its numbers of the last round

    def __init__(self, party: Party) -> None:
        self._party = party

    def begin(self, site: Any, weight: Fraction) -> bytes:
        """Return the numbers of the first round; `weight` is that of the site's group."""
        site.weight = weight
        training = site.own_block.training
        self.rows = AgentRows(training.null_train, training.mixture.rows)
        n_columns = self.rows.values.shape[1]
        seed = self._party.spec.seed % 2**64  # the loops have numbers of 64 bits
        self.learner = Learner(n_columns, len(self._party.agents), seed)
        return self._answer()

    def go_on(self, totals: bytes) -> bytes | None:
        """Take the totals; return the numbers of the next round, None if there is none."""
        try:
            self.learner.take(np.frombuffer(totals, NUMBER).astype(np.int64), self._own)
        except (ArithmeticError, LookupError, ValueError) as error:
            reason = f"the coordinator is wrong: its totals are of no rows ({error})"
            if self._party.masks is not None:
                reason += ". Or an agent sent numbers that are not of its rows: masks hide whose"
            raise OutcomeMismatchError(reason, COORDINATOR) from None
        return None if self.learner.is_done else self._answer()

    def ranks(self, site: Any) -> CellHistogram:
        """Score the rows of the site and count them in the cells of the score.

        Proof: Theorem 19 (docs/theory.md#thm-together).
        """
        block, model = site.own_block, TogetherScore(self.learner, self.rows.centre)
        site.explain_by(model, block.null_train)
        site.ranked = ranked = block.rank(model)
        edges, least = EDGES, site.least_rows(block.training)
        if least > 1:  # no cell of the counts that decide holds fewer of the site's rows
            edges = merged_edges(edges, np.sort(block.training.mixture.score(model)), least)
        site.cells_of = cells_of = partial(self.learner.cells, edges=edges)
        tests = np.zeros(N_CELLS, dtype=np.int64)
        for part in ranked.parts():
            tests += np.bincount(cells_of(part.scores), minlength=N_CELLS)
        calibration = np.bincount(cells_of(ranked.calibration_scores), minlength=N_CELLS)
        return CellHistogram(calibration, tests, self.learner.likely or 0)

    def _answer(self) -> bytes:
        self._own = self.learner.answer(self.rows)
        return self._own.astype(NUMBER).tobytes()

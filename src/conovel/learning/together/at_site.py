"""A site's work while agents learn together: its numbers of each round, and its rows in cells."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from conovel.errors import OutcomeMismatchError
from conovel.learning.base import Party
from conovel.learning.together.known import part_weight
from conovel.learning.together.learner import Learner
from conovel.learning.together.moments import Whole
from conovel.learning.together.rounds import AgentRows
from conovel.learning.together.scale import OwnScore
from conovel.learning.together.way import NUMBER
from conovel.scorers.base import Matrix, Scale, Vector
from conovel.scorers.known import find_likeness
from conovel.site.common_scale import merged_edges
from conovel.spec.bodies import COORDINATOR
from conovel.stats.cells import CellHistogram


@dataclass(frozen=True, eq=False)
class TogetherScore:
    """The score of one agent's rows: what all learnt together, and the agent's own score.

    `centre` is that of the agent's normals. The own score is None where it does not count.
    """

    learner: Learner
    centre: Whole
    own: OwnScore | None = None
    scale: Scale = "ordinal"

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return self.own is None or self.own.by_row

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        scores = self.learner.score(rows, self.centre)
        return scores if self.own is None else scores + self.own.score(rows)


def shared_known(site: Any) -> Matrix | None:
    """Return the known novelties of a site that sums may be taken over: none without consent."""
    known_rows = site.known_rows
    if known_rows is None or not site.work.share_known:
        return None
    values: Matrix = known_rows.values
    return values


class SiteLearner:
    """What a site remembers from round to round; see :class:`Learner`."""

    learner: Learner
    rows: AgentRows
    _numbers: Whole  # of its last round

    def __init__(self, party: Party) -> None:
        self._party = party
        self._site: Any = None
        self._own: OwnScore | None = None

    def begin(self, site: Any, weight: Fraction) -> bytes:
        """Return the numbers of the first round; `weight` is that of the site's group."""
        self._site, site.weight = site, weight
        training = site.own_block.training
        self.rows = AgentRows(training.null_train, training.mixture.rows, shared_known(site))
        n_columns = self.rows.values.shape[1]
        self.learner = Learner(n_columns, len(self._party.agents), self._party.spec.seed)
        return self._answer()

    def go_on(self, totals: bytes) -> bytes | None:
        """Take the totals; return the numbers of the next round, None if there is none."""
        try:
            self.learner.take(np.frombuffer(totals, NUMBER).astype(np.int64), self._numbers)
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
        block, model = site.own_block, TogetherScore(self.learner, self.rows.centre, self._own)
        site.explain_by(model, block.null_train)
        if self._party.spec.strata:  # a score that all learnt is shifted between strata
            site.rank_by(model)
            of_strata: CellHistogram = site.count_cells()
            return of_strata
        site.ranked = ranked = block.rank(model)
        edges, least = self.learner.edges, site.least_rows(block.training)
        assert edges is not None  # noqa: S101  (the score is learnt)
        if least > 1:  # no cell of the counts that decide holds fewer of the site's rows
            edges = merged_edges(edges, np.sort(block.training.mixture.score(model)), least)
        site.cells_of = partial(self.learner.cells, edges=edges)
        counts: CellHistogram = ranked.in_cells(site.cells_of, self.learner.likely)
        return counts

    def _fit_own(self) -> None:
        """Fit the own score where it counts; it stays at the site.

        Where it does not, and the others do not learn from the site's known novelties, likeness
        with these is the own score.

        Proof: Theorem 19 (docs/theory.md#thm-together).
        """
        rows, training = self.rows, self._site.own_block.training
        weight = self.learner.own_weight(len(rows.values))
        if weight > 0:
            fitted = self._site.fitted
        elif training.n_known and (not rows.n_known or self.learner.known_part is None):
            both = find_likeness(training)
            if both is None:
                return
            likeness, fitted = both
            weight = part_weight(likeness.share)
        else:
            return
        self._own = own = OwnScore.of(fitted, weight, training)
        mixture = training.mixture
        of_mixture = np.repeat(own.score(mixture.distinct), np.bincount(mixture.position))
        rows.own = np.concatenate([own.score(training.null_train), of_mixture])

    def _answer(self) -> bytes:
        if self.learner.is_scaled:
            self._fit_own()
        self._numbers = self.learner.answer(self.rows)
        return self._numbers.astype(NUMBER).tobytes()

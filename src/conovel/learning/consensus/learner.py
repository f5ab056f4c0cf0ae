"""The score of the regime `consensus`, learnt from sums: the same function of a row at all agents.

It is that of :mod:`conovel.learning.together.learner` but for one thing: no agent's own centre
enters it. So it depends on the mixtures of all agents through their sum alone. Exchanging a test
row of one agent with a calibration row of another changes nothing (Theorem 16, docs/theory.md).

A last round has no part in the score. Each agent tells a rounded centre of its null_train, so that
rows can be said to conform to the normals of one agent or another, and counted by the agent whose
normals are nearest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from conovel.learning.together import moments
from conovel.learning.together.learner import Learner
from conovel.learning.together.moments import Whole
from conovel.learning.together.rounds import AgentRows, Round
from conovel.learning.together.scale import lowest_score
from conovel.scorers.base import Matrix, Vector
from conovel.stats.cells import N_CELLS

# What is told of an agent's normals: their centre in sixteenths of a standard unit, if it has at
# least so many rows of null_train. One of 300 rows moves it by less than such a sixteenth.
_STEP = moments.UNIT // 16
_FEWEST_DESCRIBED = 30
# Cells of the distance from a centre, relative to the usual one: each 4 % wide.
_DISTANCES = 0.05 * 1.04 ** np.arange(N_CELLS - 1)


@dataclass(eq=False)
class PlacedRows(AgentRows):
    """The rows of one agent, and its place on the roster."""

    place: int = field(kw_only=True)


class CommonLearner(Learner):
    """The score as far as it is learnt; its parameters are those of :class:`Learner`."""

    def __init__(self, n_columns: int, n_agents: int, seed: int) -> None:
        super().__init__(n_columns, 1, seed)  # as one agent: no columns relative to own normals
        self._n_described = n_agents
        # Of each agent that told of its normals: 1, and the centre
        self.described: Whole = np.zeros((0, 1), dtype=np.int64)
        # The lowest cells from which on a third of the mixture, and a hundredth of null_train, lie
        self.floor = self.tail = N_CELLS

    @property
    def centre(self) -> Whole:
        """The centre of the normals of all agents; no number where there are no moments."""
        if self._discriminants is None:
            return np.zeros(0, dtype=np.int64)
        return np.rint(self.centres.grand).astype(np.int64)

    def own_weight(self, n_rows: int) -> float:
        """Return zero: the score is the same at all agents."""
        return 0.0

    def _centre_of(self, null: Whole) -> Whole:
        return np.rint(self.centres.grand).astype(np.int64)

    def _take_scores(self, totals: Whole) -> None:
        self._of_scores = totals
        size = self._n_described * (1 + self.n_columns)
        self._round = Round(size, self._describe, self._take_described, is_counted=False)

    # --- whose normals a row conforms to --------------------------------------------------------
    def _describe(self, rows: AgentRows) -> Whole:
        assert isinstance(rows, PlacedRows)  # noqa: S101
        centres = np.zeros((self._n_described, 1 + self.n_columns), dtype=np.int64)
        if len(rows.null_train) >= _FEWEST_DESCRIBED:
            mean = self.standard(rows.null_train).sum(axis=0) / len(rows.null_train)
            centres[rows.place] = np.append(1, np.rint(mean / _STEP))
        return centres.ravel()

    def _take_described(self, totals: Whole) -> None:
        self.described = totals.reshape(self._n_described, -1)
        super()._take_scores(self._of_scores)
        null, mixture = self._of_kinds(self._of_scores)
        self.floor, self.tail = self._lowest(mixture, 1 / 3), self._lowest(null, 1 / 100)

    def _lowest(self, counts: Whole, share: float) -> int:
        """Return the lowest cell from which on at most this share of the rows lies."""
        above = np.cumsum(counts[::-1])[::-1]
        score = lowest_score(int(np.count_nonzero(above > share * above[0])))
        assert self.edges is not None  # noqa: S101  (the score is learnt)
        return 1 + int(np.searchsorted(self.edges, score))

    def distances(self, values: Matrix) -> Matrix:
        """Return each row's distance from the normals of each agent, one line for each agent.

        Infinity for an agent that told nothing of its normals.
        """
        root = np.eye(self.n_columns) * moments.UNIT
        if self._discriminants is not None:
            root = self.centres.root
        rows = moments.forward(root, self.standard(values).T.astype(np.float64))
        distances: Matrix = np.full((len(self.described), len(values)), np.inf)
        for place, (is_told, *centre) in enumerate(self.described.tolist()):
            if is_told == 1:
                middle = np.array(centre, dtype=np.float64)[:, np.newaxis] * _STEP
                away = rows - moments.forward(root, middle)
                squares: Vector = np.zeros(len(values))
                for column in away:  # in a fixed order: no numerical library decides about bits
                    squares += column * column
                distances[place] = np.sqrt(squares / self.n_columns)
        return distances


def distance_cells(distances: Matrix) -> Whole:
    """Return the cell of each distance; none has that of infinity."""
    cells = np.searchsorted(_DISTANCES, distances, side="right")
    return np.where(np.isfinite(distances), cells, N_CELLS).astype(np.int64)

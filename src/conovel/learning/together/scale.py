"""One scale for the rows of all agents: what is added up, and the cells in which rows are counted.

A row's score is a sum of parts in standard units: the log-odds of each forest that all agents have
grown, or a discriminant in place of the second forest, and the agent's own score, which never
leaves it,

    v = Σ_f a_f (part_f - mean_f)/spread_f  +  w_j (own_j - median_j)/spread_j .

Means and spreads of common parts are those of the mixture rows of all agents, from sums. Those of
the own score are of the agent's own mixture. How much the own score counts follows from the number
of rows of the agent, and from how far the normals of agents differ: where they are alike, all
agents together know more than each of them, and where they differ, an agent with many rows knows
its own best (docs/results/together.md has the figures). Which rows are calibration rows plays no
part in any of this (Theorem 19, docs/theory.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import FittedScorer, Matrix, TrainingSet, Vector, is_by_row, log_odds
from conovel.stats.cells import N_CELLS

_CLOSEST = 1e-12  # probabilities stay this far from 0 and 1 before their log-odds are taken
# Rows of null_train and mixture from which on an agent's own score counts, and counts in full.
_FEW_ROWS, _MANY_ROWS = 200, 1000
_FAR_APART = 2.0  # the variance of agents' centres, in units within agents, that counts in full
_LEAST_WEIGHT = 0.1  # less is not worth a fit
# Narrow cells from which the edges of all others follow: 1/32 of a unit, from -8 to 24.
_LOWEST, _NARROW = -8.0, 32
N_NARROW = 32 * _NARROW
# Edges are at the highest rows one by one, then at ever larger numbers of rows up to a share of
# all, and a few below.
_SINGLE, _BELOW, _HIGH_SHARE = 20, 8, 0.3
Whole = NDArray[np.int64]


def own_weight(n_rows: int, between: float) -> float:
    """Return how much the own score of an agent counts, beside 1 for the first forest.

    Parameters
    ----------
    n_rows : int
        Rows of the agent's null_train and mixture.
    between : float
        The largest variance of agents' centres in any direction, in units within agents; zero
        where centres differ by no more than chance.

    Examples
    --------
    >>> own_weight(1400, 3.0), own_weight(1400, 0.0), own_weight(150, 9.0)
    (1.0, 0.0, 0.0)
    """
    enough = (n_rows - _FEW_ROWS) / (_MANY_ROWS - _FEW_ROWS)
    weight = min(max(enough, 0.0), 1.0) * min(between / _FAR_APART, 1.0)
    return weight if weight >= _LEAST_WEIGHT else 0.0


@dataclass(frozen=True, eq=False)
class OwnScore:
    """An agent's own score in standard units of its mixture, times its weight."""

    fitted: FittedScorer
    weight: float
    centre: float
    unit: float

    @classmethod
    def of(cls, fitted: FittedScorer, weight: float, training: TrainingSet) -> OwnScore:
        """Measure the score on the mixture, whichever of its rows are calibration rows.

        Proof: Theorem 19 (docs/theory.md#thm-together).
        """
        scores = np.sort(_as_log_odds(fitted, training.mixture.score(fitted)))
        unit = float(scores.std())
        return cls(fitted, weight, float(np.median(scores)), unit if unit > 0 else 1.0)

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return is_by_row(self.fitted)

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        scores = _as_log_odds(self.fitted, self.fitted.score(rows))
        return self.weight * ((scores - self.centre) / self.unit)


def _as_log_odds(fitted: FittedScorer, scores: Vector) -> Vector:
    return log_odds(scores, _CLOSEST) if fitted.scale == "probability" else scores


def narrow_cells(scores: Vector) -> Whole:
    """Return the narrow cell of each score."""
    cells = np.floor((np.clip(scores, _LOWEST, -_LOWEST * 4) - _LOWEST) * _NARROW)
    return np.minimum(cells, N_NARROW - 1).astype(np.int64)


def lowest_score(cell: int) -> float:
    """Return the lowest score of a narrow cell."""
    return _LOWEST + cell / _NARROW


def edges_from(mixture: Whole) -> Vector:
    """Return the lowest score of each cell but the first, from counts in narrow cells.

    Cells are narrow in numbers of rows where rows are rejected: from the highest row down, the
    number of rows at or above an edge grows by a few percent from edge to edge. So a limit that
    lies between two edges costs a few percent of the rows.

    Proof: Theorem 19 (docs/theory.md#thm-together).

    Examples
    --------
    >>> counts = np.zeros(N_NARROW, dtype=np.int64)
    >>> counts[[300, 700, 900]] = 60, 3, 1
    >>> edges_from(counts)[-2:].tolist()
    [13.875, 20.125]
    """
    above = np.cumsum(mixture[::-1])  # rows in the highest narrow cell, the two highest, ...
    n_rows = int(above[-1])
    high = max(_HIGH_SHARE * n_rows, _SINGLE + 1.0)
    n_steps = N_CELLS - 1 - _SINGLE - _BELOW
    growing = _SINGLE * (high / _SINGLE) ** (np.arange(1, n_steps + 1) / n_steps)
    rest = np.linspace(high, n_rows, _BELOW + 2)[1:-1]
    wanted = np.concatenate([np.arange(1, _SINGLE + 1), np.floor(growing), np.floor(rest)])
    places = np.searchsorted(above, wanted[wanted <= n_rows])
    edges = _LOWEST + (N_NARROW - 1 - np.unique(places)[::-1]) / _NARROW
    return np.concatenate([np.full(N_CELLS - 1 - edges.size, -np.inf), edges])


def likely_from(null: Whole, mixture: Whole) -> float:
    """Return the lowest score of likely novelties: three spreads above the middle.

    Rows of null_train score a little lower than normal rows of the mixture, which the score takes
    for what it looks for. So the middle is that of the mixture. The spread is the largest of
    three: of the lower half of the mixture, of the upper half of null_train, which have no
    novelties, and of the mixture between the middle and its 80 % quantile, where few have.
    """

    def quantile(counts: Whole, share: float) -> float:
        below = np.cumsum(counts)
        place = share * float(below[-1])
        cell = int(np.searchsorted(below, place))
        before = float(below[cell - 1]) if cell else 0.0
        return cell + (place - before) / max(float(counts[min(cell, N_NARROW - 1)]), 1.0)

    middle = quantile(mixture, 0.5)
    spreads = (
        middle - quantile(mixture, 0.2),
        quantile(null, 0.8) - quantile(null, 0.5),
        quantile(mixture, 0.8) - middle,
        0.5,
    )
    return _LOWEST + (middle + 3 * max(spreads) / 0.8416) / _NARROW

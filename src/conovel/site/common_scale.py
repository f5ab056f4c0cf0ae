"""One scale for the rows of all agents, in the regime `joint`.

Rows of different agents are compared with each other there. An agent's score only orders its own
rows. So each agent estimates how likely a row is a novelty, in two ways that fail in different
cases, and adds them up.

1. *By a normal shape.* The agent brings its scores s to standard units z = (s - centre)/unit, in
   which normal rows have about the standard normal distribution. Novelties are taken to be normal
   too, around a mean μ with the same spread, and to be a share π of the mixture. Then the log-odds
   of a row are λ = μ z - μ²/2 + log(π/(1 - π)). This knows that one agent has more novelties than
   another, but not the shape of the scores.
2. *By the place in the mixture.* A share 1 - F of the mixture scores higher. This needs no shape,
   but cannot tell an agent with novelties from one without.

The common scale is

    v = λ + 6 (log 0.04 - log(1 - F)).

The unit comes from three quantiles, the largest wins: two of the mixture and null_train together,
where few rows are novelties, and one of null_train, where none is. A score that was learnt from
few novelties has a heavy upper tail: some normal rows score far higher than others, and a quantile
near the middle does not tell. Where many rows are far out, they are set aside first. μ and π come
from the rows that stand out. With few of them they stay near what is usual, so an agent without
novelties has a scale, too.

The scale is cut into cells. Cells are what agents count, and cells decide: rows of one cell are
rejected together or not at all. A cell is a range of scores. So the order of an agent's own rows
stays, and where a row is scored its score is only compared with the edges of the cells.

No cell, and no level of a peer's score, holds fewer than k rows of a site. A peer chooses its
model freely. Counts of rows by a score that follows it would answer any question about single
rows: a model that is high in a small box and low elsewhere tells whether a row lies in the box. So
a site uses a peer's score F only through G(F), a nondecreasing step function each of whose steps
holds at least k rows of the site's own mixture. A model that sets fewer rows apart sets nothing
apart. G follows from F and the mixture as a multiset. It does not know which rows are calibration
rows, so G(F) is as valid a score as F (docs/theory.md, Corollary 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.models.linear import expit
from conovel.scorers.base import (
    Matrix,
    Mixture,
    ScoreModel,
    TrainingSet,
    Vector,
    is_by_row,
    log_odds,
)
from conovel.stats.cells import N_CELLS

_LARGEST = float(np.finfo(np.float64).max)
_CLOSEST = 1e-12  # probabilities stay this far from 0 and 1 before their log-odds are taken
_QUANTILE, _NORMAL_QUANTILE = 0.8, 0.8416212335729143  # Φ(0.84162...) = 0.8
# Of the mixture and null_train together. Novelties do not reach it: many of them are set aside.
_HIGH, _NORMAL_HIGH = 0.9, 1.2815515655446004  # Φ(1.28155...) = 0.9
_TAIL, _NORMAL_TAIL = 0.95, 1.6448536269514722  # of null_train; Φ(1.64485...) = 0.95
_STANDS_OUT = 2.5  # in standard units; a row counts in full from one unit further on
_FAR_OUT, _MANY = 3.5, 0.06  # rows this far out are set aside where they are more than that share
_USUAL_MEAN = 5.0  # of novelties, in standard units
_USUAL_SHARE = 0.04  # of novelties in a mixture
_USUAL_ROWS = 4.0  # as many novelties as the usual values count for
_PLACE_WEIGHT = 6.0  # docs/decisions/0016-joint.md compares weights
# Lower edges of the cells but the first: about 1/12 wide at zero, and wider in proportion far from
# it. Where novelties are far from normal rows, the limit lies far below zero.
# docs/decisions/evidence/common-scale.md has power against the number of cells.
EDGES = np.sinh(np.arange(1 - N_CELLS // 2, N_CELLS // 2) / 12)


@dataclass(frozen=True, eq=False)
class CommonScale:
    """The cells of an agent's scores."""

    # Of shape (N_CELLS - 1,); the lowest score of each cell but the first, ascending
    edges: Vector
    # The cell of even odds by the normal shape. Rows from it on are likely novelties.
    likely: int

    def cells(self, scores: Vector) -> NDArray[np.int64]:
        """Return the cell of each score, from 0 to N_CELLS - 1."""
        return np.searchsorted(self.edges, scores, side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class Curve:
    """The common scale as a function of the score: straight between knots, and beyond them."""

    knots: Vector  # the different scores of the mixture
    values: Vector  # the common scale at the knots
    # By how much the score rises while the scale rises by 1, below the first knot and above the
    # last one
    unit: float
    even: float  # the score at which the log-odds λ are zero

    def score_at(self, values: Vector) -> Vector:
        """Return the scores at which the common scale has these values."""
        beyond = values - np.clip(values, self.values[0], self.values[-1])
        with np.errstate(over="ignore"):  # scores of any size have a unit of any size
            return np.interp(values, self.values, self.knots) + beyond * self.unit


def fit_scale(model: ScoreModel, training: TrainingSet, least: int = 1) -> CommonScale:
    """Learn the cells of a score from the mixture, whichever of its rows are calibration rows.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    return scale_of(training.mixture.score(model), model.score(training.null_train), least)


def scale_of(scores: Vector, normals: Vector, least: int = 1) -> CommonScale:
    """Learn the cells from the scores of the mixture, as a multiset, and of null_train.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    scores, normals = np.sort(scores), np.sort(normals)
    is_probability = bool(min(scores[0], normals[0]) >= 0 and max(scores[-1], normals[-1]) <= 1)
    if is_probability:
        curve = fit_curve(*(log_odds(some, _CLOSEST) for some in (scores, normals)))
    else:
        curve = fit_curve(scores, normals)
    marks = np.append(curve.score_at(EDGES), curve.even)
    if is_probability:
        marks = expit(marks)
    edges = np.maximum.accumulate(marks[:-1])
    if least > 1:
        edges = merged_edges(edges, scores, least)
    return CommonScale(edges, int(np.searchsorted(edges, marks[-1], side="right")))


def merged_edges(edges: Vector, scores: Vector, least: int) -> Vector:
    """Merge neighbouring cells, so that a cell holds no row or at least `least` of them.

    Rows that are far apart stay apart as well as may be: of all ways to merge, this one has the
    smallest squared distances of rows from the mean of their group (Hansen and Mukherjee 2003, "A
    polynomial algorithm for optimal univariate microaggregation"). The rows of a group go to the
    cell of the middle one.
    """
    cells = np.searchsorted(edges, scores, side="right")
    starts = _groups(cells, least)
    middle = cells[(starts + np.append(starts[1:], cells.size) - 1) // 2]
    # The lower edge of each cell but the first becomes that of the group at or above it.
    lowest = np.concatenate([[-np.inf], edges])[cells[starts]]
    above = np.searchsorted(middle, np.arange(1, edges.size + 1))
    return np.append(lowest, np.inf)[above]


def _groups(cells: NDArray[np.int64], least: int) -> NDArray[np.intp]:
    """Return where the groups begin, for the cells of all rows, ascending."""
    different, n_rows = np.unique(cells, return_counts=True)
    sums = [np.append(0, np.cumsum(n_rows * different**power)) for power in range(3)]
    costs, begins = np.full(different.size + 1, np.inf), np.zeros(different.size + 1, dtype=int)
    costs[0] = 0
    for stop in range(1, different.size + 1):
        size, total, squares = (some[stop] - some[:stop] for some in sums)
        is_enough = size >= least
        spread = squares - total**2 / size
        all_costs = np.where(is_enough, costs[:stop] + spread, np.inf)
        begins[stop] = int(np.argmin(all_costs))
        costs[stop] = all_costs[begins[stop]]
    starts, stop = [], different.size
    while stop > 0:
        stop = int(begins[stop])
        starts.append(int(sums[0][stop]))
    return np.array(starts[::-1], dtype=np.intp)


@np.errstate(over="ignore")  # scores of any size have a unit of any size
def fit_curve(scores: Vector, normals: Vector) -> Curve:
    """Learn the common scale from the scores of the mixture and of null_train, both ascending."""
    centre, unit = _centre_and_unit(scores, normals)
    mean, share = novelties_in((scores - centre) / unit)
    knots = np.unique(scores)
    below = np.searchsorted(scores, knots) + np.searchsorted(scores, knots, side="right")
    place = -np.log(1 - below / (2 * scores.size))  # equal scores share the middle of their places
    least = mean**2 / 2 - np.log(share / (1 - share))  # λ = mean z - least
    values = mean * (knots - centre) / unit - least
    values += _PLACE_WEIGHT * (place + np.log(_USUAL_SHARE))
    return Curve(knots, values, unit / mean, float(centre + unit * least / mean))


def _centre_and_unit(scores: Vector, normals: Vector) -> tuple[float, float]:
    """Return the middle of normal scores, and their standard deviation by the upper quantiles."""
    normal = _mostly_normal(scores, normals)
    centre, upper, high = np.quantile(normal, [0.5, _QUANTILE, _HIGH]).tolist()
    tail = float(np.quantile(normals, _TAIL))
    unit = max(
        (upper - centre) / _NORMAL_QUANTILE,
        (high - centre) / _NORMAL_HIGH,
        (tail - centre) / _NORMAL_TAIL,
    )
    return centre, min(unit or float(scores.std()) or 1.0, _LARGEST)


def novelties_in(z: Vector) -> tuple[float, float]:
    """Estimate the mean of novelties and their share, from scores in standard units.

    Examples
    --------
    Without rows that stand out, both are near what is usual:

    >>> novelties_in(np.zeros(900))
    (5.0, 0.004)
    """
    novelty = np.clip(z - _STANDS_OUT, 0, 1)
    n_novel = float(novelty.sum()) + _USUAL_ROWS
    mean = (float((novelty * z).sum()) + _USUAL_ROWS * _USUAL_MEAN) / n_novel
    return mean, n_novel / (z.size + _USUAL_ROWS / _USUAL_SHARE)


def _mostly_normal(scores: Vector, normals: Vector) -> Vector:
    """Return the scores of the mixture and null_train without novelties, where there are many.

    A row is far out if it is above the median by 3.5 times the spread of null_train, or of the
    lower half where that is larger. A few such rows do not move the quantiles and are kept.
    """
    both = np.concatenate([scores, normals])
    centre, low = np.quantile(both, [0.5, 1 - _QUANTILE]).tolist()
    middle, upper = np.quantile(normals, [0.5, _QUANTILE]).tolist()
    unit = max(centre - low, upper - middle) / _NORMAL_QUANTILE
    is_near = both - centre <= _FAR_OUT * unit
    return both if unit == 0 or is_near.mean() >= 1 - _MANY else both[is_near]


@dataclass(frozen=True, eq=False)
class LevelledModel:
    """A model whose score has only levels that hold enough rows."""

    model: ScoreModel
    # Of shape (number of levels - 1,); the lowest score of each level but the first
    lowest: Vector
    values: Vector  # of shape (number of levels,); the score of each level

    @property
    def by_row(self) -> bool:
        """Whether each row is scored by itself: as by the model."""
        return is_by_row(self.model)

    def score(self, X: Matrix) -> Vector:
        """Score each row by its level."""
        levels = np.searchsorted(self.lowest, self.model.score(X), side="right")
        return np.asarray(self.values[levels])


def with_levels(model: ScoreModel, mixture: Mixture, least: int) -> ScoreModel:
    """Let each level of a score hold at least `least` rows of a mixture."""
    if least <= 1:
        return model
    scores = np.sort(mixture.score(model))
    starts = group_starts(scores, least)
    stops = np.append(starts[1:], scores.size)
    return LevelledModel(model, scores[starts[1:]], scores[(starts + stops - 1) // 2])


def group_starts(scores: NDArray[Any], least: int) -> NDArray[np.intp]:
    """Cut ascending scores into groups of at least `least`; return where each begins.

    The groups are made from the highest score down. Equal scores stay together.
    """
    starts = [stop := scores.size]
    while stop >= least:
        stop = int(np.searchsorted(scores, scores[stop - least]))
        starts.append(stop)
    starts[-1] = 0  # too few are left for a group: they join the last one
    return np.array(starts[:0:-1] or [0], dtype=np.intp)

"""Attacks on what a site sends: who can tell from a model whether a row was behind it.

The attacker has the bytes and knows how rows are distributed: it draws shadow agents of its own,
with and without the row in question. Half of them teach an attack, the other half are attacked,
and then the other way round. Nothing here knows how a model was made.

- *Likelihood ratio*: the log-odds that a model gives a row are normal with one mean if the row was
  behind the model, and another if not (Carlini et al., arXiv 2112.03570).
- *Threshold*: a row with an extreme score was behind the model. It needs no shadow agents.
- *Reading*: a linear discriminant learns from all numbers that a model names for the features of
  an outlying row, and from its scores along the way to that row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from conovel.models.forest import Forest
from conovel.models.quantized.forest import QuantizedForest
from conovel.models.wire import Surrogate
from conovel.scorers.base import Matrix, Vector, log_odds

Mask: TypeAlias = NDArray[np.bool_]

FALSE_ALARMS = (0.01, 0.001)  # at which the share of detected members is told
_CLOSEST = 1e-6
_RESAMPLES = 200  # of the shadow agents, for standard errors
_STEPS = np.array([0.25, 0.5, 0.75, 1.0])  # of the way from the centre to an outlying row


@dataclass(frozen=True)
class Leakage:
    """How well an attack tells rows behind a model from others."""

    auc: float  # chance that a member has a larger statistic than another row; 0.5 is a guess
    auc_error: float  # standard error
    detected: tuple[float, ...]  # share of members, at each of FALSE_ALARMS; NaN with too few rows
    detected_error: tuple[float, ...]
    n_members: int
    n_others: int


def area(others: Vector, members: Vector) -> float:
    """Return the chance that a member is above a row that is none; ties count half.

    Examples
    --------
    >>> area(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    0.875
    """
    ranks = rankdata(np.concatenate([others, members]))[others.size :]
    n = members.size
    return float((ranks.sum() - n * (n + 1) / 2) / (n * others.size))


def detected_at(others: Vector, members: Vector, rate: float) -> float:
    """Return the share of members above a threshold that at most this share of others exceeds.

    Examples
    --------
    >>> others = np.arange(100.0)
    >>> detected_at(others, np.array([97.0, 98.5, 99.5, 200.0]), 0.01)
    0.75
    >>> detected_at(others, others, 0.001)
    nan
    """
    allowed = math.floor(rate * others.size)
    if not allowed:
        return math.nan
    threshold = np.partition(others, others.size - 1 - allowed)[others.size - 1 - allowed]
    return float((members > threshold).mean())


def leakage(statistic: Matrix, members: Mask, others: Mask, seed: int = 0) -> Leakage:
    """Summarise the statistic of an attack."""

    def measured(chosen: NDArray[np.intp]) -> list[float]:
        chosen_rows, inside, outside = statistic[chosen], members[chosen], others[chosen]
        pair = chosen_rows[outside], chosen_rows[inside]
        if not (pair[0].size and pair[1].size):
            return [math.nan] * (1 + len(FALSE_ALARMS))
        return [area(*pair), *(detected_at(*pair, rate) for rate in FALSE_ALARMS)]

    n = len(statistic)
    rng = np.random.default_rng([seed, n])
    drawn = np.array([measured(rng.integers(0, n, n)) for _ in range(_RESAMPLES)])
    errors = [float(np.nanstd(one)) if np.isfinite(one).any() else math.nan for one in drawn.T]
    auc, *detected = measured(np.arange(n))
    counts = int(members.sum()), int(others.sum())
    return Leakage(auc, errors[0], tuple(detected), tuple(errors[1:]), *counts)


def halves(n: int) -> Iterator[tuple[Mask, Mask]]:
    """Return which shadow agents teach an attack and which are attacked, both ways round."""
    first = np.arange(n) % 2 == 0
    yield first, ~first
    yield ~first, first


def likelihood_ratio(statistic: Matrix, members: Mask, others: Mask) -> Matrix:
    """Return the log-likelihood ratio of every row at every shadow agent.

    Both distributions of a row are normal, with a mean each and one variance.
    """
    ratio = np.zeros(statistic.shape)
    for teach, attacked in halves(len(statistic)):
        means, squares, weight = [], np.zeros(statistic.shape[1]), np.zeros(statistic.shape[1])
        for mask in (members[teach], others[teach]):
            n = np.maximum(mask.sum(axis=0), 1)
            mean = (statistic[teach] * mask).sum(axis=0) / n
            squares += (((statistic[teach] - mean) ** 2) * mask).sum(axis=0)
            weight += n
            means.append(mean)
        variance = np.maximum(squares / weight, _CLOSEST)
        to_member, to_other = ((statistic[attacked] - mean) ** 2 for mean in means)
        ratio[attacked] = (to_other - to_member) / (2 * variance)
    return ratio


def log_odds_of(model: Surrogate, rows: Matrix) -> Vector:
    """Return the log-odds that a model gives each row."""
    return log_odds(model.score(rows), _CLOSEST)


def discriminate(readings: Matrix, is_member: Mask) -> Vector:
    """Return how much each reading looks like one of a model with the row behind it."""
    changing = readings[:, readings.std(axis=0) > 0]
    statistic = np.zeros(len(readings))
    if not changing.shape[1]:
        return statistic
    for teach, attacked in halves(len(readings)):
        learner = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        outputs = learner.fit(changing[teach], is_member[teach]).decision_function(changing)
        others = outputs[attacked & ~is_member]
        unit = others.std() or 1.0
        statistic[attacked] = (outputs[attacked] - others.mean()) / unit
    return statistic


def reading(model: Surrogate, row: Vector, centre: Vector, features: Sequence[int]) -> Vector:
    """Return all that a model says about an outlying row: numbers it names, and scores."""
    named = [number for f in features for number in named_values(model, f)]
    way = [centre + step * (row - centre) for step in _STEPS]
    for f in features:
        for step in _STEPS:
            point = centre.copy()
            point[f] += step * (row[f] - centre[f])
            way.append(point)
    return np.concatenate([named, log_odds_of(model, np.array(way))])


def named_values(model: Surrogate, feature: int) -> tuple[float, float, float]:
    """Return the least and the greatest value that the bytes name for a feature, and how many.

    For a forest these are ends of its grid or thresholds; for another model, its coefficient.
    """
    if not isinstance(model, Forest | QuantizedForest):
        coefficients = getattr(model, "coef", None)
        at = 0.0 if coefficients is None else float(coefficients[feature])
        return at, at, 1.0
    at_feature = model.feature == feature
    n = int(at_feature.sum())
    if not n:
        return 0.0, 0.0, 0.0
    if isinstance(model, Forest):
        values = model.threshold[at_feature]
    else:
        values = model.grids.of(feature).values()
        if not hasattr(model.grids.thresholds, "get"):  # one grid for all: its ends say nothing
            values = values[model.code[at_feature]]
    return float(values.min()), float(values.max()), float(n)


def midpoints(model: Surrogate, rows: Matrix) -> float:
    """Return the share of thresholds that lie in the middle of two values of rows.

    It is NaN for a model without thresholds as they were learnt. By chance it is a few percent.
    """
    if not isinstance(model, Forest):
        return math.nan
    hits = total = 0
    for f in np.unique(model.feature[model.feature >= 0]):
        values = np.unique(rows[:, f].astype(np.float32)).astype(np.float64)
        thresholds = model.threshold[model.feature == f]
        other = 2 * thresholds[:, np.newaxis] - values  # what would make a value and it a pair
        near = np.clip(np.searchsorted(values, other), 1, values.size - 1)
        gap = np.minimum(np.abs(other - values[near - 1]), np.abs(other - values[near]))
        rounding = np.spacing(np.abs(thresholds).astype(np.float32))
        hits += int((gap.min(axis=1) <= rounding).sum())
        total += thresholds.size
    return hits / total if total else math.nan

"""Scores that learn from all rows together, with no known normals set aside for training.

With ``train_fraction=0`` every known normal calibrates. A score then sees the known normals and
the test rows as one multiset, so it is a fixed function of the row, of an empty null_train and of
the mixture (docs/theory.md, "What makes a score valid"). It finds rows that lie apart from most
others. Where novelties do, and known normals are few, that is worth more than what half of them
teach; where novelties are near the normals, it finds nothing (docs/how-to/resolution.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import NearestNeighbors

from conovel.errors import ScorerError
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scorer,
    Selection,
    TrainingSet,
    Vector,
    add_up,
)
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.cross_fit import CrossFitScorer
from conovel.scorers.estimators import ClassifierScorer, OneClass
from conovel.scorers.weighted_forests import WeightedForests

_SHARE = 0.15  # of the rows that are neighbours: more than novelties usually are
_FEWEST = 5
_TREES = 300


class NeighbourDistance(BaseEstimator):  # type: ignore[misc]
    """The logarithm of the distance from the k-th nearest row, columns in standard units.

    Parameters
    ----------
    k : int or None
        None is 15 % of the rows, and 5 at least: novelties that lie together must not be one
        another's neighbours.
    scaled : bool
        Whether columns come in standard units, or count as they are.
    """

    by_row = True  # a tree is searched for one row after the other, without matrix products

    def __init__(self, k: int | None = None, scaled: bool = True) -> None:
        self.k = k
        self.scaled = scaled

    def fit(self, X: Matrix, y: None = None) -> NeighbourDistance:
        """Remember the rows."""
        spread = X.std(axis=0)
        is_scaled = (spread > 0) & self.scaled
        self.centre_, self.unit_ = X.mean(axis=0), np.where(is_scaled, spread, 1.0)
        k = max(_FEWEST, int(_SHARE * len(X))) if self.k is None else self.k
        self.k_ = min(k, len(X))
        search = NearestNeighbors(n_neighbors=self.k_, algorithm="kd_tree", n_jobs=1)
        self.neighbours_ = search.fit((X - self.centre_) / self.unit_)
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the logarithm of the distance, larger for more novel rows."""
        distances, _ = self.neighbours_.kneighbors((X - self.centre_) / self.unit_)
        return np.asarray(np.log(np.maximum(distances[:, -1], 1e-9)))


def neighbour_distance() -> OneClass:
    """Score by the distance from neighbours."""
    return OneClass(NeighbourDistance(), higher="novel", method="score_samples")


@dataclass(frozen=True, eq=False)
class AllRows(Scorer):
    """Distances from neighbours and an isolation forest, both of all rows, by their tails."""

    random_state: int | None = None

    label = "all rows"

    def with_seed(self, seed: int) -> Scorer:
        """Fix the random state, unless it is fixed already."""
        return self if self.random_state is not None else AllRows(seed)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Learn from the mixture; with null_train set aside, from both."""
        seed = 0 if self.random_state is None else self.random_state
        forest = IsolationForest(n_estimators=_TREES, random_state=seed)
        parts = [neighbour_distance(), OneClass(forest, higher="normal")]
        fitted = tuple(part.fit(training) for part in parts)
        added = AddedTails.of(fitted, training.mixture)
        return FittedScorer(self, added.score, "ordinal")


@dataclass(frozen=True, eq=False)
class Neighbours(Scorer):
    """The distance from the nearest 15 % of all rows, known normals that train among them."""

    scaled: bool = True  # columns in standard units, or as they are

    label = "neighbours"

    def with_seed(self, seed: int) -> Scorer:
        """Return itself: nothing is random."""
        return self

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Remember null_train and the mixture alike.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        rows = np.concatenate([training.null_train, training.mixture.rows])
        model = NeighbourDistance(scaled=self.scaled).fit(rows)
        return FittedScorer(self, model.score_samples, "ordinal", model)


# A row is apart if its distance is above that of each known normal that trains, and so many
# robust standard deviations above the median of all rows.
_FAR = 3.5
_ROBUST = 1.4826  # a Gaussian's standard deviation, in median distances from the median
_APART_SHARE = 25  # one row in so many must be apart,
_BY_CHANCE = 20  # and labels drawn at random leave them all in the mixture once in so many times


def fit_apart(training: TrainingSet) -> FittedScorer | None:
    """Score by the distance from neighbours, if enough rows are apart; None if not.

    The distance knows no labels, so known normals that train are as far from their neighbours as
    other normals. If rows of the mixture are further than all of them, they are novelties but for
    chance.

    Proof: Theorem 1 (docs/theory.md#thm-valid).
    """
    scorers = [Neighbours(scaled) for scaled in (True, False)]
    counts = [_n_apart(scorer.fit(training), training) for scorer in scorers]
    best = int(np.argmax(counts))  # standard units where both are alike
    n_apart, n_mixture = counts[best], training.mixture.position.size
    n = len(training.null_train) + n_mixture
    by_chance = _BY_CHANCE * math.comb(n_mixture, n_apart) <= math.comb(n, n_apart)
    if n_apart * _APART_SHARE < n or not by_chance:
        return None
    units = "in standard units" if scorers[best].scaled else "as they are"
    rule = (
        f"with columns {units}, {n_apart} of {n} rows are further from their neighbours than all"
        f" {len(training.null_train)} known normals that train, and far above the median. From"
        f" one row in {_APART_SHARE} on, that distance scores"
    )
    values = tuple(map(float, counts))
    names = ("neighbours, standard units", "neighbours, own units")
    selection = Selection(names, values, best, "apart", rule)
    return replace(scorers[best].fit(training), selection=selection)


def _n_apart(fitted: FittedScorer, training: TrainingSet) -> int:
    """Count the rows of the mixture that are apart."""
    null_train, mixture = fitted.score(training.null_train), training.mixture.score(fitted)
    every = np.concatenate([null_train, mixture])
    middle = np.median(every)
    spread = _ROBUST * np.median(np.abs(every - middle))
    if spread == 0:  # most rows are equal: no unit to measure in
        return 0
    return int(np.count_nonzero(mixture > max(null_train.max(), middle + _FAR * spread)))


@dataclass(frozen=True, eq=False)
class AddedTails:
    """The sum of -log(share of the mixture that scores higher), over several scores."""

    parts: tuple[FittedScorer, ...]
    ordered: tuple[Vector, ...]  # the scores of the mixture, ascending, of each part

    @classmethod
    def of(cls, parts: tuple[FittedScorer, ...], mixture: Mixture) -> AddedTails:
        """Measure the scores on the mixture, whichever of its rows are calibration rows.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        return cls(parts, tuple(np.sort(mixture.score(part)) for part in parts))

    def score(self, X: Matrix) -> Vector:
        """Score each row."""
        pairs = zip(self.parts, self.ordered, strict=True)
        return add_up(_tail(ordered, part.score(X)) for part, ordered in pairs)


def _tail(ordered: Vector, scores: Vector) -> Vector:
    above = ordered.size - np.searchsorted(ordered, scores, side="right")
    return np.asarray(-np.log((above + 1) / (ordered.size + 1)))


_NEED_NORMALS = (ClassifierScorer, CompiledForest, CrossFitScorer, WeightedForests)


def require_no_training(candidates: Sequence[Scorer]) -> None:
    """Refuse scorers that tell known normals that train from other rows."""
    if len(candidates) != 1 or isinstance(candidates[0], _NEED_NORMALS):
        names = ", ".join(candidate.label for candidate in candidates)
        raise ScorerError(
            f"{names} learns from known normals that train, and with train_fraction=0 there are"
            " none: leave scorer out, or take one one-class scorer such as 'knn' or"
            " 'isolation-forest'"
        )

"""Scores that learn from all rows together, with no known normals set aside for training.

With ``train_fraction=0`` every known normal calibrates. A score then sees the known normals and
the test rows as one multiset, so it is a fixed function of the row, of an empty null_train and of
the mixture (docs/theory.md, "What makes a score valid"). It finds rows that lie apart from most
others. Where novelties do, and known normals are few, that is worth more than what half of them
teach; where novelties are near the normals, it finds nothing (docs/how-to/resolution.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import NearestNeighbors

from conovel.errors import ScorerError
from conovel.scorers.base import FittedScorer, Matrix, Mixture, Scorer, TrainingSet, Vector, add_up
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
    """

    by_row = True  # a tree is searched for one row after the other, without matrix products

    def __init__(self, k: int | None = None) -> None:
        self.k = k

    def fit(self, X: Matrix, y: None = None) -> NeighbourDistance:
        """Remember the rows."""
        spread = X.std(axis=0)
        self.centre_, self.unit_ = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
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

"""Stacking: learn again, with the scores of all models as further features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Mixture,
    Scale,
    ScoreModel,
    Scorer,
    TrainingSet,
    Vector,
    add_up,
    is_by_row,
    log_odds,
    mean_of,
)
from conovel.scorers.blend import Refined
from conovel.scorers.cross_fit import CrossFitScorer, ShrunkenLogistic
from conovel.scorers.estimators import OneClass
from conovel.site.near_peers import Standardised, likely_novelties, model_weights, spread_of
from conovel.site.scale import as_probability

# Shares of the stacked score: what is learnt, the own score, the weighted mean of all models. An
# agent with few likely novelties has learnt little from them, so the models of others count more.
_WITH_FEW, _WITH_MANY = np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.25, 0.25])
_MANY = 20  # likely novelties


@dataclass(frozen=True, eq=False)
class Widened:
    """Rows with the log-odds of the peers' models and of the own score as further columns."""

    local: FittedScorer
    surrogates: tuple[ScoreModel, ...]
    null_train: Matrix

    def __call__(self, rows: Matrix) -> Matrix:
        """Widen rows, the own score last."""
        scores = [model.score(rows) for model in self.surrogates]
        scores.append(as_probability(self.local, self.null_train, rows))
        return np.column_stack([rows, *(log_odds(one) for one in scores)])


@dataclass(frozen=True, eq=False)
class Learnt:
    """What was learnt from the wide rows, all columns or those up to `last`."""

    fitted: FittedScorer
    last: int | None

    def __call__(self, wide_rows: Matrix) -> Vector:
        """Score wide rows."""
        learnt = self.fitted.score(wide_rows[:, : self.last])
        # It is no probability where nothing stood out.
        if self.fitted.scale == "probability":
            return log_odds(learnt, closest=1e-6)
        return learnt


@dataclass(frozen=True, eq=False)
class Stacked:
    """The stacked score: what was learnt and the scores of all models, added by weight."""

    widen: Widened
    learnt: Learnt
    of_learnt: Vector  # one number
    of_models: Vector
    scale: Scale = "ordinal"

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, (self.learnt.fitted, self.widen.local, *self.widen.surrogates)))

    def score(self, rows: Matrix) -> Vector:
        """Score each row."""
        wide_rows = self.widen(rows)
        parts = self.of_models[:, np.newaxis] * wide_rows[:, -self.of_models.size :].T
        return add_up([self.of_learnt * self.learnt(wide_rows), *parts])


def stack(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> ScoreModel:
    """Learn again, and add the own score and the scores of all models by weight.

    Three scores that each err in their own way are added: what is learnt from the features and
    the scores of the models, the own score, and the weighted mean of all models
    (:mod:`conovel.site.near_peers`).
    """
    widen = Widened(local, tuple(surrogates), training.null_train)
    wide = _widened(training, widen)
    n_models = len(surrogates) + 1
    learn = _learner(local, n_models, wide)
    known, mixture = (rows[:, -n_models:].T for rows in (wide.null_train, wide.mixture.distinct))
    # A model that does not cross-fit has seen null_train: its scores there are too low.
    models = Standardised.of(known if _cross_fits(local) else mixture, mixture)
    learnt = learn(wide.mixture.distinct)[np.newaxis]
    # Log-odds as they are: a model that tells no rows apart has a small spread and counts less.
    mean = mean_of(models.mixture * models.spread[:, np.newaxis])[np.newaxis]
    mean /= spread_of(mean)
    many = _are_many(mean[0])
    own_parts = many * learnt[0] / spread_of(learnt), many * models.mixture[-1]
    first = add_up([*own_parts, 2 * mean[0]])
    weights = model_weights(models, first)
    near = add_up(weights[:, np.newaxis] * models.mixture)[np.newaxis]
    many = _are_many(first)
    from_learnt, from_own, from_near = (1 - many) * _WITH_FEW + many * _WITH_MANY
    of_models = from_near / spread_of(near) * weights / models.spread
    of_models[-1] += from_own / models.spread[-1]
    return Stacked(widen, learn, from_learnt / spread_of(learnt), of_models)


def _are_many(first: Vector) -> float:
    """Say how far the likely novelties are from few (0) to many (1)."""
    return min(likely_novelties(first) / _MANY, 1.0)


def _cross_fits(local: FittedScorer) -> bool:
    return isinstance(local.scorer, CrossFitScorer)


def _learner(local: FittedScorer, n_models: int, wide: TrainingSet) -> Learnt:
    """Learn from rows that end with the scores of all models, the own score last.

    A plain scorer is fitted again as it is, without its own score, which has seen these rows.
    Where the local scorer cross-fits, a linear model is refined instead: what is not linear is in
    the own score already. It starts from where the own score and the mean of all models point.
    Where agents differ the mean points elsewhere, where they have few rows the own score does.
    """
    if isinstance(local.scorer, CrossFitScorer):
        firsts = [OneClass(MeanOfLast(n), "novel", "score_samples") for n in (1, n_models)]
        scorer: Scorer = Refined(firsts, ShrunkenLogistic(), local.scorer.n_folds, 1)
        last = None
    else:
        scorer, last = local.scorer, -1
    mixture = Mixture(wide.mixture.distinct[:, :last], wide.mixture.position)
    return Learnt(scorer.fit(TrainingSet(wide.null_train[:, :last], mixture)), last)


def _widened(training: TrainingSet, widen: Callable[[Matrix], Matrix]) -> TrainingSet:
    """Return the same rows with further columns; equal rows stay equal and keep their order."""
    mixture = training.mixture
    wide = Mixture(widen(mixture.distinct), mixture.position)
    return TrainingSet(widen(training.null_train), wide)


class MeanOfLast(BaseEstimator):  # type: ignore[misc]
    """The mean of the last columns, as a one-class model that learns nothing.

    Parameters
    ----------
    n_columns : int
    """

    by_row = True

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns

    def fit(self, X: Matrix, y: None = None) -> MeanOfLast:
        """Do nothing."""
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the mean of the last `n_columns` columns."""
        return mean_of(X[:, -self.n_columns :].T)

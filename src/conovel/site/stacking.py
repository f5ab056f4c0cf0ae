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
    ScoreModel,
    TrainingSet,
    Vector,
    add_up,
    log_odds,
    mean_of,
)
from conovel.scorers.cross_fit import CrossFitScorer
from conovel.scorers.one_class import OneClass
from conovel.scorers.refined import Refined
from conovel.scorers.shrunken_logistic import ShrunkenLogistic
from conovel.site.near_peers import Standardised, likely_novelties, model_weights, spread_of
from conovel.site.scale import as_probability

# Shares of the stacked score: what is learnt, the own score, the weighted mean of all models. With
# few likely novelties what is learnt from them is uncertain, and the models of others count more.
_WITH_FEW, _WITH_MANY = np.array([0.2, 0.2, 0.6]), np.array([0.5, 0.25, 0.25])
_MANY = 20  # likely novelties


@dataclass(frozen=True, eq=False)
class FunctionScore:
    """A score model given by a function."""

    score: Callable[[Matrix], Vector]


def stack(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> ScoreModel:
    """Learn again from the features and the scores of all models.

    A plain classifier is fitted again as it is. Where the local scorer cross-fits, a linear model
    is refined instead: what is not linear is in the own score already.
    """
    if isinstance(local.scorer, CrossFitScorer):
        return _stack_refined(local, local.scorer.n_folds, surrogates, training)
    return _stack_plain(local, surrogates, training)


def _stack_plain(
    local: FittedScorer, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> ScoreModel:
    """Fit the local scorer again, with the peers' log-odds as further features."""

    def widen(rows: Matrix) -> Matrix:
        scores = [model.score(rows) for model in surrogates]
        return np.column_stack([rows, *(log_odds(one) for one in scores)])

    fitted = local.scorer.fit(_widened(training, widen))
    return FunctionScore(lambda rows: fitted.score(widen(rows)))


def _stack_refined(
    local: FittedScorer, n_folds: int, surrogates: Sequence[ScoreModel], training: TrainingSet
) -> ScoreModel:
    """Refine a linear model, and add the own score and the peers' scores by weight.

    The linear model starts from where the own score and the mean of all models point. Where agents
    differ the mean points elsewhere, where they have few rows the own score does. The own score
    and the weighted mean of all models are then added to what is learnt: each errs in its own way.
    """
    null_train = training.null_train

    def widen(rows: Matrix) -> Matrix:
        scores = [model.score(rows) for model in surrogates]
        scores.append(as_probability(local, null_train, rows))
        return np.column_stack([rows, *(log_odds(one) for one in scores)])

    n_models = len(surrogates) + 1
    # Columns at the end: the own score is the last one, before it are the peers'.
    firsts = [OneClass(MeanOfLast(n), "novel", "score_samples") for n in (1, n_models)]
    wide = _widened(training, widen)
    fitted = Refined(firsts, ShrunkenLogistic(), n_folds, 1).fit(wide)

    def learn(wide_rows: Matrix) -> Vector:
        learnt = fitted.score(wide_rows)
        # It is no probability where nothing stood out.
        return log_odds(learnt, closest=1e-6) if fitted.scale == "probability" else learnt

    models = Standardised.of(
        *(r[:, -n_models:].T for r in (wide.null_train, wide.mixture.distinct))
    )
    learnt = learn(wide.mixture.distinct)[np.newaxis]
    mean = mean_of(models.mixture)[np.newaxis]
    first = add_up(
        [(learnt / spread_of(learnt))[0], models.mixture[-1], 2 * mean[0] / spread_of(mean)]
    )
    weights = model_weights(models, first)
    near = add_up(weights[:, np.newaxis] * models.mixture)[np.newaxis]
    many = min(likely_novelties(first) / _MANY, 1)
    from_learnt, from_own, from_near = (1 - many) * _WITH_FEW + many * _WITH_MANY
    of_models = from_near / spread_of(near) * weights / models.spread
    of_models[-1] += from_own / models.spread[-1]
    of_learnt = from_learnt / spread_of(learnt)

    def score(rows: Matrix) -> Vector:
        wide_rows = widen(rows)
        parts = of_models[:, np.newaxis] * wide_rows[:, -n_models:].T
        return add_up([of_learnt * learn(wide_rows), *parts])

    return FunctionScore(score)


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

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns

    def fit(self, X: Matrix, y: None = None) -> MeanOfLast:
        """Do nothing."""
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the mean of the last `n_columns` columns."""
        return mean_of(X[:, -self.n_columns :].T)

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
from conovel.scorers.refined import Refined, shrunken_logistic
from conovel.site.scale import as_probability

# Shares of the stacked score: what is learnt, the own score, the mean of all models.
_SHARES = (0.5, 0.25, 0.25)


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
    """Refine a linear model from where the own score and the mean of all models point.

    Where agents differ the mean points elsewhere, where they have few rows the own score does.
    The own score and the mean are then added to what is learnt: each errs in its own way.
    """
    null_train = training.null_train

    def widen(rows: Matrix) -> Matrix:
        scores = [model.score(rows) for model in surrogates]
        scores.append(as_probability(local, null_train, rows))
        return np.column_stack([rows, *(log_odds(one) for one in scores)])

    last_columns = (1, len(surrogates) + 1)  # the own score; all scores
    firsts = [OneClass(MeanOfLast(n), "novel", "score_samples") for n in last_columns]
    wide = _widened(training, widen)
    fitted = Refined(firsts, shrunken_logistic(), n_folds, 1).fit(wide)

    def parts(wide_rows: Matrix) -> Matrix:
        learnt = fitted.score(wide_rows)
        if fitted.scale == "probability":  # it is not where nothing stood out
            learnt = log_odds(learnt, closest=1e-6)
        return np.stack([learnt, *(mean_of(wide_rows[:, -n:].T) for n in last_columns)])

    spread = parts(wide.null_train).std(axis=1)
    weights = (np.array(_SHARES) / np.where(spread > 0, spread, 1))[:, np.newaxis]
    return FunctionScore(lambda rows: add_up(weights * parts(widen(rows))))


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

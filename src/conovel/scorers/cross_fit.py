"""Cross-fits with sample weights, and how weights follow from a cross-fit.

Folds are assigned by a hash of the row's content, so every row is scored by a model that never saw
it, and equal rows share their fold. All rows are known here only as null_train or mixture: which
mixture rows are calibration rows is not looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Scorer,
    TrainingSet,
    Vector,
    is_by_row,
    mean_of,
)
from conovel.scorers.classifier import (
    ClassifierScorer,
    ScorerLike,
    classifier_score,
    require_probabilities,
)
from conovel.scorers.discriminant import Discriminant
from conovel.scorers.hashing import content_folds
from conovel.scorers.one_class import OneClass
from conovel.scorers.reading import last_step
from conovel.scorers.shrunken_logistic import ShrunkenLogistic
from conovel.stats.levels import as_whole
from conovel.stats.ranks import adjusted_pvalues, conformal_ranks

# Rows count as likely novelties while at most this share of the rows above them is expected to
# be normal. The first share that gives _LIKELY_ROWS_NEEDED rows is taken.
_NULL_SHARES = (0.2, 0.35, 0.5, 0.7, 0.9)
_LIKELY_ROWS_NEEDED = 5
# Linear models cost next to nothing. In four times as many folds each of them learns from
# more of the novelties, which may be a dozen.
_LINEAR_MODELS = LogisticRegression, ShrunkenLogistic, Discriminant
_FOLDS_OF_LINEAR_MODELS = 4
_MOST_ROUNDS = 100  # folds, or refits: more only take longer


class CrossFitScorer(Scorer):
    """A scorer that is fitted by cross-fits on the folds of a :class:`CrossFitter`."""

    n_folds: int

    @abstractmethod
    def cross_fit(self, fitter: CrossFitter) -> CrossFit:
        """Return the last cross-fit."""

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Score by the cross-fit; what peers get is fitted once on all rows."""
        n_folds = as_whole(self.n_folds, "n_folds", 2, _MOST_ROUNDS)
        fitter = CrossFitter.of(training, n_folds)
        return fitter.finish(self, self.cross_fit(fitter))


@dataclass(frozen=True, eq=False)
class CrossFit:
    """What was fitted, with which weights, and one model for each fold."""

    learner: ScorerLike
    weights: Vector  # of null_train and the mixture; rows of weight 0 are left out
    models: tuple[FittedScorer, ...]  # only one: too few rows for folds

    @property
    def is_one_learner(self) -> bool:
        """Whether one fit of the learner on all rows stands for the cross-fit."""
        return True

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, self.models))

    def score(self, X: Matrix) -> Vector:
        """Score each row by the model that did not see rows of its content."""
        return self.score_in_folds(X, content_folds(X, len(self.models)))

    def score_in_folds(self, X: Matrix, folds: NDArray[np.int64]) -> Vector:
        """Score each row by the model of its fold."""
        scores = np.empty(len(X))
        for fold, model in enumerate(self.models):
            members = folds % len(self.models) == fold
            if members.any():
                scores[members] = model.score(X[members])
        return scores


@dataclass(frozen=True, eq=False)
class CrossFitter:
    """null_train and the mixture in one matrix, with their folds.

    What was fitted once is kept, by the objects that it was fitted from.
    """

    rows: Matrix
    n_train: int
    folds: NDArray[np.int64]  # of linear models; what is fitted in fewer takes the remainder
    n_folds: int
    _first_fits: dict[Any, CrossFit] = field(default_factory=dict)
    _refinements: dict[tuple[tuple[CrossFit, ...], Any, int], CrossFit] = field(
        default_factory=dict
    )
    _scores: dict[CrossFit, Vector] = field(default_factory=dict)

    @classmethod
    def of(cls, training: TrainingSet, n_folds: int) -> CrossFitter:
        """Put the rows together and assign them to folds."""
        rows, _ = training.labelled()
        folds = content_folds(rows, _FOLDS_OF_LINEAR_MODELS * n_folds)
        return cls(rows, len(training.null_train), folds, n_folds)

    def on_columns(self, columns: Matrix) -> CrossFitter:
        """Return a fitter of the same rows and folds that learns from other columns."""
        return CrossFitter(columns, self.n_train, self.folds, self.n_folds)

    def first_fit(self, scorer: ScorerLike) -> CrossFit:
        """Cross-fit a first scorer on all rows."""
        if not isinstance(scorer, OneClass | CrossFitScorer):
            require_probabilities(scorer)
        if scorer not in self._first_fits:
            self._first_fits[scorer] = self._fit_first(scorer)
        return self._first_fits[scorer]

    def _fit_first(self, scorer: ScorerLike) -> CrossFit:
        if isinstance(scorer, CrossFitScorer):
            return scorer.cross_fit(self)
        weights = np.ones(len(self.rows))
        found = self.cross_fit(scorer, weights)
        return found or CrossFit(scorer, weights, (self.fit(scorer, weights),))

    def refine(self, firsts: tuple[CrossFit, ...], learner: ScorerLike, n_refits: int) -> CrossFit:
        """Weigh and refit; the first cross-fit stays where nothing stands out."""
        if as_whole(n_refits, "n_refits", most=_MOST_ROUNDS):
            require_probabilities(learner)
        key = firsts, learner, n_refits
        if key not in self._refinements:
            self._refinements[key] = self._refine(firsts, learner, n_refits)
        return self._refinements[key]

    def _refine(
        self, firsts: tuple[CrossFit, ...], learner: ScorerLike, n_refits: int
    ) -> CrossFit:
        if not n_refits or len(firsts[0].models) == 1:
            return firsts[0]
        return self.refit(learner, self.mean_weights(firsts), n_refits) or firsts[0]

    def refit(self, learner: ScorerLike, weights: Vector, n_refits: int) -> CrossFit | None:
        """Fit with these weights, then with those it finds itself; None if no fit is possible."""
        found = None
        for _ in range(n_refits):
            fitted = self.cross_fit(learner, weights if found is None else self.weights(found))
            if fitted is None:
                break
            found = fitted
        return found

    def cross_fit(self, learner: ScorerLike, weights: Vector) -> CrossFit | None:
        """Fit once for each fold left out; None where a fit would lack a class."""
        is_linear = isinstance(last_step(learner), _LINEAR_MODELS)
        n_folds = self.n_folds * (_FOLDS_OF_LINEAR_MODELS if is_linear else 1)
        keep = [(self.folds % n_folds != fold) & (weights > 0) for fold in range(n_folds)]
        is_null = np.arange(len(self.rows)) < self.n_train
        if any(min((k & is_null).sum(), (k & ~is_null).sum()) < 2 for k in keep):
            return None
        if isinstance(learner, ShrunkenLogistic):
            return CrossFit(learner, weights, self._fit_together(learner, weights, keep))
        models = tuple(self.fit(learner, np.where(k, weights, 0)) for k in keep)
        return CrossFit(learner, weights, models)

    def _fit_together(
        self, learner: ShrunkenLogistic, weights: Vector, keep: Sequence[NDArray[np.bool_]]
    ) -> tuple[FittedScorer, ...]:
        """Fit all folds of a logistic regression in one call."""
        used = np.flatnonzero(weights > 0)
        labels = (used >= self.n_train).astype(np.int64)
        in_folds = np.stack([np.where(k[used], weights[used], 0.0) for k in keep])
        models = learner.fit_folds(self.rows[used], labels, in_folds)
        return tuple(classifier_score(model, ClassifierScorer(learner)) for model in models)

    def fit(self, learner: ScorerLike, weights: Vector) -> FittedScorer:
        """Fit null_train (0) against the mixture (1), rows of no weight left out."""
        used = np.flatnonzero(weights > 0)
        is_null = used < self.n_train
        if isinstance(learner, OneClass):
            return learner.fit_nulls(self.rows[used[is_null]])
        labels = (~is_null).astype(int)
        model = fit_weighted(learner, self.rows[used], labels, weights[used])
        return classifier_score(model, ClassifierScorer(learner))

    def scores(self, found: CrossFit) -> Vector:
        """Score all rows, each by the model of its fold."""
        if found not in self._scores:
            self._scores[found] = found.score_in_folds(self.rows, self.folds)
        return self._scores[found]

    def mean_weights(self, found: Sequence[CrossFit]) -> Vector:
        """Average the weights that several cross-fits give."""
        return mean_of([self.weights(one) for one in found])

    def weights(self, found: CrossFit) -> Vector:
        """Weigh the mixture by how likely its rows are novel; null_train keeps weight 1."""
        likely = likely_novel(*np.split(self.scores(found), [self.n_train]))
        return np.concatenate([np.ones(self.n_train), likely])

    def finish(self, scorer: Scorer, found: CrossFit) -> FittedScorer:
        """Score by the cross-fit; what peers get is fitted once on all rows."""
        whole = self.fit(found.learner, found.weights) if found.is_one_learner else None
        estimator = whole.estimator if whole else None
        weights = found.weights[self.n_train :]
        return FittedScorer(scorer, found.score, found.models[0].scale, estimator, weights)


def likely_novel(of_null_train: Vector, of_mixture: Vector) -> Vector:
    """Say how likely the rows of the mixture are novel, from scores of rows not learnt from.

    The mixture is ranked among null_train. One minus the BH-adjusted p-value estimates which
    share of the mixture, from a row upwards, is novel.
    """
    null_share = adjusted_pvalues(conformal_ranks(of_null_train, of_mixture), of_null_train.size)
    for most in _NULL_SHARES:
        if np.count_nonzero(null_share <= most) >= _LIKELY_ROWS_NEEDED:
            return np.where(null_share <= most, 1 - null_share, 0.0)
    return np.zeros(null_share.size)


def fit_weighted(model: Any, X: Matrix, y: NDArray[np.int64], weights: Vector) -> Any:
    """Fit a clone with sample weights, also in a pipeline; without where it takes none.

    Histogram boosting goes without: its bins would become weighted quantiles, which take
    twenty times as long as the whole fit.
    """
    model = clone(model)
    last = last_step(model)
    prefix = "" if last is model else f"{model.steps[-1][0]}__"
    weighted = has_fit_parameter(last, "sample_weight") and (weights != 1).any()
    if weighted and not isinstance(last, HistGradientBoostingClassifier):
        return model.fit(X, y, **{f"{prefix}sample_weight": weights})
    return model.fit(X, y)

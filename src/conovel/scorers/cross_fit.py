"""Cross-fits with sample weights, and how weights follow from a cross-fit.

Folds are assigned by a hash of the row's content, so every row is scored by a model that never saw
it, and equal rows share their fold. All rows are known here only as null_train or mixture: which
mixture rows are calibration rows is not looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from conovel.errors import InputError, ScorerError
from conovel.models.forest import check_rows
from conovel.models.linear import Linear, affine_by_row, logistic, standardise
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    Scorer,
    TrainingSet,
    Vector,
    checked_scores,
    classifier_score,
    content_folds,
    is_by_row,
    last_step,
    mean_of,
)
from conovel.scorers.estimators import (
    ClassifierScorer,
    OneClass,
    ScorerLike,
    name_of,
    require_classifier,
)
from conovel.scorers.likeness import Likeness
from conovel.stats.levels import as_whole
from conovel.stats.ranks import adjusted_pvalues, conformal_ranks

# Rows count as likely novelties while at most this share of the rows above them is expected to
# be normal. The first share that gives _LIKELY_ROWS_NEEDED rows is taken.
_NULL_SHARES = (0.2, 0.35, 0.5, 0.7, 0.9)
_LIKELY_ROWS_NEEDED = 5
# Linear models cost next to nothing. In four times as many folds each of them learns from
# more of the novelties, which may be a dozen.
_FOLDS_OF_LINEAR_MODELS = 4
_MOST_ROUNDS = 100  # folds, or refits: more only take longer


@dataclass(eq=False, repr=False)
class ShrunkenLogistic(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression; a cross-fit solves all its folds together.

    It is what scikit-learn's LogisticRegression minimises, in a fraction of its time on a few
    hundred rows, and with bits that depend on no numerical library.
    """

    by_row = True  # as its linear model
    is_linear = True
    is_plain = True

    C: float = 0.03  # the smaller, the more the coefficients are shrunk
    # Whether columns are first brought to mean 0 and standard deviation 1
    standardise: bool = field(default=True, kw_only=True)

    def fit(
        self, X: Matrix, y: NDArray[np.integer], sample_weight: Vector | None = None
    ) -> ShrunkenLogistic:
        """Fit on all rows."""
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        (fitted,) = self.fit_folds(X, y, weights[np.newaxis])
        return self._take(fitted.flat_)

    def fit_folds(
        self, X: Matrix, y: NDArray[np.integer], weights: Matrix
    ) -> list[ShrunkenLogistic]:
        """Fit once for each row of `weights`."""
        labels = np.asarray(y, dtype=np.int64)
        models = fit_folds(X, labels, weights, self.C, standardise=self.standardise)
        empty = (ShrunkenLogistic(self.C, standardise=self.standardise) for _ in weights)
        return [one._take(model) for one, model in zip(empty, models, strict=True)]

    def _take(self, linear: Linear) -> ShrunkenLogistic:
        self.flat_: Linear = linear
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1."""
        novel = self.flat_.score(X)
        return np.column_stack([1 - novel, novel])

    @staticmethod
    def score_folds(models: list[ShrunkenLogistic], X: Matrix, folds: NDArray[np.int64]) -> Vector:
        """Say how likely each row is of class 1, by the model of its fold, fitted together."""
        first = models[0].flat_  # all have its scaler
        coef = np.stack([model.flat_.coef for model in models])
        bias = np.array([model.flat_.intercept for model in models])
        rows = standardise(check_rows(X, first.n_features), first.centre, first.scale)
        return logistic(affine_by_row(rows, coef[folds], bias[folds]))


def fit_folds(
    rows: Matrix,
    y: NDArray[np.integer],
    weights: Matrix,
    C: float = 0.03,
    *,
    standardise: bool = True,
) -> list[Linear]:
    """Minimise Σ w_i loss_i + |coef|² / (2 C) for each row of `weights`, as scikit-learn does.

    By Newton's method, each step by conjugate gradients; the intercept is free. No bit depends on
    BLAS or on threads. A fold that is left out has weight 0.
    """
    from conovel.scorers.linear_loops import solve  # noqa: PLC0415  (loads numba)

    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != len(rows):
        raise InputError(f"weights must have a column for each of {len(rows)} rows")
    targets = np.array(np.broadcast_to(np.asarray(y, dtype=np.float64), weights.shape))
    if not 0 < C < np.inf:
        raise InputError(f"C must be a positive number, not {C!r}")
    for number, (target, weight) in enumerate(zip(targets, weights, strict=True)):
        if not (weight[target == 0].any() and weight[target == 1].any()):
            raise InputError(f"fit {number} has rows of one class only: give it fewer folds")
    n_columns = rows.shape[1]
    centre, scale = _standard(rows) if standardise else (np.zeros(n_columns), np.ones(n_columns))
    z = np.ascontiguousarray((rows - centre) / scale)
    matrix = z, np.ascontiguousarray(z.T)
    start, log_odds = np.zeros(n_columns + 1), np.empty(len(rows))
    if len(weights) > 1:  # all fits start from one on all folds
        mean = mean_of(targets), mean_of(weights)
        start = solve(*matrix, *mean, 1 / C, start, log_odds)
    fits = zip(targets, weights, strict=True)
    betas = [solve(*matrix, *fit, 1 / C, start, log_odds) for fit in fits]
    return [Linear(beta[:-1], float(beta[-1]), centre, scale) for beta in betas]


def _standard(rows: Matrix) -> tuple[Vector, Vector]:
    """Return the mean and the standard deviation of each column; 1 for a constant one."""
    columns = np.ascontiguousarray(rows, dtype=np.float64)
    largest = np.max(np.abs(columns), axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)  # squares do not overflow
    centre = _sum_of_rows(columns / unit) / len(columns)
    away = columns / unit - centre
    spread = np.sqrt(_sum_of_rows(away * away) / len(columns))
    varied = (columns != columns[:1]).any(axis=0) & (spread > 0)
    return centre * unit, np.where(varied, spread * unit, 1.0)


def _sum_of_rows(rows: Matrix) -> Vector:
    """Add rows, the first one first."""
    # numpy adds whole rows one after the other, if a row has more than one number.
    padded = np.column_stack([rows, np.zeros(len(rows))]) if rows.shape[1] == 1 else rows
    return np.asarray(np.add.reduce(padded, axis=0)[: rows.shape[1]] + 0.0)


class CrossFitScorer(Scorer):
    """A scorer that is fitted by cross-fits on the folds of a :class:`CrossFitter`."""

    n_folds: int

    @abstractmethod
    def cross_fit(self, fitter: CrossFitter) -> CrossFit:
        """Return the last cross-fit."""

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Score by the cross-fit; what peers get is fitted once on all rows."""
        return self._fit(training, None)

    def fit_known(self, training: TrainingSet, likeness: Likeness) -> FittedScorer:
        """Score by a cross-fit in which known novelties are of class 1."""
        return self._fit(training, likeness)

    def _fit(self, training: TrainingSet, likeness: Likeness | None) -> FittedScorer:
        n_folds = as_whole(self.n_folds, "n_folds", 2, _MOST_ROUNDS)
        fitter = CrossFitter.of(training, n_folds, likeness)
        return fitter.finish(self, self.cross_fit(fitter))


@dataclass(frozen=True, eq=False)
class CrossFit:
    """What was fitted, with which weights, and one model for each fold."""

    learner: ScorerLike
    weights: Vector  # of null_train and the mixture; rows of weight 0 are left out
    models: tuple[FittedScorer, ...]  # only one: too few rows for folds

    is_one_learner: ClassVar = True  # one fit of it on all rows stands for the cross-fit

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return all(map(is_by_row, self.models))

    def score(self, X: Matrix, folds: NDArray[np.int64] | None = None) -> Vector:
        """Score each row by the model of its fold, which did not see rows of its content."""
        if folds is None:
            folds = content_folds(X, len(self.models))
        folds = folds % len(self.models)
        learners = [model.estimator for model in self.models]
        together = getattr(learners[0], "score_folds", None)
        if together is not None and len(learners) > 1:
            return checked_scores(together(learners, X, folds), X, self.models[0].name)
        scores = np.empty(len(X))
        for fold, model in enumerate(self.models):
            members = folds == fold
            if members.any():
                scores[members] = model.score(X[members])
        return scores


@dataclass(frozen=True, eq=False)
class CrossFitter:
    """null_train, the mixture and known novelties in one matrix, with their folds.

    What was fitted once is kept, by the objects that it was fitted from.
    """

    rows: Matrix
    n_train: int
    folds: NDArray[np.int64]  # of linear models; what is fitted in fewer takes the remainder
    n_folds: int
    of_known: Vector = field(default_factory=lambda: np.zeros(0))  # weights of known novelties
    _first_fits: dict[Any, CrossFit] = field(default_factory=dict)
    _refinements: dict[tuple[tuple[CrossFit, ...], Any, int], CrossFit] = field(
        default_factory=dict
    )
    _scores: dict[CrossFit, Vector] = field(default_factory=dict)

    @classmethod
    def of(
        cls, training: TrainingSet, n_folds: int, likeness: Likeness | None = None
    ) -> CrossFitter:
        """Put the rows together and assign them to folds."""
        rows, _ = training.labelled()
        of_known = np.zeros(0)
        if likeness is not None:
            rows = np.concatenate([rows, likeness.rows])
            of_known = np.full(len(likeness.rows), likeness.weight)
        folds = content_folds(rows, _FOLDS_OF_LINEAR_MODELS * n_folds)
        return cls(rows, len(training.null_train), folds, n_folds, of_known)

    def on_columns(self, columns: Matrix) -> CrossFitter:
        """Return a fitter of the same rows and folds that learns from other columns."""
        return CrossFitter(columns, self.n_train, self.folds, self.n_folds, self.of_known)

    @property
    def n_unknown(self) -> int:
        """How many rows are of null_train or of the mixture."""
        return len(self.rows) - self.of_known.size

    def first_fit(self, scorer: ScorerLike) -> CrossFit:
        """Cross-fit a first scorer on all rows."""
        if not isinstance(scorer, OneClass | CrossFitScorer):
            _require_probabilities(scorer)
        if scorer not in self._first_fits:
            self._first_fits[scorer] = self._fit_first(scorer)
        return self._first_fits[scorer]

    def _fit_first(self, scorer: ScorerLike) -> CrossFit:
        if isinstance(scorer, CrossFitScorer):
            return scorer.cross_fit(self)
        weights = np.concatenate([np.ones(self.n_unknown), self.of_known])
        cross_fit = self.cross_fit(scorer, weights)
        return cross_fit or CrossFit(scorer, weights, (self.fit(scorer, weights),))

    def refine(self, firsts: tuple[CrossFit, ...], learner: ScorerLike, n_refits: int) -> CrossFit:
        """Weigh and refit; the first cross-fit stays where nothing stands out."""
        if as_whole(n_refits, "n_refits", most=_MOST_ROUNDS):
            _require_probabilities(learner)
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
        cross_fit = None
        for _ in range(n_refits):
            fitted = self.cross_fit(
                learner, weights if cross_fit is None else self.weights(cross_fit)
            )
            if fitted is None:
                break
            cross_fit = fitted
        return cross_fit

    def cross_fit(self, learner: ScorerLike, weights: Vector) -> CrossFit | None:
        """Fit once for each fold left out; None where a fit would lack a class."""
        last = last_step(learner)
        is_linear = isinstance(last, LogisticRegression) or getattr(last, "is_linear", False)
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

    def scores(self, cross_fit: CrossFit) -> Vector:
        """Score all rows, each by the model of its fold."""
        if cross_fit not in self._scores:
            self._scores[cross_fit] = cross_fit.score(self.rows, self.folds)
        return self._scores[cross_fit]

    def mean_weights(self, cross_fits: Sequence[CrossFit]) -> Vector:
        """Average the weights that several cross-fits give."""
        return mean_of([self.weights(one) for one in cross_fits])

    def weights(self, cross_fit: CrossFit) -> Vector:
        """Weigh the mixture by how likely its rows are novel; null_train keeps weight 1."""
        scores = self.scores(cross_fit)[: self.n_unknown]
        likely = likely_novel(*np.split(scores, [self.n_train]))
        return np.concatenate([np.ones(self.n_train), likely, self.of_known])

    def finish(self, scorer: Scorer, cross_fit: CrossFit) -> FittedScorer:
        """Score by the cross-fit; what peers get is fitted once on all rows."""
        whole = (
            self.fit(cross_fit.learner, cross_fit.weights) if cross_fit.is_one_learner else None
        )
        estimator = whole.estimator if whole else None
        weights = cross_fit.weights[self.n_train : self.n_unknown]
        return FittedScorer(scorer, cross_fit.score, cross_fit.models[0].scale, estimator, weights)


def _require_probabilities(scorer: ScorerLike) -> None:
    """Check that a scorer is a classifier whose scores are probabilities."""
    is_ready = hasattr(scorer, "predict_proba") and hasattr(scorer, "__sklearn_tags__")
    if not (is_ready and is_classifier(scorer)):
        require_classifier(scorer)
        raise ScorerError(f"{name_of(scorer)} has no predict_proba, which this needs")


def null_shares(of_null_train: Vector, of_mixture: Vector) -> Vector:
    """Estimate for each mixture row which share of the mixture, from it upwards, is null.

    The mixture is ranked among null_train; the estimate is the BH-adjusted p-value.
    """
    return adjusted_pvalues(conformal_ranks(of_null_train, of_mixture), of_null_train.size)


def likely_novel(of_null_train: Vector, of_mixture: Vector) -> Vector:
    """Say how likely the rows of the mixture are novel, from scores of rows not learnt from.

    One minus the share of nulls estimates which share of the mixture, from a row upwards, is
    novel.
    """
    null_share = null_shares(of_null_train, of_mixture)
    for most in _NULL_SHARES:
        if np.count_nonzero(null_share <= most) >= _LIKELY_ROWS_NEEDED:
            return np.where(null_share <= most, 1 - null_share, 0.0)
    return np.zeros(null_share.size)


def fit_weighted(model: Any, X: Matrix, y: NDArray[np.int64], weights: Vector) -> Any:
    """Fit a clone with sample weights, also in a pipeline; without where it takes none.

    Histogram boosting goes without: its bins would become weighted quantiles, which take
    twenty times as long as the whole fit. A learner that `is_plain` takes weights, and its copy is
    a clone, in a fraction of the time: `fit` only reads its parameters.
    """
    uneven = (weights != 1).any()
    if getattr(model, "is_plain", False):
        return copy(model).fit(X, y, weights if uneven else None)
    model = clone(model)
    last = last_step(model)
    prefix = "" if last is model else f"{model.steps[-1][0]}__"
    weighted = has_fit_parameter(last, "sample_weight") and uneven
    if weighted and not isinstance(last, HistGradientBoostingClassifier):
        return model.fit(X, y, **{f"{prefix}sample_weight": weights})
    return model.fit(X, y)

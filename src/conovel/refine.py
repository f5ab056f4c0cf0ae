"""Self-training: find the likely novelties out of fold, then learn from those alone.

Plain PU training is starved: most of the mixture is normal, and a novelty is one row among
many that carry the same label. Refining takes three steps, each a fixed function of
(row, null_train, mixture as a multiset) and so as valid as a single fit (docs/theory.md):

1. cross-fit, with folds by a hash of the row's content, so that every row is scored by a
   model that never saw it, and equal rows share their fold;
2. weigh: rank the mixture among null_train, both out of fold. One minus the BH-adjusted
   p-value estimates how much of the mixture from a row upwards is novel. Which mixture rows
   are calibration rows is not looked at: here null_train plays calibration;
3. refit null_train against the mixture rows of large weight, cross-fitted again; repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import has_fit_parameter

from conovel.ranks import conformal_ranks
from conovel.scoring import FittedScorer, Matrix, Mixture, Scorer, Vector, require_probabilities
from conovel.stepup import adjusted_pvalues

# Rows count as likely novelties while at most so much of what lies above them is expected to
# be normal; the first of these shares that gives enough rows is taken.
_SHARES = (0.2, 0.35, 0.5, 0.7)
_ENOUGH = 5


class Refined(BaseEstimator):  # type: ignore[misc]
    """A scorer that refines a first PU fit by weighted refits.

    Parameters
    ----------
    first : classifier
        Tells null_train from the mixture; needs ``predict_proba``.
    second : classifier or None
        Tells null_train from the likely novelties; None takes `first` again.
    n_folds : int
        Folds of the cross-fit.
    n_refits : int
        How often to weigh and refit. Refining stops early where nothing stands out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] += 1.5
    >>> plain = ExtraTreesClassifier(100, max_depth=8, min_samples_leaf=2)
    >>> refined = Refined(plain, LogisticRegression(C=0.03))
    >>> for scorer in (plain, refined):
    ...     result = cn.AdaDetect(scorer).detect(X_null, X_test)
    ...     print(int(result.rejected[270:].sum()), "of 30")
    27 of 30
    30 of 30
    """

    def __init__(
        self, first: Scorer, second: Scorer | None = None, n_folds: int = 5, n_refits: int = 3
    ) -> None:
        self.first = first
        self.second = second
        self.n_folds = n_folds
        self.n_refits = n_refits

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Refine on these rows; what is fitted on all rows at the end is sent to peers."""
        second = self.first if self.second is None else self.second
        for model in (self.first, second):
            require_probabilities(model)
        rows = np.concatenate([null_train, mixture.rows])
        weights = np.ones(len(rows))
        task = _Task(rows, len(null_train), content_folds(rows, self.n_folds), self.n_folds)
        learner, models = self.first, task.cross_fit(self.first, weights)
        for _ in range(self.n_refits if models else 0):
            likely = task.weigh(CrossFit(models).score(rows))
            refitted = task.cross_fit(second, likely)
            if not refitted:
                break
            learner, models, weights = second, refitted, likely
        whole = task.fit(learner, weights)
        read = CrossFit(models or (whole,)).score
        return FittedScorer(
            whole, self, lambda _, X: read(X), "probability", weights[len(null_train) :]
        )


@dataclass(frozen=True, eq=False)
class CrossFit:
    """One model per fold, fitted without that fold; a row is scored by its own fold's model."""

    models: tuple[Any, ...]

    def score(self, X: Matrix) -> Vector:
        """Score each row by the model that did not see rows of its content."""
        folds = content_folds(X, len(self.models))
        scores = np.empty(len(X))
        for fold, model in enumerate(self.models):
            members = folds == fold
            if members.any():
                scores[members] = model.predict_proba(X[members])[:, 1]
        return scores


@dataclass(frozen=True, eq=False)
class _Task:
    """null_train and the mixture in one matrix, with their folds."""

    rows: Matrix
    n_train: int
    folds: NDArray[np.int64]
    n_folds: int

    def cross_fit(self, model: Scorer, weights: Vector) -> tuple[Any, ...]:
        """Fit once for each fold left out; nothing where a fit would lack a class."""
        keep = [(self.folds != fold) & (weights > 0) for fold in range(self.n_folds)]
        is_null = np.arange(len(self.rows)) < self.n_train
        if any(not (k & is_null).any() or not (k & ~is_null).any() for k in keep):
            return ()
        return tuple(self.fit(model, np.where(k, weights, 0)) for k in keep)

    def fit(self, model: Scorer, weights: Vector) -> Any:
        """Fit null_train (0) against the mixture (1), rows of no weight left out."""
        used = np.flatnonzero(weights > 0)
        labels = (used >= self.n_train).astype(int)
        return fit_weighted(model, self.rows[used], labels, weights[used])

    def weigh(self, scores: Vector) -> Vector:
        """Weigh the mixture by how likely its rows are novel; null_train keeps weight 1."""
        ranks = conformal_ranks(scores[: self.n_train], scores[self.n_train :])
        share = adjusted_pvalues(ranks, self.n_train)
        enough = [cut for cut in _SHARES if np.count_nonzero(share <= cut) >= _ENOUGH]
        likely = np.where(share <= enough[0], 1 - share, 0) if enough else np.zeros(share.size)
        return np.concatenate([np.ones(self.n_train), likely])


def fit_weighted(model: Scorer, X: Matrix, y: NDArray[np.int64], weights: Vector) -> Any:
    """Fit a clone with sample weights, also in a pipeline; without where there are none."""
    model = clone(model)
    steps = getattr(model, "steps", None)
    last, prefix = (steps[-1][1], f"{steps[-1][0]}__") if steps else (model, "")
    if has_fit_parameter(last, "sample_weight"):
        return model.fit(X, y, **{f"{prefix}sample_weight": weights})
    return model.fit(X, y)


def content_folds(rows: Matrix, n_folds: int) -> NDArray[np.int64]:
    """Assign rows to folds by their bytes alone, the same on every machine.

    Examples
    --------
    >>> import numpy as np
    >>> content_folds(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), 5).tolist()
    [4, 1, 4]
    """
    # The finalizer of splitmix64, once for each column (Steele, Lea and Flood 2014).
    mixed = np.full(len(rows), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in (np.ascontiguousarray(rows) + 0.0).view(np.uint64).T:  # -0.0 is 0.0
        mixed = (mixed ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(33)) % np.uint64(n_folds)).astype(np.int64)

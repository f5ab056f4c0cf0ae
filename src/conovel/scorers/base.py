"""Score models: learned from (null_train, mixture), blind to which rows are calibration rows.

A score is valid when the score of every mixture row is a fixed function of the row,
null_train and the mixture as an unordered multiset (docs/theory.md, "What makes a score
valid"). Two things here see to it for any scikit-learn model:

* the mixture is put in canonical order before anything random or order-dependent touches
  it, so a seeded bootstrap draws the same rows whatever order they arrived in;
* each distinct row is scored once, so that equal rows have equal scores even where a
  numerical library rounds differently at different positions of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier

from conovel.errors import ModelError, ScorerError
from conovel.scorers.from_sklearn import Flat, to_flat

if TYPE_CHECKING:
    from conovel.scorers.selection import Selection

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]

_MANY = 1 << 12  # rows; from here on, fast loops make up for turning trees into numbers


class ScoreModel(Protocol):
    """Anything that scores rows; higher is more novel."""

    def score(self, X: Matrix) -> Vector:
        """Score each row."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """The mixture null_cal ∪ X_test as a multiset in canonical order.

    Attributes
    ----------
    distinct : array of shape (u, d)
        The distinct rows in lexicographic order.
    position : int array of shape (n,)
        Where in `distinct` each original row stands.
    """

    distinct: Matrix
    position: NDArray[np.intp]

    @classmethod
    def of(cls, rows: Matrix) -> Mixture:
        """Sort the rows by value; rows that are equal become one."""
        rows = rows + 0.0  # equal rows have equal bytes: -0.0 becomes 0.0
        order = np.lexsort(rows.T[::-1])
        ordered = rows[order]
        new = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
        position = np.empty(order.size, dtype=np.intp)
        position[order] = np.cumsum(new) - 1
        return cls(ordered[new], position)

    @property
    def rows(self) -> Matrix:
        """All rows in canonical order, each as often as it occurs."""
        return np.repeat(self.distinct, np.bincount(self.position), axis=0)

    def score(self, model: ScoreModel) -> Vector:
        """Score the original rows, each distinct one once."""
        return model.score(self.distinct)[self.position]


class OneClass(BaseEstimator):  # type: ignore[misc]
    """A one-class model as a scorer, with its polarity said out loud.

    It is fitted on null_train only and never sees the mixture.

    Parameters
    ----------
    model : estimator
        Anything with ``fit(X)`` and a score method: scikit-learn's isolation forest or
        one-class SVM, a pipeline that ends in one, a PyOD detector.
    higher : {"normal", "novel"}
        What a higher score of the model means. scikit-learn's outlier detectors score
        normal rows higher, PyOD's score novel rows higher.
    method : str
        The score method.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> OneClass(IsolationForest(random_state=0), higher="normal")
    OneClass(higher='normal', model=IsolationForest(random_state=0))
    """

    def __init__(
        self,
        model: Any,
        higher: Literal["normal", "novel"],
        method: str = "decision_function",
    ) -> None:
        self.model = model
        self.higher = higher
        self.method = method

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Fit on null_train alone; the mixture is not looked at."""
        return self.fit_nulls(null_train)

    def fit_nulls(self, null_train: Matrix) -> FittedScorer:
        """Fit on known normals."""
        if not isinstance(self.higher, str) or self.higher not in ("normal", "novel"):
            raise ScorerError(f"OneClass(higher=...) is 'normal' or 'novel', not {self.higher!r}")
        if not hasattr(self.model, "fit"):
            raise ScorerError(f"{name_of(self.model)} has no fit method")
        method, sign = self.method, 1.0 if self.higher == "novel" else -1.0
        model = clone(self.model, safe=False).fit(null_train)
        if not isinstance(method, str) or not callable(getattr(model, method, None)):
            raise ScorerError(
                f"{name_of(self.model)} has no method {method!r}: name the one that scores"
            )
        return FittedScorer(
            model, self, lambda fitted, X: sign * getattr(fitted, method)(X), "ordinal"
        )


Scorer: TypeAlias = Any  # a classifier, a pipeline ending in one, or what has fit_on


@dataclass(frozen=True, eq=False)
class FittedScorer:
    """A fitted scikit-learn model seen as a score model.

    `scale` says what its scores are: the probability of the mixture, log-odds of it, or
    just larger for more novel rows.
    """

    estimator: Any
    scorer: Scorer  # what was fitted, for fitting it again on other features
    read: Callable[[Any, Matrix], Vector]
    scale: Literal["probability", "log-odds", "ordinal"]
    weights: Vector | None = None  # what each row of Mixture.rows counted for, if not 1
    sendable: bool = True  # False: `estimator` is only a part of what scores
    selection: Selection | None = None  # how it was chosen
    trial: FittedScorer | None = None  # the same scorer fitted on a trial

    @property
    def name(self) -> str:
        """The model in a word, for reports."""
        return name_of(self.scorer)

    @cached_property
    def flat(self) -> Flat | None:
        """The whole model as numbers, if it has such a form."""
        if not self.sendable:
            return None
        try:
            return to_flat(self.estimator)
        except ModelError:
            return None

    def score(self, X: Matrix) -> Vector:
        """Score each row; NaN or a wrong shape is an error, never a small p-value.

        The model reads the rows in one memory layout: numpy adds the numbers of a row in another
        order where they are stored by columns.
        """
        X = np.ascontiguousarray(X)
        scores = np.asarray(self._read(X), dtype=np.float64)
        if scores.shape != (X.shape[0],) or np.isnan(scores).any():
            raise ScorerError(
                f"{self.name} gave NaN or {scores.shape} scores for {X.shape[0]} rows"
            )
        return scores

    def _read(self, X: Matrix) -> Vector:
        """Read probabilities from the flat form, which scores a row alike in any company.

        A matrix product of BLAS rounds in another way for other rows around it. Trees give
        the same bits either way (:mod:`conovel.scorers.from_sklearn`), so few rows may go without.
        """
        spared = len(X) < _MANY and "flat" not in vars(self) and _adds_trees(self.estimator)
        if self.read is as_probability and not spared and self.flat is not None:
            return self.flat.score(X)
        return self.read(self.estimator, X)


def fit_scorer(scorer: Scorer, null_train: Matrix, mixture: Mixture) -> FittedScorer:
    """Fit a scorer: a classifier on null_train (0) against the mixture (1), or a one-class model.

    Parameters
    ----------
    scorer : classifier, pipeline, OneClass or Refined
        Left untouched; a clone is fitted. Anything with ``fit_on(null_train, mixture)``
        says itself how it is fitted.
    null_train : array of shape (k, d)
        Known normals set aside for training, in a fixed order.
    mixture : Mixture
        Calibration and test rows together.
    """
    if hasattr(scorer, "fit_on"):
        fitted: FittedScorer = scorer.fit_on(null_train, mixture)
        return fitted
    _require_classifier(scorer)
    unlabelled = mixture.rows
    labels = np.repeat([0, 1], [len(null_train), len(unlabelled)])
    model = clone(scorer).fit(np.concatenate([null_train, unlabelled]), labels)
    if hasattr(model, "predict_proba"):
        return FittedScorer(model, scorer, as_probability, "probability")
    return FittedScorer(model, scorer, lambda fitted, X: fitted.decision_function(X), "log-odds")


def as_probability(fitted: Any, X: Matrix) -> Vector:
    """Read the probability of the mixture from a fitted classifier."""
    probabilities: Vector = fitted.predict_proba(X)[:, 1]
    return probabilities


def add_up(parts: Iterable[Vector]) -> Vector:
    """Add vectors one after the other, the first one first.

    numpy's own sum of 8 or more vectors adds them in another order where each has one entry,
    or where the numbers are stored the other way round. A row would then score differently
    in another batch.

    Examples
    --------
    >>> add_up([np.array([1.0, 2.0]), np.array([0.5, 0.5])])
    array([1.5, 2.5])
    """
    first, *others = parts
    total = np.array(first, dtype=np.float64)
    for part in others:
        total += part
    return total


def mean_of(parts: Sequence[Vector] | Matrix) -> Vector:
    """Return the mean of several vectors, added as :func:`add_up` does."""
    return np.asarray(add_up(parts) / len(parts))


def log_odds(probabilities: Vector, sure: float = 1e-3) -> Vector:
    """Return log-odds, with probabilities read no closer to 0 and 1 than `sure`."""
    p = np.clip(probabilities, sure, 1 - sure)
    return np.asarray(np.log(p) - np.log1p(-p))


def with_seed(scorer: Scorer, seed: int) -> Scorer:
    """Clone a scorer and fix every random state it leaves open, nested ones too.

    An open random state would make two runs on the same rows differ.
    """
    if isinstance(scorer, OneClass):
        return OneClass(with_seed(scorer.model, seed), scorer.higher, scorer.method)
    if not hasattr(scorer, "get_params"):
        return scorer
    scorer = clone(scorer)
    settled = {
        name: seed if value is None else [with_seed(part, seed) for part in value]
        for name, value in scorer.get_params(deep=True).items()
        if (value is None and name.rpartition("__")[2] == "random_state")
        or (isinstance(value, list) and all(hasattr(part, "get_params") for part in value))
    }
    return scorer.set_params(**settled)


def require_probabilities(scorer: Scorer) -> None:
    """Check that a scorer is a classifier whose scores are probabilities."""
    _require_classifier(scorer)
    if not hasattr(scorer, "predict_proba"):
        raise ScorerError(f"{name_of(scorer)} has no predict_proba, which this needs")


def _require_classifier(scorer: Scorer) -> None:
    if hasattr(scorer, "__sklearn_tags__") and is_classifier(scorer):
        return
    if hasattr(scorer, "decision_function") or hasattr(scorer, "score_samples"):
        raise ScorerError(
            f"{name_of(scorer)} is not a classifier. If it is a one-class model, say which way its"
            " score points: OneClass(model, higher='normal') or OneClass(model, higher='novel')"
        )
    raise ScorerError(
        f"{name_of(scorer)} is not a scikit-learn classifier with predict_proba or"
        " decision_function"
    )


def _adds_trees(fitted: Any) -> bool:
    """Tell whether a model adds trees in their order; several threads add them in any."""
    steps = getattr(fitted, "steps", None)
    last = steps[-1][1] if steps else fitted
    alone = getattr(last, "n_jobs", None) in (None, 1)
    return alone and any(hasattr(last, name) for name in ("estimators_", "_predictors", "tree_"))


def name_of(scorer: Scorer) -> str:
    """Name a scorer in a word or two, for reports."""
    steps = getattr(scorer, "steps", None)
    if steps:
        return " + ".join(name_of(step) for _, step in steps)
    if isinstance(scorer, OneClass):
        return name_of(scorer.model)
    label = getattr(scorer, "label", None)
    return label if isinstance(label, str) else type(scorer).__name__

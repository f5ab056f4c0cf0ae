"""Scikit-learn models as scorers: classifiers, one-class models, and pipelines that read frames.

A classifier learns null_train as class 0 and the mixture as class 1, a one-class model null_train
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from conovel.errors import ScorerError
from conovel.scorers.base import (
    FittedScorer,
    Matrix,
    ProbabilityReader,
    Scorer,
    TrainingSet,
    Vector,
    classifier_score,
    is_by_row,
)
from conovel.scorers.likeness import Likeness

# What users pass: a Scorer, or a scikit-learn classifier or a pipeline that ends in one.
ScorerLike: TypeAlias = Any
# Of a mixture row that nothing points to, where likely novelties have a weight.
WEIGHT_OF_ALL = 0.1


@dataclass(frozen=True, eq=False)
class ClassifierScorer(Scorer):
    """A classifier as a scorer; a clone of it is fitted."""

    classifier: Any

    @property
    def label(self) -> str:
        """The names of the classifier and of the steps before it."""
        return name_of(self.classifier)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit null_train (0) against the mixture (1)."""
        model = clone(self.classifier).fit(*training.labelled())
        return classifier_score(model, self)

    def fit_known(self, training: TrainingSet, likeness: Likeness) -> FittedScorer:
        """Fit null_train (0) against likely and known novelties (1), where weights can be given.

        Where they cannot, known novelties are more rows of class 1.
        """
        from conovel.scorers.cross_fit import fit_weighted  # noqa: PLC0415  (imports this module)

        rows, labels, weights = likeness.labelled(training, WEIGHT_OF_ALL)
        return classifier_score(fit_weighted(self.classifier, rows, labels, weights), self)

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the classifier leaves open, nested ones too."""
        return ClassifierScorer(with_seed(self.classifier, seed))


def as_scorer(scorer: ScorerLike) -> Scorer:
    """Return a scorer as it is, and a classifier as a scorer."""
    if isinstance(scorer, Scorer):
        return scorer
    require_classifier(scorer)
    return ClassifierScorer(scorer)


def with_seed(scorer: ScorerLike, seed: int) -> ScorerLike:
    """Clone a scorer or an estimator with every random state fixed that it leaves open.

    An open random state would make two runs on the same rows differ.
    """
    if isinstance(scorer, Scorer):
        return scorer.with_seed(seed)
    if isinstance(scorer, list | tuple):
        return [with_seed(part, seed) for part in scorer]
    if not hasattr(scorer, "get_params"):
        return scorer
    scorer = clone(scorer)
    open_states = [
        name
        for name, value in scorer.get_params(deep=True).items()
        if value is None and name.rpartition("__")[2] == "random_state"
    ]
    return scorer.set_params(**dict.fromkeys(open_states, seed))


def require_classifier(scorer: ScorerLike) -> None:
    """Check that something is a scikit-learn classifier."""
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


def name_of(scorer: ScorerLike) -> str:
    """Name a scorer or an estimator in a word or two, for reports."""
    if isinstance(scorer, Scorer):
        return scorer.label
    if hasattr(scorer, "decode"):  # a FrameEstimator
        return name_of(scorer.model)
    steps = getattr(scorer, "steps", None)
    return " + ".join(name_of(step) for _, step in steps) if steps else type(scorer).__name__


@dataclass(frozen=True, eq=False)
class OneClass(Scorer):
    """A one-class model as a scorer; which way its score points is stated, not guessed.

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
    >>> OneClass(IsolationForest(random_state=0), higher="normal").label
    'IsolationForest'
    """

    model: Any
    higher: Literal["normal", "novel"]
    method: str = "decision_function"

    @property
    def label(self) -> str:
        """The name of the model."""
        return name_of(self.model)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit on null_train alone; on the mixture where no known normals train.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        has_normals = len(training.null_train) > 0
        return self.fit_nulls(training.null_train if has_normals else training.mixture.rows)

    def fit_nulls(self, null_train: Matrix) -> FittedScorer:
        """Fit on known normals."""
        if not isinstance(self.higher, str) or self.higher not in ("normal", "novel"):
            raise ScorerError(f"OneClass(higher=...) is 'normal' or 'novel', not {self.higher!r}")
        if not hasattr(self.model, "fit"):
            raise ScorerError(f"{self.label} has no fit method")
        model = clone(self.model, safe=False).fit(null_train)
        if not isinstance(self.method, str) or not callable(getattr(model, self.method, None)):
            raise ScorerError(
                f"{self.label} has no method {self.method!r}: name the one that scores"
            )
        read = getattr(model, self.method)
        if self.higher == "normal":
            read = NegatedScore(model, self.method)
        return FittedScorer(self, read, "ordinal", model)

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the model leaves open."""
        return replace(self, model=with_seed(self.model, seed))


@dataclass(frozen=True, eq=False)
class NegatedScore:
    """A score method of a fitted model that scores normal rows higher, negated."""

    model: Any
    method: str

    def __call__(self, X: Matrix) -> Vector:
        """Score each row."""
        return -np.asarray(getattr(self.model, self.method)(X))

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return is_by_row(self.model) or _is_isolation_forest(self.model)


def _is_isolation_forest(model: Any) -> bool:
    """Tell whether a model is an isolation forest that adds its trees one after the other.

    scikit-learn looks up the leaf of each row and adds a number for each tree. Threads add in the
    order in which they finish.
    """
    kind = type(model)
    is_one = kind.__module__.startswith("sklearn.") and kind.__name__ == "IsolationForest"
    return is_one and model.n_jobs in (None, 1)


# Makes a frame of the rows of a matrix.
Decode: TypeAlias = Callable[[Matrix], Any]


def _has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(self.model, method)


def _is_plain(features: Any) -> bool:
    """Tell whether features are a matrix of finite numbers."""
    is_matrix = isinstance(features, np.ndarray) and features.dtype == np.float64
    return is_matrix and bool(np.isfinite(features).all())


class FrameEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that gets the rows of a matrix as a frame."""

    def __init__(self, model: Any, decode: Decode) -> None:
        self.model = model
        self.decode = decode

    def fit(self, X: Matrix, y: Any = None) -> FrameEstimator:
        """Fit on the frame of the rows."""
        self.model_ = clone(self.model).fit(self.decode(X), y)
        self.classes_ = getattr(self.model_, "classes_", None)
        is_pipeline = isinstance(self.model_, Pipeline) and len(self.model_) > 1
        self.read_ = ProbabilityReader(self.model_[-1]) if is_pipeline else None
        return self

    @available_if(_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Matrix) -> Matrix:
        """Give the probability of each class, the same bits in any batch where that is known."""
        frame = self.decode(X)
        if self.read_ is None:
            return self.model_.predict_proba(frame)  # type: ignore[no-any-return]
        features = self.model_[:-1].transform(frame)
        if not _is_plain(features):  # products of sparse matrices go row by row
            return self.model_[-1].predict_proba(features)  # type: ignore[no-any-return]
        novel = self.read_(np.ascontiguousarray(features))
        return np.stack([1 - novel, novel], axis=1)

    @available_if(_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Matrix) -> Vector:
        """Give the decision function."""
        return self.model_.decision_function(self.decode(X))  # type: ignore[no-any-return]

    @available_if(_has("score_samples"))  # type: ignore[untyped-decorator]
    def score_samples(self, X: Matrix) -> Vector:
        """Give the score of a one-class model."""
        return self.model_.score_samples(self.decode(X))  # type: ignore[no-any-return]

"""One-class models as scorers: they learn from null_train alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from conovel.errors import ScorerError
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector, is_by_row
from conovel.scorers.classifier import name_of, with_seed


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
        """Fit on null_train alone; the mixture is not looked at."""
        return self.fit_nulls(training.null_train)

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
        sign = 1.0 if self.higher == "novel" else -1.0
        return FittedScorer(self, SignedScore(model, self.method, sign), "ordinal", model)

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the model leaves open."""
        return replace(self, model=with_seed(self.model, seed))


@dataclass(frozen=True, eq=False)
class SignedScore:
    """A score method of a fitted model, turned so that higher is more novel."""

    model: Any
    method: str
    sign: float

    def __call__(self, X: Matrix) -> Vector:
        """Score each row."""
        return np.asarray(self.sign * getattr(self.model, self.method)(X))

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

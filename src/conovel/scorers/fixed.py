"""A model that was trained elsewhere as a score: it stays as it is, and learns nothing here.

A fixed function of the row is a valid score (docs/theory.md, "What makes a score valid"), if it is
fixed before the rows are drawn that calibrate and that are tested. A model that was trained on
some of the calibration rows, and not on the tests, is not: it knows which row has which role.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ScorerError
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector
from conovel.scorers.content import content_hash

# Methods that give one number for each row of an array, larger for class 1: of a booster of
# XGBoost, and of anything that is a classifier.
_BOOSTER, _CLASSIFIER = "inplace_predict", "predict_proba"


@dataclass(frozen=True, eq=False)
class FixedScore(Scorer):
    """A model that was trained elsewhere, as a scorer; nothing is fitted.

    All known normals calibrate, unless `train_fraction` says otherwise.

    Parameters
    ----------
    model : callable or fitted model
        A function that gives each row of an array a number; a fitted classifier with
        ``predict_proba``; a booster of XGBoost; or any object with the method that `method` names.
    name : str
        What reports call it; a version in it tells two models of one kind apart.
    trained_on : array of shape (k, d), array of digests, or None
        The rows that the model was trained on, as numbers in the order of the columns; or what
        :meth:`digests` made of them elsewhere. Known normals among them never calibrate at one
        site. Where a row that calibrates or is tested is among them, the run is refused.
        None if they are not at hand: that the model has seen no such row is then an assumption.
    higher : {"novel", "normal"}
        What a higher score means.
    method : str or None
        The method that scores; None takes the one that `model` has.

    See Also
    --------
    conovel.OneClass : A one-class model that is fitted here.

    Examples
    --------
    >>> import numpy as np, conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_test = np.append(rng.normal(size=190), rng.normal(6, 1, 10))[:, np.newaxis]
    >>> scorer = FixedScore(lambda X: X[:, 0], "size")
    >>> result = cn.AdaDetect(scorer).detect(rng.normal(size=(500, 1)), X_test)
    >>> result.scorer, result.n_train, result.n_calibration
    ('size', 0, 500)
    """

    model: Any
    name: str = ""
    trained_on: Any = None
    higher: Literal["novel", "normal"] = "novel"
    method: str | None = None

    learns = False

    def __post_init__(self) -> None:
        if self.higher not in ("novel", "normal"):
            raise ScorerError(
                f"FixedScore(higher=...) is 'novel' or 'normal', not {self.higher!r}"
            )
        self._method()
        if self.trained_on is not None:
            object.__setattr__(self, "trained_on", _as_digests(self.trained_on))
        object.__setattr__(self, "assumption", self._assumption())

    @property
    def label(self) -> str:
        """The name that was given, or that of the model."""
        return self.name or getattr(self.model, "__name__", type(self.model).__name__)

    def _assumption(self) -> str:
        checked = (
            ""
            if self.trained_on is None
            else f" (the {len(self.trained_on):,} rows that are named as its training rows are not"
            " among them)"
        )
        return (
            f"{self.label} was trained elsewhere on rows that neither calibrate nor are tested"
            f"{checked}, and did not change after these were seen"
        )

    @staticmethod
    def digests(rows: Any) -> NDArray[np.uint64]:
        """Return 64 bits for each row, by which training rows can be named without sending them.

        Who can guess a row can tell whether its digest is among them.
        """
        return content_hash(_as_rows(rows))

    def has_seen(self, rows: Any) -> NDArray[np.bool_]:
        """Tell which rows are among those that the model was trained on."""
        if self.trained_on is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return np.isin(self.digests(rows), self.trained_on)

    def with_seed(self, seed: int) -> Scorer:
        """Return itself: nothing random is left."""
        return self

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Learn nothing; refuse if the model has seen rows that calibrate or are tested.

        Which of the two they are plays no part.

        Proof: Theorem 1 (docs/theory.md#thm-valid).
        """
        n_seen = int(np.count_nonzero(self.has_seen(training.mixture.distinct)))
        if n_seen:
            raise ScorerError(
                f"{self.label} was trained on {n_seen:,} of the rows that calibrate or are tested:"
                " it would know them from the others. Test other rows; and leave these out of the"
                " known normals: X_null[~scorer.has_seen(X_null)]"
            )
        return FittedScorer(self, self._read, "ordinal")

    def _method(self) -> str | None:
        """Return the method that scores; None if the model is called itself."""
        if self.method is not None:
            if not callable(getattr(self.model, self.method, None)):
                raise ScorerError(
                    f"{self.label} has no method {self.method!r}: name one that scores"
                )
            return self.method
        for name in (_CLASSIFIER, _BOOSTER):
            if hasattr(self.model, name):
                return name
        if callable(self.model) and not isinstance(self.model, type):
            return None
        raise ScorerError(
            f"{self.label} cannot be called, and has neither predict_proba nor inplace_predict:"
            " give a function that scores the rows of an array, or name the method and what a"
            " higher score means: FixedScore(model, method='decision_function', higher='normal')"
        )

    def _read(self, X: Matrix) -> Vector:
        name = self._method()
        scores = np.asarray((self.model if name is None else getattr(self.model, name))(X))
        if name == _CLASSIFIER and scores.ndim == 2:
            scores = scores[:, -1]
        scores = np.asarray(scores, dtype=np.float64)
        return -scores if self.higher == "normal" else scores


def _as_rows(rows: Any) -> Matrix:
    matrix = np.asarray(rows, dtype=np.float64)
    if matrix.ndim != 2:
        raise ScorerError(f"trained_on has rows of numbers, not an array of shape {matrix.shape}")
    return np.ascontiguousarray(matrix)


def _as_digests(trained_on: Any) -> NDArray[np.uint64]:
    given = np.asarray(trained_on)
    is_digests = given.ndim == 1 and given.dtype == np.uint64
    return np.unique(given if is_digests else content_hash(_as_rows(trained_on)))

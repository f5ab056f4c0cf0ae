"""Pipelines that read frames: they get the columns with their names and types, not a matrix.

A site holds its rows as a matrix from which the frame can be made again
(:mod:`conovel.rows.original`). So the order of the rows, the sample to train on and equal rows are
handled as for every scorer, and a pipeline cannot tell which rows calibrate either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from conovel.scorers.base import Matrix, Scorer, Vector
from conovel.scorers.reading import ProbabilityReader

# Makes a frame of the rows of a matrix.
Decode: TypeAlias = Callable[[Matrix], Any]


def reads_frames(scorer: Any) -> bool:
    """Tell whether a scorer, or a part of it, chooses columns by name or reads categories.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> reads_frames(make_pipeline(OneHotEncoder(), LogisticRegression()))
    True
    >>> reads_frames(LogisticRegression())
    False
    """
    if isinstance(scorer, list | tuple):
        return any(map(reads_frames, scorer))
    if isinstance(scorer, Scorer) and is_dataclass(scorer):
        return any(reads_frames(getattr(scorer, field.name)) for field in fields(scorer))
    if not hasattr(scorer, "get_params") or isinstance(scorer, type):
        return False
    parts = [scorer, *scorer.get_params(deep=True).values()]
    return any(_reads_columns(part) for part in parts)


def _reads_columns(part: Any) -> bool:
    if isinstance(part, ColumnTransformer):
        return True
    if isinstance(part, type) or not hasattr(part, "__sklearn_tags__"):
        return False
    tags = get_tags(part).input_tags
    # Trees with native categories take codes, too; only transformers must have the texts.
    return hasattr(part, "transform") and bool(tags.categorical or tags.string)


def on_frames(scorers: Sequence[Scorer], decode: Decode) -> tuple[Scorer, ...]:
    """Give the parts of scorers that read frames a frame, and the others the matrix."""
    return tuple(_adapted(scorer, decode) for scorer in scorers)


def _adapted(thing: Any, decode: Decode) -> Any:
    if not reads_frames(thing):
        return thing
    if isinstance(thing, list | tuple):
        return type(thing)(_adapted(part, decode) for part in thing)
    if isinstance(thing, Scorer):
        parts = {f.name: _adapted(getattr(thing, f.name), decode) for f in fields(thing)}  # type: ignore[arg-type]
        return replace(thing, **parts)  # type: ignore[type-var]
    return FrameEstimator(thing, decode)


def _has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(self.model, method)


def _is_plain(features: Any) -> bool:
    """Tell whether features are a matrix of finite numbers."""
    is_matrix = isinstance(features, np.ndarray) and features.dtype == np.float64
    return is_matrix and bool(np.isfinite(features).all())


class FrameEstimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator that gets the rows of a matrix as a frame.

    Parameters
    ----------
    model : classifier or one-class model
    decode : callable
        Makes a frame of the rows of a matrix.
    """

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

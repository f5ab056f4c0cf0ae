"""Reading probabilities from fitted classifiers, the same bits in any batch."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelError
from conovel.scorers.from_sklearn import Flat, to_flat

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]

# From this many rows on, the fast loops of flat models make up for the conversion of trees.
_MANY_ROWS = 1 << 12


class ProbabilityReader:
    """Reads the probability of class 1 from the flat form of a classifier, if it has one.

    Flat models score a row alike in any batch, while results of BLAS depend on the batch. Trees
    give the same bits either way (`from_sklearn`), so that few rows need no conversion.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @cached_property
    def flat(self) -> Flat | None:
        """The classifier as numbers, if it has such a form."""
        return flat_or_none(self.model)

    @property
    def by_row(self) -> bool:
        """Whether a row has the same probability in any batch; then the flat form scores.

        Two ways that give the same bits in every test may still differ for some row.
        """
        return self.flat is not None or bool(getattr(self.model, "by_row", False))

    def __call__(self, X: Matrix) -> Vector:
        """Read the probability of each row."""
        is_converted = "flat" in vars(self)
        few = len(X) < _MANY_ROWS and not is_converted and _adds_trees_in_order(self.model)
        if not few and self.flat is not None:
            return self.flat.score(X)
        probabilities: Vector = self.model.predict_proba(X)[:, 1]
        return probabilities


def flat_or_none(model: Any) -> Flat | None:
    """Return a fitted model as numbers, if it has such a form."""
    try:
        return to_flat(model)
    except ModelError:
        return None


def last_step(model: Any) -> Any:
    """Return what learns at the end of a pipeline, or the model itself."""
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


def _adds_trees_in_order(fitted: Any) -> bool:
    """Tell whether a model adds its trees one after the other; several threads do not."""
    model = last_step(fitted)
    one_thread = getattr(model, "n_jobs", None) in (None, 1)
    return one_thread and any(
        hasattr(model, name) for name in ("estimators_", "_predictors", "tree_")
    )

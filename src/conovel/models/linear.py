"""Logistic regression as flat arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ModelError
from conovel.models.arrays import (
    Described,
    affine,
    check_rows,
    freeze,
    freeze_scaler,
    logistic,
    standardise,
)


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Described):
    """An immutable logistic regression, and its scaler if it has one.

    The score of a row x is ``logistic(coef · z + intercept)`` with
    ``z = (x - centre) / scale``. The terms are added feature after feature, so the score
    has the same bits whatever rows it is computed with.

    Parameters
    ----------
    coef : array of shape (n_features,)
        One coefficient per feature.
    intercept : float
        Added to the sum.
    centre, scale : arrays of shape (n_features,), optional
        The scaler; either part may be missing.

    Examples
    --------
    >>> Linear(coef=[1.0, -1.0], intercept=0.0, centre=[1.0, 0.0]).score([[1.0, 0.0]])
    array([0.5])
    """

    coef: NDArray[np.float64]
    intercept: float
    centre: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        coef = freeze(self.coef, np.float64, "coef")
        if coef.ndim != 1 or not len(coef):
            raise ModelError(f"coef must be a list with one entry per feature, got {coef.shape}")
        if not np.isfinite(self.intercept):
            raise ModelError(f"intercept must be finite, got {self.intercept}")
        centre, scale = freeze_scaler(self.centre, self.scale, len(coef))
        object.__setattr__(self, "coef", coef)
        object.__setattr__(self, "intercept", float(self.intercept))
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "scale", scale)

    @property
    def n_features(self) -> int:
        """Number of columns a row must have."""
        return len(self.coef)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each row is novel.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite numbers.

        Returns
        -------
        array of shape (n,)
            Probabilities in [0, 1].
        """
        rows = standardise(check_rows(X, self.n_features), self.centre, self.scale)
        return logistic(affine(rows, self.coef[:, np.newaxis], self.intercept)[:, 0])

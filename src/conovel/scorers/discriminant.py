"""Fisher's linear discriminant for a handful of novelties among many known normals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.covariance import ledoit_wolf

from conovel.models.portable_math import expit
from conovel.scorers.base import Matrix, Vector


class Discriminant(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The direction from the normals to the novelties, in the metric of the normals.

    The covariance is that of class 0 alone, shrunk (Ledoit and Wolf 2004): normals are many,
    while a dozen novelties have a mean but no shape. Where both are Gaussian, four standard
    deviations apart, logistic regression needs nearly three times as many rows to find the
    direction as well (Efron 1975). scikit-learn's discriminant estimates both covariances and
    knows no sample weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 9)), np.arange(500) >= 480
    >>> X[y, 0] += 4.0
    >>> model = Discriminant().fit(X, y)
    >>> bool(model.predict_proba(X)[y, 1].mean() > 0.9)
    True
    """

    by_row = True  # see `predict_proba`

    def fit(
        self, X: Matrix, y: NDArray[np.integer], sample_weight: Vector | None = None
    ) -> Discriminant:
        """Estimate both means and one covariance."""
        y = np.asarray(y, dtype=bool)
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        normal = X[~y]
        centre, spread = normal.mean(axis=0), normal.std(axis=0)
        scale = np.where(spread > 0, spread, np.inf)  # a constant column says nothing
        white = (normal - centre) / scale
        shift = (np.average(X[y], axis=0, weights=weights[y]) - centre) / scale
        with config_context(assume_finite=True, skip_parameter_validation=True):
            # Checks of arguments take longer than the estimate itself, and rows were checked.
            covariance, _ = ledoit_wolf(white, assume_centered=True)
        # A pivoted QR factorisation: two rows have a covariance without an inverse.
        self.coef_ = lstsq(covariance, shift, cond=1e-10, lapack_driver="gelsy")[0] / scale
        self.middle_ = centre + np.where(spread > 0, shift * spread / 2, 0)
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1, as many of each assumed."""
        log_ratio = np.zeros(len(X))
        for column, weight in zip((X - self.middle_).T, self.coef_, strict=True):
            log_ratio += column * weight  # no `@` here: BLAS results depend on the batch
        novel = expit(log_ratio)
        return np.column_stack([1 - novel, novel])

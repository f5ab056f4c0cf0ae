"""How far a row lies from known normals, in the metric of their covariance."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.covariance import LedoitWolf

from conovel.scorers.base import Matrix, Vector
from conovel.scorers.one_class import OneClass

_ROWS = 256  # rows that are whitened together, so that they stay in the cache
_SMALLEST_DISTANCE = 1e-9  # squared; a row at the centre has a logarithm, too


class MahalanobisDistance(BaseEstimator):  # type: ignore[misc]
    """The logarithm of the Mahalanobis distance, its covariance shrunk (Ledoit and Wolf 2004).

    It needs no novelties at all, so it also works where they are few. Rows are whitened column
    by column and not with `@`: BLAS results depend on the batch.
    """

    by_row = True

    def fit(self, X: Matrix, y: None = None) -> MahalanobisDistance:
        """Estimate centre and covariance."""
        shape = LedoitWolf().fit(X)
        values, axes = np.linalg.eigh(shape.covariance_)
        self.centre_ = shape.location_
        # Directions without variance say nothing.
        scale = np.where(values > values.max() * 1e-12, values, np.inf) ** -0.5
        self.whitening_ = axes * scale
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the logarithm of the distance of each row, larger for more novel ones."""
        squares = np.empty(len(X))
        for first in range(0, len(X), _ROWS):
            rows = X[first : first + _ROWS] - self.centre_
            white = np.zeros(rows.shape)
            for column, weights in zip(rows.T, self.whitening_, strict=True):
                white += column[:, np.newaxis] * weights
            squares[first : first + _ROWS] = (white**2).sum(axis=1)
        return np.log(np.maximum(squares, _SMALLEST_DISTANCE))


def mahalanobis_distance() -> OneClass:
    """Score by the distance from known normals."""
    return OneClass(MahalanobisDistance(), higher="novel", method="score_samples")

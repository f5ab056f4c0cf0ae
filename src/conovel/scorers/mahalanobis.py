"""How far a row lies from known normals, in the metric of their covariance."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.covariance import LedoitWolf

from conovel.scorers.base import Matrix, OneClass, Vector

_NEAREST = 1e-9  # a row at the centre has a logarithm, too


class Ellipse(BaseEstimator):  # type: ignore[misc]
    """The logarithm of the Mahalanobis distance, its covariance shrunk (Ledoit and Wolf 2004).

    It needs no novelties at all, and so still sees something where they are few. Rows are
    whitened column by column rather than by a matrix product, which rounds in another way for
    other rows around it.
    """

    def fit(self, X: Matrix, y: None = None) -> Ellipse:
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
        white = np.zeros(X.shape)
        for column, weights in zip((X - self.centre_).T, self.whitening_, strict=True):
            white += column[:, np.newaxis] * weights
        return np.asarray(np.log(np.maximum((white**2).sum(axis=1), _NEAREST)))


def ellipse() -> OneClass:
    """Score by the distance from known normals."""
    return OneClass(Ellipse(), higher="novel", method="score_samples")

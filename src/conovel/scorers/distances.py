"""How far rows lie from known normals, each normal compared with the others alone.

The columns are first brought to one scale: as they are, or with heavy tails drawn in. All is
computed for all rows of a training set together, and is a function of (null_train, mixture as a
multiset).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.covariance import ledoit_wolf
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from conovel.scorers.base import Matrix, Vector

_NEIGHBOURS = 5
_MOST_REFERENCES = 2000  # normals that neighbours are searched among
_SMALLEST = 1e-9
_LARGEST_SHARE = 0.99  # of a distance that a row itself may explain


def middle_and_scale(rows: Matrix) -> tuple[Vector, Vector]:
    """Return the median of each column, and the median distance from it of other values.

    Where most values of a column are equal, the median distance of all of them would be 0.
    """
    middle = np.median(rows, axis=0)
    away = np.abs(rows - middle)
    away[away == 0] = np.nan
    varied = np.isfinite(away).any(axis=0)
    scale = np.ones(rows.shape[1])
    scale[varied] = np.nanmedian(away[:, varied], axis=0)
    return middle, scale


def distances(rows: Matrix, n_train: int) -> Iterator[tuple[str, Vector]]:
    """Yield scores of all rows, larger for those further from the first `n_train`, by name."""
    if n_train < 3:  # no shape, and no neighbour of a neighbour
        return
    middle, scale = middle_and_scale(rows)
    drawn_in = _standardised(np.arcsinh((rows - middle) / scale), n_train)
    # The bits of a matrix product depend on how many threads share it.
    with threadpool_limits(1):
        yield "distance", mahalanobis(_standardised(rows, n_train), n_train)
        yield "distance, tails drawn in", mahalanobis(drawn_in, n_train)
        yield "neighbours", neighbour_distance(drawn_in, n_train)


def mahalanobis(rows: Matrix, n_train: int) -> Vector:
    """Return the distance from the first rows, each of these left out where it is measured."""
    centred = rows - rows[:n_train].mean(axis=0)
    covariance, shrinkage = ledoit_wolf(centred[:n_train], assume_centered=True)
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    square: Vector = np.einsum("ij,ij->i", centred @ inverse, centred)
    # Without row i the covariance has the inverse of Sherman and Morrison's formula.
    share = np.minimum((1 - shrinkage) * square[:n_train] / n_train, _LARGEST_SHARE)
    square[:n_train] /= 1 - share
    return square


def neighbour_distance(rows: Matrix, n_train: int) -> Vector:
    """Return the distance from the fifth nearest of the first rows, itself not counted."""
    step = -(-n_train // _MOST_REFERENCES)
    reference = rows[:n_train:step]
    k = min(_NEIGHBOURS, len(reference) - 1)
    found, _ = NearestNeighbors(n_neighbors=k + 1, n_jobs=1).fit(reference).kneighbors(rows)
    distance: Vector = found[:, k - 1].copy()
    distance[:n_train:step] = found[:n_train:step, k]
    return distance


def _standardised(rows: Matrix, n_train: int) -> Matrix:
    """Bring columns to the mean 0 and the spread 1 of the first rows."""
    spread, of_all = rows[:n_train].std(axis=0), rows.std(axis=0)
    spread = np.where(spread > _SMALLEST * of_all, spread, np.where(of_all > 0, of_all, 1.0))
    return np.asarray((rows - rows[:n_train].mean(axis=0)) / spread)

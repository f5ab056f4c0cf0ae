"""How far rows are from an agent's normals, as a small network that every peer can evaluate.

The rows of null_train have a centre and principal axes. Along each axis, in standard deviations
u, a sum of hinges max(±u - knot, 0) follows u² at the knots and grows on straight lines between
them. Added over the axes that is about the squared Mahalanobis distance, and it needs nothing but
one hidden layer. The output is brought to standard units of null_train: 0 at the median, 2 at the
quantile that one normal row in forty exceeds.
"""

from __future__ import annotations

import numpy as np
from sklearn.covariance import ledoit_wolf

from conovel.models.linear import Dense, Linear, standardise
from conovel.scorers.base import Matrix, Vector

CONFORMS = 2.0  # standard units up to which a row is taken for normal
_EXCEEDED = 0.975  # the quantile at that place
_FEWEST = 10  # rows of null_train that have a shape
_NEVER_NORMAL = 40.0
_KNOTS = np.array([0.0, 1.0, 2.0, 4.0])
_SLOPES = np.array([1.0, 2.0, 3.0, 6.0])  # by how much the slope grows at each knot
_MOST_AXES = 64
_SMALLEST = 1e-9  # variance along an axis, as a share of the largest


def distance_model(null_train: Matrix) -> Dense | Linear:
    """Fit the network to the rows of null_train.

    With fewer than 10 rows nothing is known of the agent's normals. No row is near them then: the
    model takes every row for novel, and leaves the decision to the other agents.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = distance_model(rng.normal(size=(500, 4)))
    >>> (model.score(np.array([[0, 0, 0, 0.0], [6, 0, 0, 0]])) > 0.88).tolist()
    [False, True]
    """
    if len(null_train) < _FEWEST:
        return Linear(np.zeros(null_train.shape[1]), _NEVER_NORMAL)
    left_out = []  # distances of rows from a shape that was fitted without them
    for own, other in ((0, 1), (1, 0)):
        left_out.append(_raw(_network(null_train[own::2], 0.0, 1.0), null_train[other::2]))
    middle, far = np.quantile(np.concatenate(left_out), [0.5, _EXCEEDED]).tolist()
    return _network(null_train, middle, CONFORMS / ((far - middle) or 1.0))


def _network(rows: Matrix, middle: float, factor: float) -> Dense:
    """Return the network whose output is factor · (sum of hinges - middle)."""
    centre, spread = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    covariance, _ = ledoit_wolf((rows - centre) / scale, assume_centered=True)
    variances, axes = np.linalg.eigh(covariance)
    kept = (variances > variances.max() * _SMALLEST).nonzero()[0][-_MOST_AXES:]
    whitening = axes[:, kept] / np.sqrt(variances[kept])
    hidden = np.hstack([sign * whitening for _ in _KNOTS for sign in (1, -1)])
    biases = -np.repeat(_KNOTS, 2 * kept.size)
    slopes = factor * np.repeat(_SLOPES, 2 * kept.size)
    last = np.array([-factor * middle])
    return Dense((hidden, slopes[:, np.newaxis]), (biases, last), "relu", centre, scale)


def _raw(network: Dense, rows: Matrix) -> Vector:
    """Return the sum of hinges of a network with middle 0 and factor 1."""
    (hidden, slopes), (biases, _) = network.weights, network.biases
    white = standardise(rows, network.centre, network.scale)
    return np.asarray((np.maximum(white @ hidden + biases, 0) @ slopes)[:, 0])

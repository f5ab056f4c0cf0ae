"""Learning where normal tests are not distributed like the known normals.

Weights say how much more often a normal row occurs among the tests than among the known normals.
Everything here is a function of null_train, the mixture as a multiset and seeds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from conovel.scorers.base import Matrix, Mixture, Vector

_LARGEST = 20.0  # estimated weights lie between 1/20 and 20
_MOST_SPREADS = 2.0  # values further out are drawn in, so that novelties there count for less
_PENALTY = 1.0  # of the squares of the coefficients; one is about a standard deviation
_FEWEST_ROWS = 40  # fewer known normals all train
_SURE = 0.9  # share of null_train below the weight from which on all rows train


def estimate_weights(null_train: Matrix, mixture: Mixture, share: float) -> tuple[Vector, Vector]:
    """Estimate the weights of null_train and of the mixture's rows.

    The mixture holds calibration rows, which are like null_train, and tests, a `share` of it. With
    weights exp(a + b·x), a row of the mixture is 1 - share + share · exp(a + b·x) times as likely
    as one of null_train. a and b are those under which telling the two samples apart is most
    likely right, with a penalty on b. The estimate does not know which mixture rows are tests.

    Novelties among the tests are taken for a part of the shift.

    Returns
    -------
    pair of arrays
        Weights of null_train, and of the rows of the mixture in their original order.
    """
    rows = np.concatenate([null_train, mixture.rows])
    centre, spread = rows.mean(axis=0), rows.std(axis=0)
    spread[spread == 0] = 1.0

    def features(X: Matrix) -> Matrix:
        scaled = np.clip((X - centre) / spread, -_MOST_SPREADS, _MOST_SPREADS)
        return np.column_stack([np.ones(len(X)), scaled])

    X, n_train = features(rows), len(null_train)
    in_mixture = np.arange(len(rows)) >= n_train
    odds = np.log((len(rows) - n_train) / n_train)

    def loss(b: Vector) -> tuple[float, Vector]:
        tilt = np.clip(X @ b, -30.0, 30.0)
        raised = share * np.exp(tilt)
        log_odds = odds + np.log(1 - share + raised)
        signed = np.where(in_mixture, log_odds, -log_odds)
        # The derivative of log odds by the tilt is the share of tests among such mixture rows.
        slope = np.where(in_mixture, -expit(-log_odds), expit(log_odds))
        slope *= raised / (1 - share + raised)
        penalty = 0.5 * _PENALTY * float(b[1:] @ b[1:])
        return penalty - float(log_expit(signed).sum()), X.T @ slope + _PENALTY * _without_first(b)

    b = minimize(loss, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B").x
    bound = np.log(_LARGEST)
    distinct = np.exp(np.clip(features(mixture.distinct) @ b, -bound, bound))
    return np.exp(np.clip(X[:n_train] @ b, -bound, bound)), distinct[mixture.position]


def _without_first(b: Vector) -> Vector:
    return np.concatenate([[0.0], b[1:]])


def like_mixture(weights: Vector, share: float, seed: int) -> NDArray[np.intp]:
    """Choose the rows of null_train that train, so that these are like the mixture.

    A mixture in which a `share` of the rows are tests has normal rows of density 1 - share +
    share · w(x), relative to the known normals. Without the choice a score would learn the shift
    and take it for novelty.

    Parameters
    ----------
    weights : array of shape (k,)
        Of null_train.
    share : float
        The share of tests in the mixture.
    seed : int

    Examples
    --------
    >>> weights = np.repeat([0.1, 1.9], 500)
    >>> chosen = like_mixture(weights, share=0.5, seed=0)
    >>> int((chosen < 500).sum()), int((chosen >= 500).sum())
    (187, 500)
    """
    if weights.size < _FEWEST_ROWS:
        return np.arange(weights.size)
    density = 1 - share + share * weights / weights.mean()
    drawn = np.random.default_rng([seed, 1]).random(weights.size)
    return np.flatnonzero(drawn * np.quantile(density, _SURE) < density)

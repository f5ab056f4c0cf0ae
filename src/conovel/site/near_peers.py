"""How much an agent listens to each model: by what it does on the agent's own rows.

Peers whose normals are like one's own tell one's likely novelties from one's null_train. A model
that was learnt from other normals, or from too few rows, does so less well, or gives one's own
normals high scores. So each model is weighted by the square of its separation: the distance
between the means of its scores on the likely novelties and on null_train, in units of their
spread on null_train. All of this is a function of the training set alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conovel.scorers.base import Matrix, Vector

_FROM = 2.0  # a row is a likely novelty from this many standard deviations above the median on
_MOST = 6.0  # the largest weight of one row, in standard deviations
_LEAST_SPREAD = 0.3  # added to the spread on null_train, which few rows can make too small
_SD_OF_MAD = 1.4826  # standard deviation of normal numbers in units of their median distance


class Standardised(NamedTuple):
    """Scores of several models on null_train and on the mixture, in units of their spread.

    Attributes
    ----------
    null_train : array of shape (n_models, n)
    mixture : array of shape (n_models, number of different mixture rows)
    spread : array of shape (n_models,)
        The unit of each model: the standard deviation on the mixture.
    """

    null_train: Matrix
    mixture: Matrix
    spread: Vector

    @classmethod
    def of(cls, null_train: Matrix, mixture: Matrix) -> Standardised:
        """Centre the scores at their median on the mixture, and divide them by their spread."""
        centre = np.median(mixture, axis=1)[:, np.newaxis]
        spread = spread_of(mixture)[:, np.newaxis]
        return cls((null_train - centre) / spread, (mixture - centre) / spread, spread[:, 0])


def spread_of(scores: Matrix) -> Vector:
    """Return the standard deviation of each row of a matrix; 1 where it is zero."""
    spread = scores.std(axis=1)
    return np.where(spread > 0, spread, 1.0)


def model_weights(scores: Standardised, first: Vector) -> Vector:
    """Return the weight of each model's standardised score; the weights add up to 1.

    Examples
    --------
    A model that gives the last row a high score, and one that does not:

    >>> usual = np.linspace(-1, 1, 20)
    >>> sees, blind = np.append(usual, 9.0), np.append(usual, 0.0)
    >>> scores = Standardised.of(np.stack([usual, usual]), np.stack([sees, blind]))
    >>> model_weights(scores, first=sees).round(2)
    array([1., 0.])
    """
    equal = np.full(len(scores.mixture), 1 / len(scores.mixture))
    novelty = _novelty_weights(first)
    if not novelty.any():
        return equal
    found = (scores.mixture * novelty).sum(axis=1) / novelty.sum()
    spread = scores.null_train.std(axis=1) + _LEAST_SPREAD
    separation = np.maximum((found - scores.null_train.mean(axis=1)) / spread, 0)
    weights = separation**2 / spread
    return weights / weights.sum() if weights.any() else equal


def likely_novelties(first: Vector) -> float:
    """Say how many mixture rows stand out; a row that only just does counts for a part.

    Examples
    --------
    >>> likely_novelties(np.append(np.linspace(-1, 1, 21), [50.0, 60.0]))
    2.0
    """
    return float(np.minimum(_novelty_weights(first), 1).sum())


def _novelty_weights(first: Vector) -> Vector:
    """Weigh each mixture row by how far it stands out."""
    above = first - np.median(first)
    unit = _SD_OF_MAD * float(np.median(np.abs(above))) or float(above.std()) or 1.0
    return np.clip(above / unit - _FROM, 0, _MOST)

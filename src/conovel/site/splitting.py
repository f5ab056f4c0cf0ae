"""Splitting known normals into those that train and those that calibrate.

Calibration rows set the resolution: with ℓ of them p-values are multiples of 1/(ℓ+1), and a
step-up that would stop at p-value t can only stop at the next multiple below, or nowhere.
Training rows make the score. How many to give to each is decided before any row is looked
at, from their number, the number of tests and the level.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.stats.levels import Level, as_level

_GRID = 20  # shares are multiples of 1/20, easy to read and to repeat
# The share of discoveries among the tests is not known beforehand: anything from 1 in 50 to 1
# in 5, on a logarithmic scale. Half of what a score can learn, it learns from 200 rows.
_DISCOVERIES = np.geomspace(0.02, 0.2, 101)
_HALF_LEARNT = 200


class TrainingRows(NamedTuple):
    """From how many rows of a site one model is learnt: known before any is looked at.

    Attributes
    ----------
    n_null : int
        Known normals, those that train and those that calibrate.
    n_train : int
        How many of them train.
    n_by_rule : int
        How many would train by the site's own rule, :func:`train_share`.
    n_mixture : int
        Calibration and test rows, from which the model learns to tell them.
    most : int
        No more than this many train.
    """

    n_null: int
    n_train: int
    n_by_rule: int
    n_mixture: int
    most: int


def train_share(n_null: int, n_tests: int, level: Level) -> Fraction:
    """Return the share of known normals to train on.

    It maximises (part of the level that the resolution leaves, on average over the share of
    discoveries) × (part of a score that is learnt): from few known normals more calibrate,
    from many a little more than half train.

    Parameters
    ----------
    n_null : int
        Known normals of the site.
    n_tests : int
        Tests that are decided together. In a network with counts an agent gives its own
        number times the number of agents: it does not know the others' numbers when it cuts
        its rows. A poor guess costs resolution, never validity.
    level : float, str or Fraction
        Level of the step-up.

    Examples
    --------
    >>> [str(train_share(n, 1000, 0.1)) for n in (100, 333, 1000, 100_000)]
    ['3/10', '2/5', '1/2', '13/20']
    """
    alpha = float(as_level(level))
    shares = np.arange(2, 16) / _GRID
    n_train = np.maximum(1, np.floor(shares * n_null))
    threshold = alpha * np.maximum(1, _DISCOVERIES * n_tests) / max(n_tests, 1)
    steps = (n_null - n_train + 1)[:, np.newaxis] * threshold
    used = (np.floor(steps) / steps).mean(axis=1)
    if not used.any():  # nothing can be rejected whatever the split
        return Fraction(1, 2)
    best = int(np.argmax(used * n_train / (n_train + _HALF_LEARNT)))
    return Fraction(best + 2, _GRID)


def as_share(train_fraction: Level | None, n_null: int, n_tests: int, level: Level) -> Fraction:
    """Read `train_fraction`; None is :func:`train_share`."""
    if train_fraction is None:
        return train_share(n_null, n_tests, level)
    return as_level(train_fraction, "train_fraction")


def n_training(n: int, train_fraction: Level, most: int | None = None) -> int:
    """Return how many of n known normals train: one at least, and all but one at most.

    Examples
    --------
    >>> n_training(1000, "1/2"), n_training(1000, "1/5000"), n_training(1000, "1/2", most=100)
    (500, 1, 100)
    """
    fraction = as_level(train_fraction, "train_fraction")
    return max(min(max(int(fraction * n), 1), n - 1, n if most is None else most), 0)


def require_two(n: int) -> None:
    """Check that there are known normals for both purposes."""
    if n < 2:
        raise SampleError(
            f"X_null has {n} row: at least 2 are needed, one to train and one to calibrate"
        )


def split_null(
    n: int, train_fraction: Level, seed: int, most: int | None = None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split n known normals at random into training and calibration positions.

    No more than `most` train; those that are spared calibrate.
    """
    require_two(n)
    k = n_training(n, train_fraction, most)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:k]), np.sort(order[k:])

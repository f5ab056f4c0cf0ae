"""Splitting known normals into those that train and those that calibrate.

How many train is said by :mod:`conovel.spec.training`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.spec.training import n_training
from conovel.stats.levels import Level


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
    n_mixture : int or None
        Calibration and test rows, from which the model learns to tell them. None where it learns
        from known normals alone.
    most : int
        No more than this many train.
    """

    n_null: int
    n_train: int
    n_by_rule: int
    n_mixture: int | None
    most: int


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
    return split_by_number(n, n_training(n, train_fraction, most), seed)


def split_by_number(n: int, n_train: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split n known normals at random, `n_train` of them to train on."""
    require_two(n)
    order = np.random.default_rng(seed).permutation(n)
    return np.sort(order[:n_train]), np.sort(order[n_train:])

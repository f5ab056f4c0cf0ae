"""Samples of the mixture that are drawn by what a row holds, never by where it stands.

A classifier that trains on a part of the mixture must not learn which rows are calibration
rows. So the part is a fixed function of the mixture as an unordered multiset: of a row that
occurs c times, ``floor(c · rate + u)`` copies are taken, where u in [0, 1) is a hash of the
row's content. A row that occurs once is taken with probability `rate`, and of a row that
fills half of the mixture its share is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SampleError
from conovel.scorers.base import Matrix, Mixture, Vector, content_hash
from conovel.spec.training import n_training
from conovel.stats.levels import Level

_DRAW_BITS = 33  # the lower bits of the hash; folds are assigned by the upper ones


def draws(hashes: NDArray[np.uint64]) -> Vector:
    """Turn hashes into numbers from 0 up to, not including, 1."""
    lower = hashes & np.uint64((1 << _DRAW_BITS) - 1)
    return np.asarray(lower * 2.0**-_DRAW_BITS)


def copies_taken(
    copies: NDArray[np.int64], hashes: NDArray[np.uint64], rate: float
) -> NDArray[np.int64]:
    """Say how many of the copies of each distinct row are taken: all, from a rate of 1.

    Examples
    --------
    >>> import numpy as np
    >>> hashes = np.arange(4, dtype=np.uint64) << np.uint64(31)  # u = 0, 1/4, 1/2, 3/4
    >>> copies_taken(np.array([1, 1, 1, 10]), hashes, rate=0.5)
    array([0, 0, 1, 5])
    """
    return np.floor(copies * min(rate, 1.0) + draws(hashes)).astype(np.int64)


def thin(distinct: Matrix, copies: NDArray[np.int64], rate: float) -> Mixture:
    """Take a sample of a mixture given by its distinct rows, in order, and their copies."""
    taken = copies_taken(copies, content_hash(distinct), rate)
    kept = np.flatnonzero(taken)
    if not kept.size:
        raise SampleError("the sample to train on is empty: raise max_train_rows")
    return Mixture(distinct[kept], np.repeat(np.arange(kept.size), taken[kept]))


def training_sample(mixture: Mixture, most: int) -> Mixture:
    """Return the mixture, or a sample of about `most` rows where it has more.

    Parameters
    ----------
    mixture : Mixture
    most : int
        Expected size of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> mixture = Mixture.of(np.arange(20_000.0).reshape(-1, 1))
    >>> training_sample(mixture, 1000).position.size
    970
    """
    n = mixture.position.size
    if n <= most:
        return mixture
    return thin(mixture.distinct, np.bincount(mixture.position), most / n)


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

"""Whether known normals look Gaussian, column by column.

A linear discriminant and a Mahalanobis distance are the best scores where normals are Gaussian.
They are poor ones on columns with heavy tails, many zeros or several groups. The shape of the
columns is known from null_train, which has many rows; how much a score finds, only from the few
rows that are novel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from conovel.scorers.base import Matrix

_LARGEST = 5.99  # of Jarque and Bera's statistic: exceeded with probability 1/20 by chance
_BY_CHANCE = 0.05
_SURE = 0.999


class Normality(NamedTuple):
    """How many columns do not look Gaussian.

    Attributes
    ----------
    n_columns : int
        Columns that vary.
    n_other : int
        Those of them that do not look Gaussian.
    n_allowed : int
        As many may seem so by chance.
    """

    n_columns: int
    n_other: int
    n_allowed: int

    @property
    def is_plausible(self) -> bool:
        """Whether all columns may be Gaussian."""
        return self.n_other <= self.n_allowed


def normality(rows: Matrix) -> Normality:
    """Test each column by its third and fourth moment (Jarque and Bera 1987).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> normality(rng.normal(size=(500, 20))).is_plausible
    True
    >>> normality(rng.exponential(size=(500, 20))).is_plausible
    False
    """
    away = rows - rows.mean(axis=0)
    largest = np.abs(away).max(axis=0, initial=0.0)
    away = away[:, largest > 0] / largest[largest > 0]  # powers do not overflow
    spread = np.sqrt((away**2).mean(axis=0))
    standard = away / np.where(spread > 0, spread, 1.0)
    third, fourth = (standard**3).mean(axis=0), (standard**4).mean(axis=0)
    statistic = len(rows) / 6 * (third**2 + (fourth - 3) ** 2 / 4)
    n_columns = statistic.size
    n_allowed = int(binom.ppf(_SURE, n_columns, _BY_CHANCE)) if n_columns else 0
    return Normality(n_columns, int(np.count_nonzero(statistic > _LARGEST)), n_allowed)

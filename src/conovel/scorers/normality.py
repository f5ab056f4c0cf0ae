"""Whether known normals look Gaussian, column by column.

A linear discriminant and a Mahalanobis distance are the best scores where normals are Gaussian.
They are poor ones on columns with heavy tails, many zeros or several groups. The shape of the
columns is known from null_train, which has many rows; how much a score finds, only from the few
rows that are novel.

How many columns fail the test says little where there are only one, two or three: as many may fail
by chance. So it also counts in how many a handful of rows makes up most of the variance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from conovel.scorers.base import Matrix

_LARGEST = 5.99  # of Jarque and Bera's statistic: exceeded with probability 1/20 by chance
_BY_CHANCE = 0.05
_SURE = 0.999
# Kurtosis, the mean fourth power of standardised values: 3 for Gaussian columns, 6 for Laplace's,
# 9 for exponential ones. Beyond this, few rows determine the scale of a column.
_EXTREME = 20.0
_EXTREME_SHARE = 3  # one column in so many is enough


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
    n_extreme : int
        Those whose tails are so heavy that chance does not explain a single one.
    """

    n_columns: int
    n_other: int
    n_allowed: int
    n_extreme: int = 0

    @property
    def has_extremes(self) -> bool:
        """Whether a third of the columns or more are extreme."""
        return 0 < self.n_columns <= _EXTREME_SHARE * self.n_extreme

    @property
    def is_plausible(self) -> bool:
        """Whether a score for Gaussian columns suits: all may be, and few are extreme."""
        return self.n_other <= self.n_allowed and not self.has_extremes


def normality(rows: Matrix) -> Normality:
    """Test each column by its third and fourth moment (Jarque and Bera 1987).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> normality(rng.normal(size=(500, 20))).is_plausible
    True
    >>> normality(rng.exponential(size=(500, 20))).is_plausible
    False
    >>> normality(np.exp(2 * rng.normal(size=(500, 1))))
    Normality(n_columns=1, n_other=1, n_allowed=1, n_extreme=1)
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
    n_other, n_extreme = np.count_nonzero([statistic > _LARGEST, fourth > _EXTREME], axis=1)
    return Normality(n_columns, int(n_other), n_allowed, int(n_extreme))

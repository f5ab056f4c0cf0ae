"""The default scorer: smooth where normals look Gaussian, and forests elsewhere.

A linear discriminant, a Mahalanobis distance and trees, blended (:mod:`conovel.scorers.blend`),
stand near the limit where normals are Gaussian. On columns with heavy tails, many zeros or several
groups, two forests that learn most from likely novelties find more
(:mod:`conovel.scorers.weighted_forests`). Which one is fitted depends on the shape of null_train's
columns (:func:`normality`), never on what each of them finds: a few dozen
novelties cannot tell two good scores apart (docs/decisions/0015-default-by-shape.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.stats import binom
from sklearn import config_context
from sklearn.ensemble import IsolationForest
from threadpoolctl import ThreadpoolController

from conovel.scorers.all_rows import AllRows, fit_apart
from conovel.scorers.base import FittedScorer, Matrix, Scorer, Selection, TrainingSet
from conovel.scorers.binned_forest import RandomisedTrees
from conovel.scorers.blend import Blend, Discriminant, MahalanobisDistance
from conovel.scorers.cross_fit import ShrunkenLogistic
from conovel.scorers.estimators import OneClass
from conovel.scorers.likeness import Likeness
from conovel.scorers.weighted_forests import WeightedForests
from conovel.stats.levels import as_whole

_LARGEST = 5.99  # of Jarque and Bera's statistic: exceeded with probability 1/20 by chance
_BY_CHANCE = 0.05
_SURE = 0.999
# Kurtosis, the mean fourth power of standardised values: 3 for Gaussian columns, 6 for Laplace's,
# 9 for exponential ones. Beyond this, few rows determine the scale of a column.
_EXTREME = 20.0
_EXTREME_SHARE = 3  # one column in so many is enough


class Normality(NamedTuple):
    """How many columns do not look Gaussian."""

    n_columns: int  # columns that vary
    n_other: int  # those of them that do not look Gaussian
    n_allowed: int  # as many may seem so by chance
    n_extreme: int = 0  # those whose tails are so heavy that chance does not explain a single one

    @property
    def has_extremes(self) -> bool:
        """Whether a third of the columns or more are extreme."""
        return 0 < self.n_columns <= _EXTREME_SHARE * self.n_extreme

    @property
    def is_plausible(self) -> bool:
        """Whether a score for Gaussian columns suits: all may be, and few are extreme."""
        return self.n_other <= self.n_allowed and not self.has_extremes


def normality(rows: Matrix) -> Normality:
    """Test each column by its third and fourth moment (Jarque and Bera 1987)."""
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


# Below this many numbers, threads spend more time waiting for each other than working.
_NUMBERS_FOR_THREADS = 1_000_000


def _without_checks() -> AbstractContextManager[None]:
    """Skip scikit-learn's checks: all rows and settings have passed them once."""
    return config_context(assume_finite=True, skip_parameter_validation=True)  # type: ignore[no-any-return]


@cache
def _threads() -> ThreadpoolController:
    """Find the thread pools once: looking for them takes as long as a fit of few rows."""
    return ThreadpoolController()


def mahalanobis_distance() -> OneClass:
    """Score by the distance from known normals."""
    return OneClass(MahalanobisDistance(), higher="novel", method="score_samples")


@dataclass(frozen=True, eq=False)
class Automatic(Scorer):
    """A scorer chosen by the shape of the known normals.

    Parameters
    ----------
    n_folds : int
        Folds of every cross-fit of the blend.
    random_state : int or None
        Seed of either scorer.
    shape : Normality or None
        What is known of the columns; by default it is found out from null_train.

    Examples
    --------
    >>> import numpy as np
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] += 1.5
    >>> result = cn.AdaDetect().detect(X_null, X_test)
    >>> int(result.rejected[270:].sum()), result.selection.winner
    (30, 'blend')
    >>> X_test[:270] = rng.exponential(size=(270, 9))
    >>> cn.AdaDetect().detect(rng.exponential(size=(900, 9)), X_test).selection.winner
    'forests'
    """

    n_folds: int = 4
    random_state: int | None = None
    shape: Normality | None = None

    label = "automatic"  # a fitted one has the name of what was chosen

    def with_seed(self, seed: int) -> Scorer:
        """Fix the seed of every candidate, unless it is fixed already."""
        return self if self.random_state is not None else replace(self, random_state=seed)

    def candidates(self) -> dict[str, Blend | WeightedForests]:
        """Return the candidates by name, seeded."""
        state = 0 if self.random_state is None else self.random_state
        seed = as_whole(state, "random_state", most=2**32 - 1)  # as scikit-learn's
        folds, trees = self.n_folds, RandomisedTrees(random_state=seed)
        # Refits of a linear model cost next to nothing, and it still improves with the fifth.
        firsts = [RandomisedTrees(random_state=seed), mahalanobis_distance()]
        search = Blend(firsts, [Discriminant(), trees], (5, 2), folds)
        return {
            "blend": Blend(search, [ShrunkenLogistic(), trees], n_folds=folds, lead=2.0),
            "forests": WeightedForests(random_state=seed),
        }

    def one_class(self, null_train: Matrix) -> OneClass:
        """Return the scorer for known normals alone, where there are no unlabelled rows."""
        if normality(null_train).is_plausible:
            return mahalanobis_distance()
        seed = 0 if self.random_state is None else self.random_state
        return OneClass(IsolationForest(n_estimators=200, random_state=seed), higher="normal")

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Look at the columns of null_train, then fit what suits them."""
        return self._fit(training, None)

    def fit_known(self, training: TrainingSet, likeness: Likeness) -> FittedScorer:
        """Fit what suits the columns, from known novelties too."""
        return self._fit(training, likeness)

    def _fit(self, training: TrainingSet, likeness: Likeness | None) -> FittedScorer:
        null_train, mixture = training.null_train, training.mixture
        if not len(null_train):  # all known normals calibrate
            return AllRows(self.random_state).fit(training)
        candidates = self.candidates()
        selection = _by_shape(tuple(candidates), self.shape or normality(null_train))
        n_numbers = null_train.size + mixture.position.size * null_train.shape[1]
        n_threads = 1 if n_numbers < _NUMBERS_FOR_THREADS else None
        with _without_checks(), _threads().limit(limits=n_threads, user_api="openmp"):
            chosen = list(candidates.values())[selection.chosen]
            fitted = (
                chosen.fit(training) if likeness is None else chosen.fit_known(training, likeness)
            )
        return replace(fitted, selection=selection)


# With more known normals that train, forests find what lies apart; with more rows of the mixture,
# a search for 15 % of them takes long.
_FEW_NORMALS, _MANY_ROWS = 150, 3000


@dataclass(frozen=True, eq=False)
class AtOneSite(Automatic):
    """The default at one site: from few known normals, first see whether rows lie apart."""

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Score by distances if they set rows apart; otherwise as :class:`Automatic` does."""
        is_small = training.mixture.position.size <= _MANY_ROWS
        apart = None
        if is_small and 0 < len(training.null_train) < _FEW_NORMALS:
            apart = fit_apart(training)
        return super().fit(training) if apart is None else apart


def at_one_site(candidates: Sequence[Scorer]) -> tuple[Scorer, ...]:
    """Let the default look for rows that lie apart, where no peer needs its model."""
    if len(candidates) == 1 and type(candidates[0]) is Automatic:
        only = candidates[0]
        return (AtOneSite(only.n_folds, only.random_state, only.shape),)
    return tuple(candidates)


def _by_shape(names: tuple[str, ...], shape: Normality) -> Selection:
    """Take the blend where all columns may be Gaussian, and forests elsewhere."""
    values = (float(shape.n_columns - shape.n_other), float(shape.n_other))
    rule = (
        f"{shape.n_other} of {shape.n_columns} columns of the training normals do not look"
        f" Gaussian. Up to {shape.n_allowed} may seem so by chance, and then the blend scores;"
        " with more, forests do"
    )
    if shape.has_extremes:
        rule = (
            f"{shape.n_extreme} of {shape.n_columns} columns of the training normals have extreme"
            " values: a few rows make up most of their variance. Forests score where a third of"
            " the columns have, and the blend where they may be Gaussian"
        )
    return Selection(names, values, 0 if shape.is_plausible else 1, "columns", rule)

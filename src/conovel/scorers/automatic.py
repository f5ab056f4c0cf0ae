"""The default scorer: smooth where normals look Gaussian, forests elsewhere.

A linear discriminant, a Mahalanobis distance and trees, blended (:mod:`conovel.scorers.blend`),
stand near the limit where normals are Gaussian. On columns with heavy tails, many zeros or several
groups, two forests that learn most from likely novelties find more
(:mod:`conovel.scorers.weighted_forests`). Which one is fitted depends on the shape of null_train's
columns (:mod:`conovel.scorers.normality`), never on what each of them finds: a few dozen
novelties cannot tell two good scores apart (docs/decisions/0015-default-by-shape.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sklearn import config_context
from sklearn.ensemble import IsolationForest
from threadpoolctl import threadpool_limits

from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet
from conovel.scorers.blend import Blend
from conovel.scorers.discriminant import Discriminant
from conovel.scorers.mahalanobis import mahalanobis_distance
from conovel.scorers.normality import Normality, normality
from conovel.scorers.one_class import OneClass
from conovel.scorers.randomised_trees import RandomisedTrees
from conovel.scorers.selection import Selection
from conovel.scorers.shrunken_logistic import ShrunkenLogistic
from conovel.scorers.weighted_forests import WeightedForests
from conovel.stats.levels import as_whole

# Below this many numbers, threads spend more time waiting for each other than working.
_NUMBERS_FOR_THREADS = 1_000_000


def _without_checks() -> AbstractContextManager[None]:
    """Skip scikit-learn's checks: all rows and settings have passed them once."""
    return config_context(assume_finite=True, skip_parameter_validation=True)  # type: ignore[no-any-return]


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

    @property
    def label(self) -> str:
        """The scorer in a word; a fitted one has the name of the candidate that was chosen."""
        return "automatic"

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
        candidates = self.candidates()
        null_train, mixture = training.null_train, training.mixture
        selection = _by_shape(tuple(candidates), self.shape or normality(null_train))
        n_numbers = null_train.size + mixture.position.size * null_train.shape[1]
        n_threads = 1 if n_numbers < _NUMBERS_FOR_THREADS else None
        with _without_checks(), threadpool_limits(n_threads, user_api="openmp"):
            fitted = candidates[selection.winner].fit(training)
        return replace(fitted, selection=selection)


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

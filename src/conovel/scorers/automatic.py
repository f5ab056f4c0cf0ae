"""The default scorer: smooth where normals look Gaussian, forests elsewhere.

A linear discriminant, a Mahalanobis distance and trees, blended (:mod:`conovel.scorers.blend`),
stand near the limit where normals are Gaussian. On columns with heavy tails, many zeros or several
groups, two forests that learn most from likely novelties find more
(:mod:`conovel.scorers.weighted_forests`). Which one is fitted depends on the shape of null_train's
columns (:mod:`conovel.scorers.automatic`), never on what each of them finds: a few dozen
novelties cannot tell two good scores apart (docs/decisions/0015-default-by-shape.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from scipy.stats import binom
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.covariance import LedoitWolf, ledoit_wolf
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from conovel.errors import InputError, ScorerError
from conovel.models.linear import expit
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector
from conovel.scorers.binned_forest import RandomisedTrees
from conovel.scorers.blend import Blend, Refined, shallow_trees, shrunken_logistic
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.cross_fit import ShrunkenLogistic
from conovel.scorers.estimators import OneClass, ScorerLike, as_scorer
from conovel.scorers.selection import Selection
from conovel.scorers.weighted_forests import WeightedForests
from conovel.stats.levels import Generators, as_seed, as_whole

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


_ROWS = 256  # rows that are whitened together, so that they stay in the cache
_SMALLEST_DISTANCE = 1e-9  # squared; a row at the centre has a logarithm, too


class MahalanobisDistance(BaseEstimator):  # type: ignore[misc]
    """The logarithm of the Mahalanobis distance, its covariance shrunk (Ledoit and Wolf 2004).

    It needs no novelties at all, so it also works where they are few. Rows are whitened column
    by column and not with `@`: BLAS results depend on the batch.
    """

    by_row = True

    def fit(self, X: Matrix, y: None = None) -> MahalanobisDistance:
        """Estimate centre and covariance."""
        shape = LedoitWolf().fit(X)
        values, axes = np.linalg.eigh(shape.covariance_)
        self.centre_ = shape.location_
        # Directions without variance say nothing.
        scale = np.where(values > values.max() * 1e-12, values, np.inf) ** -0.5
        self.whitening_ = axes * scale
        return self

    def score_samples(self, X: Matrix) -> Vector:
        """Return the logarithm of the distance of each row, larger for more novel ones."""
        squares = np.empty(len(X))
        for first in range(0, len(X), _ROWS):
            rows = X[first : first + _ROWS] - self.centre_
            white = np.zeros(rows.shape)
            for column, weights in zip(rows.T, self.whitening_, strict=True):
                white += column[:, np.newaxis] * weights
            squares[first : first + _ROWS] = (white**2).sum(axis=1)
        return np.log(np.maximum(squares, _SMALLEST_DISTANCE))


def mahalanobis_distance() -> OneClass:
    """Score by the distance from known normals."""
    return OneClass(MahalanobisDistance(), higher="novel", method="score_samples")


class Discriminant(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The direction from the normals to the novelties, in the metric of the normals.

    The covariance is that of class 0 alone, shrunk (Ledoit and Wolf 2004): normals are many,
    while a dozen novelties have a mean but no shape. Where both are Gaussian, four standard
    deviations apart, logistic regression needs nearly three times as many rows to find the
    direction as well (Efron 1975). scikit-learn's discriminant estimates both covariances and
    knows no sample weights.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 9)), np.arange(500) >= 480
    >>> X[y, 0] += 4.0
    >>> model = Discriminant().fit(X, y)
    >>> bool(model.predict_proba(X)[y, 1].mean() > 0.9)
    True
    """

    by_row = True  # see `predict_proba`
    is_linear = True

    def fit(
        self, X: Matrix, y: NDArray[np.integer], sample_weight: Vector | None = None
    ) -> Discriminant:
        """Estimate both means and one covariance."""
        y = np.asarray(y, dtype=bool)
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        normal = X[~y]
        centre, spread = normal.mean(axis=0), normal.std(axis=0)
        scale = np.where(spread > 0, spread, np.inf)  # a constant column says nothing
        white = (normal - centre) / scale
        shift = (np.average(X[y], axis=0, weights=weights[y]) - centre) / scale
        with config_context(assume_finite=True, skip_parameter_validation=True):
            # Checks of arguments take longer than the estimate itself, and rows were checked.
            covariance, _ = ledoit_wolf(white, assume_centered=True)
        # A pivoted QR factorisation: two rows have a covariance without an inverse.
        self.coef_ = lstsq(covariance, shift, cond=1e-10, lapack_driver="gelsy")[0] / scale
        self.middle_ = centre + np.where(spread > 0, shift * spread / 2, 0)
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1, as many of each assumed."""
        log_ratio = np.zeros(len(X))
        for column, weight in zip((X - self.middle_).T, self.coef_, strict=True):
            log_ratio += column * weight  # no `@` here: BLAS results depend on the batch
        novel = expit(log_ratio)
        return np.column_stack([1 - novel, novel])


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


NAMED: Mapping[str, Callable[[], ScorerLike]] = {
    "automatic": Automatic,
    # The best single forest of docs/decisions/0006-default-scorer.md.
    "extra-trees": lambda: ExtraTreesClassifier(300, max_depth=12, min_samples_leaf=5),
    # The reference AdaDetect's forest.
    "random-forest": lambda: RandomForestClassifier(100, max_depth=10),
    # The same kind of forest in a sixth of the time.
    "compiled-forest": lambda: CompiledForest(100, 10, n_jobs=-1),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=100, max_leaf_nodes=8),
    "logistic": lambda: shrunken_logistic(C=1.0),
    "mlp": lambda: make_pipeline(StandardScaler(), MLPClassifier((32,), max_iter=300)),
    "refined-trees": lambda: Refined(shallow_trees(100), shallow_trees(100)),
    "refined-linear": lambda: Refined(shallow_trees(100), shrunken_logistic()),
    "isolation-forest": lambda: OneClass(IsolationForest(n_estimators=200), higher="normal"),
}


def scorer_by_name(name: str) -> ScorerLike:
    """Make a scorer of :data:`NAMED`."""
    if name not in NAMED:
        raise ScorerError(f"no scorer is called {name!r}: choose from {', '.join(NAMED)}")
    return NAMED[name]()


def as_candidates(
    scorer: ScorerLike | str | list[ScorerLike | str] | None, seed: int
) -> list[Scorer]:
    """Turn the `scorer` argument into seeded candidates; None is :class:`Automatic`.

    Call it once for each detection. All fits of a candidate must have the same seed, so a scorer
    whose `random_state` is a generator gets a number drawn from it here.
    """
    given = scorer if isinstance(scorer, list | tuple) else [scorer]
    if not given:
        raise InputError("scorer is an empty list: name at least one scorer")
    return [_with_drawn_seed(_as_candidate(one)).with_seed(seed) for one in given]


def _as_candidate(scorer: ScorerLike | str | None) -> Scorer:
    if scorer is None:
        return Automatic()
    return as_scorer(scorer_by_name(scorer) if isinstance(scorer, str) else scorer)


def _with_drawn_seed(scorer: Any) -> Scorer:
    """Replace a generator as `random_state` by a number drawn from it.

    scikit-learn's classifiers need no such step: each fit is of a clone, and a clone copies the
    generator.
    """
    state = getattr(scorer, "random_state", None)
    if isinstance(state, Generators) and is_dataclass(scorer):
        return replace(scorer, random_state=as_seed(state))  # type: ignore[type-var, return-value]
    return scorer  # type: ignore[no-any-return]

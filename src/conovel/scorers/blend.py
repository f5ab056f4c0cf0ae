"""Several learners that refine together, joined by a regression on their scores.

A linear model finds novelties that lie to one side of the normals, trees those that lie
around them, and which of these a site will meet is not known. So both are refined from the
same first scorers (:class:`Refined`), and a logistic regression on their
out-of-fold log-odds learns a coefficient for each. It has a handful of features, so that a
handful of likely novelties is enough; and it is one more fixed function of
(row, null_train, mixture as a multiset).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lstsq
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.covariance import ledoit_wolf
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conovel.errors import InputError, ScorerError
from conovel.models.linear import affine_by_row, expit
from conovel.scorers.base import Matrix, Scorer, Vector, as_log_odds, content_folds, is_by_row
from conovel.scorers.cross_fit import CrossFit, CrossFitScorer, CrossFitter, ShrunkenLogistic
from conovel.scorers.estimators import ScorerLike, name_of, with_seed

_ROWS = 256  # rows that are whitened together, so that they stay in the cache
_SMALLEST_DISTANCE = 1e-9  # squared; a row at the centre has a logarithm, too


_WIDE = 1000  # columns from which on scikit-learn adds in blocks


def shrunk_covariance(centred: Matrix) -> Matrix:
    """Return the covariance of rows of mean 0, shrunk (Ledoit and Wolf 2004).

    It has the bits of scikit-learn's `ledoit_wolf`, whose checks of arguments take several times
    as long as the estimate of a few hundred rows.
    """
    n, d = centred.shape
    if d == 1 or d >= _WIDE:
        return np.asarray(ledoit_wolf(centred, assume_centered=True)[0])
    squares, product = centred**2, np.dot(centred.T, centred)
    variances = np.sum(squares, axis=0) / n
    mean = np.sum(variances) / d
    fourth = np.sum(np.dot(squares.T, squares))
    second = np.sum(product**2) / n**2
    noise = 1.0 / (d * n) * (fourth / n - second)
    spread = (second - 2.0 * mean * variances.sum() + d * mean**2) / d
    noise = min(noise, spread)
    shrinkage = 0.0 if noise == 0 else noise / spread
    covariance = product / n
    shrunk = (1.0 - shrinkage) * covariance
    shrunk.flat[:: d + 1] += shrinkage * (np.trace(covariance) / d)
    return np.asarray(shrunk)


class MahalanobisDistance(BaseEstimator):  # type: ignore[misc]
    """The logarithm of the Mahalanobis distance, its covariance shrunk (Ledoit and Wolf 2004).

    It needs no novelties at all, so it also works where they are few. Rows are whitened column
    by column and not with `@`: BLAS results depend on the batch.
    """

    by_row = True

    def fit(self, X: Matrix, y: None = None) -> MahalanobisDistance:
        """Estimate centre and covariance."""
        self.centre_ = X.mean(axis=0)
        values, axes = np.linalg.eigh(shrunk_covariance(X - self.centre_))
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


class Discriminant(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The direction from the normals to the novelties, in the metric of the normals.

    The covariance is that of class 0 alone, shrunk (Ledoit and Wolf 2004): normals are many,
    while a dozen novelties have a mean but no shape. Where both are Gaussian, four standard
    deviations apart, logistic regression needs nearly three times as many rows to find the
    direction as well (Efron 1975). scikit-learn's discriminant estimates both covariances and
    knows no sample weights.
    """

    by_row = True  # see `predict_proba`
    is_linear = True
    is_plain = True

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
        # A pivoted QR factorisation: two rows have a covariance without an inverse.
        solved = lstsq(shrunk_covariance(white), shift, cond=1e-10, lapack_driver="gelsy")
        self.coef_ = solved[0] / scale
        self.middle_ = centre + np.where(spread > 0, shift * spread / 2, 0)
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1, as many of each assumed."""
        novel = self.score_folds([self], X, np.zeros(len(X), dtype=np.int64))
        return np.column_stack([1 - novel, novel])

    @staticmethod
    def score_folds(models: list[Discriminant], X: Matrix, folds: NDArray[np.int64]) -> Vector:
        """Say how likely each row is of class 1, by the model of its fold."""
        coef, middle = (np.stack([getattr(m, of) for m in models]) for of in ("coef_", "middle_"))
        # No `@` here: BLAS results depend on the batch.
        return expit(affine_by_row(X - middle[folds], coef[folds], 0.0))


@dataclass(frozen=True, eq=False)
class Refined(CrossFitScorer):
    """A scorer that refines a first fit, or several, by weighted refits.

    Parameters
    ----------
    first : classifier, OneClass, Refined, Blend, or list of these
        What finds the first likely novelties: a classifier tells null_train from the mixture
        and needs ``predict_proba``, a one-class model sees null_train alone. Of several, the
        weights are averaged.
    second : classifier or None
        Tells null_train from the likely novelties; None takes `first` again.
    n_folds : int
        Folds of the cross-fit; linear models take four times as many.
    n_refits : int
        How often to weigh and refit. Refining stops early where nothing stands out.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] += 1.5
    >>> plain = ExtraTreesClassifier(100, max_depth=8, min_samples_leaf=2)
    >>> refined = Refined(plain, LogisticRegression(C=0.03))
    >>> for scorer in (plain, refined):
    ...     result = cn.AdaDetect(scorer, train_fraction=0.5).detect(X_null, X_test)
    ...     print(int(result.rejected[270:].sum()), "of 30")
    27 of 30
    30 of 30
    """

    first: ScorerLike | list[ScorerLike]
    second: ScorerLike | None = None
    n_folds: int = 5
    n_refits: int = 3

    @property
    def learner(self) -> ScorerLike:
        """What is refitted."""
        return as_list(self.first)[0] if self.second is None else self.second

    @property
    def label(self) -> str:
        """The scorer in a few words."""
        return f"refined {name_of(self.learner)}"

    def cross_fit(self, fitter: CrossFitter) -> CrossFit:
        """Refine; the first cross-fit stays where nothing stands out."""
        firsts = tuple(fitter.first_fit(first) for first in as_list(self.first))
        return fitter.refine(firsts, self.learner, self.n_refits)

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the first and second scorers leave open."""
        first = with_seed(self.first, seed)
        return replace(self, first=first, second=with_seed(self.second, seed))


def shallow_trees(n_trees: int) -> ExtraTreesClassifier:
    """Grow strongly randomised trees."""
    return ExtraTreesClassifier(n_trees, max_depth=8, min_samples_leaf=2)


def shrunken_logistic(C: float = 0.03) -> Any:
    """Logistic regression on standardised features, shrunk for a handful of novelties."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))


def as_list(first: ScorerLike | list[ScorerLike]) -> list[ScorerLike]:
    """Return the first scorers, also where there is only one."""
    if isinstance(first, list | tuple) and not first:
        raise ScorerError("first is an empty list: name at least one scorer")
    return list(first) if isinstance(first, list | tuple) else [first]


_REGRESSION_REFITS = 2


@dataclass(frozen=True, eq=False)
class Blend(CrossFitScorer):
    """Refinements of the same first scorers, and a regression on their scores.

    Parameters
    ----------
    first : classifier, OneClass, Refined, Blend, or list of these
        What finds the first likely novelties, as for :class:`conovel.Refined`. The score of
        the last of them is a feature of the regression, too.
    members : list of classifiers
        What is refined.
    n_refits : tuple of int
        How often each member is refitted.
    n_folds : int
        Folds of the cross-fit; linear models take four times as many.
    lead : float
        How much less the first member's coefficient is shrunk than the others': their
        scores are divided by it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import ExtraTreesClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] *= 3  # on all sides: little for a linear model
    >>> trees, linear = ExtraTreesClassifier(40, max_depth=8), LogisticRegression(C=0.03)
    >>> for scorer in (cn.Refined(trees, linear), cn.Blend(trees, [linear, trees])):
    ...     result = cn.AdaDetect(scorer).detect(X_null, X_test)
    ...     print(int(result.rejected[270:].sum()), "of 30")
    7 of 30
    25 of 30
    """

    first: ScorerLike | list[ScorerLike]
    members: list[ScorerLike]
    n_refits: tuple[int, ...] = ()
    n_folds: int = 5
    lead: float = 1.0

    label = "blend"

    def cross_fit(self, fitter: CrossFitter) -> CrossFit:
        """Refine the members, then learn a coefficient for each."""
        self._check()
        firsts = tuple(fitter.first_fit(first) for first in as_list(self.first))
        n_refits = self.n_refits if len(self.n_refits) else (1,) * len(self.members)
        members = [
            fitter.refine(firsts, member, n)
            for member, n in zip(self.members, n_refits, strict=True)
        ]
        parts = (*members, firsts[-1])
        log_odds_matrix = np.column_stack(
            [as_log_odds(part.models[0].scale, fitter.scores(part)) for part in parts]
        )
        weights = fitter.mean_weights(firsts)
        spread = log_odds_matrix[weights > 0].std(axis=0)
        scale = 1 / np.where(spread > 0, spread, 1)
        scale[1:] /= self.lead
        on_scores = fitter.on_columns(log_odds_matrix * scale)
        regression = ShrunkenLogistic(1.0, standardise=False)
        fitted = on_scores.refit(regression, weights, _REGRESSION_REFITS)
        if fitted is None:
            return parts[0]
        return BlendedFit(self, fitted.weights, fitted.models, parts, scale)

    def _check(self) -> None:
        if not isinstance(self.lead, Real) or not 0 < self.lead < np.inf:
            raise InputError(f"lead must be a positive number, not {self.lead!r}")
        if not isinstance(self.members, list | tuple) or not self.members:
            raise ScorerError(f"members must be a list of classifiers, not {self.members!r}")
        n_refits = self.n_refits
        if not isinstance(n_refits, list | tuple) or len(n_refits) not in (0, len(self.members)):
            raise InputError(
                f"n_refits must be a tuple of {len(self.members)}, one for each member, not"
                f" {n_refits!r}"
            )

    def with_seed(self, seed: int) -> Scorer:
        """Fix every random state that the first scorers and the members leave open."""
        first: ScorerLike = with_seed(self.first, seed)
        members: list[ScorerLike] = with_seed(self.members, seed)
        return replace(self, first=first, members=members)


@dataclass(frozen=True, eq=False)
class BlendedFit(CrossFit):
    """A cross-fit of the regression, and the cross-fits whose scores are its features."""

    parts: tuple[CrossFit, ...]
    scale: Vector  # of the log-odds of each part

    is_one_learner: ClassVar = False  # the regression scores nothing without its parts

    @property
    def by_row(self) -> bool:
        """Whether a row has the same score in any batch."""
        return super().by_row and all(map(is_by_row, self.parts))

    def score(self, X: Matrix, folds: NDArray[np.int64] | None = None) -> Vector:
        """Score each row by the regression of its fold, from the parts' scores in that fold."""
        if folds is None:
            folds = content_folds(X, len(self.models))
        features = [as_log_odds(part.models[0].scale, part.score(X, folds)) for part in self.parts]
        return super().score(np.column_stack(features) * self.scale, folds)

"""The default scorer: refine in several ways, and take what finds most.

Two quick first scorers of different kinds look for likely novelties: strongly randomised
trees that tell null_train from the mixture, and the Mahalanobis distance from null_train,
which needs no novelties at all and so still sees something where agents are thin. From the
average of what they find, a linear model, trees and boosted trees are refined
(:mod:`conovel.refine`); the mean of the log-odds of the first two, the committee, is a fourth
candidate. The choice between them is made on a :class:`~conovel.selection.Trial`, and the
chosen one is then fitted on everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from conovel.elementary import expit
from conovel.refine import Refined, refine_each
from conovel.scoring import (
    FittedScorer,
    Matrix,
    Mixture,
    OneClass,
    Scorer,
    Vector,
    log_odds,
    with_seed,
)
from conovel.selection import Trial

_SMALL = 1_000_000  # numbers; below, several threads wait for each other more than they work


def shallow_trees(n_trees: int = 40) -> ExtraTreesClassifier:
    """Grow strongly randomised trees."""
    return ExtraTreesClassifier(n_trees, max_depth=8, min_samples_leaf=2)


def linear(C: float = 0.03) -> Any:
    """Logistic regression on standardised features, shrunk for a handful of novelties."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))


def boosting() -> HistGradientBoostingClassifier:
    """Boost small trees."""
    return HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8)


def ellipse() -> OneClass:
    """Measure the Mahalanobis distance from known normals, their covariance shrunk."""
    return OneClass(LedoitWolf(), higher="novel", method="mahalanobis")


class Automatic(BaseEstimator):  # type: ignore[misc]
    """A scorer chosen from null_train and the mixture.

    Parameters
    ----------
    n_folds : int
        Folds of every cross-fit.
    random_state : int or None
        Seed of every candidate.

    Examples
    --------
    >>> import numpy as np
    >>> import conovel as cn
    >>> rng = np.random.default_rng(0)
    >>> X_null, X_test = rng.normal(size=(900, 9)), rng.normal(size=(300, 9))
    >>> X_test[270:] += 1.5
    >>> result = cn.AdaDetect().detect(X_null, X_test)
    >>> int(result.rejected[270:].sum()), result.selection.names
    (30, ('linear', 'committee', 'trees', 'boosting'))
    """

    def __init__(self, n_folds: int = 4, random_state: int | None = None) -> None:
        self.n_folds = n_folds
        self.random_state = random_state

    def candidates(self) -> dict[str, Refined | Committee]:
        """Return the candidates by name, seeded."""
        seed = self.random_state or 0
        first = [with_seed(s, seed) for s in (shallow_trees(), ellipse())]
        # Refits of a linear model cost next to nothing, and it still improves with the fifth.
        second = {
            "linear": (linear(), 5),
            "trees": (shallow_trees(), 2),
            "boosting": (boosting(), 2),
        }
        refined = {
            name: Refined(first, with_seed(learner, seed), self.n_folds, n_refits)
            for name, (learner, n_refits) in second.items()
        }
        both = Committee([refined["linear"], refined["trees"]])
        # In order of preference: where nothing speaks against it, the simplest.
        return {"linear": refined["linear"], "committee": both, **refined}

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Choose on a trial, then fit the winner on these rows."""
        candidates = self.candidates()
        refined = {name: c for name, c in candidates.items() if isinstance(c, Refined)}
        both = candidates["committee"]
        small = null_train.size + mixture.position.size * null_train.shape[1] < _SMALL
        with threadpool_limits(1 if small else None, user_api="openmp"):
            if len(null_train) < 2:  # nothing to hide: no choice
                return both.fit_on(null_train, mixture)
            trial = Trial.of(null_train, mixture)
            task = trial.null_train, trial.mixture
            tried = refine_each(list(refined.values()), *task, send=False)
            fits = dict(zip(refined, tried, strict=True))
            fits["committee"] = both.of([fits["linear"], fits["trees"]])
            scores = [trial.mixture.score(fits[name]) for name in candidates]
            selection = trial.select(list(candidates), scores)
            winner = candidates[selection.winner].fit_on(null_train, mixture)
        return replace(winner, selection=selection, trial=fits[selection.winner])


class Committee(BaseEstimator):  # type: ignore[misc]
    """Several refinements of the same first scorers; the score is the mean of their log-odds.

    Parameters
    ----------
    members : list of Refined
        What is sent to peers as it is, rather than imitated, is the first member's model.
    """

    def __init__(self, members: list[Refined]) -> None:
        self.members = members

    @property
    def label(self) -> str:
        """The scorer in a word."""
        return "committee"

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Fit every member."""
        return self.of(refine_each(self.members, null_train, mixture))

    def of(self, fits: Sequence[FittedScorer]) -> FittedScorer:
        """Join members that are fitted already."""

        def read(_: Any, X: Matrix) -> Vector:
            # log_odds clips: no member may outvote all others
            return expit(np.mean([log_odds(fit.score(X)) for fit in fits], axis=0))

        first = fits[0]
        return FittedScorer(
            first.estimator, self, read, "probability", first.weights, sendable=False
        )

    def restart(self, first: Scorer) -> Committee:
        """Return the same committee after another first scorer."""
        return Committee([member.restart(first) for member in self.members])

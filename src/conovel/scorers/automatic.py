"""The default scorer: search in several ways, then take what finds most.

Two quick first scorers of different kinds look for likely novelties: strongly randomised
trees that tell null_train from the mixture, and the distance from null_train, which needs no
novelties at all. From the average of what they find a linear discriminant and trees are refined
and blended (:mod:`conovel.scorers.blend`). What the blend finds, four candidates learn: a second
blend,
a linear model, trees, and boosted trees. The choice between them is made on a
:class:`~conovel.scorers.selection.Trial`, and the chosen one is then fitted on everything.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from conovel.scorers.base import FittedScorer, Matrix, Mixture, with_seed
from conovel.scorers.blend import Blend
from conovel.scorers.discriminant import Discriminant
from conovel.scorers.mahalanobis import ellipse
from conovel.scorers.refined import Refined, linear, refine_each
from conovel.scorers.selection import CAUTIOUS, Trial
from conovel.stats.arguments import as_whole

_SMALL = 1_000_000  # numbers; below, several threads wait for each other more than they work


def shallow_trees(n_trees: int = 40) -> ExtraTreesClassifier:
    """Grow strongly randomised trees."""
    return ExtraTreesClassifier(n_trees, max_depth=8, min_samples_leaf=2)


def boosting() -> HistGradientBoostingClassifier:
    """Boost small trees."""
    return HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8)


def _trusting() -> AbstractContextManager[None]:
    """Spare each of a thousand trees the checks that all rows and settings have passed."""
    return config_context(assume_finite=True, skip_parameter_validation=True)  # type: ignore[no-any-return]


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
    (30, ('blend', 'linear', 'trees', 'boosting'))
    """

    def __init__(self, n_folds: int = 4, random_state: int | None = None) -> None:
        self.n_folds = n_folds
        self.random_state = random_state

    def candidates(self) -> dict[str, Refined | Blend]:
        """Return the candidates by name, seeded, in order of preference."""
        state = 0 if self.random_state is None else self.random_state
        seed = as_whole(state, "random_state", most=2**32 - 1)  # as scikit-learn's
        folds = self.n_folds
        trees, boosted = with_seed(shallow_trees(), seed), with_seed(boosting(), seed)
        # Refits of a linear model cost next to nothing, and it still improves with the fifth.
        firsts = [with_seed(shallow_trees(), seed), ellipse()]
        search = Blend(firsts, [Discriminant(), trees], (5, 2), folds)
        return {
            "blend": Blend(search, [linear(), trees], n_folds=folds, lead=2.0),
            "linear": Refined(search, linear(), folds, n_refits=1),
            "trees": Refined(search, trees, folds, n_refits=1),
            "boosting": Refined(search, boosted, folds, n_refits=1),
        }

    def fit_on(self, null_train: Matrix, mixture: Mixture) -> FittedScorer:
        """Choose on a trial, then fit the winner on these rows."""
        candidates = self.candidates()
        small = null_train.size + mixture.position.size * null_train.shape[1] < _SMALL
        with _trusting(), threadpool_limits(1 if small else None, user_api="openmp"):
            if len(null_train) < 2:  # nothing to hide: no choice
                return candidates["blend"].fit_on(null_train, mixture)
            trial = Trial.of(null_train, mixture)
            task = trial.null_train, trial.mixture
            tried = refine_each(list(candidates.values()), *task, send=False)
            scores = [trial.mixture.score(fit) for fit in tried]
            selection = trial.select(list(candidates), scores, CAUTIOUS)
            winner = candidates[selection.winner].fit_on(null_train, mixture)
        return replace(winner, selection=selection, trial=tried[selection.chosen])

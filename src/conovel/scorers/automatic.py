"""The default scorer: search in several ways, then take what finds most.

Two quick first scorers of different kinds look for likely novelties: strongly randomised
trees that tell null_train from the mixture, and the distance from null_train, which needs no
novelties at all. From the average of what they find a linear discriminant and trees are refined
and blended (:mod:`conovel.scorers.blend`). What the blend finds, four candidates learn: a second
blend,
a linear model, trees, and boosted trees. The choice between them is made on a hold-out
(:mod:`conovel.scorers.selection`), and the chosen one is then fitted on everything.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from sklearn import config_context
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from conovel.scorers.base import FittedScorer, Scorer, TrainingSet
from conovel.scorers.blend import Blend
from conovel.scorers.classifier import with_seed
from conovel.scorers.cross_fit import cross_fit_each
from conovel.scorers.discriminant import Discriminant
from conovel.scorers.mahalanobis import mahalanobis_distance
from conovel.scorers.refined import Refined, shrunken_logistic
from conovel.scorers.selection import CAUTIOUS, HoldOut
from conovel.stats.arguments import as_whole

# Below this many numbers, threads spend more time waiting for each other than working.
_NUMBERS_FOR_THREADS = 1_000_000


def shallow_trees(n_trees: int = 40) -> ExtraTreesClassifier:
    """Grow strongly randomised trees."""
    return ExtraTreesClassifier(n_trees, max_depth=8, min_samples_leaf=2)


def boosting() -> HistGradientBoostingClassifier:
    """Boost small trees."""
    return HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8)


def _without_checks() -> AbstractContextManager[None]:
    """Skip scikit-learn's checks: all rows and settings have passed them once."""
    return config_context(assume_finite=True, skip_parameter_validation=True)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Automatic(Scorer):
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

    n_folds: int = 4
    random_state: int | None = None

    @property
    def label(self) -> str:
        """The scorer in a word; a fitted one has the name of the candidate that was chosen."""
        return "automatic"

    def with_seed(self, seed: int) -> Scorer:
        """Fix the seed of every candidate, unless it is fixed already."""
        return self if self.random_state is not None else replace(self, random_state=seed)

    def candidates(self) -> dict[str, Refined | Blend]:
        """Return the candidates by name, seeded, in order of preference."""
        state = 0 if self.random_state is None else self.random_state
        seed = as_whole(state, "random_state", most=2**32 - 1)  # as scikit-learn's
        folds = self.n_folds
        trees, boosted = with_seed(shallow_trees(), seed), with_seed(boosting(), seed)
        # Refits of a linear model cost next to nothing, and it still improves with the fifth.
        firsts = [with_seed(shallow_trees(), seed), mahalanobis_distance()]
        search = Blend(firsts, [Discriminant(), trees], (5, 2), folds)
        return {
            "blend": Blend(search, [shrunken_logistic(), trees], n_folds=folds, lead=2.0),
            "linear": Refined(search, shrunken_logistic(), folds, n_refits=1),
            "trees": Refined(search, trees, folds, n_refits=1),
            "boosting": Refined(search, boosted, folds, n_refits=1),
        }

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Choose on a hold-out, then fit the winner on these rows."""
        candidates = self.candidates()
        null_train, mixture = training.null_train, training.mixture
        n_numbers = null_train.size + mixture.position.size * null_train.shape[1]
        n_threads = 1 if n_numbers < _NUMBERS_FOR_THREADS else None
        with _without_checks(), threadpool_limits(n_threads, user_api="openmp"):
            if len(null_train) < 2:  # no row can be hidden: no choice
                return candidates["blend"].fit(training)
            hold_out = HoldOut.of(training)
            tried = cross_fit_each(list(candidates.values()), hold_out.training, send=False)
            scores = [hold_out.training.mixture.score(fit) for fit in tried]
            selection = hold_out.select(list(candidates), scores, CAUTIOUS)
            winner = candidates[selection.winner].fit(training)
        return replace(winner, selection=selection, on_hold_out=tried[selection.chosen])

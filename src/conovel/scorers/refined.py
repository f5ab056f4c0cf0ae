"""Self-training: find the likely novelties out of fold, then learn from those alone.

Plain PU training has few positive rows: most of the mixture is normal, and a novelty is one row
among many that carry the same label. Refining takes three steps, each a fixed function of
(row, null_train, mixture as a multiset) and so as valid as a single fit (docs/theory.md):

1. cross-fit one or several first scorers (:mod:`conovel.scorers.cross_fit`);
2. weigh the mixture by how likely its rows are novel; null_train plays calibration;
3. refit null_train against the mixture rows of large weight, cross-fitted again; repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conovel.errors import ScorerError
from conovel.scorers.base import Scorer
from conovel.scorers.classifier import ScorerLike, name_of, with_seed
from conovel.scorers.cross_fit import CrossFit, CrossFitScorer, CrossFitter


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

"""Strongly randomised trees as a scikit-learn classifier, grown on bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from conovel.scorers.base import Matrix, Vector
from conovel.scorers.binned_forest import BinnedForest
from conovel.scorers.bins import Bins


class RandomisedTrees(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Extra-trees of :class:`conovel.scorers.binned_forest.BinnedForest`, with sample weights.

    Parameters
    ----------
    n_trees : int
    max_depth : int
    min_rows_per_leaf : int
    random_state : int or None

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(500, 9)), np.arange(500) >= 450
    >>> X[y] += 2.0
    >>> model = RandomisedTrees(random_state=0).fit(X, y)
    >>> bool(model.predict_proba(X)[y, 1].mean() > 0.8)
    True
    """

    by_row = True  # as its forest

    def __init__(
        self,
        n_trees: int = 40,
        max_depth: int = 8,
        min_rows_per_leaf: int = 2,
        random_state: int | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.min_rows_per_leaf = min_rows_per_leaf
        self.random_state = random_state

    def fit(
        self, X: Matrix, y: NDArray[np.integer], sample_weight: Vector | None = None
    ) -> RandomisedTrees:
        """Grow the trees."""
        forest = BinnedForest(
            self.n_trees,
            self.max_depth,
            min_rows_per_leaf=self.min_rows_per_leaf,
            splitter="random",
            random_state=self.random_state,
        )
        labels = np.asarray(y, dtype=np.int64)
        self.forest_ = forest.grow(Bins.of(X), labels, sample_weight).forest
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1."""
        novel = self.forest_.score(X)
        return np.column_stack([1 - novel, novel])

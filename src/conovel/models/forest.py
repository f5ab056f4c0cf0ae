"""Trees as flat arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ModelError
from conovel.models.arrays import Described, check_rows, freeze, logistic
from conovel.models.kernel_loops import Trees
from conovel.models.kernels import Bins, add_leaves, as_trees, check_trees, tree_depths


class Tree(NamedTuple):
    """One tree with its nodes in any order, the root first; a leaf has ``left`` -1."""

    feature: NDArray[np.integer]
    threshold: NDArray[np.float64]
    left: NDArray[np.integer]
    right: NDArray[np.integer]
    value: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Forest(Described):
    """An immutable ensemble of binary trees; node arrays are concatenated over the trees.

    A row goes left where ``x[feature] <= threshold``. The right child follows
    directly after the left one, children come after their parent, and the left child of a leaf is
    the leaf itself.

    Parameters
    ----------
    feature, threshold, left, value : arrays of shape (n_nodes,)
        The nodes. A leaf has feature -1 and threshold 0, an inner node value 0.
    roots : array of shape (n_trees,)
        The first node of each tree, which ends where the next begins.
    n_features : int
        Number of columns of the rows.
    link : {"mean", "logistic"}
        The score is the mean of the values, which then lie in [0, 1], or the logistic
        function of ``base`` plus their sum.
    base : float
        Where the sum of the logistic link starts.
    single : bool
        Whether rows are rounded to float32 before they are compared.

    Examples
    --------
    One stump: rows up to 0.5 score 0.1, the others 0.8.

    >>> stump = Forest([0, -1, -1], [0.5, 0, 0], [1, 1, 2], [0, 0.1, 0.8], [0], n_features=1)
    >>> stump.score([[0.5], [0.6]])
    array([0.1, 0.8])
    """

    feature: NDArray[np.int32]  # (n_nodes,), -1 at a leaf
    threshold: NDArray[np.float64]  # (n_nodes,), 0 at a leaf
    left: NDArray[np.int32]  # (n_nodes,), the right child is left + 1
    value: NDArray[np.float64]  # (n_nodes,), 0 at an inner node
    roots: NDArray[np.int32]  # (n_trees,)
    n_features: int
    link: Literal["mean", "logistic"] = "mean"  # sum / n_trees, or expit(base + sum)
    base: float = 0.0
    single: bool = True  # features are rounded to float32 before they are compared

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            array = freeze(getattr(self, name), dtype, name)
            if array.ndim != 1 or (name != "roots" and len(array) != len(self.feature)):
                raise ModelError(f"{name} must be a list with one entry per node")
            object.__setattr__(self, name, array)
        if self.n_features < 1:
            raise ModelError(f"a forest needs at least one feature, got {self.n_features}")
        check_trees(self.feature, self.left, self.roots, self.n_features)
        inner = self.feature >= 0
        if np.any(self.threshold[~inner]) or np.any(self.value[inner]):
            raise ModelError("leaves must have threshold 0 and inner nodes value 0")
        if self.link not in ("mean", "logistic"):
            raise ModelError(f"link must be 'mean' or 'logistic', got {self.link!r}")
        if self.link == "mean" and (self.base or not _are_probabilities(self.value)):
            raise ModelError("a forest that averages has base 0 and values from 0 to 1")
        if not np.isfinite(self.base):
            raise ModelError(f"base must be finite, got {self.base}")

    @classmethod
    def from_trees(
        cls,
        trees: Iterable[Tree],
        n_features: int,
        link: Literal["mean", "logistic"] = "mean",
        base: float = 0.0,
        single: bool = True,
    ) -> Self:
        """Join trees whose nodes are in any order; the result stores each tree level by level.

        Examples
        --------
        >>> numbers = [[1, -2, -2], [0.5, -2, -2], [1, -1, -1], [2, -1, -1], [0.4, 0, 1]]
        >>> stump = Tree(*map(np.array, numbers))
        >>> Forest.from_trees([stump, stump], n_features=2).left
        array([1, 1, 2, 4, 4, 5], dtype=int32)
        """
        parts, roots, size = [], [], 0
        for tree in trees:
            order, left = _by_levels(tree)
            leaf = tree.left[order] < 0
            parts.append(
                (
                    np.where(leaf, -1, tree.feature[order]),
                    np.where(leaf, 0.0, tree.threshold[order]),
                    left + size,
                    np.where(leaf, tree.value[order], 0.0),
                )
            )
            roots.append(size)
            size += len(order)
        if not parts:
            raise ModelError("a forest needs at least one tree")
        feature, threshold, child, value = map(np.concatenate, zip(*parts, strict=True))
        first = np.array(roots, dtype=np.int32)
        return cls(feature, threshold, child, value, first, n_features, link, base, single)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Number of splits on the longest path of each tree."""
        return freeze(tree_depths(self.left, self.roots), np.int64, "depths")

    @cached_property
    def _distinct(self) -> tuple[tuple[NDArray[np.float64], ...], NDArray[np.int64]]:
        """Edges and codes by one sort of all splits, whatever the number of features."""
        splits = np.flatnonzero(self.feature >= 0)
        order = splits[np.lexsort((self.threshold[splits], self.feature[splits]))]
        feature, threshold = self.feature[order], self.threshold[order]
        new = np.ones(order.size, dtype=np.bool_)
        new[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
        first = np.searchsorted(feature[new], np.arange(self.n_features))
        code = np.zeros(len(self.feature), dtype=np.int64)
        code[order] = np.cumsum(new) - 1 - first[feature]
        edges = np.split(threshold[new], first[1:])
        return tuple(freeze(e, np.float64, "edges") for e in edges), freeze(
            code, np.int64, "threshold codes"
        )

    @property
    def edges(self) -> tuple[NDArray[np.float64], ...]:
        """Distinct thresholds of each feature, increasing."""
        return self._distinct[0]

    @property
    def threshold_code(self) -> NDArray[np.int64]:
        """Position of each node's threshold among the edges of its feature; 0 at a leaf."""
        return self._distinct[1]

    @cached_property
    def _prepared(self) -> tuple[Bins, Trees]:
        """Edges and nodes as the loops use them; `__post_init__` has checked the nodes."""
        bins = Bins(self.edges)
        nodes = self.feature, self.threshold_code, self.left, self.value, self.roots
        return bins, as_trees(bins.dtype, *nodes, self.depths)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each row is novel.

        The leaf values are added in the order of the trees, so the score of a row has the
        same bits whatever rows it is scored with.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite numbers.

        Returns
        -------
        array of shape (n,)
            Probabilities in [0, 1].
        """
        rows = check_rows(X, self.n_features)
        bins, trees = self._prepared
        sums: NDArray[np.float64] = add_leaves(bins.codes(rows, self.single), trees, self.base)
        return sums / self.n_trees if self.link == "mean" else logistic(sums)


_DTYPES: dict[str, type[np.generic]] = {
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "value": np.float64,
    "roots": np.int32,
}


def round_down(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float32 at or below each threshold, as float64.

    For a float32 value x, ``x <= t`` and ``x <= round_down(t)`` are the same; the nearest
    float32 may lie above t, and a row with exactly that value would go left.

    Examples
    --------
    >>> t = np.array([0.1, 0.25])
    >>> np.float64(np.float32(0.1)) > 0.1
    np.True_
    >>> round_down(t) <= t
    array([ True,  True])
    """
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > threshold, below, nearest).astype(np.float64)


def _are_probabilities(value: NDArray[np.float64]) -> bool:
    # A weighted mean of ones may be one rounding error above one.
    return bool(value.min() >= 0 and value.max() <= 1 + 1e-9)


def _by_levels(tree: Tree) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the nodes level by level, siblings side by side, and the new left children."""
    level = np.zeros(1, dtype=np.intp)
    levels = []
    while len(level):
        levels.append(level)
        inner = level[tree.left[level] >= 0]
        level = np.stack([tree.left[inner], tree.right[inner]], axis=1).ravel()
        if sum(map(len, levels)) > len(tree.left):
            raise ModelError("a node of a tree is its own descendant")
    order = np.concatenate(levels)
    position = np.empty(len(tree.left), dtype=np.intp)
    position[order] = np.arange(len(order))
    child = tree.left[order]
    return order, np.where(child >= 0, position[child], np.arange(len(order)))

"""Trees as flat arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.models.linear import Described, check_rows, freeze, logistic
from conovel.models.loops import (
    SMALL,
    Buckets,
    Trees,
    bin_loop,
    blend_loop,
    compiled,
    walk_loop,
)

_NUMPY_ROWS = 1 << 16  # rows that the numpy expressions take together
_WORTH_COMPILING = (
    1 << 18
)  # values, or rows times trees; below this, numpy ends before numba is loaded


def bin_features(
    X: NDArray[np.float64], edges: Sequence[NDArray[np.float64]], single: bool = False
) -> NDArray[Any]:
    """Count, for every value, the edges of its feature that lie strictly below it.

    So ``x <= edges[f][c]`` exactly when ``code <= c``, and a split of a tree needs only
    the position of its threshold among the edges.

    Parameters
    ----------
    X : array of shape (n, d)
        Numbers; may be infinite, but not NaN.
    edges : sequence of d arrays
        Strictly increasing edges of each feature; a feature may have none.
    single : bool
        Whether values are rounded to single precision first. Values too large for it become
        infinite.

    Returns
    -------
    array of shape (n, d)
        Codes in the narrowest of uint8, uint16 and uint32 that holds the longest list of
        edges; stored by columns, which is how `leaf_sums` reads them.

    Examples
    --------
    >>> bin_features(np.array([[0.5], [1.0], [1.5]]), [np.array([0.5, 1.0])])
    array([[0],
           [1],
           [2]], dtype=uint8)
    """
    return Bins(tuple(edges)).codes(X, single)


@dataclass(frozen=True, eq=False)
class Bins:
    """The edges of all features; what the search needs is prepared once.

    Attributes
    ----------
    edges : tuple of arrays
        Strictly increasing edges of each feature; a feature may have none.
    """

    edges: tuple[NDArray[np.float64], ...]

    @cached_property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The type of the codes."""
        return _code_dtype(max(map(len, self.edges), default=0))

    @cached_property
    def _buckets(self) -> Buckets:
        return _bucketed(self.edges)

    def codes(self, X: NDArray[np.float64], single: bool = False) -> NDArray[Any]:
        """Bin rows as :func:`bin_features` does."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        d = len(self.edges)
        if X.ndim != 2 or X.shape[1] != d:
            raise SampleError(f"rows of shape {X.shape} do not fit the edges of {d} features")
        if np.any(np.isnan(X)):
            raise ColumnError(
                "rows hold NaN, which cannot be compared with the edges of a feature"
            )
        columns = np.empty(X.shape[::-1], dtype=self.dtype)
        loops = _loops(X.size)
        if loops is None:
            if single:
                with np.errstate(over="ignore"):
                    X = X.astype(np.float32).astype(np.float64)
            for column, values, steps in zip(columns, X.T, self.edges, strict=True):
                column[:] = np.searchsorted(steps, values, side="left")
        else:
            loops.bin(X, single, self._buckets, columns)
        return columns.T


def leaf_sums(
    codes: NDArray[Any],
    feature: NDArray[np.int32],
    threshold_code: NDArray[Any],
    left: NDArray[np.int32],
    leaf: NDArray[Any],
    roots: NDArray[np.int32],
    depths: NDArray[Any] | None = None,
    start: float = 0,
) -> NDArray[Any]:
    """Add up, over the trees, the leaf value that each row falls into.

    A row goes left where its code is at most the threshold code. Nodes are laid out as in
    `conovel.models.forest.Forest`: tree after tree, parents before children, the right child next
    to the left one, leaves pointing to themselves.

    Parameters
    ----------
    codes : array of shape (n, d)
        Unsigned codes of `bin_features`.
    feature, threshold_code, left, leaf : arrays of shape (n_nodes,)
        The nodes; only inner nodes need a threshold code, only leaves a leaf value.
        Integer leaves are summed in int64, any others in float64.
    roots : array of shape (n_trees,)
        The first node of each tree.
    depths : array of shape (n_trees,), optional
        `tree_depths(left, roots)`; computed here if not given.
    start : number
        Value at which the sum of a row begins.

    Returns
    -------
    array of shape (n,)
        int64 or float64. Floats are added in the order of the trees, starting from
        ``start``, so that a row's sum does not depend on the rows scored with it.

    Examples
    --------
    One stump, ``code <= 1``, with leaf values 3 and 5.

    >>> codes = np.array([[0], [1], [2]], dtype=np.uint8)
    >>> numbers = [0, -1, -1], [1, 0, 0], [1, 1, 2], [0, 3, 5], [0]  # feature, ..., roots
    >>> leaf_sums(codes, *map(np.array, numbers))
    array([3, 3, 5])
    """
    check_trees(feature, left, roots, codes.shape[1])
    if depths is None:
        depths = tree_depths(left, roots)
    trees = as_trees(codes.dtype, feature, threshold_code, left, leaf, roots, depths)
    return add_leaves(codes, trees, start)


def add_leaves(codes: NDArray[Any], trees: Trees, start: float = 0) -> NDArray[Any]:
    """Add up leaf values as :func:`leaf_sums` does, by nodes that were checked before."""
    columns = np.ascontiguousarray(codes.T)
    sums = np.full(len(codes), start, dtype=trees.leaf.dtype)
    n_trees = len(trees.depths)
    loops = _loops(sums.size * n_trees)
    blend, walk = (_blend, _walk) if loops is None else (loops.blend, loops.walk)
    small = np.diff(trees.starts) <= SMALL
    changes = np.flatnonzero(small[1:] != small[:-1]) + 1
    for i, j in pairwise([0, *changes, n_trees]):
        run = trees._replace(starts=trees.starts[i : j + 1], depths=trees.depths[i:j])
        (blend if small[i] else walk)(columns, run, sums)
    return sums


def as_trees(
    code_dtype: DTypeLike,
    feature: NDArray[np.int32],
    threshold_code: NDArray[Any],
    left: NDArray[np.int32],
    leaf: NDArray[Any],
    roots: NDArray[np.int32],
    depths: NDArray[Any],
) -> Trees:
    """Convert checked nodes to the types that the loops use, for codes of one type."""
    largest = int(np.iinfo(np.dtype(code_dtype)).max)
    bound = np.where(feature < 0, largest, np.asarray(threshold_code, dtype=np.int64))
    leaf = np.asarray(leaf)
    if leaf.shape != bound.shape or bound.min() < 0 or bound.max() > largest:
        raise ModelError(f"every node needs a leaf value and a threshold code up to {largest}")
    return Trees(
        feature=np.maximum(feature, 0).astype(np.uint32),
        bound=bound.astype(code_dtype),
        left=np.array(left, dtype=np.uint32),
        leaf=np.array(leaf, dtype=np.int64 if leaf.dtype.kind in "iu" else np.float64),
        starts=np.append(roots, len(left)).astype(np.int64),
        depths=np.array(depths, dtype=np.int64),
    )


def tree_depths(left: NDArray[np.int32], roots: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of splits on the longest path of each tree.

    Examples
    --------
    >>> tree_depths(np.array([1, 1, 3, 3, 4, 5]), np.array([0, 5]))
    array([2, 0])
    """
    depths = np.zeros(len(roots), dtype=np.int64)
    level, tree = np.asarray(roots), np.arange(len(roots))
    while True:
        inner = left[level] != level
        child, tree = left[level[inner]], np.repeat(tree[inner], 2)
        if not len(child):
            return depths
        depths[tree] += 1  # adds 1 once per tree, even if the tree occurs several times
        level = np.stack([child, child + 1], axis=1).ravel()


def check_trees(
    feature: NDArray[np.int32],
    left: NDArray[np.int32],
    roots: NDArray[np.int32],
    n_features: int,
) -> None:
    """Raise `ModelError` unless the arrays are trees in the layout that the loops rely on.

    The compiled loops do not check bounds; this does, once for all nodes.
    """
    n_nodes, node = len(left), np.arange(len(left))
    if len(feature) != n_nodes or not len(roots) or roots[0] != 0:
        raise ModelError("the first tree must start at the first node")
    if np.any(np.diff(roots) <= 0) or roots[-1] >= n_nodes:
        raise ModelError("roots must increase and lie among the nodes")
    inner = left != node
    if np.any(inner != (feature >= 0)) or np.any(feature < -1) or np.any(feature >= n_features):
        raise ModelError(f"inner nodes need a feature from 0 to {n_features - 1}, leaves have -1")
    ends = np.append(roots[1:], n_nodes)
    end = np.repeat(ends, ends - roots)
    if np.any(left < node) or np.any(left[inner] >= end[inner] - 1):
        raise ModelError("children must follow their parent inside the same tree")
    children = np.concatenate([roots, left[inner], left[inner] + 1])
    if not np.array_equal(np.sort(children), node):
        raise ModelError("every node must be a root or the child of exactly one node")


def _blend(columns: NDArray[Any], trees: Trees, sums: NDArray[Any]) -> None:
    """Add small trees, from the leaves up: a split picks one child's answer for each row."""
    for first in range(0, len(sums), _NUMPY_ROWS):
        block = columns[:, first : first + _NUMPY_ROWS]
        for root, end in pairwise(trees.starts):
            answer: list[Any] = list(np.arange(end - root, dtype=np.uint8))
            for k in reversed(range(end - root)):
                child = int(trees.left[root + k] - root)
                if child != k:
                    right = block[trees.feature[root + k]] > trees.bound[root + k]
                    mask = np.negative(right.view(np.uint8))  # 0 or 255
                    mask &= answer[child] ^ answer[child + 1]
                    mask ^= answer[child]
                    answer[k] = mask
            sums[first : first + _NUMPY_ROWS] += trees.leaf[root:end][answer[0]]


def _walk(columns: NDArray[Any], trees: Trees, sums: NDArray[Any]) -> None:
    """Add large trees, from the root down: all rows of a block take one level at a time."""
    n = len(sums)
    codes = columns.ravel()
    offset = trees.feature.astype(np.intp) * n
    left = trees.left.astype(np.intp)
    for first in range(0, n, _NUMPY_ROWS):
        row = np.arange(first, min(n, first + _NUMPY_ROWS))
        for root, depth in zip(trees.starts, trees.depths, strict=False):
            node = np.full(len(row), root)
            for _ in range(depth):
                right = codes.take(offset.take(node) + row) > trees.bound.take(node)
                node = left.take(node) + right
            sums[row] += trees.leaf.take(node)


def _code_dtype(n_edges: int) -> type[np.unsignedinteger[Any]]:
    for dtype in (np.uint8, np.uint16):
        if n_edges <= np.iinfo(dtype).max:
            return dtype
    return np.uint32


def _bucketed(edges: Sequence[NDArray[np.float64]]) -> Buckets:
    """Prepare the search of `bin_loop`; each feature has about as many intervals as edges."""
    parts = []
    for steps in edges:
        size = 1 << len(steps).bit_length()
        low, scale = 0.0, 0.0
        if len(steps) > 1:
            with np.errstate(over="ignore"):
                low, scale = steps[0], (size - 1) / (steps[-1] - steps[0])
        if 0 < scale < np.inf:
            full = np.bincount(((steps - low) * scale).astype(np.int64), minlength=size)
        else:  # too few edges, or too far or too close together
            full = np.array([len(steps)])
        bits = int(full.max()).bit_length()
        before = np.cumsum(full) - full
        parts.append((np.append(steps, np.full(1 << bits, np.inf)), low, scale, before, bits))
    padded, lows, scales, befores, widths = zip(*parts, strict=True)
    return Buckets(
        edges=np.concatenate(padded),
        starts=np.cumsum([0, *map(len, padded)]),
        low=np.array(lows),
        scale=np.array(scales),
        before=np.concatenate(befores).astype(np.uint32),
        offsets=np.cumsum([0, *map(len, befores)]),
        bits=np.array(widths, dtype=np.int64),
    )


class _Loops(NamedTuple):
    bin: Callable[..., None]
    blend: Callable[..., None]
    walk: Callable[..., None]


def _loops(work: int) -> _Loops | None:
    """Return the compiled loops if numba is there and the work repays loading it, if need be."""
    return _compile() if _repays(work) else None


def _repays(work: int) -> bool:
    return work >= _WORTH_COMPILING or "numba" in sys.modules


def _compile() -> _Loops | None:
    found = [compiled(loop) for loop in (bin_loop, blend_loop, walk_loop)]
    loops = [loop for loop in found if loop is not None]
    return _Loops(*loops) if len(loops) == len(found) else None


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

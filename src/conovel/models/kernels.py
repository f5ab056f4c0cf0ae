"""Scoring trees on small integers: binned features in, sums of leaf values out.

Two steps do all the work. `bin_features` replaces a feature value by the number of edges
below it, so that every later comparison is one of small integers; the codes serve every
forest that shares the edges. `leaf_sums` then sends the rows through the trees.

Each step exists twice, as numpy expressions and as loops compiled by numba (the ``fast``
extra), and both give the same bits: codes and paths are integers, and the leaf values are
added tree after tree. numba is imported when a large enough job needs it, never by
``import conovel``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.models.kernel_loops import (
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

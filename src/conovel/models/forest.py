"""Trees as flat arrays, and how they score: on small integers, one sum of leaf values for a row.

A feature value is replaced by the number of the forest's thresholds below it, so that a split
compares small integers. Then the rows go through the trees, and the leaf values are added tree
after tree. The loops are compiled by numba, which is loaded with the first rows that are scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ColumnError, ModelError, SampleError
from conovel.spec.shown import Shown

SMALL = 127  # nodes; for up to 64 leaves, deciding every split is faster than following paths


class Described(Shown):
    """Base of models: adds `describe`, and shows a model by its size."""

    by_row = True  # sums go from feature to feature or tree to tree, for each row by itself

    def _shown(self) -> dict[str, str]:
        sizes = {"trees": "n_trees", "features": "n_features"}
        return {term: f"{getattr(self, n):,}" for term, n in sizes.items() if hasattr(self, n)}

    def describe(self) -> dict[str, Any]:
        """Return size, shape and bytes by part; see `conovel.models.wire.describe`."""
        from conovel.models.wire import describe  # noqa: PLC0415  (the wire imports this module)

        return describe(self)  # type: ignore[arg-type]


def freeze(values: ArrayLike, dtype: type[np.generic], name: str) -> NDArray[Any]:
    """Copy numbers into a read-only array."""
    given = np.asarray(values)
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)):
        raise ModelError(f"{name} must be finite numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        array = given.astype(dtype, order="C", copy=True)
    if array.dtype.kind in "iu" and not np.array_equal(array, given):
        raise ModelError(f"{name} must be whole numbers that fit {array.dtype}")
    array.flags.writeable = False
    return array


def check_rows(X: ArrayLike, n_features: int) -> NDArray[np.float64]:
    """Return the rows as a finite float64 matrix with the number of columns of the model.

    Examples
    --------
    >>> check_rows([[1, 2]], n_features=3)
    Traceback (most recent call last):
    conovel.errors.SampleError: the model scores rows of 3 columns, got an array (1, 2)
    """
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ColumnError("rows to score must hold numbers only") from error
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise SampleError(
            f"the model scores rows of {n_features} columns, got an array {rows.shape}"
        )
    if not np.all(np.isfinite(rows)):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ColumnError(f"row {row} has {rows[row, column]} in column {column}")
    return rows


class Trees(NamedTuple):
    """Nodes as the loops use them: unsigned, and a leaf is a split that leads to itself."""

    feature: NDArray[np.uint32]  # 0 at a leaf
    bound: NDArray[Any]  # the largest code at a leaf: every row goes "left"
    left: NDArray[np.uint32]
    leaf: NDArray[Any]  # int64 or float64
    starts: NDArray[np.int64]  # (n_trees + 1,): the roots, then the end of the last tree
    depths: NDArray[np.int64]


class Buckets(NamedTuple):
    """Edges, and for each of many equal intervals the number of edges before it."""

    edges: NDArray[np.float64]  # feature after feature, each followed by infinities
    starts: NDArray[np.int64]  # where the edges of each feature begin
    low: NDArray[np.float64]  # of each feature: x is in interval (x - low) * scale, rounded down
    scale: NDArray[np.float64]
    before: NDArray[np.uint32]  # by feature and interval
    offsets: NDArray[np.int64]  # where the intervals of each feature begin
    bits: NDArray[np.int64]  # of the largest number of edges in an interval


class Prepared(NamedTuple):
    """The edges and the checked nodes of a forest, as the loops use them."""

    buckets: Buckets
    trees: Trees

    @classmethod
    def of(
        cls,
        edges: Sequence[NDArray[np.float64]],
        feature: NDArray[np.int32],
        threshold_code: NDArray[Any],
        left: NDArray[np.int32],
        leaf: NDArray[Any],
        roots: NDArray[np.int32],
    ) -> Prepared:
        """Convert nodes that :func:`check_trees` has passed; a threshold is one of the edges.

        Edges increase strictly. A row goes left where at most `threshold_code` edges of the
        feature lie below its value. Integer leaves are summed in int64, any others in float64.
        """
        most = max(map(len, edges), default=0)
        dtype = np.min_scalar_type(max(most, 1))
        largest = int(np.iinfo(dtype).max)
        bound = np.where(feature < 0, largest, np.asarray(threshold_code, dtype=np.int64))
        trees = Trees(
            feature=np.maximum(feature, 0).astype(np.uint32),
            bound=bound.astype(dtype),
            left=np.array(left, dtype=np.uint32),
            leaf=np.array(leaf, dtype=np.int64 if leaf.dtype.kind in "iu" else np.float64),
            starts=np.append(roots, len(left)).astype(np.int64),
            depths=tree_depths(left, roots),
        )
        return cls(_bucketed(edges), trees)

    def sums(
        self, rows: NDArray[np.float64], start: float = 0, single: bool = False
    ) -> NDArray[Any]:
        """Add up, over the trees, the leaf value that each row falls into.

        Floats are added in the order of the trees from `start` on, so that the sum of a row does
        not depend on the rows scored with it. With `single`, values are first rounded to single
        precision.
        """
        from conovel.models.loops import bin_loop, blend_loop, walk_loop  # noqa: PLC0415

        trees = self.trees
        columns = np.empty(rows.shape[::-1], dtype=trees.bound.dtype)
        sums = np.full(len(rows), start, dtype=trees.leaf.dtype)
        bin_loop(np.ascontiguousarray(rows), single, self.buckets, columns)
        small = np.diff(trees.starts) <= SMALL
        changes = np.flatnonzero(small[1:] != small[:-1]) + 1
        for i, j in pairwise([0, *changes, len(small)]):
            run = trees._replace(starts=trees.starts[i : j + 1], depths=trees.depths[i:j])
            (blend_loop if small[i] else walk_loop)(columns, run, sums)
        return sums


def tree_depths(left: NDArray[np.int32], roots: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the number of splits on the longest path of each tree."""
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
    feature: NDArray[np.int32], left: NDArray[np.int32], roots: NDArray[np.int32], n_features: int
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


def _bucketed(edges: Sequence[NDArray[np.float64]]) -> Buckets:
    """Prepare the search of `bin_loop`; each feature has about as many intervals as edges."""
    counts = np.array([len(steps) for steps in edges])
    size = np.left_shift(1, _bit_length(counts))
    low, scale = np.zeros(len(edges)), np.zeros(len(edges))
    ends = [(f, steps[0], steps[-1]) for f, steps in enumerate(edges) if len(steps) > 1]
    if ends:
        several, first, last = map(np.array, zip(*ends, strict=True))
        with np.errstate(over="ignore"):
            low[several], scale[several] = first, (size[several] - 1) / (last - first)
    divided = (scale > 0) & (scale < np.inf)  # else too few edges, or too far or too close
    offsets = np.concatenate([[0], np.cumsum(np.where(divided, size, 1))])
    steps, feature = np.concatenate(edges), np.repeat(np.arange(len(edges)), counts)
    interval, inside = offsets[feature], divided[feature]
    of = feature[inside]
    interval[inside] += ((steps[inside] - low[of]) * scale[of]).astype(np.int64)
    full = np.bincount(interval, minlength=offsets[-1])
    bits = _bit_length(np.maximum.reduceat(full, offsets[:-1]))
    before = np.cumsum(full) - full
    starts = np.concatenate([[0], np.cumsum(counts + np.left_shift(1, bits))])
    padded = np.full(starts[-1], np.inf)
    own = np.cumsum(counts) - counts
    padded[np.arange(steps.size) + (starts[:-1] - own)[feature]] = steps
    before -= np.repeat(before[offsets[:-1]], np.diff(offsets))
    return Buckets(padded, starts, low, scale, before.astype(np.uint32), offsets, bits)


def _bit_length(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many binary digits each number has, from 0 to 2⁵³."""
    return np.frexp(numbers)[1].astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Forest(Described):
    """An immutable ensemble of binary trees; node arrays are concatenated over the trees.

    A row goes left where ``x[feature] <= threshold``. The right child follows
    directly after the left one, children come after their parent, and the left child of a leaf is
    the leaf itself.
    """

    feature: NDArray[np.int32]  # (n_nodes,), -1 at a leaf
    threshold: NDArray[np.float64]  # (n_nodes,), 0 at a leaf
    left: NDArray[np.int32]  # (n_nodes,), the right child is left + 1
    value: NDArray[np.float64]  # (n_nodes,), 0 at an inner node
    roots: NDArray[np.int32]  # (n_trees,)
    n_features: int  # number of columns of the rows
    link: Literal["mean", "logistic"] = "mean"  # sum / n_trees, or expit(base + sum)
    base: float = 0.0  # where the sum of the logistic link starts
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
        # A weighted mean of ones may be one rounding error above one.
        in_range = self.value.min() >= 0 and self.value.max() <= 1 + 1e-9
        if self.link == "mean" and (self.base or not in_range):
            raise ModelError("a forest that averages has base 0 and values from 0 to 1")
        if not np.isfinite(self.base):
            raise ModelError(f"base must be finite, got {self.base}")

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """Number of splits on the longest path of each tree."""
        depths = tree_depths(self.left, self.roots)
        depths.flags.writeable = False
        return depths

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
        edges = tuple(np.split(threshold[new], first[1:]))
        for array in (code, *edges):
            array.flags.writeable = False
        return edges, code

    @property
    def edges(self) -> tuple[NDArray[np.float64], ...]:
        """Distinct thresholds of each feature, increasing."""
        return self._distinct[0]

    @property
    def threshold_code(self) -> NDArray[np.int64]:
        """Position of each node's threshold among the edges of its feature; 0 at a leaf."""
        return self._distinct[1]

    @cached_property
    def _prepared(self) -> Prepared:
        """Edges and nodes as the loops use them; `__post_init__` has checked the nodes."""
        edges, code = self._distinct
        return Prepared.of(edges, self.feature, code, self.left, self.value, self.roots)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each row is novel.

        The leaf values are added in the order of the trees, so the score of a row has the
        same bits whatever rows it is scored with.
        """
        rows = check_rows(X, self.n_features)
        sums: NDArray[np.float64] = self._prepared.sums(rows, self.base, self.single)
        if self.link == "mean":
            return sums / len(self.roots)
        from conovel.models.linear import logistic  # noqa: PLC0415  (imports this module)

        return logistic(sums)


_DTYPES: dict[str, type[np.generic]] = {
    "feature": np.int32,
    "threshold": np.float64,
    "left": np.int32,
    "value": np.float64,
    "roots": np.int32,
}

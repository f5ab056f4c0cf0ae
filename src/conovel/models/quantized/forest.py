"""Forests with codes of a few bits for thresholds and leaf values, and the quantizers.

Quantizers are fixed functions of the model: the same model gives the same codes everywhere.
`uniform` is the paper's, one min-max grid for all thresholds and one for all leaf values;
`per_feature` gives every feature a lattice of its own, which costs about a byte for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, ModelError
from conovel.models.forest import Described, Forest, Prepared, check_rows, check_trees
from conovel.models.linear import Dense, Linear, expit
from conovel.models.quantized.dense import QuantizedDense, quantize_layers
from conovel.models.quantized.grids import FeatureGrids, Lattice, SharedGrids, Uniform, single
from conovel.spec.settings import MAX_BITS

LEAF = -1
_TOP = 1 << 62  # above every code

Node = tuple[int, int]
Tree = list[Node]


class Arrays(NamedTuple):
    """A forest as arrays over its nodes; the right child is ``left + 1``."""

    feature: NDArray[np.int32]
    code: NDArray[np.int32]
    left: NDArray[np.int32]
    roots: NDArray[np.int32]


def prune(
    feature: NDArray[Any], code: NDArray[Any], left: NDArray[Any], roots: NDArray[Any]
) -> list[Tree]:
    """Return trees in preorder, without the splits that change no score.

    Splits that an ancestor on the same feature already decides are replaced by the child
    they always take; splits whose two children are equal leaves become that leaf.
    """
    n_features = max(int(feature.max()) + 1, 1)
    check_trees(feature, left, roots, n_features)
    lists = feature.tolist(), code.tolist(), left.tolist()
    low, high = [0] * n_features, [_TOP] * n_features
    return [_merge_leaves(_drop_decided(*lists, root, low, high)) for root in roots.tolist()]


def _drop_decided(
    feature: list[int],
    code: list[int],
    left: list[int],
    root: int,
    low: list[int],  # the codes that the splits above a node leave to each feature
    high: list[int],
) -> Tree:
    """Return a tree in preorder, without the splits that an ancestor already decides."""
    tree: Tree = []
    # What comes next: the codes left to one feature, and the node to look at, if any.
    stack = [(0, low[0], high[0], root)]
    while stack:
        f, low_here, high_here, node = stack.pop()
        low[f], high[f] = low_here, high_here
        if node < 0:
            continue
        while (f := feature[node]) >= 0 and not low[f] <= code[node] <= high[f]:
            node = left[node] + (code[node] < low[f])
        at = code[node]
        tree.append((max(f, LEAF), at))
        if f >= 0:
            stack.append((f, low[f], high[f], -1))
            stack.append((f, at + 1, high[f], left[node] + 1))
            stack.append((f, low[f], at - 1, left[node]))
    return tree


def _merge_leaves(tree: Tree) -> Tree:
    """Replace splits whose two children are the same leaf by that leaf.

    Children are looked at before their parents, so merged leaves can be merged again.
    """
    kept: Tree = []  # from the last node to the first
    subtrees: list[Node | None] = []  # a leaf, or None for a larger one
    for node in reversed(tree):
        if node[0] < 0:
            kept.append(node)
            subtrees.append(node)
            continue
        first, second = subtrees.pop(), subtrees.pop()
        if first is not None and first == second:
            kept.pop()
            subtrees.append(first)
        else:
            kept.append(node)
            subtrees.append(None)
    return kept[::-1]


def flatten(trees: list[Tree]) -> Arrays:
    """Convert trees to arrays: siblings side by side, the left child of a leaf is itself."""
    size = sum(map(len, trees))
    feature, code, left = [0] * size, [0] * size, [0] * size
    roots, free = [], 0
    for tree in trees:
        roots.append(free)
        places = [free]  # that are not filled yet
        free += 1
        for split, at in tree:
            place = places.pop()
            feature[place], code[place], left[place] = split, at, place
            if split >= 0:
                left[place] = free
                places += (free + 1, free)
                free += 2
    return Arrays(*(np.array(one, dtype=np.int32) for one in (feature, code, left, roots)))


def depth(tree: Tree) -> int:
    """Return the number of splits on the longest path."""
    deepest, stack = 0, [0]
    for split, _ in tree:
        level = stack.pop()
        if split == LEAF:
            deepest = max(deepest, level)
        else:
            stack += (level + 1, level + 1)
    return deepest


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedForest(Described):
    """An immutable forest on integer codes, in canonical form.

    Nodes are laid out as in `conovel.models.forest.Forest`. Trees are pruned and sorted: sums of
    integers do not depend on their order. Build one with `quantized_forest`.
    """

    feature: NDArray[np.int32]  # (n_nodes,), -1 at a leaf
    code: NDArray[np.int32]  # (n_nodes,), of the threshold, or of the value at a leaf
    left: NDArray[np.int32]  # (n_nodes,), the right child is left + 1
    roots: NDArray[np.int32]  # (n_trees,)
    n_features: int
    grids: SharedGrids | FeatureGrids
    link: Literal["mean", "logistic"] = "mean"  # sum / n_trees, or expit(base + sum)
    base: float = 0.0

    @property
    def n_trees(self) -> int:
        """How many trees there are."""
        return len(self.roots)

    @cached_property
    def trees(self) -> list[Tree]:
        """Every tree in preorder, pruned, in canonical order."""
        return _canonical(self.feature, self.code, self.left, self.roots)

    @cached_property
    def _thresholds(self) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
        inner = self.feature != LEAF
        pairs = self.feature[inner].astype(np.int64) << MAX_BITS | self.code[inner]
        used, rank = np.unique(pairs, return_inverse=True)
        first = np.searchsorted(used, np.arange(self.n_features) << MAX_BITS)
        lists = np.split(used & ((1 << MAX_BITS) - 1), first[1:])
        edges = [
            self.grids.of(f).total(codes, 1) if len(codes) else np.empty(0)
            for f, codes in enumerate(lists)
        ]
        position = np.zeros(len(inner), dtype=np.int64)
        position[inner] = rank - first[self.feature[inner]]
        return edges, position

    @property
    def edges(self) -> list[NDArray[np.float64]]:
        """Distinct thresholds of each feature, increasing."""
        return self._thresholds[0]

    @property
    def threshold_code(self) -> NDArray[np.int64]:
        """Position of each node's threshold among the edges of its feature; 0 at a leaf."""
        return self._thresholds[1]

    @cached_property
    def _prepared(self) -> Prepared:
        """Edges and checked nodes as the loops use them: a surrogate scores many small batches."""
        check_trees(self.feature, self.left, self.roots, self.n_features)
        edges, code = self._thresholds
        return Prepared.of(edges, self.feature, code, self.left, self.code, self.roots)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each row: higher is more novel.

        The codes of the leaves are added as integers; one fixed expression maps the sum to
        the score. The result is the same to the last bit on every machine.
        """
        total = self._prepared.sums(check_rows(X, self.n_features))
        margin = self.grids.leaves.total(total, self.n_trees)
        return margin / self.n_trees if self.link == "mean" else expit(self.base + margin)


def quantized_forest(
    trees: list[Tree],
    n_features: int,
    grids: SharedGrids | FeatureGrids,
    link: Literal["mean", "logistic"] = "mean",
    base: float = 0.0,
) -> QuantizedForest:
    """Build a quantized forest from canonical trees; grids that no split uses are dropped."""
    arrays = flatten(trees)
    for array in arrays:
        array.setflags(write=False)
    values = grids.leaves.values()[arrays.code[arrays.feature == LEAF]]
    limit = 1 + grids.leaves.reach
    if link == "mean" and not all(0 <= value <= limit for value in (values.min(), values.max())):
        raise ModelError("a forest that averages has values from 0 to 1")
    grids = grids.only(set(arrays.feature.tolist()) - {LEAF})
    return QuantizedForest(*arrays, n_features, grids, link, base)


@overload
def uniform(model: Forest, bits: int) -> QuantizedForest: ...
@overload
def uniform(model: Linear | Dense, bits: int) -> QuantizedDense: ...
def uniform(model: Forest | Linear | Dense, bits: int) -> QuantizedForest | QuantizedDense:
    """Put the numbers of a model on min-max grids of `bits` bits: the paper's quantizer.

    A forest has one grid for all thresholds and one for all leaf values; a network has one
    for the weights and one for the biases of each layer.
    """
    if not isinstance(model, Forest):
        return quantize_layers(model, bits)
    inner = model.feature != LEAF
    thresholds = Uniform.over(model.threshold[inner] if inner.any() else 0.0, bits)
    return _quantize(model, SharedGrids(thresholds, Uniform.over(model.value[~inner], bits)))


def per_feature(
    model: Forest,
    threshold_bits: int = 4,
    leaf_bits: int = 3,
    grids: Mapping[int, Lattice] | None = None,
) -> QuantizedForest:
    """Put the thresholds of each feature, and all leaf values, on a lattice of their own.

    By default, the lattice of a feature is a fine one that reaches all its thresholds.
    """
    used = set(model.feature.tolist()) - {LEAF}
    if grids is None:
        thresholds = {f: model.threshold[model.feature == f] for f in used}
        grids = {f: Lattice.over(t, threshold_bits) for f, t in thresholds.items()}
    for f in sorted(used):
        if f not in grids or grids[f].bits != threshold_bits:
            raise InputError(f"feature {f} needs a lattice of {threshold_bits} bits")
    leaves = Lattice.over(model.value[model.feature == LEAF], leaf_bits)
    return _quantize(model, FeatureGrids(dict(grids), leaves))


def _quantize(model: Forest, grids: SharedGrids | FeatureGrids) -> QuantizedForest:
    code = grids.leaves.codes(model.value)
    for f in set(model.feature.tolist()) - {LEAF}:
        at = model.feature == f
        code[at] = grids.of(f).codes(model.threshold[at])
    trees = _canonical(model.feature, code, model.left, model.roots)
    base = single(model.base) if model.link == "logistic" else 0.0
    return quantized_forest(trees, model.n_features, grids, model.link, base)


def _canonical(*arrays: NDArray[Any]) -> list[Tree]:
    return sorted(prune(*arrays))

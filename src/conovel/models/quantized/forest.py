"""Forests with codes of a few bits for thresholds and leaf values, and the quantizers.

Quantizers are fixed functions of the model: the same model gives the same codes everywhere.
`uniform` is the paper's, one min-max grid for all thresholds and one for all leaf values;
`per_feature` gives every feature a lattice of its own, which costs about a byte for each.

Examples
--------
>>> import numpy as np
>>> from conovel.models.forest import Forest
>>> stump = Forest(
...     feature=np.array([0, -1, -1], dtype=np.int32),
...     threshold=np.array([0.7, 0.0, 0.0]),
...     left=np.array([1, 1, 2], dtype=np.int32),
...     value=np.array([0.0, 0.25, 1.0]),
...     roots=np.array([0], dtype=np.int32),
...     n_features=1,
... )
>>> uniform(stump, bits=2).score([[0.5], [1.0]])
array([0.25, 1.  ])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, ModelError
from conovel.models.arrays import Described, check_rows
from conovel.models.dense import Dense
from conovel.models.forest import Forest
from conovel.models.kernel_loops import Trees
from conovel.models.kernels import Bins, add_leaves, as_trees, check_trees, tree_depths
from conovel.models.linear import Linear
from conovel.models.portable_math import expit
from conovel.models.quantized.canonical import LEAF, Tree, flatten, prune
from conovel.models.quantized.dense import QuantizedDense, quantize_layers
from conovel.models.quantized.grids import FeatureGrids, Lattice, SharedGrids, Uniform, single
from conovel.spec.settings import MAX_BITS


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
    def _prepared(self) -> tuple[Bins, Trees]:
        """Edges and checked nodes as the loops use them: a surrogate scores many small batches."""
        check_trees(self.feature, self.left, self.roots, self.n_features)
        bins = Bins(tuple(self.edges))
        nodes = self.feature, self.threshold_code, self.left, self.code, self.roots
        return bins, as_trees(bins.dtype, *nodes, tree_depths(self.left, self.roots))

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each row: higher is more novel.

        The codes of the leaves are added as integers; one fixed expression maps the sum to
        the score. The result is the same to the last bit on every machine.
        """
        bins, trees = self._prepared
        total = add_leaves(bins.codes(check_rows(X, self.n_features)), trees)
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

    Parameters
    ----------
    model : Forest, Linear or Dense
        The model; it is not changed.
    bits : int
        From 1 to 16.

    Returns
    -------
    QuantizedForest or QuantizedDense
        The quantized model.
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

    Parameters
    ----------
    model : Forest
        The model; it is not changed.
    threshold_bits, leaf_bits : int
        From 1 to 16.
    grids : mapping of int to Lattice, optional
        The lattice of each feature; by default a fine one of `threshold_bits` bits that
        reaches all its thresholds.

    Returns
    -------
    QuantizedForest
        The quantized model.
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

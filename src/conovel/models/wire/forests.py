"""Forests in a payload: quantized ones by their grids, exact ones by lists of their numbers.

`given` is what is written. A reader passes None or an empty listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np

from conovel.errors import HeaderError, ModelError
from conovel.models.forest import Forest, round_down
from conovel.models.quantized.canonical import LEAF, Tree, depth, flatten, prune
from conovel.models.quantized.forest import QuantizedForest, quantized_forest
from conovel.models.quantized.grids import FeatureGrids, Lattice, SharedGrids, Uniform
from conovel.models.wire.header import FOREST, Header
from conovel.models.wire.numbers import (
    WIDTHS,
    code_float,
    code_lattices,
    code_lists,
    code_uniform,
    code_used,
    order_of,
)
from conovel.models.wire.range_coder import Coder
from conovel.models.wire.trees import MAX_DEPTH, Shape, code_trees

LOGISTIC, PER_FEATURE, SINGLE = 1, 2, 4
_NO_GRID = Uniform(0.0, 0.0, bits=1)


class Listing(NamedTuple):
    """An exact forest: lists of its distinct numbers, and trees of positions in them."""

    trees: list[Tree]
    thresholds: dict[int, list[float]]  # by used feature
    values: list[float]
    base: float


def quantized_header(model: QuantizedForest) -> Header:
    """Return the header of a quantized forest."""
    flags = LOGISTIC * (model.link == "logistic")
    flags |= PER_FEATURE * isinstance(model.grids, FeatureGrids)
    return _header(flags, model.grids.bits, model.n_features, model.trees)


def code_quantized(coder: Coder, header: Header, given: QuantizedForest | None) -> QuantizedForest:
    """Code a quantized forest and return it."""
    trees = given.trees if given else []
    used = code_used(coder, _features(trees), header.n_features, _n_splits(header))
    grids = _code_grids(coder, header, given.grids if given else None, used)
    base = 0.0
    if header.flags & LOGISTIC:
        base = code_float(coder, given.base if given else 0.0, 32)
    sizes = [grids.of(f).n_codes for f in used]
    shape = Shape(header.n_parts, header.n_items, sizes, grids.leaves.n_codes, ordered=True)
    trees = _code_numbered(coder, shape, used, trees)
    return given or quantized_forest(trees, header.n_features, grids, _link(header), base)


def _code_grids(
    coder: Coder, header: Header, given: SharedGrids | FeatureGrids | None, used: list[int]
) -> SharedGrids | FeatureGrids:
    bits, leaf_bits = header.input_bits, header.output_bits
    if header.flags & PER_FEATURE:
        known: list[Lattice] = []
        if isinstance(given, FeatureGrids):
            known = [*given.thresholds.values(), given.leaves]
        *lattices, leaves = code_lattices(coder, known, [bits] * len(used) + [leaf_bits])
        return FeatureGrids(dict(zip(used, lattices, strict=True)), leaves)
    shared = given if isinstance(given, SharedGrids) else SharedGrids(_NO_GRID, _NO_GRID)
    thresholds = code_uniform(coder, shared.thresholds, bits) if used else _NO_GRID
    return SharedGrids(thresholds, code_uniform(coder, shared.leaves, leaf_bits))


def list_numbers(model: Forest) -> Listing:
    """Return the canonical form of an exact forest: pruned, its trees in their order.

    Scores keep every bit, because pruning removes only splits that change no score.
    """
    threshold = round_down(model.threshold) if model.single else model.threshold
    # One ascending list for all numbers: positions in it compare like the numbers.
    numbers, code = np.unique(threshold + model.value + 0.0, return_inverse=True)
    trees = prune(model.feature, code, model.left, model.roots)
    flat = chain.from_iterable(chain.from_iterable(trees))
    nodes = np.fromiter(flat, dtype=np.int64).reshape(-1, 2)
    # Distinct pairs of feature and number, ascending; leaves come first.
    pairs, rank = np.unique(nodes[:, 0] << 32 | nodes[:, 1], return_inverse=True)
    feature, number = pairs >> 32, numbers[pairs & 0xFFFFFFFF]
    used, first = np.unique(feature, return_index=True)
    n_values = int(first[1]) if len(used) > 1 else len(pairs)
    order = order_of(number[:n_values])
    position = np.arange(len(pairs)) - np.repeat(first, np.diff([*first, len(pairs)]))
    position[order] = np.arange(n_values)
    values, *lists = np.split(number, first[1:])
    thresholds = dict(zip(used[1:].tolist(), map(np.ndarray.tolist, lists), strict=True))
    placed = list(zip(nodes[:, 0].tolist(), position[rank].tolist(), strict=True))
    ends = np.cumsum([len(tree) for tree in trees]).tolist()
    trees = [placed[i:j] for i, j in pairwise([0, *ends])]
    return Listing(trees, thresholds, values[order].tolist(), model.base)


def exact_header(model: Forest, listing: Listing) -> Header:
    """Return the header of an exact forest."""
    flags = LOGISTIC * (model.link == "logistic") | SINGLE * bool(model.single)
    return _header(flags, (0, 0), model.n_features, listing.trees)


def read_exact(coder: Coder, header: Header) -> Forest:
    """Read an exact forest."""
    read = code_exact(coder, header, Listing([], {}, [], 0.0))
    feature, code, left, roots = flatten(read.trees)
    lists = {**read.thresholds, LEAF: read.values}
    pairs = zip(feature.tolist(), code.tolist(), strict=True)
    number = np.array([lists[f][c] for f, c in pairs])
    threshold = np.where(feature == LEAF, 0.0, number)
    value = np.where(feature == LEAF, number, 0.0)
    single = bool(header.flags & SINGLE)
    return Forest(
        feature, threshold, left, value, roots, header.n_features, _link(header), read.base, single
    )


def code_exact(coder: Coder, header: Header, given: Listing) -> Listing:
    """Code an exact forest and return it; a reader gives an empty one."""
    n_splits = _n_splits(header)
    used = code_used(coder, given.thresholds, header.n_features, n_splits)
    base = code_float(coder, given.base, 64) if header.flags & LOGISTIC else 0.0
    # Every listed threshold belongs to a split of its own.
    known = [given.thresholds[f] for f in used] if given.trees else []
    lists = code_lists(coder, known, len(used), n_splits, WIDTHS[:2])
    thresholds = dict(zip(used, lists, strict=True))
    n_leaves = (header.n_items + header.n_parts) // 2
    (values,) = code_lists(coder, [given.values] if given.trees else [], 1, n_leaves)
    sizes = [len(thresholds[f]) for f in used]
    shape = Shape(header.n_parts, header.n_items, sizes, len(values), ordered=False)
    trees = _code_numbered(coder, shape, used, given.trees)
    return Listing(trees, thresholds, values, base)


def check_forest(header: Header) -> None:
    """Raise unless flags and counts are those of some forest."""
    allowed = LOGISTIC | (SINGLE if header.exact else PER_FEATURE)
    if header.flags & ~allowed:
        raise HeaderError(f"flags {header.flags:#x} do not belong to a forest")
    if (header.n_items - header.n_parts) % 2:
        raise HeaderError("so many nodes and trees are not binary trees")


def _header(flags: int, bits: tuple[int, int], n_features: int, trees: list[Tree]) -> Header:
    # A tree of up to 2 MAX_DEPTH + 1 nodes has too few splits to be deeper.
    if any(len(tree) > 2 * MAX_DEPTH + 1 and depth(tree) > MAX_DEPTH for tree in trees):
        raise ModelError(f"a tree is deeper than {MAX_DEPTH}: limit its depth or its leaves")
    n_nodes = sum(map(len, trees))
    return Header(FOREST, flags, *bits, n_features, len(trees), n_nodes)


def _n_splits(header: Header) -> int:
    return (header.n_items - header.n_parts) // 2


def _link(header: Header) -> Literal["mean", "logistic"]:
    return "logistic" if header.flags & LOGISTIC else "mean"


def canonical_trees(model: Forest | QuantizedForest) -> list[Tree]:
    """Return the trees of a forest as they are sent."""
    return model.trees if isinstance(model, QuantizedForest) else list_numbers(model).trees


def _features(trees: Iterable[Tree]) -> set[int]:
    return {feature for tree in trees for feature, _ in tree}


def _code_numbered(
    coder: Coder, shape: Shape, used: list[int], given: Sequence[Tree]
) -> list[Tree]:
    """Code trees whose features are numbered among all features, not among the used ones."""
    rank = {f: i for i, f in enumerate(used)} | {LEAF: LEAF}
    name = [*used, LEAF]  # name[-1] is a leaf
    ranked = [[(rank[f], code) for f, code in tree] for tree in given]
    trees = code_trees(coder, shape, ranked)
    return [[(name[f], code) for f, code in tree] for tree in trees]

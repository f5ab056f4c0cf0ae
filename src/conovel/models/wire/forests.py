"""Forests in a payload: quantized ones by their grids, exact ones by lists of their numbers.

`given` is what is written. A reader passes None or an empty listing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np

from conovel.errors import HeaderError, LimitError, ModelError, StructureError
from conovel.models.forest import Forest
from conovel.models.quantized.forest import (
    LEAF,
    Node,
    QuantizedForest,
    Tree,
    depth,
    flatten,
    prune,
    quantized_forest,
)
from conovel.models.quantized.grids import FeatureGrids, Lattice, SharedGrids, Uniform
from conovel.models.trees import round_down
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
from conovel.models.wire.range_coder import Coder, FrequencyTable, symbol
from conovel.spec.settings import MAX_BITS

MAX_DEPTH = 256
# Contexts of the bit that says whether a node is a split: for the first EARLY splits of a tree,
# the number of splits and of places still open; after that, the depth and the kind of sibling.
EARLY = 16
OPEN = 4  # numbers of open places with contexts of their own
DEPTHS = 16  # depths with contexts of their own
SIBLING_BITS = 4  # leading bits of a leaf value that are the context of its sibling


@dataclass(frozen=True)
class Shape:
    """What a reader knows of a forest before the first tree."""

    n_trees: int
    n_nodes: int
    n_codes: Sequence[int]  # thresholds of each used feature
    n_values: int  # leaf values
    ordered: bool  # whether the trees are sorted, so that their order costs no bits


def code_trees(coder: Coder, shape: Shape, trees: Sequence[Tree]) -> list[Tree]:
    """Code canonical trees, features numbered among the used ones; a reader gives none."""
    state = _Trees(coder, shape)
    result = [state.tree(trees[t] if trees else None) for t in range(shape.n_trees)]
    if state.nodes_left:
        raise StructureError(f"{state.nodes_left} of the announced nodes are missing")
    return result


class _Split(NamedTuple):
    """A split above the node that is coded."""

    place: int  # its position in the tree
    feature: int
    code: int
    low: int  # the codes that its own ancestors leave to its feature
    high: int


class _Trees:
    """The contexts of one payload, and the state of coding.

    The codes that ancestors leave to each feature are kept for the present node only: a split
    changes them for its left subtree, then for its right one, and then restores them. So a node
    takes the same time at every depth.
    """

    def __init__(self, coder: Coder, shape: Shape) -> None:
        self.nodes_left = shape.n_nodes
        self._coder = coder
        self._shape = shape
        self._previous: Node | None = None  # the root before this one, if trees are sorted
        self._structure = FrequencyTable("structure")
        self._advance = FrequencyTable("feature")
        # Of roots, and of other splits.
        self._features = FrequencyTable("feature"), FrequencyTable("feature")
        self._thresholds: dict[int, FrequencyTable] = {}
        self._feature_bits = (len(shape.n_codes) - 1).bit_length()
        self._leaf_bits = (shape.n_values - 1).bit_length()
        slots = min(self._leaf_bits, MAX_BITS)
        self._leaves = [FrequencyTable("leaf", slots) for _ in range((1 << SIBLING_BITS) + 1)]
        self._low = [0] * len(shape.n_codes)
        self._high = [n - 1 for n in shape.n_codes]
        # _usable[p]: how many features with codes left have a number that begins with the bits of
        # p, after the leading 1 of p.
        self._usable = [0] * (2 << self._feature_bits)
        for feature in range(len(shape.n_codes)):
            self._count_usable(feature, 1)

    def tree(self, given: Tree | None) -> Tree:
        """Code one tree in preorder."""
        tree: Tree = []
        above: list[_Split] = []  # the path from the root
        is_right: list[bool] = []  # whether the path goes to the right child of each
        splits = n_open = 0
        while True:
            if not self.nodes_left:
                raise StructureError("there are more nodes than announced")
            self.nodes_left -= 1
            depth = len(above)
            node = (LEAF, 0) if given is None else given[len(tree)]
            sibling = tree[above[-1].place + 1] if above and is_right[-1] else None
            if self._is_split(depth, node, sibling, splits, n_open):
                if depth >= MAX_DEPTH:
                    raise LimitError(f"a tree is deeper than {MAX_DEPTH}")
                feature = self._feature(depth, node)
                low, high = self._low[feature], self._high[feature]
                code = self._threshold(depth, node, feature, low, high)
                above.append(_Split(len(tree), feature, code, low, high))
                is_right.append(False)
                splits += 1
                n_open += 1
                tree.append((feature, code))
                self._leave_codes(feature, low, code - 1)
                continue
            tree.append((LEAF, self._leaf(depth, node, sibling)))
            while is_right and is_right[-1]:
                is_right.pop()
                split = above.pop()
                self._leave_codes(split.feature, split.low, split.high)
            if not above:
                break
            is_right[-1] = True
            n_open -= 1
            self._leave_codes(above[-1].feature, above[-1].code + 1, above[-1].high)
        if self._shape.ordered:
            self._previous = tree[0]
        return tree

    def _leave_codes(self, feature: int, low: int, high: int) -> None:
        """Leave the codes from `low` to `high` to a feature; none if `low` is above `high`."""
        was_usable, is_usable = self._low[feature] <= self._high[feature], low <= high
        self._low[feature], self._high[feature] = low, high
        if was_usable != is_usable:
            self._count_usable(feature, 1 if is_usable else -1)

    def _count_usable(self, feature: int, change: int) -> None:
        prefix = (1 << self._feature_bits) + feature
        while prefix:
            self._usable[prefix] += change
            prefix >>= 1

    def _is_split(
        self, depth: int, node: Node, sibling: Node | None, splits: int, n_open: int
    ) -> bool:
        if not self._usable[1]:
            return False
        if depth == 0 and self._previous is not None and self._previous[0] != LEAF:
            return True  # trees of one leaf come first
        if splits < EARLY:
            slot = splits * OPEN + min(n_open, OPEN - 1)
        else:
            kind = 0 if sibling is None else 1 if sibling[0] == LEAF else 2
            slot = EARLY * OPEN + min(depth, DEPTHS - 1) * 3 + kind
        return bool(self._coder.bit(self._structure, slot, int(node[0] != LEAF)))

    def _feature(self, depth: int, node: Node) -> int:
        if depth == 0 and self._shape.ordered:
            feature = 0 if self._previous is None else max(self._previous[0], 0)
            last = len(self._shape.n_codes) - 1
            while feature < last and self._coder.bit(self._advance, 0, int(feature < node[0])):
                feature += 1
            return feature
        return self._usable_feature(self._features[min(depth, 1)], node[0])

    def _usable_feature(self, table: FrequencyTable, value: int) -> int:
        """Code a feature that has codes left; bits without a choice cost nothing."""
        bits, usable, prefix = self._feature_bits, self._usable, 1
        for level in range(bits - 1, -1, -1):
            if not usable[2 * prefix + 1]:
                prefix <<= 1
            elif not usable[2 * prefix]:
                prefix = prefix << 1 | 1
            elif prefix < table.size:
                prefix = prefix << 1 | self._coder.bit(table, prefix, value >> level & 1)
            else:
                bit = self._coder.uniform(value >> level & 1, 2, table.stream)
                prefix = prefix << 1 | bit
        if not usable[prefix]:
            raise StructureError("no symbol is possible here")
        return prefix - (1 << bits)

    def _threshold(self, depth: int, node: Node, feature: int, low: int, high: int) -> int:
        if depth == 0 and self._previous is not None and self._previous[0] == feature:
            low = self._previous[1]
        table = self._thresholds.get(feature)
        if table is None:
            table = self._thresholds[feature] = FrequencyTable("threshold")
        bits = (self._shape.n_codes[feature] - 1).bit_length()
        return symbol(self._coder, table, node[1], bits, low, high)

    def _leaf(self, depth: int, node: Node, sibling: Node | None) -> int:
        low, high, barred = 0, self._shape.n_values - 1, -1
        context = 1 << SIBLING_BITS
        if sibling is not None and sibling[0] == LEAF:
            barred = sibling[1]  # equal siblings would have been merged
            context = barred >> max(self._leaf_bits - SIBLING_BITS, 0)
        if depth == 0 and self._previous is not None:
            low = self._previous[1]
        table = self._leaves[context]
        return symbol(self._coder, table, node[1], self._leaf_bits, low, high, barred)


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
        shared_lattices: list[Lattice] = []
        if isinstance(given, FeatureGrids):
            shared_lattices = [*given.thresholds.values(), given.leaves]
        *lattices, leaves = code_lattices(coder, shared_lattices, [bits] * len(used) + [leaf_bits])
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
    known_thresholds = [given.thresholds[f] for f in used] if given.trees else []
    lists = code_lists(coder, known_thresholds, len(used), n_splits, WIDTHS[:2])
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

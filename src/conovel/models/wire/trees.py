"""The trees of a payload: one function writes, reads and counts them.

`docs/wire.md` says the same in words, under "Trees".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conovel.errors import LimitError, StructureError
from conovel.models.quantized.canonical import LEAF, Node, Tree
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
    """Code the trees of a forest and return them.

    Parameters
    ----------
    coder : Coder
        Encoder, decoder or bit counter.
    shape : Shape
        The counts that both sides know.
    trees : sequence of Tree
        Trees in canonical form, with features numbered among the used ones; empty to read.

    Returns
    -------
    list of Tree
        The same trees.
    """
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
        self._features = (
            FrequencyTable("feature"),
            FrequencyTable("feature"),
        )  # of roots, of other splits
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

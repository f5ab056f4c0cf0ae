"""The trees of a payload, described once for writing, reading and counting.

`docs/wire.md` says the same in words, under "Trees".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conovel.canonical import LEAF, Node, Tree
from conovel.coder import Coder, Table, symbol, within
from conovel.errors import LimitError, StructureError
from conovel.grids import MAX_BITS

MAX_DEPTH = 256
_EARLY = 16  # splits of a tree during which its structure is told by how much is open
_OPEN = 4  # numbers of open places told apart
_DEPTHS = 16  # depths told apart after that
_SIBLING_BITS = 4  # leading bits of a leaf by which its sibling is told


@dataclass(frozen=True)
class Shape:
    """What a reader knows of a forest before the first tree."""

    n_trees: int
    n_nodes: int
    n_codes: Sequence[int]  # thresholds of each used feature
    n_values: int  # leaf values
    ordered: bool  # trees ascend, and their order is not paid for


@dataclass(frozen=True)
class _Place:
    """A node that is still to come."""

    depth: int
    parent: int  # where the parent of a right child stands in the tree; otherwise -1
    dead: frozenset[int]  # features of which ancestors leave no code
    bounds: dict[int, tuple[int, int]]  # the codes that ancestors leave to a feature


def code_trees(coder: Coder, shape: Shape, trees: Sequence[Tree]) -> list[Tree]:
    """Code the trees of a forest and return them.

    Parameters
    ----------
    coder : Coder
        Encoder, decoder or tally.
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
        raise StructureError(f"{state.nodes_left} announced nodes are missing")
    return result


class _Trees:
    """The contexts of one payload, and where it stands."""

    def __init__(self, coder: Coder, shape: Shape) -> None:
        self.nodes_left = shape.n_nodes
        self._coder = coder
        self._shape = shape
        self._previous: Node | None = None  # the root before this one, if trees ascend
        self._structure = Table("structure")
        self._advance = Table("feature")
        self._features = (Table("feature"), Table("feature"))  # of roots, of other splits
        self._thresholds: dict[int, Table] = {}
        self._feature_bits = (len(shape.n_codes) - 1).bit_length()
        self._leaf_bits = (shape.n_values - 1).bit_length()
        slots = min(self._leaf_bits, MAX_BITS)
        self._leaves = [Table("leaf", slots) for _ in range((1 << _SIBLING_BITS) + 1)]

    def tree(self, given: Tree | None) -> Tree:
        """Code one tree in preorder."""
        tree: Tree = []
        splits = 0
        stack = [_Place(0, -1, frozenset(), {})]
        while stack:
            place = stack.pop()
            if not self.nodes_left:
                raise StructureError("more nodes than announced")
            self.nodes_left -= 1
            node = (LEAF, 0) if given is None else given[len(tree)]
            sibling = tree[place.parent + 1] if place.parent >= 0 else None
            if not self._is_split(place, node, sibling, splits, len(stack)):
                tree.append((LEAF, self._leaf(place, node, sibling)))
                continue
            if place.depth >= MAX_DEPTH:
                raise LimitError(f"a tree is deeper than {MAX_DEPTH}")
            feature = self._feature(place, node)
            low, high = place.bounds.get(feature, (0, self._shape.n_codes[feature] - 1))
            code = self._threshold(place, node, feature, low, high)
            splits += 1
            tree.append((feature, code))
            stack.append(_child(place, len(tree) - 1, feature, code + 1, high))
            stack.append(_child(place, -1, feature, low, code - 1))
        if self._shape.ordered:
            self._previous = tree[0]
        return tree

    def _is_split(
        self, place: _Place, node: Node, sibling: Node | None, splits: int, n_open: int
    ) -> bool:
        if len(place.dead) == len(self._shape.n_codes):
            return False
        if place.depth == 0 and self._previous is not None and self._previous[0] != LEAF:
            return True  # trees of one leaf come first
        if splits < _EARLY:
            slot = splits * _OPEN + min(n_open, _OPEN - 1)
        else:
            kind = 0 if sibling is None else 1 if sibling[0] == LEAF else 2
            slot = _EARLY * _OPEN + min(place.depth, _DEPTHS - 1) * 3 + kind
        return bool(self._coder.bit(self._structure, slot, int(node[0] != LEAF)))

    def _feature(self, place: _Place, node: Node) -> int:
        if place.depth == 0 and self._shape.ordered:
            feature = 0 if self._previous is None else max(self._previous[0], 0)
            last = len(self._shape.n_codes) - 1
            while feature < last and self._coder.bit(self._advance, 0, int(feature < node[0])):
                feature += 1
            return feature

        n_features, dead = len(self._shape.n_codes), place.dead

        def possible(start: int, stop: int) -> bool:
            stop = min(stop, n_features)
            return stop - start > len(dead) or any(f not in dead for f in range(start, stop))

        table = self._features[min(place.depth, 1)]
        return symbol(self._coder, table, node[0], self._feature_bits, possible)

    def _threshold(self, place: _Place, node: Node, feature: int, low: int, high: int) -> int:
        if place.depth == 0 and self._previous is not None and self._previous[0] == feature:
            low = self._previous[1]
        table = self._thresholds.get(feature)
        if table is None:
            table = self._thresholds[feature] = Table("threshold")
        bits = (self._shape.n_codes[feature] - 1).bit_length()
        return symbol(self._coder, table, node[1], bits, within(low, high))

    def _leaf(self, place: _Place, node: Node, sibling: Node | None) -> int:
        low, high, barred = 0, self._shape.n_values - 1, -1
        context = 1 << _SIBLING_BITS
        if sibling is not None and sibling[0] == LEAF:
            barred = sibling[1]  # equal siblings would have been merged
            context = barred >> max(self._leaf_bits - _SIBLING_BITS, 0)
        if place.depth == 0 and self._previous is not None:
            low = self._previous[1]

        def possible(start: int, stop: int) -> bool:
            first, last = max(start, low), min(stop - 1, high)
            return first < last or (first == last and first != barred)

        return symbol(self._coder, self._leaves[context], node[1], self._leaf_bits, possible)


def _child(place: _Place, parent: int, feature: int, low: int, high: int) -> _Place:
    dead = place.dead if low <= high else place.dead | {feature}
    return _Place(place.depth + 1, parent, dead, {**place.bounds, feature: (low, high)})

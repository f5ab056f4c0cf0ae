"""The one spelling of a forest: pruned trees in preorder, and back to flat arrays.

A node is a pair ``(feature, code)``: the code of a threshold at a split, the code of a leaf
value at a leaf, whose feature is -1. A row goes left where its bin is at most the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def prune(feature: Sequence[int], code: Sequence[int], left: Sequence[int], root: int) -> Tree:
    """Return one tree in preorder, without the parts that no row can tell apart.

    Splits that an ancestor on the same feature already decides are replaced by the child
    they always take; splits whose two children are equal leaves become that leaf.

    Parameters
    ----------
    feature, code, left : sequences of int
        Node arrays of the forest.
    root : int
        Where the tree begins.

    Returns
    -------
    list of (int, int)
        The pairs ``(feature, code)`` in preorder.

    Examples
    --------
    >>> prune([0, 0, -1, -1, -1], [3, 5, 1, 0, 1], [1, 3, 2, 3, 4], 0)
    [(0, 3), (-1, 0), (-1, 1)]
    """
    nodes: Tree = []
    right: list[int] = []
    stack: list[tuple[int, dict[int, tuple[int, int]], int]] = [(root, {}, -1)]
    while stack:
        node, bounds, parent = stack.pop()
        low, high = 0, _TOP
        while (split := feature[node]) >= 0:
            low, high = bounds.get(split, (0, _TOP))
            if code[node] < low:
                node = left[node] + 1
            elif code[node] > high:
                node = left[node]
            else:
                break
        if parent >= 0:
            right[parent] = len(nodes)
        nodes.append((max(split, LEAF), code[node]))
        right.append(0)
        if split >= 0:
            above = {**bounds, split: (code[node] + 1, high)}
            below = {**bounds, split: (low, code[node] - 1)}
            stack.append((left[node] + 1, above, len(nodes) - 1))
            stack.append((left[node], below, -1))
    return _merge(nodes, right)


def _merge(nodes: Tree, right: list[int]) -> Tree:
    """Turn splits into a leaf where both children are the same leaf, from the bottom up."""
    end = [0] * len(nodes)
    for i in range(len(nodes) - 1, -1, -1):
        if nodes[i][0] == LEAF:
            end[i] = i + 1
            continue
        end[i] = end[right[i]]
        if nodes[i + 1][0] == LEAF and nodes[i + 1] == nodes[right[i]]:
            nodes[i] = nodes[i + 1]
    merged, i = [], 0
    while i < len(nodes):
        merged.append(nodes[i])
        i = end[i] if nodes[i][0] == LEAF else i + 1
    return merged


def flatten(trees: list[Tree]) -> Arrays:
    """Lay trees out as arrays: children side by side, leaves pointing to themselves.

    Examples
    --------
    >>> flatten([[(0, 3), (-1, 0), (-1, 1)]]).left.tolist()
    [1, 1, 2]
    """
    size = sum(map(len, trees))
    feature, code, left = (np.zeros(size, dtype=np.int32) for _ in range(3))
    roots = np.zeros(len(trees), dtype=np.int32)
    free = 0
    for t, tree in enumerate(trees):
        roots[t] = free
        stack = [free]
        free += 1
        for split, number in tree:
            place = stack.pop()
            feature[place], code[place], left[place] = split, number, place
            if split != LEAF:
                left[place] = free
                stack += (free + 1, free)
                free += 2
    return Arrays(feature, code, left, roots)


def depth(tree: Tree) -> int:
    """Return the number of splits on the longest path.

    Examples
    --------
    >>> depth([(0, 3), (-1, 0), (2, 1), (-1, 0), (-1, 1)])
    2
    """
    deepest, stack = 0, [0]
    for split, _ in tree:
        level = stack.pop()
        if split == LEAF:
            deepest = max(deepest, level)
        else:
            stack += (level + 1, level + 1)
    return deepest

"""The canonical form of a forest: pruned trees in preorder, and the way back to arrays.

A node is a pair ``(feature, code)``: the code of a threshold at a split, the code of a leaf
value at a leaf, whose feature is -1. A row goes left where its bin is at most the code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.models.kernels import check_trees

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

    Parameters
    ----------
    feature, code, left : arrays of shape (n_nodes,)
        Node arrays of the forest.
    roots : array of shape (n_trees,)
        Where the trees begin.

    Returns
    -------
    list of Tree
        For every tree the pairs ``(feature, code)`` in preorder.

    Examples
    --------
    >>> prune(*map(np.array, ([0, 0, -1, -1, -1], [3, 5, 1, 0, 1], [1, 3, 2, 3, 4], [0])))
    [[(0, 3), (-1, 0), (-1, 1)]]
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
    """Convert trees to arrays: siblings side by side, the left child of a leaf is itself.

    Examples
    --------
    >>> flatten([[(0, 3), (-1, 0), (-1, 1)]]).left.tolist()
    [1, 1, 2]
    """
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

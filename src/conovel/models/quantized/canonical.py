"""The one spelling of a forest: pruned trees in preorder, and back to flat arrays.

A node is a pair ``(feature, code)``: the code of a threshold at a split, the code of a leaf
value at a leaf, whose feature is -1. A row goes left where its bin is at most the code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.models.kernel_loops import jit
from conovel.models.kernels import check_trees

LEAF = -1
WORTH_COMPILING = 1 << 14  # nodes or numbers; below, plain Python ends before numba is loaded
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
    """Return trees in preorder, without the parts that no row can tell apart.

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
    n_nodes, n_features = len(feature), max(int(feature.max()) + 1, 1)
    check_trees(feature, left, roots, n_features)
    given = [np.asarray(array, dtype=np.int64) for array in (feature, code, left, roots)]
    made = [np.zeros(n_nodes, dtype=np.int64) for _ in range(4)]
    path = [np.zeros(n_nodes, dtype=np.int64) for _ in range(5)]
    bounds = [np.zeros(n_features, dtype=np.int64), np.full(n_features, _TOP)]
    ends = np.zeros(len(roots), dtype=np.int64)
    lists = _run(_prune, n_nodes, *given, *made, *path, *bounds, ends)
    nodes = list(zip(lists[4], lists[5], strict=True))
    return [nodes[i:j] for i, j in pairwise([0, *lists[-1]])]


def _prune(  # noqa: PLR0915  (compiled as one loop)
    feature: Any,
    code: Any,
    left: Any,
    roots: Any,
    splits: Any,  # what is left: feature and code of each node, in preorder
    codes: Any,
    right: Any,  # where the right child of a split stands, and where its subtree ends
    end: Any,
    place: Any,  # of the splits above a node: where they stand, which nodes they are, …
    parent: Any,
    low_above: Any,  # … what their own ancestors leave, …
    high_above: Any,
    is_right: Any,  # … and on which side of them the path goes on
    low: Any,  # what ancestors leave to every feature
    high: Any,
    ends: Any,
) -> None:
    size = 0
    for t in range(len(roots)):
        first, i, depth, node = size, size, 0, roots[t]
        while True:
            f = feature[node]
            while f >= 0:
                if code[node] < low[f]:
                    node = left[node] + 1
                elif code[node] > high[f]:
                    node = left[node]
                else:
                    break
                f = feature[node]
            splits[i] = max(f, LEAF)
            codes[i] = code[node]
            if f >= 0:
                place[depth] = i
                parent[depth] = node
                low_above[depth] = low[f]
                high_above[depth] = high[f]
                is_right[depth] = 0
                high[f] = code[node] - 1
                node = left[node]
                depth += 1
                i += 1
                continue
            i += 1
            while depth and is_right[depth - 1]:
                depth -= 1
                f = feature[parent[depth]]
                low[f] = low_above[depth]
                high[f] = high_above[depth]
            if depth == 0:
                break
            is_right[depth - 1] = 1
            right[place[depth - 1]] = i
            node = parent[depth - 1]
            f = feature[node]
            low[f] = code[node] + 1
            high[f] = high_above[depth - 1]
            node = left[node] + 1
        # Splits become a leaf where both children are the same leaf, from the bottom up.
        for j in range(i - 1, first - 1, -1):
            if splits[j] < 0:
                end[j] = j + 1
                continue
            r = right[j]
            end[j] = end[r]
            if splits[j + 1] < 0 and splits[r] < 0 and codes[j + 1] == codes[r]:
                splits[j] = LEAF
                codes[j] = codes[r]
        j = first
        while j < i:
            splits[size] = splits[j]
            codes[size] = codes[j]
            j = end[j] if splits[j] < 0 else j + 1
            size += 1
        ends[t] = size


def _run(loop: Callable[..., None], work: int, *arrays: NDArray[np.int64]) -> list[list[int]]:
    """Run a loop, compiled where that pays and else on lists; return what it made of them."""
    compiled = _compiled(loop) if work >= WORTH_COMPILING else None
    if compiled is not None:
        compiled(*arrays)
    lists = [array.tolist() for array in arrays]
    if compiled is None:
        loop(*lists)
    return lists


@cache
def _compiled(loop: Callable[..., None]) -> Callable[..., None] | None:
    try:
        return jit(loop)
    except ImportError:
        return None


def flatten(trees: list[Tree]) -> Arrays:
    """Lay trees out as arrays: children side by side, leaves pointing to themselves.

    Examples
    --------
    >>> flatten([[(0, 3), (-1, 0), (-1, 1)]]).left.tolist()
    [1, 1, 2]
    """
    sizes = np.array([len(tree) for tree in trees], dtype=np.int64)
    size = int(sizes.sum())
    flat = chain.from_iterable(chain.from_iterable(trees))
    nodes = np.fromiter(flat, dtype=np.int64, count=2 * size).reshape(-1, 2)
    arrays = [np.zeros(size, dtype=np.int64) for _ in range(4)]
    roots = np.zeros(len(trees), dtype=np.int64)
    made = _run(_flatten, size, nodes[:, 0].copy(), nodes[:, 1].copy(), sizes, roots, *arrays)
    return Arrays(*(np.array(made[i], dtype=np.int32) for i in (4, 5, 6, 3)))


def _flatten(
    splits: Any,
    codes: Any,
    sizes: Any,
    roots: Any,
    feature: Any,
    code: Any,
    left: Any,
    stack: Any,  # places that are still to be filled
) -> None:
    free = i = 0
    for t in range(len(sizes)):
        roots[t] = free
        stack[0] = free
        depth = 1
        free += 1
        for j in range(i, i + sizes[t]):
            depth -= 1
            place = stack[depth]
            feature[place] = splits[j]
            code[place] = codes[j]
            left[place] = place
            if splits[j] >= 0:
                left[place] = free
                stack[depth] = free + 1
                stack[depth + 1] = free
                depth += 2
                free += 2
        i += sizes[t]


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

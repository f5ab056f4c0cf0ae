"""The canonical form of a forest: pruned trees in preorder, and the way back to arrays.

A node is a pair ``(feature, code)``: the code of a threshold at a split, the code of a leaf
value at a leaf, whose feature is -1. A row goes left where its bin is at most the code.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.models.kernel_loops import compiled
from conovel.models.kernels import check_trees

LEAF = -1
WORTH_COMPILING = 1 << 14  # nodes or numbers; below this, plain Python ends before numba is loaded
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
    n_nodes, n_features = len(feature), max(int(feature.max()) + 1, 1)
    check_trees(feature, left, roots, n_features)
    given = [np.asarray(array, dtype=np.int64) for array in (feature, code, left, roots)]
    kept = [np.zeros(n_nodes, dtype=np.int64) for _ in range(3)]  # feature, code, right child
    ends = np.zeros(len(roots), dtype=np.int64)
    path = [np.zeros(n_nodes, dtype=np.int64) for _ in range(5)]
    bounds = [np.zeros(n_features, dtype=np.int64), np.full(n_features, _TOP)]
    subtree_ends = np.zeros(n_nodes, dtype=np.int64)
    (drop, merge), arrays = _prepare(
        (_drop_decided, _merge_leaves), n_nodes, *given, *kept, ends, *path, *bounds, subtree_ends
    )
    drop(*arrays[:-1])
    merge(*arrays[4:8], arrays[-1])
    nodes = list(zip(_as_list(arrays[4]), _as_list(arrays[5]), strict=True))
    return [nodes[i:j] for i, j in pairwise([0, *_as_list(arrays[7])])]


def _drop_decided(
    feature: Any,
    code: Any,
    left: Any,
    roots: Any,
    splits: Any,  # output: feature and code of each node that is kept, in preorder
    codes: Any,
    right: Any,  # output: where the right child of a split is
    ends: Any,  # output: where each tree ends
    place: Any,  # of each split on the path to a node: where it is in the output,
    parent: Any,  # which node it is,
    low_above: Any,  # the codes that its own ancestors leave to its feature,
    high_above: Any,
    is_right: Any,  # and whether the path goes to its right child
    low: Any,  # the codes that the path leaves to every feature
    high: Any,
) -> None:
    """Write trees in preorder, without the splits that an ancestor already decides."""
    i = 0
    for t in range(len(roots)):
        depth, node = 0, roots[t]
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
        ends[t] = i


def _merge_leaves(splits: Any, codes: Any, right: Any, ends: Any, subtree_ends: Any) -> None:
    """Replace splits whose two children are the same leaf by that leaf, in place.

    Children are looked at before their parents, so merged leaves can be merged again.
    """
    size = first = 0
    for t in range(len(ends)):
        for j in range(ends[t] - 1, first - 1, -1):
            if splits[j] < 0:
                subtree_ends[j] = j + 1
                continue
            r = right[j]
            subtree_ends[j] = subtree_ends[r]
            if splits[j + 1] < 0 and splits[r] < 0 and codes[j + 1] == codes[r]:
                splits[j] = LEAF
                codes[j] = codes[r]
        j, first = first, ends[t]
        while j < first:
            splits[size] = splits[j]
            codes[size] = codes[j]
            j = subtree_ends[j] if splits[j] < 0 else j + 1
            size += 1
        ends[t] = size


def _prepare(
    loops: tuple[Callable[..., None], ...], work: int, *arrays: NDArray[np.int64]
) -> tuple[list[Callable[..., None]], list[Any]]:
    """Return compiled loops with arrays where that pays, else plain loops with lists.

    Plain Python indexes lists faster than arrays.
    """
    if work >= WORTH_COMPILING:
        found = [fast for fast in map(compiled, loops) if fast is not None]
        if len(found) == len(loops):
            return found, list(arrays)
    return list(loops), [array.tolist() for array in arrays]


def _as_list(values: Any) -> list[int]:
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def flatten(trees: list[Tree]) -> Arrays:
    """Convert trees to arrays: siblings side by side, the left child of a leaf is itself.

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
    splits, codes = nodes[:, 0].copy(), nodes[:, 1].copy()
    (flatten_loop,), made = _prepare((_flatten,), size, splits, codes, sizes, roots, *arrays)
    flatten_loop(*made)
    return Arrays(*(np.array(made[i], dtype=np.int32) for i in (4, 5, 6, 3)))


def _flatten(
    splits: Any,
    codes: Any,
    sizes: Any,
    roots: Any,
    feature: Any,
    code: Any,
    left: Any,
    stack: Any,  # places that are not filled yet
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

"""A forest from trees whose nodes are in any order, as other libraries hold them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ModelError
from conovel.models.forest import Forest


class Tree(NamedTuple):
    """One tree with its nodes in any order, the root first; a leaf has ``left`` -1."""

    feature: NDArray[np.integer]
    threshold: NDArray[np.float64]
    left: NDArray[np.integer]
    right: NDArray[np.integer]
    value: NDArray[np.float64]


def join_trees(
    trees: Iterable[Tree],
    n_features: int,
    link: Literal["mean", "logistic"] = "mean",
    base: float = 0.0,
    single: bool = True,
) -> Forest:
    """Join trees whose nodes are in any order; the forest stores each tree level by level."""
    parts, roots, size = [], [], 0
    for tree in trees:
        order, left = _by_levels(tree)
        leaf = tree.left[order] < 0
        parts.append(
            (
                np.where(leaf, -1, tree.feature[order]),
                np.where(leaf, 0.0, tree.threshold[order]),
                left + size,
                np.where(leaf, tree.value[order], 0.0),
            )
        )
        roots.append(size)
        size += len(order)
    if not parts:
        raise ModelError("a forest needs at least one tree")
    feature, threshold, child, value = map(np.concatenate, zip(*parts, strict=True))
    first = np.array(roots, dtype=np.int32)
    return Forest(feature, threshold, child, value, first, n_features, link, base, single)


def _by_levels(tree: Tree) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the nodes level by level, siblings side by side, and the new left children."""
    level = np.zeros(1, dtype=np.intp)
    levels = []
    while len(level):
        levels.append(level)
        inner = level[tree.left[level] >= 0]
        level = np.stack([tree.left[inner], tree.right[inner]], axis=1).ravel()
        if sum(map(len, levels)) > len(tree.left):
            raise ModelError("a node of a tree is its own descendant")
    order = np.concatenate(levels)
    position = np.empty(len(tree.left), dtype=np.intp)
    position[order] = np.arange(len(order))
    child = tree.left[order]
    return order, np.where(child >= 0, position[child], np.arange(len(order)))


def round_down(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float32 at or below each threshold, as float64.

    For a float32 value x, ``x <= t`` and ``x <= round_down(t)`` are the same; the nearest
    float32 may lie above t, and a row with exactly that value would go left.
    """
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > threshold, below, nearest).astype(np.float64)

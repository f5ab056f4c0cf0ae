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
    """Join trees whose nodes are in any order; the forest stores each tree level by level.

    With `single`, thresholds are rounded down to single precision, which decides alike.
    """
    parts = list(trees)
    if not parts:
        raise ModelError("a forest needs at least one tree")
    sizes = np.array([len(tree.left) for tree in parts])
    tree_of, before = np.repeat(np.arange(sizes.size), sizes), np.cumsum(sizes) - sizes
    feature, threshold, left, right, value = map(np.concatenate, zip(*parts, strict=True))
    leaf = left < 0
    left, right = (np.where(leaf, -1, side + before[tree_of]) for side in (left, right))
    order = _by_levels(before, left, right)
    order = order[np.argsort(tree_of[order], kind="stable")]
    position = np.empty(leaf.size, dtype=np.intp)
    position[order] = np.arange(order.size)
    leaf, child = leaf[order], left[order]
    threshold = round_down(threshold[order]) if single else threshold[order]
    return Forest(
        np.where(leaf, -1, feature[order]),
        np.where(leaf, 0.0, threshold),
        np.where(leaf, np.arange(order.size), position[child]),
        np.where(leaf, value[order], 0.0),
        position[before],
        n_features,
        link,
        base,
        single,
    )


def _by_levels(
    roots: NDArray[np.intp], left: NDArray[np.intp], right: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the nodes of all trees level by level, siblings side by side."""
    level, levels, n_nodes = roots, [], 0
    while len(level):
        levels.append(level)
        n_nodes += len(level)
        if n_nodes > len(left):
            raise ModelError("a node of a tree is its own descendant")
        inner = level[left[level] >= 0]
        level = np.stack([left[inner], right[inner]], axis=1).ravel()
    return np.concatenate(levels)


def round_down(threshold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest float32 at or below each threshold, as float64.

    For a float32 value x, ``x <= t`` and ``x <= round_down(t)`` are the same; the nearest
    float32 may lie above t, and a row with exactly that value would go left.
    """
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > threshold, below, nearest).astype(np.float64)

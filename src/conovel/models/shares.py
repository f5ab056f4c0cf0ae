"""What each column of a row contributes to its score: Shapley values of flat models, exact.

A player of the game is a column. A coalition takes its columns from the row and all others from a
known normal; its worth is the score of that hybrid, averaged over a background of known normals
(the interventional Shapley value; Lundberg et al. 2020 compute it for trees). The contributions
of a row add up to its score minus the mean score of the background.

Scores are taken where the model adds: log-odds for a linear model and for trees with the logistic
link, the mean of the leaf values for trees that average.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.models.forest import Forest
from conovel.models.linear import Linear, check_rows
from conovel.models.loops import compiled, share_loop

_WORTH_COMPILING = 1 << 12  # rows times known normals times trees


def column_shares(
    model: Forest | Linear, X: NDArray[np.float64], background: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what each column adds to the score of each row, over the mean of the background.

    Parameters
    ----------
    model : Forest or Linear
    X : array of shape (n, d)
        Rows to explain.
    background : array of shape (b, d)
        Known normals.

    Returns
    -------
    array of shape (n, d)
        Each row adds up to its score minus the mean score of the background, both on the scale
        on which the model adds.

    Examples
    --------
    A tree that scores 1 only where both columns are large, and a row that is:

    >>> both = Forest(
    ...     feature=[0, -1, 1, -1, -1],
    ...     threshold=[0.5, 0, 0.5, 0, 0],
    ...     left=[1, 1, 3, 3, 4],
    ...     value=[0, 0, 0, 0, 1],
    ...     roots=[0],
    ...     n_features=2,
    ... )
    >>> column_shares(both, np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]]))
    array([[0.5, 0.5]])
    """
    X, background = (check_rows(rows, model.n_features) for rows in (X, background))
    if isinstance(model, Linear):
        weights = model.coef if model.scale is None else model.coef / model.scale
        return np.asarray(weights * (X - background.mean(axis=0)))
    if model.single:
        X, background = (rows.astype(np.float32).astype(np.float64) for rows in (X, background))
    sums = _sums(model, X, background) / len(background)
    return sums / model.n_trees if model.link == "mean" else sums


class _Trees(NamedTuple):
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    value: NDArray[np.float64]
    roots: NDArray[np.int32]


def _sums(
    forest: Forest, X: NDArray[np.float64], background: NDArray[np.float64]
) -> NDArray[np.float64]:
    depth = int(forest.depths.max())
    gain, loss = _weights(min(depth, forest.n_features))
    loop = compiled(share_loop) if _repays(len(X) * len(background) * forest.n_trees) else None
    if loop is None:
        return _sums_by_leaf(forest, X, background, gain, loss)
    shares = np.zeros(X.shape)
    trees = _Trees(forest.feature, forest.threshold, forest.left, forest.value, forest.roots)
    loop(X, background, trees, gain, loss, depth, shares)
    return shares


def _repays(work: int) -> bool:
    return work >= _WORTH_COMPILING or "numba" in sys.modules


def _weights(most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Shapley weights of a leaf that needs a columns of the row and lacks b others.

    Of all orders of the a + b columns, the share in which a given one of the `a` comes last among
    the `a` and before all of the `b`: (a-1)! b! / (a+b)!. For one of the `b`, a! (b-1)! / (a+b)!.
    """
    gain, loss = np.zeros((2, most + 1, most + 1))
    for a in range(most + 1):
        for b in range(most + 1 - a):
            if a:
                gain[a, b] = 1 / (a * comb(a + b, a))
            if b:
                loss[a, b] = 1 / (b * comb(a + b, b))
    return gain, loss


def _sums_by_leaf(
    forest: Forest,
    X: NDArray[np.float64],
    background: NDArray[np.float64],
    gain: NDArray[np.float64],
    loss: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Compute without numba: leaf after leaf, for all rows that satisfy the same conditions."""
    shares = np.zeros(X.shape)
    for root, end in pairwise([*forest.roots.tolist(), len(forest.left)]):
        boxes: dict[int, dict[int, tuple[float, float]]] = {root: {}}
        for node in range(root, end):
            box = boxes.pop(node)
            if (child := int(forest.left[node])) == node:
                if box and forest.value[node]:
                    columns = np.array(list(box))
                    low, high = np.array(list(box.values())).T
                    part = _of_leaf(X[:, columns], background[:, columns], low, high, gain, loss)
                    shares[:, columns] += forest.value[node] * part
                continue
            f, cut = int(forest.feature[node]), float(forest.threshold[node])
            low_f, high_f = box.get(f, (-np.inf, np.inf))
            boxes[child] = box | {f: (low_f, min(high_f, cut))}
            boxes[child + 1] = box | {f: (max(low_f, cut), high_f)}
    return shares


def _of_leaf(
    X: NDArray[np.float64],
    background: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    gain: NDArray[np.float64],
    loss: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the contributions of the columns on the path to a leaf of value 1."""
    of_rows, which = _distinct((low < X) & (high >= X))
    of_normals = (low < background) & (high >= background)
    row, normal = of_rows[:, np.newaxis], of_normals[np.newaxis]
    up, down = row & ~normal, normal & ~row
    reached = (row | normal).all(axis=2)
    a, b = up.sum(axis=2), down.sum(axis=2)
    gained = np.where(reached, gain[a, b], 0.0)[..., np.newaxis]
    lost = np.where(reached, loss[a, b], 0.0)[..., np.newaxis]
    parts: NDArray[np.float64] = (up * gained - down * lost).sum(axis=1)
    return parts[which]


def _distinct(bits: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return the distinct rows of a table of bits, and which of them each row is."""
    n, d = bits.shape
    words = np.zeros((n, -(-d // 64) * 8), dtype=np.uint8)
    words[:, : -(-d // 8)] = np.packbits(bits, axis=1)
    keys = words.view(np.uint64 if d <= 64 else f"V{words.shape[1]}")[:, 0]
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    return bits[first], which

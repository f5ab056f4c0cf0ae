"""Compiled loops of the score learnt together; importing this loads numba.

Sums are in a fixed order and no numerical library is called, so that all parties that compute the
same thing from the same totals get the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.loops import jit
from conovel.scorers.tree_loops import below, mix

_STEP = np.uint64(0x9E3779B97F4A7C15)


@jit
def cholesky(matrix: Any) -> Any:
    """Return the lower triangular L with L L' = matrix."""
    size = len(matrix)
    root = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= root[i, k] * root[j, k]
            root[i, j] = np.sqrt(max(total, 1e-12)) if i == j else total / root[j, j]
    return root


@jit
def inverse_of(matrix: Any) -> Any:
    """Return the inverse of a positive definite matrix."""
    root, size = cholesky(matrix), len(matrix)
    half = np.zeros((size, size))  # L^-1
    for j in range(size):
        for i in range(j, size):
            total = 1.0 if i == j else 0.0
            for k in range(j, i):
                total -= root[i, k] * half[k, j]
            half[i, j] = total / root[i, i]
    inverse = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            total = 0.0
            for k in range(max(i, j), size):
                total += half[k, i] * half[k, j]
            inverse[i, j] = total
    return inverse


@jit
def symmetric_eigen(matrix: Any) -> Any:
    """Return eigenvalues and eigenvectors, by Jacobi's rotations in a fixed order."""
    size = len(matrix)
    left, axes = matrix.copy(), np.eye(size)
    for _ in range(30):
        off = 0.0
        for i in range(size):
            for j in range(i):
                off += left[i, j] * left[i, j]
        total = 0.0
        for i in range(size):
            total += left[i, i] * left[i, i]
        if off <= 1e-22 * total:
            break
        for p in range(size):
            for q in range(p + 1, size):
                if abs(left[p, q]) <= 1e-300:
                    continue
                theta = (left[q, q] - left[p, p]) / (2 * left[p, q])
                t = 1 / (abs(theta) + np.sqrt(theta * theta + 1))
                t = -t if theta < 0 else t
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                for k in range(size):
                    a, b = left[k, p], left[k, q]
                    left[k, p], left[k, q] = c * a - s * b, s * a + c * b
                for k in range(size):
                    a, b = left[p, k], left[q, k]
                    left[p, k], left[q, k] = c * a - s * b, s * a + c * b
                for k in range(size):
                    a, b = axes[k, p], axes[k, q]
                    axes[k, p], axes[k, q] = c * a - s * b, s * a + c * b
    values = np.zeros(size)
    for i in range(size):
        values[i] = left[i, i]
    return values, axes


@jit
def forms(rows: Any, inverse: Any) -> Any:
    """Return x' M x of each row x."""
    values = np.zeros(len(rows))
    size = rows.shape[1]
    for n in range(len(rows)):
        total = 0.0
        for i in range(size):
            part = 0.0
            for j in range(size):
                part += inverse[i, j] * rows[n, j]
            total += part * rows[n, i]
        values[n] = total
    return values


@jit
def draw(
    seed: Any, trees: Any, nodes: Any, cumulated: Any, lowest: Any, highest: Any, out: Any
) -> None:
    """Draw candidates of nodes: a column by its share, and a bin within the node's box.

    `out` has one line for each candidate: column and bin, or -1 where the box has one bin.
    """
    for place in range(len(nodes)):
        state = mix(seed ^ mix(np.uint64(trees[place]) * _STEP + np.uint64(nodes[place])))
        for k in range(out.shape[1]):
            state += _STEP
            share = np.float64(mix(state) >> np.uint64(11)) / 9007199254740992.0
            column = min(np.searchsorted(cumulated, share, side="right"), len(cumulated) - 1)
            low, high = lowest[place, column], highest[place, column]
            out[place, k, 0] = -1
            if high > low:
                state += _STEP
                out[place, k, 0] = column
                out[place, k, 1] = low + below(mix(state), high - low)


@jit
def count_left(
    codes: Any, is_mixture: Any, nodes: Any, places: Any, candidates: Any, out: Any
) -> None:
    """Count rows at or below the bin of each candidate of each open node of each tree.

    `nodes[t, i]` is the node of row i in tree t, `places[t, node]` its line in `candidates` or -1.
    """
    n_trees, n_rows = nodes.shape
    n_candidates = candidates.shape[1]
    for t in range(n_trees):
        for i in range(n_rows):
            place = places[t, nodes[t, i]]
            if place < 0:
                continue
            side = 1 if is_mixture[i] else 0
            for c in range(n_candidates):
                column = candidates[place, c, 0]
                if column >= 0 and codes[i, column] <= candidates[place, c, 1]:
                    out[place, c, side] += 1


@jit
def move_down(codes: Any, nodes: Any, column: Any, cut: Any, left: Any) -> None:
    """Move rows that stand at a node that was split to its left or right child."""
    n_trees, n_rows = nodes.shape
    for t in range(n_trees):
        for i in range(n_rows):
            node = nodes[t, i]
            if column[t, node] >= 0:
                right = 0 if codes[i, column[t, node]] <= cut[t, node] else 1
                nodes[t, i] = left[t, node] + right


@jit
def add_leaves(codes: Any, column: Any, cut: Any, left: Any, value: Any) -> Any:
    """Return the mean over all trees of the value of each row's leaf."""
    n_trees = len(column)
    means = np.zeros(len(codes))
    for i in range(len(codes)):
        total = 0.0
        for t in range(n_trees):
            node = 0
            while column[t, node] >= 0:
                right = 0 if codes[i, column[t, node]] <= cut[t, node] else 1
                node = left[t, node] + right
            total += value[t, node]
        means[i] = total / n_trees
    return means

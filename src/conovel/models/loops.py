"""The loops of :mod:`conovel.models.forest` and :mod:`conovel.models.shares`, compiled by numba.

Importing this loads numba, so it is imported where a loop is first needed. Indices into large
arrays are unsigned: numba tests signed ones for being negative, which keeps LLVM from vectorising
the inner loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from conovel.models.forest import SMALL

ROWS = 512  # rows that the loops take together, so that they stay in the level-1 cache
UNDECIDED, FROM_ROW, FROM_NORMAL = 0, 1, 2


def jit(source: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop, which then runs without the global interpreter lock."""
    try:
        return numba.njit(source, nogil=True, cache=True)  # type: ignore[no-any-return]
    except RuntimeError:  # numba finds no folder to cache in
        return numba.njit(source, nogil=True)  # type: ignore[no-any-return]


@jit
def bin_loop(X: Any, single: Any, buckets: Any, columns: Any) -> None:
    """Replace every value by the number of edges of its feature below it."""
    n, d = X.shape
    values = np.empty(ROWS, np.float64)
    below = np.empty(ROWS, np.uint32)
    for first in range(0, n, ROWS):
        m = min(ROWS, n - first)
        for f in range(d):
            for i in range(m):
                values[i] = X[first + i, f]
            if single:
                for i in range(m):
                    values[i] = np.float32(values[i])
            # Subtraction and product keep the order, rounding included: edges in earlier intervals
            # are below the value, and only the edges of its own interval are searched.
            before = buckets.before[buckets.offsets[f] : buckets.offsets[f + 1]]
            low, scale, last = buckets.low[f], buckets.scale[f], np.float64(before.size - 1)
            if last == 0:
                below[:m] = 0
            else:
                for i in range(m):
                    interval = min(max((values[i] - low) * scale, 0.0), last)
                    below[i] = before[np.uint32(np.int64(interval))]
            edges = buckets.edges[buckets.starts[f] : buckets.starts[f + 1]]
            # A binary search without branches: add 2^s where that many more edges are below.
            for s in range(buckets.bits[f] - 1, -1, -1):
                shift = np.uint32(s)
                last_one = np.uint32((1 << s) - 1)
                for i in range(m):
                    b = below[i]
                    below[i] = b + (np.uint32(edges[b + last_one] < values[i]) << shift)
            for i in range(m):
                columns[f, first + i] = below[i]


@jit
def blend_loop(columns: Any, trees: Any, sums: Any) -> None:
    """Decide every split of small trees for all rows, and add the leaf values."""
    n = sums.size
    answer = np.empty((SMALL, ROWS), np.uint8)
    # A separate array, so that the loop that fills it is always vectorised.
    right = np.empty(ROWS, np.bool_)
    feature, bound, left, leaf = trees.feature, trees.bound, trees.left, trees.leaf
    for first in range(0, n, ROWS):
        m = min(ROWS, n - first)
        for t in range(trees.depths.size):
            root = trees.starts[t]
            size = trees.starts[t + 1] - root
            for k in range(size - 1, -1, -1):
                mine = answer[k]
                child = np.int64(left[root + k]) - root
                if child == k:
                    mine[:] = k
                else:
                    low = answer[child]
                    high = answer[child + 1]
                    code = columns[feature[root + k], first : first + m]
                    b = bound[root + k]
                    for i in range(m):
                        right[i] = code[i] > b
                    for i in range(m):
                        u = low[i]
                        v = high[i]
                        mine[i] = v if right[i] else u
            top = answer[0]
            values = leaf[root : root + size]
            for i in range(m):
                sums[first + i] += values[top[i]]


@jit
def walk_loop(columns: Any, trees: Any, sums: Any) -> None:
    """Follow the path of every row through large trees, and add the leaf values."""
    n, d = sums.size, columns.shape[0]
    bound, leaf = trees.bound, trees.leaf
    half, lower = np.uint64(32), np.uint64(0xFFFFFFFF)
    # Left child and feature in one number, so that a step loads one number.
    split = np.empty(bound.size, np.uint64)
    for k in range(bound.size):
        split[k] = (np.uint64(trees.left[k]) << half) | np.uint64(trees.feature[k])
    block = np.zeros((ROWS, d), columns.dtype)  # stored by rows, because a path reads one row
    total = np.zeros(ROWS, leaf.dtype)

    def step(k: Any, row: Any) -> Any:
        node = split[k]
        return (node >> half) + np.uint64(block[row, node & lower] > bound[k])

    for first in range(0, n, ROWS):
        m = min(ROWS, n - first)
        for f in range(d):
            for i in range(m):
                block[i, f] = columns[f, first + i]
        total[:m] = sums[first : first + m]
        for t in range(trees.depths.size):
            root, depth = np.uint64(trees.starts[t]), trees.depths[t]
            # Eight rows at a time: while one waits for memory, the others go on. The last eight
            # may reach beyond m, into rows of the previous block; those sums are not read.
            for i in range(0, m, 8):
                r0, r1, r2, r3 = np.uint64(i), np.uint64(i + 1), np.uint64(i + 2), np.uint64(i + 3)
                r4, r5, r6, r7 = (
                    np.uint64(i + 4),
                    np.uint64(i + 5),
                    np.uint64(i + 6),
                    np.uint64(i + 7),
                )
                k0 = k1 = k2 = k3 = k4 = k5 = k6 = k7 = root
                for _ in range(depth):
                    k0, k1, k2, k3 = step(k0, r0), step(k1, r1), step(k2, r2), step(k3, r3)
                    k4, k5, k6, k7 = step(k4, r4), step(k5, r5), step(k6, r6), step(k7, r7)
                total[r0] += leaf[k0]
                total[r1] += leaf[k1]
                total[r2] += leaf[k2]
                total[r3] += leaf[k3]
                total[r4] += leaf[k4]
                total[r5] += leaf[k5]
                total[r6] += leaf[k6]
                total[r7] += leaf[k7]
        sums[first : first + m] = total[:m]


@jit
def share_loop(
    X: Any, background: Any, trees: Any, gain: Any, loss: Any, depth: Any, shares: Any
) -> None:
    """Add to `shares` what each column of each row does to the sum of the leaf values.

    For a row and a known normal, follow both through a tree. Where they part, a hybrid of the two
    may go either way: the column then comes from the row on one side and from the known normal
    on the other. A leaf that is reached with `a` columns from the row and `b` from the known
    normal adds ``gain[a, b]`` times its value to each of the former, and takes ``loss[a, b]``
    times its value from each of the latter.
    """
    n, d = X.shape
    feature, threshold, left, value, roots = trees
    source = np.zeros(d, np.uint8)
    path = np.empty(depth + 1, np.int64)  # the columns that are decided, in their order
    node_at = np.empty(2 * depth + 2, np.int64)
    level_at = np.empty(2 * depth + 2, np.int64)
    column_at = np.empty(2 * depth + 2, np.int64)
    source_at = np.empty(2 * depth + 2, np.uint8)
    for t in range(roots.size):
        for i in range(n):
            for z in range(len(background)):
                level, a, b = 0, 0, 0
                waiting = 1
                node_at[0], level_at[0], column_at[0] = roots[t], 0, -1
                while waiting:
                    waiting -= 1
                    node = node_at[waiting]
                    while level > level_at[waiting]:  # take back what another branch decided
                        level -= 1
                        if source[path[level]] == FROM_ROW:
                            a -= 1
                        else:
                            b -= 1
                        source[path[level]] = UNDECIDED
                    if column_at[waiting] >= 0:
                        source[column_at[waiting]] = source_at[waiting]
                        path[level] = column_at[waiting]
                        level += 1
                        if source_at[waiting] == FROM_ROW:
                            a += 1
                        else:
                            b += 1
                    while left[node] != node:
                        f = feature[node]
                        row_child = left[node] + (X[i, f] > threshold[node])
                        normal_child = left[node] + (background[z, f] > threshold[node])
                        if source[f] == FROM_ROW or row_child == normal_child:
                            node = row_child
                        elif source[f] == FROM_NORMAL:
                            node = normal_child
                        else:
                            node_at[waiting], level_at[waiting] = normal_child, level
                            column_at[waiting], source_at[waiting] = f, FROM_NORMAL
                            waiting += 1
                            source[f] = FROM_ROW
                            path[level] = f
                            level += 1
                            a += 1
                            node = row_child
                    up, down = value[node] * gain[a, b], value[node] * loss[a, b]
                    for k in range(level):
                        if source[path[k]] == FROM_ROW:
                            shares[i, path[k]] += up
                        else:
                            shares[i, path[k]] -= down
                while level > 0:
                    level -= 1
                    source[path[level]] = UNDECIDED

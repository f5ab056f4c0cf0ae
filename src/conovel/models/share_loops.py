"""The loop of :mod:`conovel.models.shares`, which numba compiles."""

from __future__ import annotations

from typing import Any

import numpy as np

UNDECIDED, FROM_ROW, FROM_NORMAL = 0, 1, 2


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

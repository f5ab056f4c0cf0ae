"""The compiled loops of :mod:`conovel.scorers.compiled_forest`; importing this needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.loops import jit

_LOW = (1 << 32) - 1
_APART = 1e-7  # feature values this close are one to scikit-learn


@jit
def draw(state: Any) -> Any:
    """Return the next 64 random bits (xorshift64*, Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return x * np.uint64(2685821657736338717)


@jit
def best_split(
    values: Any, members: Any, copies: Any, total: Any, ones: Any
) -> tuple[float, float]:
    """Return the largest Σ (Σ_c n_c²)/n over the two sides, and its threshold.

    `members` are rows in increasing order of `values`; the sum is Gini's criterion up to
    what does not depend on the split.
    """
    best, threshold = -1.0, 0.0
    counted = np.int64(0)
    there = np.float64(values[members[0]])
    for k in range(members.size - 1):
        counted += copies[members[k]]
        here, there = there, np.float64(values[members[k + 1]])
        if there > here + _APART:
            n_left, ones_left = float(counted & _LOW), float(counted >> 32)
            n_right, ones_right = total - n_left, ones - ones_left
            zeros_left, zeros_right = n_left - ones_left, n_right - ones_right
            gain = (ones_left * ones_left + zeros_left * zeros_left) / n_left
            gain += (ones_right * ones_right + zeros_right * zeros_right) / n_right
            if gain > best:
                best = gain
                threshold = here / 2.0 + there / 2.0
                if threshold == there:
                    threshold = here
    return best, threshold


@jit
def part(members: Any, goes_left: Any, spare: Any) -> int:
    """Put the rows that go left in front, both sides in their order."""
    n_left, n_right = 0, 0
    for k in range(members.size):
        row = members[k]
        left = goes_left[row]
        # Both are written, and the next row overwrites the wrong one: no branch to guess.
        members[n_left] = row
        spare[n_right] = row
        n_left += left
        n_right += 1 - left
    for k in range(n_right):
        members[n_left + k] = spare[k]
    return n_left


@jit
def grow(  # noqa: PLR0915 - one loop over the nodes, for the compiler
    columns: Any,
    order: Any,
    y: Any,
    n_trees: Any,
    max_depth: Any,
    max_features: Any,
    bootstrap: Any,
    seed: Any,
) -> Any:
    """Return feature, threshold, left, value and roots, laid out as in a `Forest`."""
    d, n = columns.shape
    most = n_trees * min(2 * n, 2 << min(max_depth, 30))
    feature, left = np.full(most, -1, np.int32), np.empty(most, np.int32)
    threshold, value = np.zeros(most), np.zeros(most)
    roots = np.empty(n_trees, np.int32)
    state = np.array([seed | np.uint64(1)], np.uint64)
    # How often each row was drawn; in the upper half again, if it is of class 1.
    copies = np.empty(n, np.int64)
    lists, spare = np.empty((d, n), np.int32), np.empty(n, np.int32)
    goes_left = np.empty(n, np.uint8)
    names = np.arange(d)
    begin, end = np.empty(2 * n, np.int32), np.empty(2 * n, np.int32)
    level = np.empty(2 * n, np.int32)
    size = 0
    for tree in range(n_trees):
        if bootstrap:
            copies[:] = 0
            for _ in range(n):
                copies[draw(state) % np.uint64(n)] += 1
        else:
            copies[:] = 1
        for k in range(n):
            copies[k] += (copies[k] * y[k]) << 32
        m = 0
        for f in range(d):
            m = 0
            for k in range(n):
                lists[f, m] = order[f, k]
                m += copies[order[f, k]] > 0
        root = size
        roots[tree] = root
        begin[0], end[0], level[0] = 0, m, 0
        size += 1
        node = root
        while node < size:  # level by level: siblings stand next to each other
            at = node - root
            low, high = begin[at], end[at]
            counted = np.int64(0)
            for k in range(low, high):
                counted += copies[lists[0, k]]
            total, ones = float(counted & _LOW), float(counted >> 32)
            best, cut, chosen = -1.0, 0.0, -1
            if level[at] < max_depth and high - low >= 2 and 0 < ones < total:
                for visited in range(d):
                    if visited >= max_features and chosen >= 0:
                        break
                    other = visited + np.int64(draw(state) % np.uint64(d - visited))
                    names[visited], names[other] = names[other], names[visited]
                    f = names[visited]
                    gain, where = best_split(columns[f], lists[f, low:high], copies, total, ones)
                    if gain > best:
                        best, cut, chosen = gain, where, f
            if chosen < 0:
                left[node] = node
                value[node] = ones / total
            else:
                for k in range(low, high):
                    row = lists[chosen, k]
                    goes_left[row] = columns[chosen, row] <= cut
                # Leaves are told by the first list alone.
                needed = d if level[at] + 1 < max_depth else 1
                middle = low
                for f in range(needed):
                    middle = low + part(lists[f, low:high], goes_left, spare)
                feature[node], threshold[node], left[node] = chosen, cut, size
                child = size - root
                begin[child], end[child], level[child] = low, middle, level[at] + 1
                begin[child + 1], end[child + 1], level[child + 1] = middle, high, level[at] + 1
                size += 2
            node += 1
    return feature[:size], threshold[:size], left[:size], value[:size], roots

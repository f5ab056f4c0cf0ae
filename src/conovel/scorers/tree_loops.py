"""The compiled loops of :mod:`conovel.scorers.binned_forest`; importing this loads numba.

Counts and weights are whole numbers, and the random numbers of a node follow from its path alone:
no bit depends on threads or on a numerical library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.loops import jit

_LOW = (1 << 32) - 1
_UNIT = float(2**30)  # leaf values are multiples of 1 / 2^30: their sums are exact
_FEW_ROWS = 40  # a node of fewer rows is sorted, a larger one counted by bins

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _32, _11 = (np.uint64(k) for k in (30, 27, 31, 32, 11))


@jit
def mix(x: Any) -> Any:
    """Return 64 random bits (the finalizer of splitmix64; Steele, Lea and Flood 2014)."""
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@jit
def below(bits: Any, n: Any) -> Any:
    """Return a random whole number below n."""
    return np.int64(((bits >> _32) * np.uint64(n)) >> _32)


@jit
def gain_of(left: Any, total: Any) -> float:
    """Return Σ (Σ_c w_c²)/w over the two sides: Gini's criterion up to what stays the same."""
    right = total - left
    zeros_left, ones_left = float(left & _LOW), float(left >> 32)
    zeros_right, ones_right = float(right & _LOW), float(right >> 32)
    on_left = (ones_left * ones_left + zeros_left * zeros_left) / (ones_left + zeros_left)
    on_right = (ones_right * ones_right + zeros_right * zeros_right) / (ones_right + zeros_right)
    return on_left + on_right


@jit
def drawn_split(codes: Any, weights: Any, places: Any, share: Any) -> Any:
    """Cut at a place between the least and the largest; return the bin, weights and rows left.

    The bin is -1 if all rows are in one.
    """
    lowest, highest = codes[0], codes[0]
    for k in range(codes.size):
        lowest, highest = min(lowest, codes[k]), max(highest, codes[k])
    left, n_left = np.int64(0), np.int64(0)
    if lowest == highest:
        return np.int64(-1), left, n_left
    threshold = (1.0 - share) * places[lowest] + share * places[highest]
    low, high = np.int64(lowest), np.int64(highest) - 1
    while low < high:  # the last bin that starts at or below the threshold
        middle = (low + high + 1) // 2
        if places[middle] <= threshold:
            low = middle
        else:
            high = middle - 1
    cut = np.uint8(low)
    for k in range(codes.size):
        goes_left = np.int64(codes[k] <= cut)
        left += weights[k] & -goes_left
        n_left += goes_left
    return low, left, n_left


@jit
def best_split(codes: Any, weights: Any, total: Any, least: Any, counts: Any) -> Any:
    """Return the bin below the best cut, the weights left of it, and its gain.

    The bin is -1 if all rows are in one; the gain is -1 if no cut is allowed.
    """
    m = codes.size
    best, cut, best_left = -1.0, np.int64(-1), np.int64(0)
    left: Any = np.int64(0)
    n_left, before = np.int64(0), np.int64(-1)
    if m < _FEW_ROWS:
        for k in range(1, m):
            code, weight = codes[k], weights[k]
            j = k - 1
            while j >= 0 and codes[j] > code:
                codes[j + 1], weights[j + 1] = codes[j], weights[j]
                j -= 1
            codes[j + 1], weights[j + 1] = code, weight
        for k in range(m - 1):
            left += weights[k]
            here, there = np.int64(codes[k]), np.int64(codes[k + 1])
            if here != there:
                cut = max(cut, np.int64(0))
                if k + 1 >= least and m - k - 1 >= least:
                    gain = gain_of(left, total)
                    if gain > best:
                        best, cut, best_left = gain, (here + there - 1) // 2, left
        return cut, best_left, best
    for k in range(256):
        counts[k, 0], counts[k, 1] = 0, 0
    for k in range(m):
        counts[codes[k], 0] += weights[k]
        counts[codes[k], 1] += 1
    for code in range(256):
        there = np.int64(code)
        if counts[there, 1]:
            if before >= 0:
                cut = max(cut, np.int64(0))
                if n_left >= least and m - n_left >= least:
                    gain = gain_of(left, total)
                    if gain > best:
                        best, cut, best_left = gain, (before + there - 1) // 2, left
            left += counts[there, 0]
            n_left += counts[there, 1]
            before = there
    return cut, best_left, best


@jit
def part(rows: Any, column: Any, cut: Any, spare: Any) -> Any:
    """Put the rows up to a bin in front, both sides in their order; return how many they are."""
    n_left, n_right = np.int64(0), np.int64(0)
    for k in range(rows.size):
        row = rows[k]
        goes_left = np.int64(column[row] <= cut)
        # Both are written, and the next row overwrites the wrong one: no branch to guess.
        rows[n_left] = row
        spare[n_right] = row
        n_left += goes_left
        n_right += 1 - goes_left
    for k in range(n_right):
        rows[n_left + k] = spare[k]
    return n_left


@jit
def grow_tree(
    columns: Any,
    places: Any,
    weights: Any,
    rows: Any,
    total: Any,
    limits: Any,
    seed: Any,
    space: Any,
    nodes: Any,
) -> Any:
    """Write the nodes of one tree and return their number; `rows` are those that it sees."""
    d = columns.shape[0]
    max_depth, max_features, least, is_drawn = limits
    feature, cut, left, value = nodes
    begin, end, level, totals, keys, spare, names, swaps, codes, kept, counts = space
    begin[0], end[0], level[0], totals[0], keys[0] = 0, rows.size, 0, total, mix(seed)
    size, node = 1, 0
    while node < size:  # level by level: siblings stand next to each other
        mine = rows[begin[node] : end[node]]
        m, total, key = mine.size, totals[node], keys[node]
        zeros, ones = total & _LOW, total >> 32
        best, best_cut, best_left, chosen = -1.0, np.int64(0), np.int64(0), np.int64(-1)
        if level[node] < max_depth and m >= 2 * least and zeros > 0 and ones > 0:
            visited, is_varied = 0, False
            here, heavy = codes[:m], kept[:m]
            while visited < d and (visited < max_features or not is_varied):
                bits = mix(key + np.uint64(visited + 3) * _STEP)
                other = visited + below(bits, d - visited)
                f = names[other]
                names[other], names[visited], swaps[visited] = names[visited], f, other
                column = columns[f]
                for k in range(m):
                    here[k] = column[mine[k]]
                if visited == 0 or not is_drawn:
                    for k in range(m):
                        heavy[k] = weights[mine[k]]
                visited += 1
                if is_drawn:
                    share = float(mix(bits) >> _11) * 2.0**-53
                    where, on_left, n_left = drawn_split(here, heavy, places[f], share)
                    gain = -1.0
                    if where >= 0 and n_left >= least and m - n_left >= least:
                        gain = gain_of(on_left, total)
                else:
                    where, on_left, gain = best_split(here, heavy, total, least, counts)
                is_varied = is_varied or where >= 0
                if gain > best:
                    best, best_cut, best_left, chosen = gain, where, on_left, f
            for k in range(visited - 1, -1, -1):  # the names in order again
                f = names[k]
                names[k], names[swaps[k]] = names[swaps[k]], f
        feature[node], cut[node], left[node], value[node] = chosen, best_cut, node, 0.0
        if chosen < 0:
            value[node] = np.rint(float(ones) / float(zeros + ones) * _UNIT) / _UNIT
        else:
            middle = begin[node] + part(mine, columns[chosen], best_cut, spare)
            left[node] = size
            begin[size], end[size], totals[size] = begin[node], middle, best_left
            begin[size + 1], end[size + 1] = middle, end[node]
            totals[size + 1] = total - best_left
            level[size] = level[size + 1] = level[node] + 1
            keys[size], keys[size + 1] = mix(key + _STEP), mix(key + _STEP + _STEP)
            size += 2
        node += 1
    return size


@jit
def see(used: Any, weights: Any, y: Any, bootstrap: Any, seed: Any, packed: Any, rows: Any) -> Any:
    """Draw the rows of a tree; return how many they are, and the total weights by class.

    Weights of class 0 stand in the lower half of a number, those of class 1 in the upper half.
    """
    m = used.size
    for k in range(packed.size):
        packed[k] = 0
    if bootstrap:
        for k in range(m):
            packed[used[below(mix(seed + np.uint64(k + 1) * _STEP), m)]] += 1
    n_seen, total = np.int64(0), np.int64(0)
    for k in range(m):
        row = used[k]
        copies = packed[row] if bootstrap else np.int64(1)
        packed[row] = (copies * weights[row]) << (32 * np.int64(y[row]))
        total += packed[row]
        rows[n_seen] = row
        n_seen += np.int64(copies > 0)
    return n_seen, total


@jit
def vote(columns: Any, packed: Any, nodes: Any, votes: Any, times: Any) -> None:
    """Add the values of the leaves that the unseen rows fall into."""
    feature, cut, left, value = nodes
    for row in range(packed.size):
        if packed[row] == 0:
            node = np.int64(0)
            while feature[node] >= 0:
                goes_right = columns[feature[node], row] > cut[node]
                node = np.int64(left[node]) + np.int64(goes_right)
            votes[row] += value[node]
            times[row] += 1


@jit
def grow(
    columns: Any,
    places: Any,
    weights: Any,
    y: Any,
    used: Any,
    limits: Any,
    bootstrap: Any,
    seeds: Any,
    space: Any,
    nodes: Any,
    seen: Any,
    votes: Any,
    times: Any,
    first: Any,
) -> Any:
    """Grow trees until they are done or the space for nodes is full.

    Return how many trees are done, where the next begins, and write the roots to `first`.
    """
    packed, rows = seen
    feature, cut, left, value = nodes
    most = space[0].size  # of one tree
    size, tree = 0, 0
    while tree < seeds.size and size + most <= feature.size:
        n_seen, total = see(used, weights, y, bootstrap, seeds[tree], packed, rows)
        mine = feature[size:], cut[size:], left[size:], value[size:]
        n_nodes = grow_tree(
            columns, places, packed, rows[:n_seen], total, limits, seeds[tree], space, mine
        )
        if n_seen < packed.size:
            vote(columns, packed, mine, votes, times)
        for k in range(n_nodes):
            left[size + k] += size
        first[tree] = size
        size += n_nodes
        tree += 1
    return tree, size

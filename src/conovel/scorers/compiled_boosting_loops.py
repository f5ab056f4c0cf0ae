"""The compiled loops of :mod:`conovel.scorers.compiled_boosting`; importing this needs numba.

:mod:`conovel.scorers.compiled_boosting_numpy` gives the same bits without it: gradients are whole
multiples of a small unit, so that their sums are exact in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.kernel_loops import jit
from conovel.models.portable_math import (
    INVERSE_LN2,
    LARGEST,
    LN2_HIGH,
    LN2_LOW,
    TAYLOR,
)
from conovel.scorers.binned_forest_loops import part

_LOW = (1 << 32) - 1
_POWERS = np.ldexp(1.0, -np.arange(1100))
_COEFFICIENTS = tuple(TAYLOR)
_LOSS_UNIT = float(2**30)
_NEARLY = 1 - 2.0**-40


def _expit(x: Any) -> Any:
    """Return what :func:`conovel.models.portable_math.expit` does, for one number."""
    down = -min(abs(x), LARGEST)
    k = np.rint(down * INVERSE_LN2)
    r = (down - k * LN2_HIGH) - k * LN2_LOW
    total = 0.0
    for coefficient in _COEFFICIENTS:
        total = total * r + coefficient
    z = total * _POWERS[np.int64(-k)]
    return (1.0 if x >= 0 else z) / (1.0 + z)


expit = jit(_expit)


def _fill(columns: Any, starts: Any, rows: Any, slopes: Any, kept: Any, sums: Any) -> None:
    """Add up the slopes and count the rows of each bin."""
    m = rows.size
    for k in range(m):
        kept[k] = slopes[rows[k]]
    for k in range(sums.shape[0]):
        sums[k, 0], sums[k, 1] = 0, 0
    for f in range(columns.shape[0]):
        column = columns[f]
        mine = sums[starts[f] : starts[f + 1]]
        for k in range(m):
            code = column[rows[k]]
            mine[code, 0] += kept[k]
            mine[code, 1] += 1


fill = jit(_fill)


def _find(starts: Any, sums: Any, total: Any, m: Any, least: Any, l2: Any, found: Any) -> Any:
    """Write feature, bin, slopes and rows left of the best split; return what it gains.

    The gain is G²/(H + l2) of both sides, less that of the node; 0 if no split gains.
    """
    slope, curve = float(total >> 32), float(total & _LOW)
    alone = slope * slope / (curve + l2)
    best, least_gain = alone, alone * _NEARLY
    for f in range(starts.size - 1):
        mine = sums[starts[f] : starts[f + 1]]
        left, n_left, k = np.int64(0), np.int64(0), 0
        while k < mine.shape[0] and n_left < least:
            left += mine[k, 0]
            n_left += mine[k, 1]
            k += 1
        end, n_right = mine.shape[0], np.int64(0)
        while end > 0 and n_right < least:
            end -= 1
            n_right += mine[end, 1]
        cut = -1
        while k <= end:  # bins below k on the left
            slope_left, curve_left = float(left >> 32), float(left & _LOW) + l2
            slope_right, curve_right = slope - slope_left, (curve - float(left & _LOW)) + l2
            both = slope_left * slope_left * curve_right + slope_right * slope_right * curve_left
            product = curve_left * curve_right
            if both > least_gain * product:  # a product takes less time than a quotient
                gain = both / product
                if gain > best:
                    best, least_gain = gain, gain * _NEARLY
                    cut = k - 1
                    found[2] = left
            left += mine[k, 0]
            k += 1
        if cut >= 0:
            while mine[cut, 1] == 0:
                cut -= 1
            there = cut + 1
            while mine[there, 1] == 0:
                there += 1
            n_left = np.int64(0)
            for k in range(there):
                n_left += mine[k, 1]
            found[0], found[1], found[3] = f, (cut + there - 1) // 2, n_left
    return best - alone


find = jit(_find)


def _grow_tree(
    columns: Any,
    starts: Any,
    slopes: Any,
    rows: Any,
    total: Any,
    limits: Any,
    space: Any,
    nodes: Any,
) -> Any:
    """Write the nodes of one tree, the leaf that gains most split first; return their number.

    Slopes stand in the upper half of a number, curvatures in the lower one.
    """
    max_leaves, least, l2, rate = limits
    feature, cut, left, value = nodes
    begin, end, slot, totals, gains, found, spare, kept, sums = space
    begin[0], end[0], slot[0], totals[0], gains[0] = 0, rows.size, 0, total, 0.0
    feature[0], size = -1, 1
    if max_leaves > 1 and rows.size >= 2 * least:
        fill(columns, starts, rows, slopes, kept, sums[0])
        gains[0] = find(starts, sums[0], total, rows.size, least, l2, found[0])
    for n_leaves in range(2, max_leaves + 1):
        node, best = -1, 0.0
        for k in range(size):
            if feature[k] < 0 and gains[k] > best:
                node, best = k, gains[k]
        if node < 0:
            break
        first, last = begin[node], end[node]
        middle = first + found[node, 3]
        feature[node], cut[node], left[node] = found[node, 0], found[node, 1], size
        part(rows[first:last], columns[feature[node]], cut[node], spare)
        begin[size], end[size], totals[size] = first, middle, found[node, 2]
        begin[size + 1], end[size + 1] = middle, last
        totals[size + 1] = totals[node] - found[node, 2]
        small = size if middle - first <= last - middle else size + 1
        large = size + (size + 1) - small
        slot[small], slot[large] = n_leaves - 1, slot[node]
        for child in range(size, size + 2):
            feature[child], gains[child] = -1, 0.0
        if n_leaves < max_leaves and end[large] - begin[large] >= 2 * least:
            mine, other = sums[slot[small]], sums[slot[large]]
            fill(columns, starts, rows[begin[small] : end[small]], slopes, kept, mine)
            for k in range(mine.shape[0]):
                other[k, 0] -= mine[k, 0]
                other[k, 1] -= mine[k, 1]
            for child in range(size, size + 2):
                m = end[child] - begin[child]
                if m >= 2 * least:
                    gains[child] = find(
                        starts, sums[slot[child]], totals[child], m, least, l2, found[child]
                    )
        size += 2
    for node in range(size):
        if feature[node] < 0:
            slope, curve = float(totals[node] >> 32), float(totals[node] & _LOW)
            cut[node], left[node] = 0, node
            value[node] = -rate * slope / (curve + l2)
        else:
            value[node] = 0.0
    return size


grow_tree = jit(_grow_tree)


def _boost(
    columns: Any,
    starts: Any,
    weights: Any,
    y: Any,
    used: Any,
    watched: Any,
    limits: Any,
    patience: Any,
    space: Any,
    arrays: Any,
    nodes: Any,
    roots: Any,
    raw: Any,
    stages: Any,
) -> Any:
    """Grow trees one after the other; return how many there are to keep, and their nodes.

    `raw` starts as the base and ends as the log-odds of all rows after the last tree kept.
    """
    rows, unused, chance, slopes, kept_raw = arrays
    feature, cut, left, value = nodes
    size, kept, kept_size, best_loss = 0, 0, 0, np.int64(-1)
    for k in range(raw.size):
        chance[k] = expit(raw[k])
    for tree in range(roots.size):
        total = np.int64(0)
        for k in range(used.size):
            row = used[k]
            p, weight = chance[row], weights[row]
            slope = np.int64(np.rint((p - float(y[row])) * weight))
            curve = np.int64(max(np.rint(p * (1.0 - p) * weight), 1.0))
            slopes[row] = (slope << 32) + curve
            total += slopes[row]
            rows[k] = row
        mine = feature[size:], cut[size:], left[size:], value[size:]
        n_nodes = grow_tree(columns, starts, slopes, rows, total, limits, space, mine)
        begin, end = space[0], space[1]
        for node in range(n_nodes):
            if mine[0][node] < 0:
                for k in range(begin[node], end[node]):
                    raw[rows[k]] += mine[3][node]
        for k in range(unused.size):
            row = unused[k]
            at = np.int64(0)
            while mine[0][at] >= 0:
                goes_right = columns[mine[0][at], row] > mine[1][at]
                at = np.int64(mine[2][at]) + np.int64(goes_right)
            raw[row] += mine[3][at]
        for k in range(n_nodes):
            left[size + k] += size
        roots[tree] = size
        size += n_nodes
        for k in range(raw.size):
            chance[k] = expit(raw[k])
        if tree < stages.shape[0]:
            for k in range(raw.size):
                stages[tree, k] = raw[k]
        loss = np.int64(0)
        for k in range(watched.size):
            away = chance[watched[k]] - float(y[watched[k]])
            loss += np.int64(np.rint(away * away * _LOSS_UNIT))
        if watched.size == 0 or best_loss < 0 or loss < best_loss:
            kept, kept_size, best_loss = tree + 1, size, loss
            for k in range(raw.size):
                kept_raw[k] = raw[k]
        elif tree + 1 - kept >= patience:
            break
    for k in range(raw.size):
        raw[k] = kept_raw[k]
    return kept, kept_size


boost = jit(_boost)

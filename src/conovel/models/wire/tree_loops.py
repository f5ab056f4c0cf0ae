"""Compiled loop over the trees of a payload; importing this needs numba.

It reads and writes the same bytes as :mod:`conovel.models.wire.trees`, and raises the same errors.
:mod:`conovel.models.wire.coder_loops` says what ``state`` and ``data`` are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.errors import LimitError, StructureError
from conovel.models.kernel_loops import jit
from conovel.models.quantized.canonical import LEAF
from conovel.models.wire.coder_loops import SLOTS, bit, bit_length, next_bit, ranged, room
from conovel.models.wire.trees import DEPTHS, EARLY, MAX_DEPTH, OPEN, SIBLING_BITS
from conovel.spec.precision import MAX_BITS

_TOO_DEEP = f"a tree is deeper than {MAX_DEPTH}"


def _usable_feature(
    state: Any, data: Any, zeros: Any, ones: Any, first: int, value: int, bits: int, usable: Any
) -> Any:
    """Code a feature that has codes left."""
    prefix = 1
    for level in range(bits - 1, -1, -1):
        if not usable[2 * prefix + 1]:
            prefix <<= 1
        elif not usable[2 * prefix]:
            prefix = prefix << 1 | 1
        else:
            got = next_bit(state, data, zeros, ones, first, SLOTS, prefix, value >> level & 1)
            prefix = prefix << 1 | got
    if not usable[prefix]:
        raise StructureError("no symbol is possible here")
    return prefix - (1 << bits)


usable_feature = jit(_usable_feature)


def _leave_codes(
    usable: Any, low: Any, high: Any, bits: int, feature: int, a: int, b: int
) -> None:
    change = (1 if a <= b else 0) - (1 if low[feature] <= high[feature] else 0)
    low[feature], high[feature] = a, b
    if change:
        prefix = (1 << bits) + feature
        while prefix:
            usable[prefix] += change
            prefix >>= 1


leave_codes = jit(_leave_codes)


def _code_trees(
    state: Any, data: Any, nodes: Any, ends: Any, n_codes: Any, n_values: int, ordered: bool
) -> Any:
    """Code the trees of a forest: feature and code of every node, and where each tree ends."""
    n_features = n_codes.size
    feature_bits = bit_length(n_features - 1) if n_features else 1
    leaf_bits = bit_length(n_values - 1)
    leaf_slots = 1 << min(leaf_bits, MAX_BITS)
    # Where the frequency tables begin: structure, advance, features of roots and of other splits,
    # thresholds of every feature, leaves.
    structure, advance, features, thresholds = 0, SLOTS, 2 * SLOTS, 4 * SLOTS
    leaves = thresholds + n_features * SLOTS
    zeros = np.ones(leaves + ((1 << SIBLING_BITS) + 1) * leaf_slots, np.uint16)
    ones = np.ones(zeros.size, np.uint16)
    low, high = np.zeros(n_features, np.int64), n_codes - 1
    code_bits = np.zeros(n_features, np.int64)
    usable = np.zeros(2 << feature_bits, np.int64)
    for f in range(n_features):
        code_bits[f] = bit_length(n_codes[f] - 1)
        prefix = (1 << feature_bits) + f
        while prefix:
            usable[prefix] += 1
            prefix >>= 1
    # Of each split above a node: position, feature, code, and the codes left to its feature.
    path = np.zeros((MAX_DEPTH, 5), np.int64)
    is_right = np.zeros(MAX_DEPTH, np.bool_)
    previous_feature: Any = LEAF
    previous_code: Any = 0
    barred: Any
    has_previous = False
    i = 0
    for t in range(ends.size):
        root, depth, splits, n_open = i, 0, 0, 0
        while True:
            if i >= len(nodes):
                raise StructureError("there are more nodes than announced")
            data = room(state, data)
            given_feature, given_code = np.int64(nodes[i, 0]), np.int64(nodes[i, 1])
            sibling = -1
            if depth and is_right[depth - 1]:
                sibling = path[depth - 1, 0] + 1
            if not usable[1]:
                is_split = False
            elif depth == 0 and has_previous and previous_feature != LEAF:
                is_split = True
            else:
                if splits < EARLY:
                    slot = splits * OPEN + min(n_open, OPEN - 1)
                else:
                    kind = 0 if sibling < 0 else 1 if nodes[sibling, 0] == LEAF else 2
                    slot = EARLY * OPEN + min(depth, DEPTHS - 1) * 3 + kind
                asked = 1 if given_feature != LEAF else 0
                is_split = bit(state, data, zeros, ones, structure + slot, asked) == 1
            if is_split:
                if depth >= MAX_DEPTH:
                    raise LimitError(_TOO_DEEP)
                if depth == 0 and ordered:
                    f = max(previous_feature, 0) if has_previous else 0
                    while f < n_features - 1:
                        data = room(state, data)
                        further = 1 if f < given_feature else 0
                        if not bit(state, data, zeros, ones, advance, further):
                            break
                        f += 1
                else:
                    table = features + min(depth, 1) * SLOTS
                    f = usable_feature(
                        state, data, zeros, ones, table, given_feature, feature_bits, usable
                    )
                a, b = low[f], high[f]
                least = a
                if depth == 0 and has_previous and previous_feature == f:
                    least = previous_code
                table = thresholds + f * SLOTS
                bits = code_bits[f]
                c = ranged(state, data, zeros, ones, table, SLOTS, given_code, bits, least, b, -1)
                nodes[i, 0], nodes[i, 1] = f, c
                path[depth, 0], path[depth, 1], path[depth, 2] = i, f, c
                path[depth, 3], path[depth, 4] = a, b
                is_right[depth] = False
                leave_codes(usable, low, high, feature_bits, f, a, c - 1)
                i, depth, splits, n_open = i + 1, depth + 1, splits + 1, n_open + 1
                continue
            least, barred, context = 0, -1, 1 << SIBLING_BITS
            if sibling >= 0 and nodes[sibling, 0] == LEAF:
                barred = np.int64(nodes[sibling, 1])
                context = barred >> max(leaf_bits - SIBLING_BITS, 0)
            if depth == 0 and has_previous:
                least = previous_code
            table = leaves + context * leaf_slots
            c = ranged(
                state,
                data,
                zeros,
                ones,
                table,
                leaf_slots,
                given_code,
                leaf_bits,
                least,
                n_values - 1,
                barred,
            )
            nodes[i, 0], nodes[i, 1] = LEAF, c
            i += 1
            while depth and is_right[depth - 1]:
                depth -= 1
                f = path[depth, 1]
                leave_codes(usable, low, high, feature_bits, f, path[depth, 3], path[depth, 4])
            if depth == 0:
                break
            is_right[depth - 1] = True
            n_open -= 1
            f, c, b = path[depth - 1, 1], path[depth - 1, 2], path[depth - 1, 4]
            leave_codes(usable, low, high, feature_bits, f, c + 1, b)
        if ordered:
            previous_feature, previous_code = np.int64(nodes[root, 0]), np.int64(nodes[root, 1])
            has_previous = True
        ends[t] = i
    return data, i


code_trees = jit(_code_trees)

"""The compiled loops of the range coder; importing this needs numba.

They say the same as :mod:`conovel.models.wire.range_coder`, :mod:`conovel.models.wire.trees` and
:mod:`conovel.models.wire.numbers`, whose names they have, on arrays. `state` is the coder:
whether it
writes, `low` or `code`, `range`, bytes written or shifted in, and the length of what is read.
`data` are the bytes; a writer that needs more room goes on in a larger array, and every loop
returns the array it ended with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.errors import LimitError, StructureError, TruncatedError
from conovel.models.kernel_loops import jit
from conovel.models.quantized.canonical import LEAF
from conovel.models.wire.range_coder import BOTTOM, COUNT_LIMIT, TOP
from conovel.models.wire.trees import DEPTHS, EARLY, MAX_DEPTH, OPEN, SIBLING_BITS
from conovel.spec.precision import MAX_BITS

_SLOTS = 256  # of a table, unless said otherwise
_ROOM = 1 << 10  # bytes; more than one node or number takes
_TOO_DEEP = f"a tree is deeper than {MAX_DEPTH}"
_ONE = np.uint64(1)


def _room(state: Any, data: Any) -> Any:
    """Return an array that has room for one more node or number."""
    if state[0] and data.size - state[3] < _ROOM:
        larger = np.zeros(2 * data.size + _ROOM, np.uint8)
        larger[: data.size] = data
        return larger
    return data


room = jit(_room)


def _normalise(state: Any, data: Any) -> None:
    while state[2] < BOTTOM:
        if state[0]:
            if state[1] >= TOP:
                i = state[3] - 1
                while data[i] == 0xFF:
                    data[i] = 0
                    i -= 1
                data[i] += 1
                state[1] -= TOP
            data[state[3]] = state[1] >> 24
            state[3] += 1
            state[1] = state[1] << 8 & (TOP - 1)
        else:
            state[3] += 1
            if state[3] >= state[4]:
                raise TruncatedError("the payload ends before the model does")
            i = state[3] + 3
            state[1] = state[1] << 8 | (np.int64(data[i]) if i < state[4] else 0)
        state[2] <<= 8


normalise = jit(_normalise)


def _bit(state: Any, data: Any, zeros: Any, ones: Any, slot: int, value: int) -> Any:
    z, o = np.int64(zeros[slot]), np.int64(ones[slot])
    split = state[2] * z // (z + o)
    if not state[0]:
        value = 1 if state[1] >= split else 0
    if value:
        state[1] += split if state[0] else -split
        state[2] -= split
    else:
        state[2] = split
    if z + o + 1 >= COUNT_LIMIT:
        z, o = (z + 1) // 2, (o + 1) // 2
    zeros[slot], ones[slot] = z + 1 - value, o + value
    normalise(state, data)
    return value


bit = jit(_bit)


def _uniform(state: Any, data: Any, value: int, total: int) -> Any:
    if not state[0]:
        value = ((state[1] + 1) * total - 1) // state[2]
    start = state[2] * value // total
    state[1] += start if state[0] else -start
    state[2] = state[2] * (value + 1) // total - start
    normalise(state, data)
    return value


uniform = jit(_uniform)


def _next_bit(
    state: Any, data: Any, zeros: Any, ones: Any, first: int, slots: int, prefix: int, value: int
) -> Any:
    """Code a bit of a symbol: in its context, or at even odds where the table has none."""
    if prefix < slots:
        return bit(state, data, zeros, ones, first + prefix, value)
    return uniform(state, data, value, 2)


next_bit = jit(_next_bit)


def _ranged(
    state: Any,
    data: Any,
    zeros: Any,
    ones: Any,
    first: int,
    slots: int,
    value: int,
    bits: int,
    low: int,
    high: int,
    barred: int,
) -> Any:
    """Code a symbol from `low` to `high` that is not `barred`."""
    prefix, width = 1, 1 << bits
    for level in range(bits - 1, -1, -1):
        start = (prefix << (level + 1)) - width
        middle = start + (1 << level)
        a, b = max(middle, low), min(middle + (1 << level) - 1, high)
        if not (a < b or (a == b and a != barred)):
            prefix <<= 1
            continue
        a, b = max(start, low), min(middle - 1, high)
        if not (a < b or (a == b and a != barred)):
            prefix = prefix << 1 | 1
            continue
        got = next_bit(state, data, zeros, ones, first, slots, prefix, value >> level & 1)
        prefix = prefix << 1 | got
    value = prefix - width
    if value < low or value > high or value == barred:
        raise StructureError("no symbol is possible here")
    return value


ranged = jit(_ranged)


def _living(
    state: Any, data: Any, zeros: Any, ones: Any, first: int, value: int, bits: int, alive: Any
) -> Any:
    """Code a feature that is alive."""
    prefix = 1
    for level in range(bits - 1, -1, -1):
        if not alive[2 * prefix + 1]:
            prefix <<= 1
        elif not alive[2 * prefix]:
            prefix = prefix << 1 | 1
        else:
            got = next_bit(state, data, zeros, ones, first, _SLOTS, prefix, value >> level & 1)
            prefix = prefix << 1 | got
    if not alive[prefix]:
        raise StructureError("no symbol is possible here")
    return prefix - (1 << bits)


living = jit(_living)


def _leave(alive: Any, low: Any, high: Any, bits: int, feature: int, a: int, b: int) -> None:
    change = (1 if a <= b else 0) - (1 if low[feature] <= high[feature] else 0)
    low[feature], high[feature] = a, b
    if change:
        prefix = (1 << bits) + feature
        while prefix:
            alive[prefix] += change
            prefix >>= 1


leave = jit(_leave)


def _bit_length(number: int) -> Any:
    n = 0
    while number >> n:
        n += 1
    return n


bit_length = jit(_bit_length)


def _code_trees(  # noqa: PLR0915  (one loop: a call for each node would cost more than the node)
    state: Any, data: Any, nodes: Any, ends: Any, n_codes: Any, n_values: int, ordered: bool
) -> Any:
    """Code the trees of a forest: feature and code of every node, and where each tree ends."""
    n_features = n_codes.size
    feature_bits = bit_length(n_features - 1) if n_features else 1
    leaf_bits = bit_length(n_values - 1)
    leaf_slots = 1 << min(leaf_bits, MAX_BITS)
    # Tables, one after the other: structure, advance, features of roots and of other splits,
    # thresholds of every feature, leaves.
    structure, advance, features, thresholds = 0, _SLOTS, 2 * _SLOTS, 4 * _SLOTS
    leaves = thresholds + n_features * _SLOTS
    zeros = np.ones(leaves + ((1 << SIBLING_BITS) + 1) * leaf_slots, np.uint16)
    ones = np.ones(zeros.size, np.uint16)
    low, high = np.zeros(n_features, np.int64), n_codes - 1
    code_bits = np.zeros(n_features, np.int64)
    alive = np.zeros(2 << feature_bits, np.int64)
    for f in range(n_features):
        code_bits[f] = bit_length(n_codes[f] - 1)
        prefix = (1 << feature_bits) + f
        while prefix:
            alive[prefix] += 1
            prefix >>= 1
    # The splits above a node: place, feature, code, and the codes left to the feature there.
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
                raise StructureError("more nodes than announced")
            data = room(state, data)
            given_feature, given_code = np.int64(nodes[i, 0]), np.int64(nodes[i, 1])
            sibling = -1
            if depth and is_right[depth - 1]:
                sibling = path[depth - 1, 0] + 1
            if not alive[1]:
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
                    table = features + min(depth, 1) * _SLOTS
                    f = living(state, data, zeros, ones, table, given_feature, feature_bits, alive)
                a, b = low[f], high[f]
                least = a
                if depth == 0 and has_previous and previous_feature == f:
                    least = previous_code
                table = thresholds + f * _SLOTS
                bits = code_bits[f]
                c = ranged(state, data, zeros, ones, table, _SLOTS, given_code, bits, least, b, -1)
                nodes[i, 0], nodes[i, 1] = f, c
                path[depth, 0], path[depth, 1], path[depth, 2] = i, f, c
                path[depth, 3], path[depth, 4] = a, b
                is_right[depth] = False
                leave(alive, low, high, feature_bits, f, a, c - 1)
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
                leave(alive, low, high, feature_bits, f, path[depth, 3], path[depth, 4])
            if depth == 0:
                break
            is_right[depth - 1] = True
            n_open -= 1
            f, c, b = path[depth - 1, 1], path[depth - 1, 2], path[depth - 1, 4]
            leave(alive, low, high, feature_bits, f, c + 1, b)
        if ordered:
            previous_feature, previous_code = np.int64(nodes[root, 0]), np.int64(nodes[root, 1])
            has_previous = True
        ends[t] = i
    return data, i


code_trees = jit(_code_trees)


def _raw(state: Any, data: Any, value: Any, bits: int) -> Any:
    """Code up to 64 bits at even odds; numbers of 64 bits are unsigned, all others signed."""
    result = np.uint64(0)
    while bits > 0:
        piece = min(bits, 16)
        bits -= piece
        part = np.int64(value >> np.uint64(bits)) & ((1 << piece) - 1)
        got = uniform(state, data, part, 1 << piece)
        result = (result << np.uint64(piece)) | np.uint64(got)
    return result


raw = jit(_raw)


def _integer(state: Any, data: Any, zeros: Any, ones: Any, value: Any) -> Any:
    length = 0
    while length < 64 and value >> np.uint64(length):
        length += 1
    length = ranged(state, data, zeros, ones, 0, _SLOTS, length, 7, 0, 64, -1)
    if length <= 1:
        return np.uint64(length)
    return (_ONE << np.uint64(length - 1)) | raw(state, data, value, length - 1)


integer = jit(_integer)


def _is_finite(key: Any, width: int) -> bool:
    """Tell whether the number with this key is finite; fractions are."""
    if width == 24:
        return True
    exponent, below = (11, 52) if width == 64 else (8, 23)
    mask = (_ONE << np.uint64(exponent)) - _ONE
    bits = key >> np.uint64(below)
    # A key has the exponent of its number, inverted where the number is negative.
    if (key >> np.uint64(width - 1)) & _ONE:
        return bool((bits & mask) != mask)
    return bool((bits & mask) != np.uint64(0))


is_finite = jit(_is_finite)


def _code_keys(state: Any, data: Any, keys: Any, width: int) -> Any:
    """Code keys at even odds; return how many of them are finite, up to the first that is not."""
    for i in range(keys.size):
        data = room(state, data)
        keys[i] = raw(state, data, keys[i], width)
        if not is_finite(keys[i], width):
            return data, i
    return data, keys.size


code_keys = jit(_code_keys)


def _code_lists(
    state: Any,
    data: Any,
    zeros: Any,
    ones: Any,
    keys: Any,
    counts: Any,
    choices: Any,
    widths: Any,
    most: int,
) -> Any:
    """Code lists of ascending keys, one behind the other; return as `code_keys` does.

    `counts` are the lengths of the lists, `choices` the positions of their widths in `widths`.
    """
    n = 0
    for j in range(counts.size):
        data = room(state, data)
        further = integer(state, data, zeros, ones, np.uint64(max(counts[j] - 1, 0)))
        if further >= np.uint64(most - n):
            raise StructureError("more numbers listed than nodes to use them")
        counts[j] = np.int64(further) + 1
        choices[j] = uniform(state, data, choices[j], widths.size)
        width = widths[choices[j]]
        for i in range(n, n + counts[j]):
            data = room(state, data)
            if i == n:
                keys[i] = raw(state, data, keys[i], width)
            else:
                last = keys[i - 1]
                key = last + _ONE + integer(state, data, zeros, ones, keys[i] - last - _ONE)
                if key <= last or (width < 64 and key >> np.uint64(width)):
                    raise StructureError("a listed number lies beyond the largest")
                keys[i] = key
            if not is_finite(keys[i], width):
                counts[j] = i + 1 - n
                return data, j
        n += counts[j]
    return data, counts.size


code_lists = jit(_code_lists)


def _code_symbols(state: Any, data: Any, zeros: Any, ones: Any, values: Any, bits: int) -> Any:
    """Code symbols of one table, all of them possible."""
    for i in range(values.size):
        data = room(state, data)
        prefix = 1
        for level in range(bits - 1, -1, -1):
            value = values[i] >> level & 1
            got = next_bit(state, data, zeros, ones, 0, zeros.size, prefix, value)
            prefix = prefix << 1 | got
        values[i] = prefix - (1 << bits)
    return data, 0


code_symbols = jit(_code_symbols)

"""Compiled loops of the range coder: bits, symbols and whole numbers; importing this needs numba.

A loop does the same as the function of its name in :mod:`conovel.models.wire.range_coder`, but on
arrays:

- ``state`` holds five numbers: whether the coder writes, ``low`` or ``code``, ``range``, the bytes
  written or shifted in so far, and the length of the bytes that are read.
- ``data`` holds the bytes. A writer that needs more room copies them to a larger array, so a loop
  that writes many numbers returns the array it ended with.

numba's cache of :mod:`conovel.models.wire.tree_loops` and
:mod:`conovel.models.wire.number_loops` does not notice a change of this file: after one, delete
``__pycache__``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.errors import StructureError, TruncatedError
from conovel.models.kernel_loops import jit
from conovel.models.wire.range_coder import BOTTOM, COUNT_LIMIT, TOP

SLOTS = 256  # of a frequency table, unless a loop is given another number
ONE = np.uint64(1)
_ROOM = 1 << 10  # bytes; more than one node or number takes


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
    length = ranged(state, data, zeros, ones, 0, SLOTS, length, 7, 0, 64, -1)
    if length <= 1:
        return np.uint64(length)
    return (ONE << np.uint64(length - 1)) | raw(state, data, value, length - 1)


integer = jit(_integer)


def _bit_length(number: int) -> Any:
    n = 0
    while number >> n:
        n += 1
    return n


bit_length = jit(_bit_length)

"""Compiled loops over lists of numbers in a payload; importing this needs numba.

They read and write the same bytes as :mod:`conovel.models.wire.numbers`, and raise the same
errors.
:mod:`conovel.models.wire.coder_loops` says what ``state`` and ``data`` are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.errors import StructureError
from conovel.models.kernel_loops import jit
from conovel.models.wire.coder_loops import ONE, integer, next_bit, raw, room, uniform


def _is_finite(key: Any, width: int) -> bool:
    """Return whether the number with this key is finite; fractions always are."""
    if width == 24:
        return True
    exponent, below = (11, 52) if width == 64 else (8, 23)
    mask = (ONE << np.uint64(exponent)) - ONE
    bits = key >> np.uint64(below)
    # A key has the exponent of its number, inverted where the number is negative.
    if (key >> np.uint64(width - 1)) & ONE:
        return bool((bits & mask) != mask)
    return bool((bits & mask) != np.uint64(0))


is_finite = jit(_is_finite)


def _code_keys(state: Any, data: Any, keys: Any, width: int) -> Any:
    """Code keys at even odds; return the number of finite keys before the first other one."""
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
    """Code lists of ascending keys; return the number of lists before the first infinite key.

    `counts` are the lengths of the lists, `choices` the positions of their widths in `widths`.
    """
    n = 0
    for j in range(counts.size):
        data = room(state, data)
        further = integer(state, data, zeros, ones, np.uint64(max(counts[j] - 1, 0)))
        if further >= np.uint64(most - n):
            raise StructureError("more numbers are listed than nodes could use")
        counts[j] = np.int64(further) + 1
        choices[j] = uniform(state, data, choices[j], widths.size)
        width = widths[choices[j]]
        for i in range(n, n + counts[j]):
            data = room(state, data)
            if i == n:
                keys[i] = raw(state, data, keys[i], width)
            else:
                last = keys[i - 1]
                key = last + ONE + integer(state, data, zeros, ones, keys[i] - last - ONE)
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
    """Code symbols of one table; every symbol is possible."""
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

"""Floating-point numbers, used features and grids in a payload.

Wherever a list is to be coded, a reader passes an empty one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable, Sequence

from conovel.coder import Coder, Table, integer, raw, signed
from conovel.errors import NonFiniteError, StructureError
from conovel.grids import MAX_INDEX, STEPS, Lattice, Uniform

STREAM = "grid"
_UNIT_STEP = 1024  # the lattice step of size 1: the first feature is told relative to it


def code_float(coder: Coder, value: float, width: int) -> float:
    """Code a finite number as its 32 or 64 bits."""
    return _number(raw(coder, _key(value, width), width, STREAM), width)


def code_floats(coder: Coder, given: Sequence[float], count: int) -> list[float]:
    """Code `count` numbers, all in 32 bits or all in 64."""
    width = _code_width(coder, given)
    return [code_float(coder, given[i] if given else 0.0, width) for i in range(count)]


def code_ascending(coder: Coder, given: Sequence[float], table: Table, most: int) -> list[float]:
    """Code a strictly ascending list of 1 to `most` numbers by the gaps of their bits."""
    count = integer(coder, table, max(len(given) - 1, 0)) + 1
    if count > most:
        raise StructureError("more numbers listed than nodes to use them")
    width = _code_width(coder, given)
    result = [code_float(coder, given[0] if given else 0.0, width)]
    last = _key(result[0], width)
    for i in range(1, count):
        last += 1 + integer(coder, table, _key(given[i], width) - last - 1 if given else 0)
        if last >> width:
            raise StructureError("a listed number lies beyond the largest")
        result.append(_number(last, width))
    return result


def code_used(coder: Coder, given: Container[int], n_features: int, most: int) -> list[int]:
    """Code which features occur, and return their numbers: at most one for each split."""
    table = Table(STREAM)
    used = [f for f in range(n_features) if coder.bit(table, 0, int(f in given))]
    if len(used) > most:
        raise StructureError("more features in use than splits")
    return used


def code_uniform(coder: Coder, given: Uniform, bits: int) -> Uniform:
    """Code the ends of a min-max grid."""
    low, high = code_float(coder, given.low, 32), code_float(coder, given.high, 32)
    if low > high:
        raise StructureError("the ends of a grid are exchanged")
    return Uniform(low, high, bits)


def code_lattices(coder: Coder, given: Sequence[Lattice], widths: Iterable[int]) -> list[Lattice]:
    """Code lattices of given widths, each by the change of the step and by its middle."""
    steps, firsts = Table(STREAM), Table(STREAM)
    step, result = _UNIT_STEP, []
    for i, bits in enumerate(widths):
        middle = 1 << (bits - 1)
        step += signed(coder, steps, given[i].step - step if given else 0)
        first = signed(coder, firsts, given[i].first + middle if given else 0) - middle
        if not (0 <= step < STEPS and -MAX_INDEX < first < MAX_INDEX):
            raise StructureError("a lattice outside the numbers that have one")
        result.append(Lattice(step, first, bits))
    return result


def _code_width(coder: Coder, given: Sequence[float]) -> int:
    """Code whether 32 bits are enough: they are when no number changes by it."""
    return 32 if coder.uniform(int(all(map(_is_single, given))), 2, STREAM) else 64


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _key(value: float, width: int) -> int:
    """Return the bits of a number, changed so that they ascend with it."""
    data = struct.pack("<d" if width == 64 else "<f", value + 0.0)  # + 0.0: no negative zero
    bits, sign = int.from_bytes(data, "little"), 1 << (width - 1)
    return bits ^ (2 * sign - 1) if bits & sign else bits | sign


def _number(key: int, width: int) -> float:
    """Return the finite number of a key."""
    sign = 1 << (width - 1)
    bits = key ^ sign if key & sign else key ^ (2 * sign - 1)
    data = bits.to_bytes(width // 8, "little")
    value = float(struct.unpack("<d" if width == 64 else "<f", data)[0])
    if not math.isfinite(value):
        raise NonFiniteError(f"{value} in the payload")
    return value

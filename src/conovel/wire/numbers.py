"""Numbers, used features and grids in a payload.

A number has a *key* of 64, 32 or 24 bits: the bits of a double or of a single, changed so that
they ascend with the number, or the position of a fraction such as the leaf values of a
random forest. Wherever a list is to be coded, a reader passes an empty one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable, Sequence
from fractions import Fraction

from conovel.coder import Coder, Table, integer, raw, signed
from conovel.errors import NonFiniteError, StructureError
from conovel.grids import MAX_INDEX, STEPS, Lattice, Uniform

STREAM = "grid"
DOUBLE, SINGLE, FRACTION = WIDTHS = 64, 32, 24
_LARGEST_DENOMINATOR = 5791  # of which all fractions from 0 to 1 have keys of 24 bits
_UNIT_STEP = 1024  # the lattice step of size 1: the first feature is told relative to it


def code_float(coder: Coder, value: float, width: int) -> float:
    """Code a number by its key."""
    return _number(raw(coder, _key(value, width), width, STREAM), width)


def code_floats(coder: Coder, given: Sequence[float], count: int) -> list[float]:
    """Code `count` numbers in any order, all in 32 bits or all in 64."""
    width = _code_width(coder, given, WIDTHS[:2])
    return [code_float(coder, given[i] if given else 0.0, width) for i in range(count)]


def code_list(
    coder: Coder, given: Sequence[float], table: Table, most: int, widths: Sequence[int] = WIDTHS
) -> list[float]:
    """Code 1 to `most` distinct numbers, in the order of their keys, by the gaps between."""
    count = integer(coder, table, max(len(given) - 1, 0)) + 1
    if count > most:
        raise StructureError("more numbers listed than nodes to use them")
    width = _code_width(coder, given, widths)
    keys = [_key(value, width) for value in given]
    last = raw(coder, keys[0] if keys else 0, width, STREAM)
    result = [_number(last, width)]
    for i in range(1, count):
        last += 1 + integer(coder, table, keys[i] - last - 1 if keys else 0)
        if last >> width:
            raise StructureError("a listed number lies beyond the largest")
        result.append(_number(last, width))
    return result


def in_order(values: Iterable[float]) -> list[float]:
    """Return numbers in the order in which `code_list` takes them."""
    values = list(values)
    width = _best_width(values, WIDTHS)
    return sorted(values, key=lambda value: _key(value, width))


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


def _code_width(coder: Coder, given: Sequence[float], widths: Sequence[int]) -> int:
    best = widths.index(_best_width(given, widths)) if given else 0
    return widths[coder.uniform(best, len(widths), STREAM)]


def _best_width(values: Sequence[float], widths: Sequence[int]) -> int:
    """Return 32 if no number changes by it, else 24 if all are fractions, else 64."""
    if all(map(_is_single, values)):
        return SINGLE
    return FRACTION if FRACTION in widths and all(map(_is_fraction, values)) else DOUBLE


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _is_fraction(value: float) -> bool:
    return 0 <= value <= 1 and float(_fraction(value)) == value


def _fraction(value: float) -> Fraction:
    return Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)


def _key(value: float, width: int) -> int:
    if width == FRACTION:
        fraction = _fraction(value)
        return (fraction.denominator - 1) * (fraction.denominator + 2) // 2 + fraction.numerator
    data = struct.pack("<d" if width == DOUBLE else "<f", value + 0.0)  # + 0.0: no negative zero
    bits, sign = int.from_bytes(data, "little"), 1 << (width - 1)
    return bits ^ (2 * sign - 1) if bits & sign else bits | sign


def _number(key: int, width: int) -> float:
    """Return the number of a key."""
    if width == FRACTION:
        denominator = (math.isqrt(8 * key + 9) - 1) // 2
        return (key - (denominator - 1) * (denominator + 2) // 2) / denominator
    sign = 1 << (width - 1)
    bits = key ^ sign if key & sign else key ^ (2 * sign - 1)
    data = bits.to_bytes(width // 8, "little")
    value = float(struct.unpack("<d" if width == DOUBLE else "<f", data)[0])
    if not math.isfinite(value):
        raise NonFiniteError(f"{value} in the payload")
    return value

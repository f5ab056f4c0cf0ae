"""Numbers, used features and grids in a payload.

A number has a *key* of 64, 32 or 24 bits: the bits of a double or of a single, changed so that
they ascend with the number, or the position of a fraction such as the leaf values of a
random forest. A reader passes an empty list wherever a writer passes the list to code.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Container, Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import NonFiniteError, StructureError
from conovel.models.quantized.grids import MAX_INDEX, STEPS, Lattice, Uniform
from conovel.models.wire.range_coder import Coder, FrequencyTable, integer, raw, signed

STREAM = "grid"
DOUBLE, SINGLE, FRACTION = WIDTHS = 64, 32, 24
_LARGEST_DENOMINATOR = 5791  # fractions from 0 to 1 up to it have keys of 24 bits
# The lattice step of size 1; the step of the first feature is coded relative to it.
_UNIT_STEP = 1024


def code_float(coder: Coder, value: float, width: int) -> float:
    """Code a number by its key."""
    return _number(raw(coder, _key(value, width), width, STREAM), width)


def code_floats(coder: Coder, given: Sequence[float], count: int) -> list[float]:
    """Code `count` numbers in any order, all in 32 bits or all in 64."""
    width = _code_width(coder, given, WIDTHS[:2])
    return [code_float(coder, given[i] if given else 0.0, width) for i in range(count)]


def code_lists(
    coder: Coder,
    given: Sequence[Sequence[float]],
    count: int,
    most: int,
    widths: Sequence[int] = WIDTHS,
) -> list[list[float]]:
    """Code `count` lists of distinct numbers, each in the order of keys, by the gaps of keys.

    No list is empty, and all together have at most `most` numbers.
    """
    table = FrequencyTable(STREAM)
    result: list[list[float]] = []
    for i in range(count):
        result.append(code_list(coder, given[i] if given else (), table, most, widths))
        most -= len(result[-1])
    return result


def code_list(
    coder: Coder,
    given: Sequence[float],
    table: FrequencyTable,
    most: int,
    widths: Sequence[int] = WIDTHS,
) -> list[float]:
    """Code 1 to `most` distinct numbers, in the order of their keys, by the gaps of keys."""
    count = integer(coder, table, max(len(given) - 1, 0)) + 1
    if count > most:
        raise StructureError("more numbers are listed than nodes could use")
    width = _code_width(coder, given, widths)
    keys = _keys(given, width).tolist()
    last = raw(coder, keys[0] if keys else 0, width, STREAM)
    result = [_number(last, width)]
    for i in range(1, count):
        last += 1 + integer(coder, table, keys[i] - last - 1 if keys else 0)
        if last >> width:
            raise StructureError("a listed number lies beyond the largest")
        result.append(_number(last, width))
    return result


def order_of(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the order in which `code_lists` takes numbers."""
    return np.argsort(_keys(values, _best_width(values, WIDTHS)), kind="stable")


def code_used(coder: Coder, given: Container[int], n_features: int, most: int) -> list[int]:
    """Code which features occur, and return their numbers: at most one for each split."""
    table = FrequencyTable(STREAM)
    used = [f for f in range(n_features) if coder.bit(table, 0, int(f in given))]
    if len(used) > most:
        raise StructureError("more features are used than there are splits")
    return used


def code_uniform(coder: Coder, given: Uniform, bits: int) -> Uniform:
    """Code the ends of a min-max grid."""
    low, high = code_float(coder, given.low, 32), code_float(coder, given.high, 32)
    if low > high:
        raise StructureError("the lower end of a grid is above its upper end")
    return Uniform(low, high, bits)


def code_lattices(coder: Coder, given: Sequence[Lattice], widths: Iterable[int]) -> list[Lattice]:
    """Code lattices of given widths: of each, the change of the step and the middle."""
    steps, firsts = FrequencyTable(STREAM), FrequencyTable(STREAM)
    step, result = _UNIT_STEP, []
    for i, bits in enumerate(widths):
        middle = 1 << (bits - 1)
        step += signed(coder, steps, given[i].step - step if given else 0)
        first = signed(coder, firsts, given[i].first + middle if given else 0) - middle
        if not (0 <= step < STEPS and -MAX_INDEX < first < MAX_INDEX):
            raise StructureError("a lattice has a step or a first number out of range")
        result.append(Lattice(step, first, bits))
    return result


def _code_width(coder: Coder, given: Sequence[float], widths: Sequence[int]) -> int:
    best = widths.index(_best_width(given, widths)) if given else 0
    return widths[coder.uniform(best, len(widths), STREAM)]


def _best_width(given: ArrayLike, widths: Sequence[int]) -> int:
    """Return 32 if it is exact for all numbers, else 24 if all are fractions, else 64."""
    values = np.asarray(given, dtype=np.float64)
    with np.errstate(over="ignore"):
        is_single = np.all(values.astype(np.float32) == values)
    if is_single:
        return SINGLE
    return FRACTION if FRACTION in widths and _fractions(values)[1].all() else DOUBLE


def _fractions(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return numerator and denominator of each number; zeros where there is no short fraction.

    A number that is the double next to k/n with n up to 5791 has k/n among its convergents, for
    another fraction of that kind is at least 5791^-2 away.
    """
    over, under = np.zeros((2, values.size), dtype=np.int64)
    rest = np.where((values >= 0) & (values <= 1), values, np.inf)
    before, now = np.zeros((2, values.size)), np.ones((2, values.size))
    before[1], now[1] = 1.0, 0.0
    while True:
        whole = np.floor(rest)
        with np.errstate(invalid="ignore"):  # infinite numbers stay infinite or become NaN
            before, now = now, whole * now + before
        left = now[1] <= _LARGEST_DENOMINATOR
        if not left.any():
            return over, under
        exact = left & (under == 0)
        exact[exact] = now[0, exact] / now[1, exact] == values[exact]
        over[exact], under[exact] = now[0, exact], now[1, exact]
        with np.errstate(all="ignore"):
            rest = np.where(left & (under == 0), 1 / (rest - whole), np.inf)


def _keys(given: ArrayLike, width: int) -> NDArray[np.uint64]:
    """Return the keys of numbers that have one."""
    values = np.asarray(given, dtype=np.float64) + 0.0  # + 0.0: no negative zero
    if width == FRACTION:
        over, under = _fractions(values)
        return ((under - 1) * (under + 2) // 2 + over).astype(np.uint64)
    bits = values.view(np.uint64)
    if width == SINGLE:
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    sign, full = np.uint64(1 << (width - 1)), np.uint64((1 << width) - 1)
    return np.where(bits & sign, bits ^ full, bits | sign)


def _key(value: float, width: int) -> int:
    """Return the key of a double or a single."""
    data = struct.pack("<d" if width == DOUBLE else "<f", value + 0.0)
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
        raise NonFiniteError(f"the payload holds the number {value}")
    return value

"""An adaptive binary range coder on integers.

A decision is coded with the odds that its context has shown so far: a context counts its
zeros and ones, both starting at one (Laplace's rule), and the current range is divided in
that proportion. Every quantity is an integer below 2^64, so the bytes are the same on every
machine. `docs/wire.md` specifies the coder for other languages.

Three classes have one interface: `Encoder` writes, `Decoder` reads, `BitCounter` only counts.
A model is therefore described once, by a function that takes any of them: the value passed
in is what an encoder writes, the value returned is what a decoder read.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from typing import Protocol

from conovel.errors import StructureError, TrailingError, TruncatedError

TOP = 1 << 32
BOTTOM = 1 << 24
COUNT_LIMIT = 1 << 16  # the two counts of a context are halved when they reach this sum
_WORD = 16  # raw bits are coded in pieces of at most this many


class FrequencyTable:
    """The contexts of one family of decisions: a pair of counts for each of 2^bits slots."""

    __slots__ = ("ones", "size", "stream", "zeros")

    def __init__(self, stream: str, bits: int = 8) -> None:
        self.stream = stream
        self.size = 1 << bits
        self.zeros = array("H", [1]) * self.size
        self.ones = array("H", [1]) * self.size

    def learn(self, slot: int, bit: int) -> None:
        """Count one decision."""
        zeros, ones = self.zeros[slot], self.ones[slot]
        if zeros + ones + 1 >= COUNT_LIMIT:
            self.zeros[slot], self.ones[slot] = zeros, ones = (zeros + 1) // 2, (ones + 1) // 2
        if bit:
            self.ones[slot] = ones + 1
        else:
            self.zeros[slot] = zeros + 1


class Coder(Protocol):
    """What the description of a model needs from a coder."""

    def bit(self, table: FrequencyTable, slot: int, bit: int) -> int:
        """Code one decision in a context and return it."""

    def uniform(self, value: int, total: int, stream: str) -> int:
        """Code one of `total` (at most 2^16) equally likely values and return it."""


class Encoder:
    """Write decisions to bytes."""

    def __init__(self) -> None:
        self.low = 0
        self.range = TOP
        self.out = bytearray()

    def bit(self, table: FrequencyTable, slot: int, bit: int) -> int:
        """Write one decision in a context."""
        zeros, ones = table.zeros[slot], table.ones[slot]
        split = self.range * zeros // (zeros + ones)
        if bit:
            self.low += split
            self.range -= split
        else:
            self.range = split
        table.learn(slot, bit)
        if self.range < BOTTOM:
            self._shift()
        return bit

    def uniform(self, value: int, total: int, stream: str) -> int:
        """Write one of `total` equally likely values."""
        start = self.range * value // total
        self.low += start
        self.range = self.range * (value + 1) // total - start
        if self.range < BOTTOM:
            self._shift()
        return value

    def finish(self) -> bytes:
        """Return everything written; this adds one last byte."""
        # The range is at least 2^24, so a multiple of 2^24 lies in it: its lower bytes are
        # zero, and a reader adds them.
        self.low = (self.low + BOTTOM - 1) & ~(BOTTOM - 1)
        self._emit()
        return bytes(self.out)

    def _shift(self) -> None:
        while self.range < BOTTOM:
            self._emit()
            self.range <<= 8

    def _emit(self) -> None:
        if self.low >= TOP:
            i = len(self.out) - 1
            while self.out[i] == 0xFF:
                self.out[i] = 0
                i -= 1
            self.out[i] += 1
            self.low -= TOP
        self.out.append(self.low >> 24)
        self.low = self.low << 8 & (TOP - 1)


class Decoder:
    """Read decisions from bytes; the values passed to its methods are ignored."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.code = int.from_bytes(data[:4].ljust(4, b"\0"), "big")
        self.range = TOP
        self.shifts = 0

    def bit(self, table: FrequencyTable, slot: int, bit: int) -> int:
        """Read one decision in a context."""
        zeros, ones = table.zeros[slot], table.ones[slot]
        split = self.range * zeros // (zeros + ones)
        if self.code >= split:
            self.code -= split
            self.range -= split
            bit = 1
        else:
            self.range = split
            bit = 0
        table.learn(slot, bit)
        if self.range < BOTTOM:
            self._shift()
        return bit

    def uniform(self, value: int, total: int, stream: str) -> int:
        """Read one of `total` equally likely values."""
        value = ((self.code + 1) * total - 1) // self.range
        start = self.range * value // total
        self.code -= start
        self.range = self.range * (value + 1) // total - start
        if self.range < BOTTOM:
            self._shift()
        return value

    def finish(self) -> None:
        """Check that the bytes end where the decisions end."""
        if self.shifts + 1 < len(self.data):
            raise TrailingError("the payload goes on after the end of the model")

    def _shift(self) -> None:
        while self.range < BOTTOM:
            self.shifts += 1
            if self.shifts >= len(self.data):
                raise TruncatedError("the payload ends before the model does")
            i = self.shifts + 3
            self.code = self.code << 8 | (self.data[i] if i < len(self.data) else 0)
            self.range <<= 8


class BitCounter:
    """Count the bits that an ideal coder would write, by stream, and write nothing."""

    def __init__(self) -> None:
        self.bits: defaultdict[str, float] = defaultdict(float)  # what the adaptive odds cost
        self._raw: defaultdict[str, float] = defaultdict(float)
        self._seen: defaultdict[tuple[str, int, int], list[int]] = defaultdict(lambda: [0, 0])
        self._tables: list[FrequencyTable] = []  # kept alive, so that an id stays unique

    def bit(self, table: FrequencyTable, slot: int, bit: int) -> int:
        """Count one decision in a context."""
        zeros, ones = table.zeros[slot], table.ones[slot]
        self.bits[table.stream] += math.log2((zeros + ones) / (ones if bit else zeros))
        if (key := (table.stream, id(table), slot)) not in self._seen:
            self._tables.append(table)
        self._seen[key][bit] += 1
        table.learn(slot, bit)
        return bit

    def uniform(self, value: int, total: int, stream: str) -> int:
        """Count one of `total` equally likely values."""
        self.bits[stream] += math.log2(total)
        self._raw[stream] += math.log2(total)
        return value

    def entropy(self) -> dict[str, float]:
        """Return the plug-in entropy of each stream, in bits.

        It is what the decisions would cost if the reader knew the frequencies of every context
        beforehand.
        """
        bits = dict(self._raw)
        for (stream, _, _), counts in self._seen.items():
            cost = sum(c * math.log2(sum(counts) / c) for c in counts if c)
            bits[stream] = bits.get(stream, 0.0) + cost
        return bits


def symbol(
    coder: Coder,
    table: FrequencyTable,
    value: int,
    bits: int,
    low: int = 0,
    high: int | None = None,
    barred: int = -1,
) -> int:
    """Code a symbol of `bits` bits, highest bit first; bits without a choice cost nothing.

    The slot of a bit in the table is the bits before it, with a 1 in front; bits without a slot
    are coded at even odds. Only symbols from `low` to `high` occur, and not `barred`.
    """
    prefix, start, size = 1, 0, 1 << bits
    if high is None:
        high = size - 1
    while size > 1:
        size >>= 1
        middle = start + size
        # Some symbol of the upper half is possible, and some of the lower one.
        first, last = middle if middle > low else low, min(middle + size - 1, high)
        if first > last or (first == last == barred):
            bit = 0
        else:
            first, last = start if start > low else low, middle - 1 if middle <= high else high
            if first > last or (first == last == barred):
                bit = 1
            elif prefix < table.size:
                bit = coder.bit(table, prefix, int(value & size > 0))
            else:
                bit = coder.uniform(int(value & size > 0), 2, table.stream)
        prefix = prefix << 1 | bit
        if bit:
            start = middle
    if start < low or start > high or start == barred:
        raise StructureError("no symbol is possible here")
    return start


def raw(coder: Coder, value: int, bits: int, stream: str) -> int:
    """Code `bits` bits at even odds, highest first in pieces of 16."""
    result = 0
    while bits > 0:
        piece = min(bits, _WORD)
        bits -= piece
        part = value >> bits & ((1 << piece) - 1)
        result = result << piece | coder.uniform(part, 1 << piece, stream)
    return result


def integer(coder: Coder, table: FrequencyTable, value: int) -> int:
    """Code a number of 0 to 64 bits: its length as a symbol, then the bits below its first."""
    length = symbol(coder, table, value.bit_length(), 7, 0, 64)
    if length <= 1:
        return length
    return 1 << (length - 1) | raw(coder, value, length - 1, table.stream)


def signed(coder: Coder, table: FrequencyTable, value: int) -> int:
    """Code a number of either sign, folded to a number without one: 0, -1, 1, -2 are 0 to 3."""
    folded = integer(coder, table, value << 1 if value >= 0 else ~(value << 1))
    return folded >> 1 if folded & 1 == 0 else ~(folded >> 1)

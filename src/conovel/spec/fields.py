"""The byte forms of the values that messages carry, and the only way to read them back.

Every length is held against its cap and against what is left before anything is built from
it. What does not fit raises :class:`Unfit`, whichever way it goes; only
:mod:`conovel.protocol.messages`
sees that and says whose fault it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any, NamedTuple, get_type_hints

from conovel.errors import ConovelError
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS

MAX_NAME_BYTES = 64
NONCE_BYTES = 32
MAX_MODEL_BYTES = 1 << 24
MAX_TEXT_BYTES = 512
MAX_SPEC_BYTES = 0xFFFF  # a level may have 360 digits above and below, a schema 2000 columns
MAX_INTEGER_BYTES = 255
MAX_STEPS = 65_000  # values of k at which a revealed count rises; a REVEAL then has about 1 MB
MAX_AGENTS = 200  # of a run: every pair of them exchanges models


class Unfit(ValueError):
    """A value that has no byte form, or bytes that are no value."""


class Reader:
    """Bytes that are taken from the front and never past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._at = 0

    def take(self, n: int) -> bytes:
        """Take the next `n` bytes."""
        if n > len(self._data) - self._at:
            raise Unfit("it ends too early")
        self._at += n
        return bytes(self._data[self._at - n : self._at])

    def close(self) -> None:
        """Make sure that nothing is left."""
        if self._at != len(self._data):
            raise Unfit("it goes on after its end")


class Field(NamedTuple):
    """How one value becomes bytes and is read back."""

    pack: Callable[[Any], bytes]
    unpack: Callable[[Reader], Any]


def pack(layout: Sequence[Field], values: Sequence[object]) -> bytes:
    """Write the values one after the other."""
    return b"".join(field.pack(value) for field, value in zip(layout, values, strict=True))


def unpack(layout: Sequence[Field], reader: Reader) -> list[Any]:
    """Read one value per field."""
    return [field.unpack(reader) for field in layout]


def unsigned(width: int) -> Field:
    """Build the field of a nonnegative integer of `width` bytes, little-endian."""

    def pack(value: int) -> bytes:
        if not 0 <= value < 1 << 8 * width:
            raise Unfit(f"{value} does not fit into {width} bytes")
        return int(value).to_bytes(width, "little")

    return Field(pack, lambda reader: int.from_bytes(reader.take(width), "little"))


def fixed(width: int) -> Field:
    """Build the field of exactly `width` bytes."""

    def pack(value: bytes) -> bytes:
        if len(value) != width:
            raise Unfit(f"{len(value)} bytes where there must be {width}")
        return bytes(value)

    return Field(pack, lambda reader: reader.take(width))


def counted(width: int, limit: int) -> Field:
    """Build the field of bytes behind their length, which takes `width` bytes."""
    length = unsigned(width)

    def check(n: int) -> int:
        if n > limit:
            raise Unfit(f"{n} bytes are more than the {limit} allowed")
        return n

    return Field(
        lambda value: length.pack(check(len(value))) + bytes(value),
        lambda reader: reader.take(check(length.unpack(reader))),
    )


def text(limit: int) -> Field:
    """Build the field of printable UTF-8 behind its length."""
    raw = counted(1 if limit < 256 else 2, limit)

    def check(value: str) -> str:
        if not value.isprintable():
            raise Unfit("a text is not printable")
        return value

    def unpack(reader: Reader) -> str:
        try:
            return check(str(raw.unpack(reader), "utf-8"))
        except UnicodeDecodeError:
            raise Unfit("a text is not UTF-8") from None

    return Field(lambda value: raw.pack(check(value).encode()), unpack)


def fraction() -> Field:
    """Build the field of a nonnegative fraction in lowest terms, as two minimal integers."""
    part = counted(1, MAX_INTEGER_BYTES)

    def pack(value: Fraction) -> bytes:
        if value < 0:
            raise Unfit(f"{value} is negative")
        return b"".join(
            part.pack(n.to_bytes((n.bit_length() + 7) // 8, "little"))
            for n in value.as_integer_ratio()
        )

    def unpack(reader: Reader) -> Fraction:
        over, under = (int.from_bytes(part.unpack(reader), "little") for _ in range(2))
        if under == 0:
            raise Unfit("a fraction has denominator zero")
        return Fraction(over, under)

    return Field(pack, unpack)


def names() -> Field:
    """Build the field of a strictly ascending list of names."""
    count, name = unsigned(2), text(MAX_NAME_BYTES)

    def check_number(n: int) -> int:
        if n > MAX_AGENTS:
            raise Unfit(f"{n} names are more than the {MAX_AGENTS} allowed")
        return n

    def check_order(values: tuple[str, ...]) -> tuple[str, ...]:
        if list(values) != sorted(set(values)):
            raise Unfit("names are not sorted, or repeat")
        return values

    def pack(values: tuple[str, ...]) -> bytes:
        head = count.pack(check_number(len(values)))
        return head + b"".join(map(name.pack, check_order(values)))

    def unpack(reader: Reader) -> tuple[str, ...]:
        n = check_number(count.unpack(reader))  # before any name is read
        return check_order(tuple(name.unpack(reader) for _ in range(n)))

    return Field(pack, unpack)


def listed(item: Field, most: int = MAX_AGENTS) -> Field:
    """Build the field of several values behind their number, such as one for each agent."""
    count = unsigned(2)

    def check(n: int) -> int:
        if n > most:
            raise Unfit(f"{n} values are more than the {most} allowed")
        return n

    def pack(values: Sequence[object]) -> bytes:
        return count.pack(check(len(values))) + b"".join(map(item.pack, values))

    def unpack(reader: Reader) -> tuple[Any, ...]:
        return tuple(item.unpack(reader) for _ in range(check(count.unpack(reader))))

    return Field(pack, unpack)


def settings() -> Field:
    """Build the field of the settings of a run, as their one line of JSON."""
    line = text(MAX_SPEC_BYTES)

    def unpack(reader: Reader) -> RunSpec:
        try:
            return RunSpec.from_text(line.unpack(reader))
        except ConovelError as error:
            raise Unfit(str(error)) from None

    return Field(lambda spec: line.pack(spec.to_text()), unpack)


def counts() -> Field:
    """Build the field of one count for each cell of the common scale, 8 bytes each."""
    count = unsigned(8)

    def pack(values: Sequence[int]) -> bytes:
        if len(values) != N_CELLS:
            raise Unfit(f"{len(values)} counts where there must be {N_CELLS}")
        return b"".join(map(count.pack, values))

    return Field(pack, lambda reader: tuple(count.unpack(reader) for _ in range(N_CELLS)))


U16, U32, U64 = unsigned(2), unsigned(4), unsigned(8)
NAME, TEXT, DIGEST = text(MAX_NAME_BYTES), text(MAX_TEXT_BYTES), fixed(32)
FRACTION, NAMES, BLOB = fraction(), names(), counted(4, MAX_MODEL_BYTES)
SPEC, COUNTS = settings(), counts()
FRACTIONS, U32S = listed(FRACTION), listed(U32)
DIGESTS, U64S = listed(DIGEST), listed(U64, MAX_STEPS)


_LAYOUTS: dict[type, tuple[Field, ...]] = {}


def layout_of(body: type[Any]) -> tuple[Field, ...]:
    """Return the fields of the body of a message, in the order of their bytes."""
    if body not in _LAYOUTS:
        hints = get_type_hints(body, include_extras=True)
        _LAYOUTS[body] = tuple(hints[field.name].__metadata__[0] for field in fields(body))
    return _LAYOUTS[body]

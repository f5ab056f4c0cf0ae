"""Bodies of messages as plain JSON types, and back: what records of runs are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from operator import index
from typing import Any, TypeVar

from conovel.protocol.messages import encode
from conovel.spec.bodies import Body, Message
from conovel.spec.fields import (
    COUNTS,
    DIGEST,
    FRACTION,
    NAMES,
    U32,
    U32S,
    U64,
    U64S,
    Field,
    layout_of,
)
from conovel.stats.levels import as_fraction

B = TypeVar("B", bound=Body)


def as_plain(body: Body) -> dict[str, Any]:
    """Write a body as JSON types, fractions as text."""
    plain: dict[str, Any] = {"kind": body.kind.name}
    for part in fields(body):
        value = getattr(body, part.name)
        plain[part.name] = str(value) if isinstance(value, Fraction) else value
        if isinstance(value, tuple):
            plain[part.name] = list(value)
        if isinstance(value, bytes):
            plain[part.name] = value.hex()
    return plain


def as_body(kind: type[B], plain: Mapping[str, Any]) -> B:
    """Read what :func:`as_plain` wrote, as strictly as if it came over the wire."""
    readers: dict[Field, Callable[[Any], Any]]
    readers = {FRACTION: as_exact, NAMES: tuple, U32: index, U64: index}
    readers |= dict.fromkeys((COUNTS, U32S, U64S), _as_counts)
    readers |= {DIGEST: lambda text: bytes.fromhex(as_text(text))}
    values: dict[str, Any] = {}
    for part, code in zip(fields(kind), layout_of(kind), strict=True):
        read: Callable[[Any], Any] = readers.get(code, as_text)
        values[part.name] = read(plain[part.name])
    body = kind(**values)
    encode(Message(bytes(16), "a", "a", 0, body))
    return body


def _as_counts(plain: Any) -> tuple[int, ...]:
    return tuple(map(index, plain))


def as_exact(value: Any) -> Fraction:
    """Read a fraction that is written as text."""
    return as_fraction(as_text(value), "a fraction")


def as_text(value: Any) -> str:
    """Check that a value is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value

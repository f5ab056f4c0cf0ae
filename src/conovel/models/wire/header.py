"""The 28 bytes before every model, and the size limits checked before anything is built."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from conovel.errors import (
    ChecksumError,
    HeaderError,
    InputError,
    LimitError,
    MagicError,
    ModelError,
    SchemaError,
    TrailingError,
    TruncatedError,
    VersionError,
)
from conovel.spec.fields import MAX_MODEL_BYTES as MAX_BYTES
from conovel.spec.settings import MAX_BITS

MAGIC = b"cnv"
VERSION = 1
FOREST, NETWORK = 1, 2

MAX_FEATURES = (1 << 16) - 1
MAX_PARTS = (1 << 16) - 1  # trees of a forest, layers of a network
MAX_ITEMS = 1 << 20  # nodes of a forest, weights of a network
# A payload of n bytes has at most FREE_ITEMS + n * ITEMS_PER_BYTE items, so that a short message
# cannot keep a reader busy for long.
FREE_ITEMS = 1 << 12
ITEMS_PER_BYTE = 32
# Decisions of the range coder, by `most_decisions` of the header. The coder takes a few
# microseconds for one.
MAX_DECISIONS = 1 << 21
_FLOAT = 4  # decisions of a double: pieces of 16 bits
_INTEGER = 11  # decisions of an integer: 7 for its length, 4 pieces of 16 bits

NO_SCHEMA = bytes(4)
_LAYOUT = struct.Struct("<3sBBBBBHHII4sI")
SIZE = _LAYOUT.size
_CHECKSUM = 4


class Header(NamedTuple):
    """What the first 28 bytes say, in their order, but for magic, version, length and checksum."""

    kind: int
    flags: int
    input_bits: int  # width of thresholds; of weights in a network; 0 for exact numbers
    output_bits: int  # width of leaf values; of weights in a network; 0 for exact numbers
    n_features: int
    n_parts: int  # trees, or layers
    n_items: int  # nodes, or weights and biases
    schema: bytes = NO_SCHEMA

    @property
    def exact(self) -> bool:
        """Whether numbers are sent in full precision."""
        return self.input_bits == 0


def schema_digest(names: Iterable[str], n_bytes: int = 4) -> bytes:
    """Return a few bytes that stand for the names of the columns and their order."""
    digest = hashlib.sha256()
    for name in names:
        data = name.encode()
        digest.update(len(data).to_bytes(4, "little") + data)
    return digest.digest()[:n_bytes]


def most_decisions(header: Header) -> int:
    """Return how many decisions of the range coder a payload with this header has at most.

    `docs/wire.md` counts them, under "Caps".
    """
    exact = header.exact
    if header.kind != FOREST:
        # Centre and scale, or exponent and shift.
        for_features = 2 * _FLOAT if exact else 2 * _INTEGER
        return header.n_items * (_FLOAT if exact else header.input_bits) + (
            header.n_features * for_features + header.n_parts * (_INTEGER + 2 * _FLOAT)
        )
    n_splits = (header.n_items - header.n_parts) // 2
    n_leaves = header.n_items - n_splits
    n_used = min(header.n_features, n_splits)
    code_bits = (n_splits - 1).bit_length() if exact else header.input_bits
    leaf_bits = (n_leaves - 1).bit_length() if exact else header.output_bits
    per_split = 1 + (n_used - 1).bit_length() + code_bits
    per_number = _INTEGER if exact else 0
    return (
        header.n_features
        + 2 * _INTEGER * (n_used + 1)
        + n_splits * (per_split + per_number)
        + n_leaves * (1 + leaf_bits + per_number)
    )


def refuse_large(header: Header) -> Header:
    """Return a header, or raise `ModelError` if the model is too large to send."""
    for count, cap, name in (
        (header.n_features, MAX_FEATURES, "features"),
        (header.n_parts, MAX_PARTS, "trees or layers"),
        (header.n_items, MAX_ITEMS, "nodes or weights"),
        (most_decisions(header), MAX_DECISIONS, "decisions to read it"),
    ):
        if count > cap:
            raise ModelError(f"{count} {name} are more than the {cap} that can be sent")
    return header


def check_schema(schema: object) -> None:
    """Check the digest of columns that a caller gives."""
    if not isinstance(schema, bytes):
        raise InputError(f"a schema digest is bytes, not {type(schema).__name__}")
    if len(schema) != len(NO_SCHEMA):
        raise InputError(f"a schema digest has {len(NO_SCHEMA)} bytes, not {len(schema)}")


def join(header: Header, payload: bytes) -> bytes:
    """Return header and payload as one message."""
    check_schema(header.schema)
    if SIZE + len(payload) > MAX_BYTES:
        raise ModelError(
            f"{SIZE + len(payload)} bytes are more than the {MAX_BYTES} that can be sent"
        )
    if _has_too_many_items(header, len(payload)):
        raise ModelError(
            f"{header.n_items} nodes or weights are too many for {len(payload)} bytes: they are"
            " nearly all the same"
        )
    message = bytearray(_LAYOUT.size) + payload
    *about, schema = header
    _LAYOUT.pack_into(message, 0, MAGIC, VERSION, *about, len(payload), schema, 0)
    struct.pack_into("<I", message, SIZE - _CHECKSUM, _checksum(message))
    return bytes(message)


def split(message: bytes, schema: bytes | None = None) -> tuple[Header, bytes]:
    """Check length, checksum and header of a message; return the header and the payload."""
    if len(message) > MAX_BYTES:
        raise LimitError(f"{len(message)} bytes are more than the {MAX_BYTES} of a model")
    if message[: len(MAGIC)] != MAGIC[: len(message)]:
        raise MagicError("the bytes do not begin like a model")
    if len(message) > len(MAGIC) and message[len(MAGIC)] != VERSION:
        raise VersionError(
            f"version {message[len(MAGIC)]} of the format is not known to this release"
        )
    if len(message) < SIZE:
        raise TruncatedError(f"{len(message)} bytes are too few for a header")
    _, _, *about, size, version, checksum = _LAYOUT.unpack_from(message)
    if len(message) < SIZE + size:
        raise TruncatedError(f"{len(message) - SIZE} bytes of payload instead of {size}")
    if len(message) > SIZE + size:
        raise TrailingError(f"{len(message) - SIZE} bytes of payload instead of {size}")
    if checksum != _checksum(message):
        raise ChecksumError("the checksum is not that of the bytes: they were damaged")
    if schema is not None and schema != version:
        raise SchemaError("the model was made for other columns")
    header = Header._make([*about, version])
    _check(header)
    if _has_too_many_items(header, size):
        raise LimitError(f"{header.n_items} items in {size} bytes are too many")
    return header, message[SIZE:]


def _check(header: Header) -> None:
    if max(header.input_bits, header.output_bits) > MAX_BITS:
        raise HeaderError(f"codes have more than {MAX_BITS} bits")
    if (header.input_bits == 0) != (header.output_bits == 0):
        raise HeaderError("some numbers are exact and some are not")
    if not (header.n_features and header.n_parts and header.n_items):
        raise HeaderError("the model has no features, parts or items")
    if header.n_items < header.n_parts:
        raise HeaderError("the model has fewer items than parts")
    if header.n_items > MAX_ITEMS:
        raise LimitError(f"{header.n_items} items are more than the {MAX_ITEMS} of a model")
    if (most := most_decisions(header)) > MAX_DECISIONS:
        raise LimitError(f"{most} decisions are more than the {MAX_DECISIONS} of a model")


def _has_too_many_items(header: Header, size: int) -> bool:
    return header.n_items > FREE_ITEMS + ITEMS_PER_BYTE * size


def _checksum(message: bytes | bytearray) -> int:
    """CRC-32 over everything but the checksum itself."""
    return zlib.crc32(message[SIZE:], zlib.crc32(message[: SIZE - _CHECKSUM]))

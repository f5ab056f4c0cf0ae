"""Messages between agents and their coordinator, and the one byte form of each.

A message is a fixed little-endian header, the two names, and a body
(:mod:`conovel.spec.bodies`) whose layout is its dataclass, field after field
(docs/protocol.md). Bytes from a peer are hostile: they are
consumed exactly, and must be the very bytes that the message they give encodes to.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import fields

import conovel.deciding.ways  # noqa: F401  (ways define the bodies of their own messages)
from conovel.errors import (
    InputError,
    LocalProtocolError,
    MalformedMessageError,
    VersionMismatchError,
)
from conovel.spec.bodies import BODIES, COORDINATOR, IN_ROUNDS, Message
from conovel.spec.fields import NAME, Reader, Unfit, layout_of, pack, unpack

MAGIC = b"CNVL"
VERSION = 6
HEADER = struct.Struct("<4sBB16sIII")  # magic, version, kind, run id, round, length, crc32
CHECKED_BYTES = HEADER.size - 4  # the checksum covers everything but itself


def encode(message: Message) -> bytes:
    """Give a message its bytes.

    Raises
    ------
    LocalProtocolError
        If something in it is too large or not in its legal form.

    Examples
    --------
    >>> from conovel.deciding.asking import Count
    >>> data = encode(Message(bytes(16), "north", "coordinator", 1, Count(7)))
    >>> len(data), decode(data).body
    (60, Count(count=7))
    """
    try:
        return _encode(message)
    except Unfit as error:
        raise LocalProtocolError(f"a {message.body.kind.name} cannot be sent: {error}") from error


def decode(data: bytes, peer: str = "") -> Message:
    """Read a message, or say what is wrong with it.

    Parameters
    ----------
    data : bytes
        One whole message.
    peer : str
        Who handed it over, to name in the error.

    Raises
    ------
    MalformedMessageError, VersionMismatchError
        And nothing else.
    """
    try:
        message = _decode(data)
        if _encode(message) != data:
            raise Unfit("it is not in its one legal spelling")
    except Unfit as error:
        who = peer or "a peer"
        raise MalformedMessageError(f"{who} sent what is not a message: {error}", peer) from error
    except VersionMismatchError as error:
        error.culprit = peer
        raise
    return message


def _encode(message: Message) -> bytes:
    body = message.body
    if message.round and body.kind not in IN_ROUNDS:
        raise Unfit(f"a {body.kind.name} belongs to no round")
    if len(message.run_id) != 16 or not 0 <= message.round < 1 << 32:
        raise Unfit("a run id has 16 bytes and a round fits into 4")
    values = [getattr(body, field.name) for field in fields(body)]
    payload = pack(
        [NAME, NAME, *layout_of(type(body))], [message.sender, message.receiver, *values]
    )
    parts = (MAGIC, VERSION, body.kind, message.run_id, message.round, len(payload))
    return HEADER.pack(*parts, _checksum(HEADER.pack(*parts, 0), payload)) + payload


def _decode(data: bytes) -> Message:
    reader = Reader(data)
    header = reader.take(HEADER.size)
    magic, version, kind, run_id, round_, length, checksum = HEADER.unpack(header)
    if magic != MAGIC:
        raise Unfit("it does not begin like one")
    if version != VERSION:
        raise VersionMismatchError(
            f"messages of version {version}, and this conovel reads version {VERSION}: install the"
            " same conovel at every party"
        )
    if kind not in BODIES:
        raise Unfit(f"kind {kind} is unknown")
    if length != len(data) - HEADER.size:
        raise Unfit(f"it announces {length} bytes and has {len(data) - HEADER.size}")
    if checksum != _checksum(header, memoryview(data)[HEADER.size :]):
        raise Unfit("its checksum is wrong")
    body = BODIES[kind]
    sender, receiver, *values = unpack([NAME, NAME, *layout_of(body)], reader)
    reader.close()
    return Message(run_id, sender, receiver, round_, body(*values))


def _checksum(header: bytes, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(header[:CHECKED_BYTES]))


def as_name(name: str) -> str:
    """Check the name of an agent: 1 to 64 bytes of printable UTF-8, not ``"coordinator"``."""
    if not isinstance(name, str) or not name.strip() or name == COORDINATOR:
        raise InputError(f"{name!r} cannot be the name of an agent")
    try:
        NAME.pack(name)
    except Unfit as error:
        raise InputError(f"{name!r} cannot be the name of an agent: {error}") from error
    return name

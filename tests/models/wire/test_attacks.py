"""Hostile bytes: each malformation has its own error, and there is nothing but errors."""

import random
import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.hostile_bytes import MESSAGES, mutated, reseal
from support.paths import ATTACKS

from conovel import errors
from conovel.errors import WireError
from conovel.models.wire import decode, encode

FILES = sorted(ATTACKS.glob("*.bin"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_attack(path):
    expected = getattr(errors, path.stem.partition("--")[0] + "Error")
    with pytest.raises(WireError) as caught:
        decode(path.read_bytes())
    assert type(caught.value) is expected


def test_every_error_has_an_attack():
    named = {path.stem.partition("--")[0] + "Error" for path in FILES}
    every = {error.__name__ for error in WireError.__subclasses__()}
    assert named == every - {"SchemaError"}  # tested in test_wire.py: it depends on the reader


def check(message):
    """Decode to an error, or to the model whose only spelling this is."""
    try:
        model = decode(message)
    except WireError:
        return None
    assert encode(model, schema=message[20:24]) == message
    scores = model.score(np.linspace(-2, 2, 3 * model.n_features).reshape(3, -1))
    assert np.isfinite(scores).all()
    return model


@given(mutated())
@settings(max_examples=300)
def test_mutated_messages(message):
    check(message)


@given(mutated())
@settings(max_examples=600)
def test_mutated_payloads(message):
    """As above, but with the checksum put right."""
    check(reseal(message))


@given(st.binary(max_size=200))
@example(b"cnv\x01")
def test_arbitrary_bytes(message):
    check(message)


@given(
    st.sampled_from(MESSAGES).map(lambda message: message[:24]),
    st.binary(max_size=300),
)
@settings(max_examples=300)
def test_arbitrary_payloads(head, payload):
    check(reseal(head + bytes(4) + payload))


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_no_prefix_and_no_bit_flip_passes(message):
    for length in range(len(message)):
        with pytest.raises(WireError):
            decode(message[:length])
    for bit in random.Random(0).sample(range(8 * len(message)), 200):
        flipped = bytearray(message)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireError):
            decode(flipped)


@pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
def test_resealed_prefixes(message):
    for length in range(28, len(message)):
        with pytest.raises(WireError):
            decode(reseal(message[:length]))


def check_header_byte(message, offset, values):
    """Decode a message with these values at a place of its header, under a valid checksum."""
    for value in values:
        changed = bytearray(message)
        changed[offset] = value
        if 16 <= offset < 20:  # the payload length is not put right here
            checksum = zlib.crc32(changed[:24] + changed[28:])
            check(bytes(changed[:24]) + struct.pack("<I", checksum) + bytes(changed[28:]))
        else:
            check(reseal(bytes(changed)))


@pytest.mark.parametrize("offset", range(3, 20))
def test_every_header_byte(offset):
    """Bits flipped alone, neighbours and both ends, in every header byte but the schema."""
    for message in MESSAGES:
        now = message[offset]
        flipped = [now ^ 1 << bit for bit in range(8)]
        near = [(now + 1) % 256, (now - 1) % 256, 0, 255]
        check_header_byte(message, offset, sorted({*flipped, *near}))


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(3, 20))
def test_every_value_of_every_header_byte(offset):
    for message in MESSAGES:
        check_header_byte(message, offset, range(256))

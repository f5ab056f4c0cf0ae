"""The range coder: what is written is read, at the price that theory says."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.errors import StructureError, TrailingError, TruncatedError
from conovel.models.wire.range_coder import (
    BitCounter,
    Decoder,
    Encoder,
    FrequencyTable,
    integer,
    raw,
    signed,
    symbol,
)


@st.composite
def decisions(draw):
    """A list of (function, arguments) that any coder can run."""
    kind = st.sampled_from(["bit", "uniform", "symbol", "bounded", "raw", "integer", "signed"])
    steps = []
    for name in draw(st.lists(kind, max_size=60)):
        slot = draw(st.integers(0, 3))
        if name == "bit":
            steps.append((name, slot, draw(st.integers(0, 1))))
        elif name == "uniform":
            total = draw(st.integers(1, 1 << 16))
            steps.append((name, total, draw(st.integers(0, total - 1))))
        elif name == "symbol":
            steps.append((name, slot, draw(st.integers(0, (1 << 12) - 1))))
        elif name == "bounded":
            low, value, high = sorted(draw(st.tuples(*[st.integers(0, 4095)] * 3)))
            steps.append((name, low, high, value))
        elif name == "raw":
            bits = draw(st.integers(0, 64))
            steps.append((name, bits, draw(st.integers(0, (1 << bits) - 1))))
        elif name == "integer":
            steps.append((name, draw(st.integers(0, 2**64 - 1))))
        else:
            steps.append((name, draw(st.integers(-(2**63), 2**63 - 1))))
    return steps


def run(coder, steps, blind=False):
    """Run the steps; a blind run passes zeros, as a reader has to."""
    tables = [FrequencyTable(str(i)) for i in range(4)]
    results = []
    for name, *settings, value in steps:
        given_value = 0 if blind else value
        if name == "bit":
            got = coder.bit(tables[settings[0]], 7, given_value)
        elif name == "uniform":
            got = coder.uniform(given_value, settings[0], "raw")
        elif name == "symbol":
            got = symbol(coder, tables[settings[0]], given_value, 12)
        elif name == "bounded":
            got = symbol(coder, tables[0], given_value, 12, *settings)
        elif name == "raw":
            got = raw(coder, given_value, settings[0], "raw")
        else:
            code = integer if name == "integer" else signed
            got = code(coder, tables[1], given_value)
        results.append(got)
    return results


@given(decisions())
def test_what_is_written_is_read(steps):
    encoder = Encoder()
    written = run(encoder, steps)
    decoder = Decoder(encoder.finish())
    assert written == [step[-1] for step in steps]
    assert run(decoder, steps, blind=True) == written
    decoder.finish()


@given(decisions())
def test_length_is_the_ideal_cost_and_a_byte(steps):
    encoder, tally = Encoder(), BitCounter()
    run(encoder, steps)
    run(tally, steps)
    length, bits = len(encoder.finish()), sum(tally.bits.values())
    # A step rounds the range of at least 2^24 down by less than one unit a decision.
    assert bits / 8 - 1e-3 <= length + 3  # 24 bits may still be in the range
    assert length <= bits / 8 + 1 + 1e-3 * (1 + len(steps))


@given(decisions(), st.binary(min_size=1, max_size=4))
def test_a_longer_payload_is_noticed(steps, more):
    encoder = Encoder()
    run(encoder, steps)
    decoder = Decoder(encoder.finish() + more)
    try:
        unchanged = run(decoder, steps, blind=True) == [step[-1] for step in steps]
    except (StructureError, TruncatedError):
        return
    if unchanged:  # more bytes may also change what is read: then re-encoding tells
        with pytest.raises(TrailingError):
            decoder.finish()


def test_a_shorter_payload_is_noticed():
    encoder, table = Encoder(), FrequencyTable("leaf")
    for i in range(64):
        symbol(encoder, table, i * 37 % 64, 6)
    payload = encoder.finish()
    for length in range(1, len(payload)):
        decoder, table = Decoder(payload[:length]), FrequencyTable("leaf")
        with pytest.raises(TruncatedError):
            [symbol(decoder, table, 0, 6) for _ in range(64)]


def test_a_carry_runs_through_full_bytes():
    """Choices whose range straddles one half fill the output with 0x7F 0xFF 0xFF …"""
    encoder, values = Encoder(), []
    while len(encoder.out) < 20:
        half = 1 << (8 * len(encoder.out) + 31)
        low = int.from_bytes(encoder.out, "big") << 32
        low += encoder.low
        values.append(next(v for v in (2, 1, 0) if low + encoder.range * v // 3 < half))
        encoder.uniform(values[-1], 3, "raw")
    assert bytes(encoder.out) == b"\x7f" + b"\xff" * 19
    values.append(2)
    encoder.uniform(2, 3, "raw")
    payload = encoder.finish()
    assert payload[:20] == b"\x80" + bytes(19)
    decoder = Decoder(payload)
    assert [decoder.uniform(0, 3, "raw") for _ in values] == values


def test_settled_bits_are_free():
    encoder = Encoder()
    for _ in range(1000):
        assert symbol(encoder, FrequencyTable("x"), 9, 8, 9, 9) == 9
    assert encoder.finish() == b"\0"


def test_no_possible_symbol():
    with pytest.raises(StructureError):
        symbol(Decoder(b"\0\0\0"), FrequencyTable("x"), 0, 3, 5, 4)
    with pytest.raises(StructureError):
        symbol(Decoder(b"\0\0\0"), FrequencyTable("x"), 0, 0, 1, 4)


def test_counts_adapt_and_stay_small():
    table, encoder = FrequencyTable("x"), Encoder()
    for _ in range(200_000):
        encoder.bit(table, 0, 1)
    assert 2**15 <= table.zeros[0] + table.ones[0] < 2**16
    assert table.zeros[0] >= 1
    assert len(encoder.finish()) < 20


def test_the_coder_reaches_the_entropy_of_its_source():
    rng = random.Random(1)
    bits = [int(rng.random() < 0.1) for _ in range(20_000)]
    encoder, tally = Encoder(), BitCounter()
    for coder in (encoder, tally):
        table = FrequencyTable("x")
        for bit in bits:
            coder.bit(table, 0, bit)
    share = sum(bits) / len(bits)
    entropy = -len(bits) * (share * math.log2(share) + (1 - share) * math.log2(1 - share))
    assert tally.entropy()["x"] == pytest.approx(entropy)
    # Learning one probability costs about log2(n) / 2 bits.
    assert entropy < 8 * len(encoder.finish()) < entropy + math.log2(len(bits)) + 16


def test_bytes_are_fixed():
    """The same bytes on every platform and version: a change here changes the format."""
    encoder, table = Encoder(), FrequencyTable("x")
    for i in range(12):
        symbol(encoder, table, i * i % 13, 4)
        integer(encoder, table, i**5)
        signed(encoder, table, -(i**3))
    assert encoder.finish().hex() == (
        "00040e3202a440c208f8978fb1fa4a2a3f446d88cf2214837e"
        "c2f28857b96a40a821623df14ad15a2ccf852714efde4b11"
    )

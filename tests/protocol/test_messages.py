"""Messages as bytes: one legal spelling, and nothing but named errors for the rest."""

from __future__ import annotations

import dataclasses
import zlib
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fake_link import table_of

from conovel.deciding.asking import Count, Step
from conovel.deciding.cell_totals import HISTOGRAMS_FIELD, READIES_FIELD
from conovel.deciding.cells import Histogram
from conovel.deciding.committed import REVEALS_FIELD, Reveal
from conovel.errors import (
    InputError,
    LocalProtocolError,
    MalformedMessageError,
    VersionMismatchError,
)
from conovel.protocol.messages import HEADER, as_name, decode, encode
from conovel.spec import fields
from conovel.spec.bodies import (
    BODIES,
    IN_ROUNDS,
    Abort,
    Kind,
    Left,
    Message,
    Model,
    Ready,
    Roster,
)
from conovel.spec.fields import layout_of
from conovel.spec.regimes import REGIMES
from conovel.spec.run_spec import RunSpec
from conovel.spec.settings import COMPOSITES
from conovel.stats.cells import N_CELLS

text = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=12)
names = st.lists(text, max_size=4, unique=True).map(lambda n: tuple(sorted(n)))
levels = st.fractions(min_value="1/1000", max_value="999/1000")
specs = (
    st.builds(
        RunSpec.of,
        regime=st.sampled_from([n for n, r in REGIMES.items() if not r.refusal("on_dropout")]),
        level=levels,
        composite=st.sampled_from(COMPOSITES),
        bits=st.sampled_from([None, 1, 16, "compact", "compact:300"]),
        seed=st.integers(0, 2**64),
        train_fraction=st.none() | levels,
        on_dropout=st.sampled_from(["abort", "conservative"]),
    )
    | st.builds(
        RunSpec.of,
        regime=st.sampled_from(["counts", "full", "joint"]),
        counting=st.just("committed"),
        liars=st.integers(0, 9),
        reveal_to=st.sampled_from(["coordinator", "members"]),
    )
    | st.builds(RunSpec.of, regime=st.just("together"), masks=st.booleans())
)
specs |= st.builds(RunSpec.of, regime=st.sampled_from(sorted(REGIMES)), level=levels)
VALUES = {
    fields.U16: st.integers(0, 2**16 - 1),
    fields.U32: st.integers(0, 2**32 - 1),
    fields.U64: st.integers(0, 2**64 - 1),
    fields.NAME: text,
    fields.TEXT: text,
    fields.DIGEST: st.binary(min_size=32, max_size=32),
    fields.FRACTION: st.fractions(min_value=0),
    fields.FRACTIONS: st.lists(st.fractions(min_value=0), max_size=4).map(tuple),
    fields.U32S: st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
    fields.NAMES: names,
    fields.BLOB: st.binary(max_size=200),
    fields.SPEC: specs,
    fields.COUNTS: st.integers(0, 2**64 - 1).map(lambda n: (n, *(0,) * (N_CELLS - 2), 7)),
}
VALUES |= {
    fields.DIGESTS: st.lists(VALUES[fields.DIGEST], max_size=3).map(tuple),
    fields.U64S: st.lists(VALUES[fields.U64], max_size=4).map(tuple),
}
reveals = st.builds(Reveal, *(VALUES[code] for code in layout_of(Reveal)))
VALUES |= {REVEALS_FIELD: st.lists(reveals, max_size=2).map(tuple)}
for field, kind in ((READIES_FIELD, Ready), (HISTOGRAMS_FIELD, Histogram)):
    some = st.builds(kind, *(VALUES[code] for code in layout_of(kind)))
    VALUES[field] = st.lists(some, max_size=2).map(tuple)
bodies = st.one_of(
    *(st.builds(body, *(VALUES[code] for code in layout_of(body))) for body in BODIES.values())
)


@st.composite
def messages(draw):
    body = draw(bodies)
    round_ = draw(st.integers(0, 2**32 - 1)) if body.kind in IN_ROUNDS else 0
    return Message(draw(st.binary(min_size=16, max_size=16)), draw(text), draw(text), round_, body)


def sealed(data):
    """Correct the length and the checksum of a changed message, as a forger would."""
    parts = list(HEADER.unpack(data[: HEADER.size]))
    payload = data[HEADER.size :]
    parts[5] = len(payload)
    parts[6] = zlib.crc32(payload, zlib.crc32(HEADER.pack(*parts)[:-4]))
    return HEADER.pack(*parts) + payload


def read_or_refuse(data):
    """Any bytes give a message that encodes to them, or one of two named errors."""
    try:
        message = decode(data, "north")
    except (MalformedMessageError, VersionMismatchError) as error:
        assert error.culprit == "north"  # noqa: PT017
        return None
    assert encode(message) == data
    return message


@given(messages())
def test_every_message_comes_back(message):
    assert decode(encode(message)) == message


def test_there_is_a_body_for_every_kind():
    assert set(BODIES) == set(Kind)


def test_the_bytes_of_a_count():
    data = encode(Message(bytes(range(16)), "north", "coordinator", 3, Count(258)))
    assert data == (
        b"CNVL\x06\x09"
        + bytes(range(16))
        + b"\x03\0\0\0"
        + b"\x1a\0\0\0"
        + bytes.fromhex("7961dc63")
        + b"\x05north\x0bcoordinator"
        + b"\x02\x01\0\0\0\0\0\0"
    )


def test_the_bytes_of_a_fraction_and_of_names():
    slope = encode(Message(bytes(16), "a", "b", 1, Step(1, Fraction(3, 1000))))
    assert slope.endswith(b"\x01\x03\x02\xe8\x03")
    roster = encode(Message(bytes(16), "a", "b", 0, Roster(("x", "yz"), 0, 0)))
    assert b"\x02\0\x01x\x02yz" in roster


@given(st.binary(max_size=300))
@example(b"")
def test_noise_is_refused(data):
    read_or_refuse(data)


@given(messages(), st.data())
def test_changed_bytes_are_refused(message, data):
    original = encode(message)
    at = data.draw(st.integers(0, len(original) - 1))
    changed = bytearray(original)
    changed[at] ^= data.draw(st.integers(1, 255))
    assert read_or_refuse(bytes(changed)) is None


@given(messages(), st.data())
def test_changed_bytes_under_a_correct_checksum_give_a_message_or_a_named_error(message, data):
    changed = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        cut = data.draw(st.integers(0, 4))
        changed[at : at + cut] = data.draw(st.binary(max_size=4))
    if len(changed) >= HEADER.size:
        read_or_refuse(sealed(bytes(changed)))


@given(messages(), st.data())
def test_another_kind_is_another_message_or_none(message, data):
    changed = bytearray(encode(message))
    changed[5] = data.draw(st.integers(0, 255))
    read_or_refuse(sealed(bytes(changed)))


@given(messages(), st.data())
def test_a_part_of_a_message_is_refused(message, data):
    whole = encode(message)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert read_or_refuse(part) is None
    if len(part) >= HEADER.size:
        assert read_or_refuse(sealed(part)) is None
    assert read_or_refuse(whole + b"\0") is None
    assert read_or_refuse(sealed(whole + b"\0")) is None


def message_of(payload, kind=Kind.COUNT, round_=1):
    header = HEADER.pack(b"CNVL", 6, kind, bytes(16), round_, 0, 0)
    return sealed(header + b"\x01a\x01b" + payload)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"CNVX" + message_of(bytes(8))[4:], "does not begin"),
        (message_of(bytes(8), kind=200), "kind 200 is unknown"),
        (message_of(bytes(8)) + b"\0", "announces 12 bytes and has 13"),
        (message_of(bytes(8))[:-1], "announces"),
        (message_of(bytes(8))[:-1] + b"\1", "checksum"),
        (message_of(bytes(9)), "goes on"),
        (message_of(bytes(7)), "too early"),
        (message_of(b"", round_=0), "too early"),
        (message_of(bytes(26), Kind.READY, round_=1), "no round"),
        (message_of(b"\xff\xff\xff\xff", Kind.MODEL, 0), "more than the 16777216"),
        (message_of(b"\x00\x00\x00\x01", Kind.MODEL, 0), "too early"),
        (message_of(b"\x41" + b"x" * 65, Kind.LEFT), "more than the 64"),
        (message_of(b"\x02\xff\xff", Kind.LEFT), "UTF-8"),
        (message_of(b"\x02\xc0\x80", Kind.LEFT), "UTF-8"),  # an overlong spelling
        (message_of(b"\x01\n", Kind.LEFT), "printable"),
        (message_of(b"\x03\xe2\x80\xae", Kind.LEFT), "printable"),  # turns the line around
        (message_of(b"\x01\x01\x00", Kind.BELOW), "denominator zero"),
        (message_of(b"\x01\x02\x01\x04", Kind.BELOW), "legal spelling"),  # 2/4
        (message_of(b"\x02\x01\x00\x01\x02", Kind.BELOW), "legal spelling"),  # leading zero
        (message_of(b"\x02\x00\x01y\x01x" + bytes(16), Kind.ROSTER, 0), "sorted"),
        (message_of(b"\x02\x00\x01x\x01x" + bytes(16), Kind.ROSTER, 0), "repeat"),
        (message_of(b"\xff\xff", Kind.ROSTER, 0), "more than the 200"),
    ],
)
def test_what_is_wrong_is_said(data, reason):
    with pytest.raises(MalformedMessageError, match=reason) as caught:
        decode(data, "south")
    assert caught.value.culprit == "south"
    assert "south" in str(caught.value)


def test_the_names_of_too_many_agents_are_refused():
    many = tuple(f"{i:05d}" for i in range(fields.MAX_AGENTS + 1))
    with pytest.raises(LocalProtocolError, match="200"):
        encode(Message(bytes(16), "a", "b", 0, Roster(many, 0, 0)))
    listed = len(many).to_bytes(2, "little") + b"".join(b"\x05" + n.encode() for n in many)
    with pytest.raises(MalformedMessageError, match="200"):
        decode(message_of(listed + bytes(16), Kind.ROSTER, 0))


def test_a_later_version_is_told_apart_from_noise():
    data = encode(Message(bytes(16), "a", "b", 0, Model(b"")))
    with pytest.raises(VersionMismatchError, match="version 7") as caught:
        decode(data[:4] + b"\x07" + data[5:] + b"whatever follows", "south")
    assert caught.value.culprit == "south"


@pytest.mark.parametrize(
    "message",
    [
        Message(bytes(15), "a", "b", 0, Count(1)),
        Message(bytes(16), "a" * 65, "b", 0, Count(1)),
        Message(bytes(16), "a", "b\0", 0, Count(1)),
        Message(bytes(16), "a", "b", -1, Count(1)),
        Message(bytes(16), "a", "b", 2**32, Count(1)),
        Message(bytes(16), "a", "b", 1, Ready(1, 1)),
        Message(bytes(16), "a", "b", 0, Count(-1)),
        Message(bytes(16), "a", "b", 0, Count(2**64)),
        Message(bytes(16), "a", "b", 0, Model(bytes(fields.MAX_MODEL_BYTES + 1))),
        Message(bytes(16), "a", "b", 0, Roster(("b", "a"), 0, 0)),
        Message(bytes(16), "a", "b", 0, Step(1, Fraction(-1, 2))),
        Message(bytes(16), "a", "b", 0, Step(1, Fraction(1, 1 << 2040))),
        Message(bytes(16), "a", "b", 0, Abort("", "", "x" * 513)),
        Message(bytes(16), "a", "b", 0, Left("\ud800")),
    ],
)
def test_what_has_no_byte_form_is_not_sent(message):
    with pytest.raises(LocalProtocolError, match="cannot be sent"):
        encode(message)


@pytest.mark.parametrize("name", ["", " ", "coordinator", "a\n", "x" * 65, "ü" * 33, 7, None])
def test_names_that_nobody_may_have(name):
    with pytest.raises(InputError):
        as_name(name)


@pytest.mark.parametrize("name", ["north", "Łódź 2", "x" * 64, "站点"])
def test_names_that_anybody_may_have(name):
    assert as_name(name) == name


def test_the_layout_in_the_documentation():
    forms = {getattr(fields, form): form.lower() for form in ("U16", "U32", "U64", "DIGEST")}
    forms |= {getattr(fields, form): form.lower() for form in ("NAME", "TEXT", "FRACTION")}
    forms |= {fields.NAMES: "names", fields.BLOB: "blob", fields.SPEC: "settings"}
    forms |= {fields.COUNTS: "counts", fields.FRACTIONS: "fractions", fields.U32S: "u32s"}
    forms |= {fields.DIGESTS: "digests"}
    forms |= {
        fields.U64S: "u64s",
        REVEALS_FIELD: "bodies",
        READIES_FIELD: "readies",
        HISTOGRAMS_FIELD: "histograms",
    }
    rows = table_of("protocol.md", "kind", "message", "from → to", "body")
    assert [(number, name, body) for number, name, _, body in rows] == [
        (
            str(int(kind)),
            kind.name,
            ", ".join(
                f"{part.name} {forms[code]}"
                for part, code in zip(dataclasses.fields(body), layout_of(body), strict=True)
            ),
        )
        for kind, body in sorted(BODIES.items())
    ]


def test_the_header_in_the_documentation():
    rows = table_of("protocol.md", "offset", "bytes", "header")
    widths = [int(width) for _, width, _ in rows]
    assert [int(offset) for offset, *_ in rows] == [sum(widths[:i]) for i in range(len(widths))]
    assert sum(widths) == HEADER.size

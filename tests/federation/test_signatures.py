"""Who signed a message or terms: nobody else can be believed to have, and the relay is named."""

import contextlib
import time

import pytest
from support.certificates import (
    OPERATOR,
    authority,
    credentials,
    issue,
    key_of,
    revocation_list,
    root,
)
from support.terms import changed_terms, make_terms, signed_terms, with_own_id

from conovel.errors import FederationError, InputError, SignatureError
from conovel.federation.apps import unencrypted_sender
from conovel.federation.certificates import (
    MAX_CERTIFICATE_BYTES,
    NO_ROLE,
    OPERATOR_ROLE,
    Credentials,
    load_certificate,
    read_revoked,
)
from conovel.federation.signatures import (
    HEADER,
    MAGIC,
    MessageSigner,
    MessageVerifier,
    as_der,
    check_signed_terms,
    sign,
    sign_terms,
    verify,
)
from conovel.learning.together.masks import Key, public_key
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import COORDINATOR, Message

RUN, OTHER = "ab" * 16, "cd" * 16
MESSAGE = b"a model of south" * 4
TERMS = make_terms(("north", "south"), regime="full")


def opened(data, sender="south", receiver="north", run_id=RUN, by=None):
    return MessageVerifier(by or authority(), receiver, run_id)(sender, data)


def sent(name="south", receiver="north", run_id=RUN, message=MESSAGE, own=None):
    return MessageSigner(own or credentials(name), run_id)(receiver, message)


def refused(data, **options):
    with pytest.raises(SignatureError) as caught:
        opened(data, **options)
    return caught.value


def test_a_signed_message_is_opened_and_the_certificate_comes_once():
    write, read = (
        MessageSigner(credentials("south"), RUN),
        MessageVerifier(authority(), "north", RUN),
    )
    first, second = write("north", MESSAGE), write("north", b"2")
    assert read("south", first) == MESSAGE
    assert read("south", second) == b"2"
    assert len(second) < 300 < len(first) - len(MESSAGE)
    assert len(write("west", b"2")) > 300  # another receiver does not have it


def test_without_a_certificate_nothing_is_believed():
    write = MessageSigner(credentials("south"), RUN)
    write("north", MESSAGE)
    assert "without a certificate" in str(refused(write("north", MESSAGE)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        MESSAGE,
        MAGIC,
        HEADER.pack(MAGIC, 0, 0),
        HEADER.pack(MAGIC, 1, 1),
        HEADER.pack(MAGIC, 2**16 - 1, 9) + bytes(2**17),
        HEADER.pack(MAGIC, 0, 2**16 - 1) + bytes(2**17),
    ],
)
def test_what_is_not_signed_is_refused_and_the_relay_is_named(data):
    error = refused(data)
    assert error.culprit == COORDINATOR
    assert "north got a message that is not signed by south" in str(error)
    assert "the relay, which is the coordinator, may have replaced it" in str(error)


def test_no_bit_can_be_changed():
    data = sent()
    step = max(1, len(data) // 150)
    for i in range(0, len(data), step):
        forged = bytearray(data)
        forged[i] ^= 1
        refused(bytes(forged))
    for n in range(0, len(data), step):
        refused(data[:n])
    refused(data + b"\x00")


def test_a_key_for_masks_cannot_be_replaced():
    """A relay with keys of its own in the middle would know the masks of both sites."""
    theirs, its_own = (Key(public_key(bytes(31) + end), 100, 10) for end in (b"s", b"r"))
    run_id = bytes.fromhex(RUN)
    messages = [encode(Message(run_id, "south", "north", 0, key)) for key in (theirs, its_own)]
    data = sent(message=messages[0])
    assert decode(opened(data)).body == theirs
    error = refused(data.replace(messages[0], messages[1]))
    assert error.culprit == COORDINATOR
    assert "may have replaced it" in str(error)
    refused(sent(message=messages[1], own=credentials("west")))  # signed by another member
    refused(data, run_id=OTHER)  # a key of an earlier run


@pytest.mark.parametrize(
    "other",
    [
        {"sender": "west"},
        {"receiver": "west"},
        {"run_id": OTHER},
        {"by": authority(name="another")},
    ],
)
def test_a_signature_is_for_one_sender_receiver_run_and_federation(other):
    assert opened(sent()) == MESSAGE
    refused(sent(), **other)


def as_south(certificate, key="south"):
    return Credentials("south", certificate, key_of(key), authority())


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (as_south(issue("south", by="another")), "was not issued by the authority"),
        (as_south(issue("west"), "west"), "is that of 'west', not of 'south'"),
        (as_south(issue("south", OPERATOR_ROLE)), "is not that of a site"),
        (as_south(issue("south", ca=True)), "is not that of a site"),
        (as_south(issue("south", days=(-9, -1))), "expired on"),
        (as_south(issue("south", days=(1, 9))), "is not valid before"),
        (as_south(issue("south"), "west"), "its signature does not fit"),
        (as_south(root()), "is that of 'authority'"),
    ],
)
def test_only_the_certificate_of_the_sender_counts(own, why):
    assert why in str(refused(sent(own=own)))


def test_a_revoked_certificate_does_not_count():
    own = credentials("south")
    assert "was revoked" in str(refused(sent(), by=authority(own.certificate)))
    again = as_south(issue("south"))  # a new certificate for the same site
    assert opened(sent(own=again), by=authority(own.certificate)) == MESSAGE


def test_a_certificate_cannot_change_in_a_run():
    read = MessageVerifier(authority(), "north", RUN)
    assert read("south", sent()) == MESSAGE
    with pytest.raises(SignatureError, match="another certificate than before"):
        read("south", sent(own=as_south(issue("south"))))


def test_a_site_itself_is_named_at_the_coordinator():
    assert refused(b"noise", receiver=COORDINATOR).culprit == "south"


def test_contexts_are_not_mixed_up():
    key = key_of("south")
    signature = sign(key, ("ab", "c"), b"d")
    assert verify(key.public_key(), ("ab", "c"), b"d", signature)
    for context, data in [
        (("a", "bc"), b"d"),
        (("ab",), b"cd"),
        (("ab", "c", ""), b"d"),
        ((), b""),
    ]:
        assert not verify(key.public_key(), context, data, signature)
    assert not verify(key.public_key(), ("ab", "c"), b"d", signature * 9)


@pytest.mark.parametrize("data", [b"", b"\x30\x82", bytes(100), bytes(MAX_CERTIFICATE_BYTES + 1)])
def test_what_is_not_a_certificate(data):
    with pytest.raises(InputError):
        load_certificate(data)


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_no_byte_of_a_certificate_crashes_the_reader():
    good = as_der(credentials("south").certificate)
    for i in range(len(good)):
        with contextlib.suppress(InputError):
            load_certificate(good[:i] + bytes([good[i] ^ 0xFF]) + good[i + 1 :])


def test_a_list_of_revoked_certificates(tmp_path):
    path = tmp_path / "revoked.pem"
    assert read_revoked(path, root()) == frozenset()
    path.write_bytes(revocation_list(7, 8))
    assert read_revoked(path, root()) == {7, 8}
    for wrong in (revocation_list(7, by="another"), b"", b"noise", bytes(2**21)):
        path.write_bytes(wrong)
        with pytest.raises(FederationError, match="is not a list of revoked certificates"):
            read_revoked(path, root())


# Terms


def operator(role=OPERATOR_ROLE, by="authority", key=OPERATOR, **options):
    return Credentials(OPERATOR, issue(OPERATOR, role, by, **options), key_of(key), authority())


def test_terms_are_read_with_the_name_of_the_operator():
    found = check_signed_terms(sign_terms(TERMS, operator()), authority())
    assert (found.terms, found.operator) == (TERMS, OPERATOR)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (operator(key="south"), "are not what ana@example.org has signed"),
        (operator(days=(-9, -1)), "its certificate expired"),
        (operator(by="another"), "was not issued by the authority of this federation"),
        (operator(role=NO_ROLE), "is not that of an operator"),
        (operator(role="member"), "is not that of an operator"),
        (credentials("south"), "is not that of an operator"),
    ],
)
def test_only_an_operator_can_sign_terms(own, why):
    with pytest.raises(SignatureError, match="the terms of the run are refused") as caught:
        check_signed_terms(sign_terms(TERMS, own), authority())
    assert why in str(caught.value)


def test_a_revoked_operator_cannot():
    own = operator()
    with pytest.raises(SignatureError, match="was revoked"):
        check_signed_terms(sign_terms(TERMS, own), authority(own.certificate))


@pytest.mark.parametrize("name", sorted({*TERMS.to_dict(), "level", "seed"} - {"spec"}))
def test_no_term_can_be_changed_and_no_id_chosen(name):
    signed = sign_terms(TERMS, operator())
    other = {"level": "1/7", "agents": ["north", "west"], "run_seconds": 7.0}
    value = other.get(name, 7)
    changed = changed_terms(signed["terms"], **{name: value})
    with pytest.raises(SignatureError, match="are not what"):
        check_signed_terms(signed | {"terms": changed}, authority())
    if name in ("agents", "level", "seed", "run_seconds"):  # with others they are no terms
        # Nor can an operator put other terms under an id that was used.
        with pytest.raises(SignatureError, match="the run id does not follow"):
            check_signed_terms(signed_terms(changed), authority())
        found = check_signed_terms(signed_terms(with_own_id(changed)), authority())
        assert found.terms.run_id != TERMS.run_id


def test_an_id_that_was_chosen_is_refused():
    chosen = make_terms(("north", "south"), run_id=RUN)
    with pytest.raises(SignatureError, match="the run id does not follow"):
        check_signed_terms(sign_terms(chosen, operator()), authority())


@pytest.mark.parametrize(("later", "fits"), [(0, True), (23, True), (25, False), (-1, False)])
def test_terms_of_another_day_are_refused(later, fits):
    signed = sign_terms(TERMS, operator(days=(-9, 9)))
    now = time.time() + later * 3600
    if fits:
        assert check_signed_terms(signed, authority(), now).terms == TERMS
    else:
        with pytest.raises(SignatureError, match="too long ago, or a clock is wrong"):
            check_signed_terms(signed, authority(), now)


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "no"},
        {"signature": 7},
        {"signature": "00" * 2000},
        {"certificate": "00"},
        {"certificate": "0" * 2**20},
        {"terms": float("nan")},
        {"terms": {1: {2: b"3"}}},
        {"more": 1},
    ],
)
def test_what_cannot_be_read_is_refused(change):
    with pytest.raises(SignatureError, match="the terms of the run are refused"):
        check_signed_terms(sign_terms(TERMS, operator()) | change, authority())


def test_half_an_encryption_is_none():
    from nvflare.collab.runtime.defs import MSG_CHANNEL, MSG_TOPIC
    from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
    from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey

    call = {StreamHeaderKey.CHANNEL: MSG_CHANNEL, StreamHeaderKey.TOPIC: MSG_TOPIC}
    south = call | {Key.ORIGIN: "south.job"}
    assert unencrypted_sender(south | {Key.SECURE: True}) == "south"
    assert unencrypted_sender(south | {Key.ENCRYPTED: True}) == "south"
    assert unencrypted_sender(south | {Key.ENCRYPTED: 1, Key.SECURE: 1}) == "south"
    assert unencrypted_sender(south | {Key.ENCRYPTED: True, Key.SECURE: True}) is None
    assert unencrypted_sender(call | {Key.ORIGIN: "server.job"}) is None
    assert unencrypted_sender(south | {StreamHeaderKey.TOPIC: "another"}) is None

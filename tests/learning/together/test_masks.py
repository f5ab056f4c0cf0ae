"""Masks: they cancel exactly, hide every number, and hostile keys are refused."""

import pickle
import sys

import numpy as np
import pytest
from scipy import stats

from conovel.errors import KeyRefusedError, LocalProtocolError, MissingExtraError
from conovel.learning.together.masks import (
    Masks,
    Purpose,
    added,
    agree,
    check_keys,
    mask_of,
    pair_key,
    public_key,
)

RUN_ID = bytes(range(16))
# Every point of small order below 2^255 - 19 (RFC 7748, section 6.1, lets them be refused).
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
]


def secret_of(number):
    return int(number).to_bytes(32, "big")


def masks_for(n_agents, run_id=RUN_ID, first=1):
    names = [f"agent{j:03d}" for j in range(n_agents)]
    secrets = {name: secret_of(first + j) for j, name in enumerate(names)}
    keys = {name: public_key(secret) for name, secret in secrets.items()}
    return {
        name: agree(name, secrets[name], run_id, names, {p: keys[p] for p in names if p != name})
        for name in names
    }


def numbers_of(seed, n_agents, n=50):
    rng = np.random.default_rng(seed)
    return [rng.integers(-(2**62), 2**62, n).astype("<i8").tobytes() for _ in range(n_agents)]


def masked(parties, parts, round_=1, among=None):
    among = among or list(parties)
    return [
        parties[name].masked(part, Purpose.LEARN, round_, among)
        for name, part in zip(among, parts, strict=True)
    ]


def words(data):
    return np.frombuffer(data, "<u8")


def test_a_public_key_is_that_of_rfc_7748():
    secret = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    public = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert public_key(secret).hex() == public


@pytest.mark.parametrize("n_agents", [1, 2, 3, 30])
def test_totals_are_the_same_bit_for_bit(n_agents):
    parties, parts = masks_for(n_agents), numbers_of(1, n_agents)
    for round_ in (1, 2):
        assert added(masked(parties, parts, round_)) == added(parts)


def test_masks_cancel_within_a_part_of_the_agents():
    parties, parts = masks_for(5), numbers_of(2, 3)
    some = ["agent000", "agent002", "agent003"]
    assert added(masked(parties, parts, among=some)) == added(parts)
    assert masked(masks_for(5), parts[:1], among=some[:1]) == parts[:1]  # alone: in the clear


def test_without_one_agent_nothing_of_the_sum_is_left():
    parties, parts = masks_for(3), numbers_of(3, 3)
    sent = masked(parties, parts)
    assert not np.any(words(added(sent[:2])) == words(added(parts[:2])))


def test_every_number_of_a_message_is_another_in_another_run():
    """The rows are the same, and the secrets are not."""
    zeros = [bytes(8 * 200)] * 3
    first, again = (masked(masks_for(3, first=first), zeros)[0] for first in (1, 100))
    assert not np.any(words(first) == words(again))
    assert not np.any(words(first) == 0)


@pytest.mark.parametrize("n_agents", [2, 30])
def test_bytes_of_a_message_look_uniform(n_agents):
    """A chi-square test with 255 degrees of freedom; the unmasked numbers fail it by far."""
    parts = [np.arange(2000, dtype="<i8").tobytes()] * n_agents
    [sent, *_] = masked(masks_for(n_agents), parts)
    for data, is_uniform in ((sent, True), (parts[0], False)):
        counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
        assert bool(stats.chisquare(counts).pvalue > 0.001) is is_uniform


def test_two_messages_of_a_run_have_nothing_in_common():
    """Each purpose, round, and thing that was heard gives other masks."""
    pair, heard = bytes(32), bytes(32)
    ways = [
        (pair, heard, Purpose.LEARN, 1),
        (pair, heard, Purpose.LEARN, 2),
        (pair, heard, Purpose.DECIDE, 1),
        (pair, b"h" * 32, Purpose.LEARN, 1),
        (b"p" * 32, heard, Purpose.LEARN, 1),
    ]
    made = [mask_of(*way, 100) for way in ways]
    for j, one in enumerate(made):
        assert mask_of(*ways[j], 100).tolist() == one.tolist()
        assert not any(np.any(one == other) for other in made[:j])


def test_what_two_agents_share_depends_on_the_run_the_names_and_everybody():
    a, b = secret_of(1), secret_of(2)
    names = ["a", "b", "c"]

    def of_a(run_id=RUN_ID, peer="b", key=None, name="a", agents=names):
        return pair_key(a, peer, key or public_key(b), name, run_id, agents)

    assert of_a() == pair_key(b, "a", public_key(a), "b", RUN_ID, names)
    others = {
        of_a(run_id=bytes(16)),
        of_a(peer="c"),
        of_a(name="c"),
        of_a(agents=["a", "b"]),
        of_a(key=public_key(secret_of(3))),
    }
    assert len(others | {of_a()}) == 6


def test_agents_that_were_told_different_things_have_masks_that_do_not_cancel():
    parties, parts = masks_for(3), numbers_of(4, 3)
    for name, one in parties.items():
        one.hear(b"other totals" if name == "agent001" else b"totals")
    assert not np.any(words(added(masked(parties, parts))) == words(added(parts)))
    parties = masks_for(3)
    for one in parties.values():
        one.hear(b"totals")
    assert added(masked(parties, parts)) == added(parts)


def test_no_mask_is_used_twice():
    parties, parts = masks_for(2), numbers_of(5, 2)
    masked(parties, parts)
    with pytest.raises(LocalProtocolError, match="used up"):
        masked(parties, parts)


@pytest.mark.parametrize("number", LOW_ORDER)
def test_points_of_low_order_are_refused(number):
    key = number.to_bytes(32, "little")
    check_keys(public_key(secret_of(1)), {"b": key})
    with pytest.raises(KeyRefusedError, match="agrees with every other") as caught:
        agree("a", secret_of(1), RUN_ID, ["a", "b"], {"b": key})
    assert caught.value.culprit == "b"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"", "one legal form"),
        (bytes(31), "one legal form"),
        (bytes(33), "one legal form"),
        ((2**255 - 19).to_bytes(32, "little"), "one legal form"),  # zero, spelled otherwise
        (b"\xff" * 32, "one legal form"),
        (public_key(secret_of(1)), "key of this agent"),
        (public_key(secret_of(3)), "key of b"),
    ],
)
def test_hostile_keys_are_refused(key, words):
    keys = {"b": public_key(secret_of(3)), "c": key}
    with pytest.raises(KeyRefusedError, match=words) as caught:
        agree("a", secret_of(1), RUN_ID, ["a", "b", "c"], keys)
    assert caught.value.culprit == "c"


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_has_32_bytes(secret):
    with pytest.raises(LocalProtocolError, match="32 random bytes"):
        public_key(secret)


def test_a_record_does_not_show_what_is_shared():
    parties = masks_for(2)
    [pair] = parties["agent000"].pairs.values()
    assert repr(pair) not in repr(parties["agent000"])
    assert pickle.loads(pickle.dumps(parties["agent000"])) == parties["agent000"]


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingExtraError, match=r"conovel\[masks\]"):
        public_key(secret_of(1))


def test_an_agent_alone_shares_nothing():
    assert agree("a", secret_of(1), RUN_ID, ["a"], {}) == Masks("a", {})

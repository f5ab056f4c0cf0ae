"""Masks that cancel in a sum: the coordinator learns the total and nobody's numbers.

Each pair of agents agrees on a secret (X25519) that nobody else has. In each round both derive the
same random numbers from it. One of them adds these to what it sends, the other subtracts them,
modulo 2^64. All that the coordinator gets from an agent is then uniformly random, and in the sum
over all agents the masks are gone, exactly.

The numbers of a round also depend on everything that the coordinator has told the two agents so
far (:meth:`Masks.hear`). If it told them different things, their masks do not cancel, and the sum
is random. So a coordinator cannot put one question to one agent and another to the rest.

docs/decisions/0034-masks.md says what is left to a coordinator that has agents on its side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import KeyRefusedError, LocalProtocolError, MissingExtraError
from conovel.spec.bodies import Body, Kind
from conovel.spec.fields import DIGEST, U64

SECRET_BYTES = KEY_BYTES = 32
_PRIME = 2**255 - 19  # coordinates of a point are below it
_PURPOSE = b"conovel masks 1"

Words = NDArray[np.uint64]


class Purpose(IntEnum):
    """What the numbers of a round are for: each has masks of its own."""

    LEARN = 1
    DECIDE = 2


@dataclass(frozen=True)
class Key(Body):
    """Agent to agent: its public key of this run, and its numbers of rows."""

    kind = Kind.KEY
    public: Annotated[bytes, DIGEST]
    n_null: Annotated[int, U64]
    n_test: Annotated[int, U64]


def public_key(secret: bytes) -> bytes:
    """Return the public key that goes with a secret of 32 random bytes.

    Examples
    --------
    >>> public_key(bytes(31) + b"a").hex()[:16]
    '193c4d673b002add'
    """
    public: bytes = _private(secret).public_key().public_bytes_raw()
    return public


def check_keys(own: bytes, peers: Mapping[str, bytes]) -> None:
    """Refuse keys that no honest peer has: malformed, reflected, or the same at two peers.

    Raises
    ------
    KeyRefusedError
        It names the peer.
    """
    owners = {own: ""}
    for name, key in sorted(peers.items()):
        if len(key) != KEY_BYTES or int.from_bytes(key, "little") >= _PRIME:
            raise KeyRefusedError(f"{name} sent a key that is not in its one legal form", name)
        if key in owners:
            whose = owners[key] or "this agent"
            raise KeyRefusedError(f"{name} sent the key of {whose} as its own", name)
        owners[key] = name


def pair_key(
    secret: bytes, peer: str, key: bytes, name: str, run_id: bytes, agents: Sequence[str]
) -> bytes:
    """Return the 32 bytes that an agent and a peer share in one run, and nobody else has.

    They depend on the run, on both names and keys, and on everybody who takes part.

    Parameters
    ----------
    secret : bytes
        That of the agent `name`.
    peer, key
        The other agent of the pair, and its public key.
    run_id : bytes
    agents : sequence of str
        The roster.

    Raises
    ------
    KeyRefusedError
        If the key is a point with which every agreement gives the same.
    """
    x25519, hashes, hkdf, _ = _primitives()
    try:
        shared = _private(secret).exchange(x25519.X25519PublicKey.from_public_bytes(key))
    except ValueError:
        raise KeyRefusedError(f"{peer} sent a key that agrees with every other", peer) from None
    both = sorted([(name.encode(), public_key(secret)), (peer.encode(), key)])
    parts = [run_id, *(part for one in both for part in one), *(one.encode() for one in agents)]
    info = _PURPOSE + _digest(*parts)
    derived: bytes = hkdf.HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared)
    return derived


def mask_of(pair: bytes, heard: bytes, purpose: Purpose, round_: int, n: int) -> Words:
    """Return the n numbers of 64 bits that two agents have in common for one round.

    Parameters
    ----------
    pair : bytes
        See :func:`pair_key`.
    heard : bytes
        A digest of all that the coordinator has told the agents so far.
    purpose, round_
        No two messages of a run have both in common.
    n : int

    Examples
    --------
    >>> one = mask_of(bytes(32), bytes(32), Purpose.LEARN, 1, 3)
    >>> bool((one == mask_of(bytes(32), bytes(32), Purpose.LEARN, 2, 3)).any())
    False
    """
    _, hashes, hkdf, ciphers = _primitives()
    place = bytes([purpose]) + round_.to_bytes(4, "little")
    key = hkdf.HKDFExpand(hashes.SHA256(), 32, info=_PURPOSE + place + heard).derive(pair)
    nonce = bytes(4) + place + bytes(7)  # the first four bytes count blocks
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, nonce), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * n)), dtype="<u8").astype(np.uint64)


@dataclass
class Masks:
    """What one agent adds to its numbers, round by round.

    Attributes
    ----------
    name : str
    pairs : mapping of bytes
        What it shares with each peer, see :func:`pair_key`. Never written down.
    heard : bytes
        A digest of all that the coordinator has told so far.
    """

    name: str
    pairs: Mapping[str, bytes] = field(repr=False)
    heard: bytes = bytes(32)
    _used: set[tuple[Purpose, int]] = field(default_factory=set, repr=False)

    def hear(self, data: bytes) -> None:
        """Take note of what the coordinator told all agents: later masks depend on it."""
        self.heard = _digest(self.heard, data)

    def masked(
        self, numbers: bytes, purpose: Purpose, round_: int, among: Collection[str]
    ) -> bytes:
        """Return whole numbers of 64 bits with masks that cancel in the sum over some agents.

        Parameters
        ----------
        numbers : bytes
            Little-endian.
        purpose, round_
            Each pair is used once: numbers under the same mask twice would give their difference
            away.
        among : collection of str
            The agents whose numbers are added up, the own one included.
        """
        if (purpose, round_) in self._used:
            raise LocalProtocolError(f"the masks of round {round_} are used up")
        self._used.add((purpose, round_))
        total = np.frombuffer(numbers, dtype="<u8").astype(np.uint64)
        for peer in sorted(set(among) - {self.name}):
            mask = mask_of(self.pairs[peer], self.heard, purpose, round_, total.size)
            total = total + mask if self.name < peer else total - mask  # modulo 2^64
        return total.astype("<u8").tobytes()


def agree(
    name: str, secret: bytes, run_id: bytes, agents: Sequence[str], keys: Mapping[str, bytes]
) -> Masks:
    """Agree on a secret with every peer, from the public keys that came.

    Parameters
    ----------
    name : str
    secret : bytes
        32 random bytes that the agent has for this run alone.
    run_id : bytes
    agents : sequence of str
        The roster.
    keys : mapping of bytes
        The public keys of all peers.
    """
    check_keys(public_key(secret), keys)
    pairs = {
        peer: pair_key(secret, peer, key, name, run_id, agents)
        for peer, key in sorted(keys.items())
    }
    return Masks(name, pairs)


def added(parts: Sequence[bytes]) -> bytes:
    """Add up the numbers of several agents modulo 2^64: masks cancel, and no order matters."""
    arrays = [np.frombuffer(part, dtype="<u8") for part in parts]
    total: Words = np.sum(arrays, axis=0, dtype="<u8")
    return total.tobytes()


def _private(secret: bytes) -> Any:
    x25519, *_ = _primitives()
    if len(secret) != SECRET_BYTES:
        raise LocalProtocolError(f"masks need a secret of {SECRET_BYTES} random bytes")
    return x25519.X25519PrivateKey.from_private_bytes(secret)


def _digest(*parts: bytes) -> bytes:
    """Return SHA-256 over parts, each behind its length: other parts have other bytes."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def _primitives() -> Any:
    """Load the functions of `cryptography` when the first mask is made."""
    try:
        from cryptography.hazmat.primitives import ciphers, hashes  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers import algorithms  # noqa: F401, PLC0415
        from cryptography.hazmat.primitives.kdf import hkdf  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("cryptography", "masks") from None
    return x25519, hashes, hkdf, ciphers

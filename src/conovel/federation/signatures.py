r"""Signatures from party to party, which a relay between them cannot make or change.

All messages between sites pass through the coordinator's machine. NVFlare encrypts them from site
to site, but it also delivers a message that says of itself that it is not encrypted. So a site
signs what it sends with the key of its kit, and the receiver checks that with the sender's
certificate (:mod:`conovel.federation.certificates`).

A signature covers a *context* and the data. The context says what the data are for, so that a
signature cannot be used for anything else: for a message, the run, the sender and the receiver.

A signed message has these bytes::

    magic        4    b"CNS\x01"
    c            2    bytes of the certificate, little endian; 0 if it was sent before in this run
    s            2    bytes of the signature
    certificate  c    DER
    signature    s    RSA-PSS with SHA-256
    message           the rest
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Meta

from conovel.errors import InputError, SignatureError
from conovel.federation.certificates import (
    KEY_BITS,
    MAX_CERTIFICATE_BYTES,
    NO_ROLE,
    OPERATOR_ROLE,
    Authority,
    Credentials,
    load_certificate,
    name_of,
)
from conovel.federation.terms import Terms
from conovel.spec.bodies import COORDINATOR
from conovel.spec.records import as_record
from conovel.spec.run_spec import canonical_json

MAGIC = b"CNS\x01"
HEADER = struct.Struct("<4sHH")
MAX_SIGNATURE_BYTES = KEY_BITS[1] // 8
OVERHEAD = HEADER.size + MAX_CERTIFICATE_BYTES + MAX_SIGNATURE_BYTES  # the most, per message
_PADDING: Any = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


def sign(key: RSAPrivateKey, context: Sequence[str], data: bytes) -> bytes:
    """Sign data for one purpose."""
    return key.sign(_bytes(context, data), _PADDING, hashes.SHA256())


def verify(key: RSAPublicKey, context: Sequence[str], data: bytes, signature: bytes) -> bool:
    """Return whether the holder of a key signed these data for this purpose."""
    if len(signature) > MAX_SIGNATURE_BYTES or not KEY_BITS[0] <= key.key_size <= KEY_BITS[1]:
        return False
    try:
        key.verify(signature, _bytes(context, data), _PADDING, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def public_key(certificate: x509.Certificate) -> RSAPublicKey:
    """Return the key of a certificate that :meth:`Authority.objection` has passed."""
    key = certificate.public_key()
    if not isinstance(key, RSAPublicKey):
        raise InputError("the certificate has no RSA key")
    return key


def as_der(certificate: x509.Certificate) -> bytes:
    """Return the bytes of a certificate as they are sent."""
    return certificate.public_bytes(Encoding.DER)


class MessageSigner:
    """Signs what a site sends in one run."""

    def __init__(self, own: Credentials, run_id: str) -> None:
        self._own, self._run_id = own, run_id
        self._certificate = as_der(own.certificate)
        self._told: set[str] = set()  # who has the certificate
        self._lock = threading.Lock()

    def __call__(self, receiver: str, message: bytes) -> bytes:
        """Return the signed message; the first to each receiver carries the certificate."""
        context = _context(self._run_id, self._own.name, receiver)
        signature = sign(self._own.key, context, message)
        with self._lock:
            certificate = b"" if receiver in self._told else self._certificate
            self._told.add(receiver)
        header = HEADER.pack(MAGIC, len(certificate), len(signature))
        return b"".join((header, certificate, signature, message))


class MessageVerifier:
    """Checks the signatures of what a party gets in one run."""

    def __init__(self, authority: Authority, receiver: str, run_id: str) -> None:
        self._authority, self._receiver, self._run_id = authority, receiver, run_id
        self._known: dict[str, x509.Certificate] = {}
        self._lock = threading.Lock()

    def __call__(self, sender: str, data: bytes) -> bytes:
        """Return the message inside signed bytes that `sender` signed for this party and run.

        Else a :class:`SignatureError` names the relay: only the relay can deliver a message in the
        name of another site.
        """
        try:
            certificate, signature, message = _split(data)
            certified = self._certificate(sender, certificate)
        except InputError as error:
            raise self._error(sender, str(error)) from None
        context = _context(self._run_id, sender, self._receiver)
        if not verify(public_key(certified), context, message, signature):
            raise self._error(sender, "its signature does not fit")
        with self._lock:
            self._known[sender] = certified
        return message

    def _certificate(self, sender: str, sent: bytes) -> x509.Certificate:
        with self._lock:
            certified = self._known.get(sender)
        if sent:
            certificate = load_certificate(sent)
            if objection := self._authority.objection(certificate, sender, NO_ROLE):
                raise InputError(objection)
            if certified is not None and certified != certificate:
                raise InputError("it came with another certificate than before")
            return certificate
        if certified is None:
            raise InputError("it came without a certificate")
        return certified

    def _error(self, sender: str, why: str) -> SignatureError:
        if self._receiver == COORDINATOR:  # it has a connection to the sender, without a relay
            return SignatureError(f"a message of {sender} was refused: {why}", sender)
        return SignatureError(
            f"{self._receiver} got a message that is not signed by {sender} ({why}): the relay,"
            f" which is the {COORDINATOR}, may have replaced it",
            COORDINATOR,
        )


def not_encrypted(receiver: str, sender: str) -> SignatureError:
    """Return the error of a message between sites that came without encryption."""
    return SignatureError(
        f"{receiver} got a message in the name of {sender} that is not encrypted from site to"
        f" site: the relay, which is the {COORDINATOR}, may have replaced it",
        COORDINATOR,
    )


def _context(run_id: str, sender: str, receiver: str) -> tuple[str, ...]:
    return "message", run_id, sender, receiver


def _bytes(context: Sequence[str], data: bytes) -> bytes:
    # Their number, and the length of each, come first: no two contexts give the same bytes.
    parts = [b"conovel", *(text.encode() for text in context)]
    lengths = struct.pack(f"<{1 + len(parts)}I", len(parts), *map(len, parts))
    return b"".join((lengths, *parts, data))


def _split(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return certificate, signature and message; every length is checked before it is used."""
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise InputError("it has no signature")
    _, c, s = HEADER.unpack_from(data)
    if c > MAX_CERTIFICATE_BYTES or s > MAX_SIGNATURE_BYTES or len(data) < HEADER.size + c + s:
        raise InputError("its signature has a wrong length")
    ends = HEADER.size + c, HEADER.size + c + s
    return data[HEADER.size : ends[0]], data[ends[0] : ends[1]], data[ends[1] :]


_HEXADECIMAL = r"\A([0-9a-f]{2})*\Z"
MAX_TERMS_BYTES = 1 << 22  # a schema of many categories is the largest part
MAX_AGE_SECONDS = 24 * 3600  # from the signature to the begin of the run
MAX_AHEAD_SECONDS = 600  # how far the clock of the operator may be ahead


@dataclass(frozen=True)
class _Signed:
    terms: Any
    signature: Annotated[str, Meta(max_length=2 * MAX_SIGNATURE_BYTES, pattern=_HEXADECIMAL)]
    certificate: Annotated[str, Meta(max_length=2 * MAX_CERTIFICATE_BYTES, pattern=_HEXADECIMAL)]


@dataclass(frozen=True)
class SignedTerms:
    """Terms, and the name of the operator who signed them."""

    terms: Terms
    operator: str


def sign_terms(terms: Terms, own: Credentials) -> dict[str, Any]:
    """Return terms with an operator's signature, in JSON types."""
    plain = terms.to_dict()
    return {
        "terms": plain,
        "signature": sign(own.key, ("terms",), canonical_json(plain)).hex(),
        "certificate": as_der(own.certificate).hex(),
    }


def check_signed_terms(plain: Any, authority: Authority, now: float | None = None) -> SignedTerms:
    """Read what :func:`sign_terms` gave.

    A :class:`SignatureError` says that no operator of the federation has signed these terms, that
    they are from another day, or that the run id is not theirs; an :class:`InputError`, that an
    operator has signed what are no terms.
    """
    now = time.time() if now is None else now
    try:
        parts = as_record(_Signed, plain)
    except InputError:
        raise _refusal("they are not signed by an operator") from None
    terms, signature = parts.terms, bytes.fromhex(parts.signature)
    try:
        content = canonical_json(terms)
        signer = load_certificate(bytes.fromhex(parts.certificate))
    except (InputError, TypeError, ValueError, RecursionError) as error:
        raise _refusal(f"they cannot be read ({type(error).__name__})") from None
    if len(content) > MAX_TERMS_BYTES:
        raise _refusal(f"they have more than {MAX_TERMS_BYTES:,} bytes")
    operator = name_of(signer)
    at = datetime.fromtimestamp(now, UTC)
    if objection := authority.objection(signer, operator, OPERATOR_ROLE, at):
        raise _refusal(f"whoever signed them is no operator here: {objection}")
    if not verify(public_key(signer), ("terms",), content, signature):
        raise _refusal(f"they are not what {operator} has signed")
    read = Terms.from_dict(terms)
    if not read.has_own_id:
        raise _refusal("the run id does not follow from them")
    if not -MAX_AGE_SECONDS <= read.asked_at - now <= MAX_AHEAD_SECONDS:
        then = datetime.fromtimestamp(read.asked_at, UTC)
        raise _refusal(
            f"{operator} signed them at {then:%Y-%m-%d %H:%M} UTC, and here it is"
            f" {at:%Y-%m-%d %H:%M}: the run was asked for too long ago, or a clock is wrong"
        )
    return SignedTerms(read, operator)


def terms_of(plain: Any) -> Mapping[str, Any]:
    """Return the terms inside signed terms, unchecked, to say which run is refused."""
    read = plain.get("terms") if isinstance(plain, Mapping) else None
    return read if isinstance(read, Mapping) else {}


def _refusal(why: str) -> SignatureError:
    return SignatureError(f"the terms of the run are refused: {why}", COORDINATOR)

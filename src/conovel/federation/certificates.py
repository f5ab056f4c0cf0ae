"""Certificates of a federation: who a party is, and whether its certificate still counts.

Every certificate is issued by the federation's own authority, directly. NVFlare writes the name of
a party into the common name, and the role of an operator into the unstructured name.

What the authority keeps::

    authority/project.json       the plan: who takes part
    authority/NAME/state/        the key of the authority, as NVFlare's provisioning keeps it
    authority/issued.json        every certificate: whose, its serial number, until when, revoked;
                                 and whether parties make their keys themselves
    authority/revoked.pem        the list of revoked certificates (an X.509 CRL), for all parties
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from conovel.errors import FederationError, InputError
from conovel.federation.processes import REVOKED_FILE
from conovel.rows.storage import write_json, write_text
from conovel.spec.records import as_record, read_json

WARN_DAYS = 30
OPERATOR_ROLE = "lead"  # the only role that NVFlare lets submit a job in our kits
NO_ROLE = ""  # of sites and of the coordinator
MAX_CERTIFICATE_BYTES = 1 << 13
MAX_LIST_BYTES = 1 << 20  # of a list of revoked certificates: about 25,000 of them
# What the library raises for bytes that are no certificate, request or list.
UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.AttributeNotFound,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
KEY_BITS = (2048, 8192)  # fewer are weak; more take long to check


@dataclass(frozen=True)
class Authority:
    """The root certificate of a federation, and the serial numbers that it has revoked."""

    root: x509.Certificate
    revoked: frozenset[int] = frozenset()

    @classmethod
    def of_kit(cls, kit: Path) -> Authority:
        """Read the root and the list of revoked certificates of a kit."""
        root = read_certificate(kit / "startup" / "rootCA.pem")
        return cls(root, read_revoked(kit / "startup" / REVOKED_FILE, root))

    def objection(
        self, certificate: x509.Certificate, name: str, role: str, now: datetime | None = None
    ) -> str:
        """Return why a certificate does not show that its holder is `name` in `role`, if so."""
        reasons = self._objections(certificate, name, role, now or datetime.now(UTC))
        return next(reasons, "")

    def _objections(
        self, certificate: x509.Certificate, name: str, role: str, now: datetime
    ) -> Iterator[str]:
        if not _is_issued_by(certificate, self.root):
            yield "its certificate was not issued by the authority of this federation"
        if (whose := name_of(certificate)) != name:
            yield f"its certificate is that of {whose!r}, not of {name!r}"
        if role_of(certificate) != role or is_authority(certificate):
            yield f"its certificate is not that of {_KINDS[role]}"
        if not isinstance(certificate.public_key(), RSAPublicKey):
            yield "its certificate has no RSA key"
        for one in (certificate, self.root):
            if now < one.not_valid_before_utc:
                yield f"its certificate is not valid before {one.not_valid_before_utc:%Y-%m-%d}"
            if now > one.not_valid_after_utc:
                yield f"its certificate expired on {one.not_valid_after_utc:%Y-%m-%d}"
        if certificate.serial_number in self.revoked:
            yield "its certificate was revoked"


_KINDS = {OPERATOR_ROLE: "an operator", NO_ROLE: "a site"}


@dataclass(frozen=True)
class Credentials:
    """What a kit gives a party to show who it is."""

    name: str
    certificate: x509.Certificate
    key: RSAPrivateKey
    authority: Authority


def read_credentials(kit: Path) -> Credentials:
    """Read a kit's certificate and key; :class:`FederationError` if they do not fit."""
    startup = kit / "startup"
    base = base_of(kit)
    authority = Authority.of_kit(kit)
    certificate = read_certificate(startup / f"{base}.crt")
    key = read_key(startup / f"{base}.key")
    if not _is_issued_by(certificate, authority.root):
        raise FederationError(
            f"the certificate of {kit} was not issued by the authority of its federation"
        )
    if key.public_key() != certificate.public_key():
        raise FederationError(f"the key of {kit} does not belong to its certificate")
    return Credentials(name_of(certificate), certificate, key, authority)


def check_certificate(kit: Path, name: str | None = None) -> str:
    """Check a kit's certificate and key; return a warning if it expires soon, else no text."""
    own = read_credentials(kit)
    if name is not None and own.name != name:
        raise FederationError(f"the certificate of {kit} is that of {own.name!r}, not of {name!r}")
    if own.certificate.serial_number in own.authority.revoked:
        raise FederationError(f"the certificate of {kit} was revoked: ask for another one")
    begins, ends = own.certificate.not_valid_before_utc, own.certificate.not_valid_after_utc
    now = datetime.now(UTC)
    if now < begins:
        raise FederationError(f"the certificate of {kit} is not valid before {begins:%Y-%m-%d}")
    if now > ends:
        raise FederationError(f"the certificate of {kit} expired on {ends:%Y-%m-%d}: renew it")
    if ends - now < timedelta(days=WARN_DAYS):
        return f"the certificate of {kit} expires on {ends:%Y-%m-%d}: renew it soon"
    return ""


def load_certificate(data: bytes) -> x509.Certificate:
    """Read a certificate in DER form that another party sent; else :class:`InputError`."""
    if not 0 < len(data) <= MAX_CERTIFICATE_BYTES:
        raise InputError(f"a certificate has 1 to {MAX_CERTIFICATE_BYTES:,} bytes")
    try:
        certificate = x509.load_der_x509_certificate(data)
        require_readable(certificate)
    except UNREADABLE as error:
        raise InputError(f"what is not a certificate: {type(error).__name__}") from None
    return certificate


def name_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the name of the party that a certificate is for; empty if it has not exactly one."""
    return _attribute(certificate.subject, x509.NameOID.COMMON_NAME)


def role_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the role in a certificate; empty for sites and the coordinator."""
    return _attribute(certificate.subject, x509.NameOID.UNSTRUCTURED_NAME)


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether a certificate may issue others."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return constraints.value.ca


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate as people compare it: in groups of four digits."""
    return grouped(sha256(certificate.public_bytes(Encoding.DER)).hexdigest())


def grouped(digits: str) -> str:
    """Write digits in groups of four, as people compare them."""
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def base_of(kit: Path) -> str:
    """Return how the certificate and key of a kit are called: `server` or `client`."""
    return "server" if (kit / "startup" / "fed_server.json").exists() else "client"


def read_key(path: Path) -> RSAPrivateKey:
    """Read a private key that is not encrypted."""
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, TypeError, ValueError) as error:
        raise FederationError(f"{path.parent} has no key that can be read: {error}") from None
    if not isinstance(key, RSAPrivateKey):
        raise FederationError(f"{path} is not an RSA key")
    return key


def read_revoked(path: Path, root: x509.Certificate) -> frozenset[int]:
    """Read the serial numbers of a list of revoked certificates; none if there is no list.

    A list that the authority has not signed is an error: it may hide a revocation.
    """
    if not path.exists():
        return frozenset()
    try:
        if path.stat().st_size > MAX_LIST_BYTES:
            raise ValueError(f"more than {MAX_LIST_BYTES:,} bytes")
        revoked = x509.load_pem_x509_crl(path.read_bytes())
        key = root.public_key()
        if not isinstance(key, RSAPublicKey) or not revoked.is_signature_valid(key):
            raise ValueError("its signature is not that of the authority")
        return frozenset(entry.serial_number for entry in revoked)
    except UNREADABLE as error:
        raise FederationError(
            f"{path} is not a list of revoked certificates of this federation: {error}"
        ) from None


def _attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    values = [str(attribute.value) for attribute in name.get_attributes_for_oid(oid)]
    # Two names, or two roles, would let the holder choose.
    return values[0] if len(values) == 1 else "" if not values else "(several)"


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate of a kit."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        require_readable(certificate)
    except OSError as error:
        raise FederationError(f"{path.parents[1]} is not a complete kit: {error}") from None
    except UNREADABLE as error:
        raise FederationError(f"{path} is not a certificate: {error}") from None
    return certificate


def require_readable(certificate: x509.Certificate) -> None:
    """Read what is asked of a certificate later: the library parses a field when it is read."""
    name_of(certificate), role_of(certificate), is_authority(certificate)
    certificate.public_key(), certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _is_issued_by(certificate: x509.Certificate, root: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(root)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


ISSUED_FILE = "issued.json"


@dataclass(frozen=True)
class Issued:
    """One certificate; times are in ISO form, `revoked` is empty while it counts."""

    party: str
    serial: str
    until: str
    by_request: bool
    revoked: str = ""

    @property
    def counts(self) -> bool:
        """Whether it is neither revoked nor expired."""
        return not self.revoked and datetime.fromisoformat(self.until) > datetime.now(UTC)


@dataclass(frozen=True)
class AuthorityKey:
    """The certificate and the private key of the authority."""

    root: x509.Certificate
    key: RSAPrivateKey


def read_authority(authority: Path, name: str) -> AuthorityKey:
    """Read the key of the authority of the federation `name`."""
    path = authority / name / "state" / "cert.json"
    try:
        plain = json.loads(path.read_text())
        root = x509.load_pem_x509_certificate(plain["root_cert"].encode())
        key = load_pem_private_key(plain["root_pri_key"].encode(), None)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FederationError(f"{authority} has no key of an authority: {error}") from None
    if not isinstance(key, RSAPrivateKey):
        raise FederationError(f"{path} does not hold an RSA key")
    return AuthorityKey(root, key)


@dataclass(frozen=True)
class _IssuedFile:
    by_request: bool = False  # as files of an earlier version, of which there are none
    certificates: tuple[Issued, ...] = ()


def begin_issued(authority: Path, by_request: bool) -> None:
    """Make the list of certificates of a new federation."""
    write_json(authority / ISSUED_FILE, asdict(_IssuedFile(by_request)))


def read_issued(authority: Path) -> tuple[Issued, ...]:
    """Read which certificates the authority has issued; none that an earlier version did."""
    return _read(authority).certificates


def gets_its_key_here(authority: Path, party: str) -> bool:
    """Return whether the key of a party is made where the authority is, and not by itself.

    A party of which every certificate was revoked gets nothing by itself any more.
    """
    content = _read(authority)
    own = [one for one in content.certificates if one.party == party]
    if not own:
        return not content.by_request
    return any(not one.by_request and not one.revoked for one in own)


def _read(authority: Path) -> _IssuedFile:
    path = authority / ISSUED_FILE
    if not path.exists():
        return _IssuedFile()
    try:
        return as_record(_IssuedFile, read_json(path.read_bytes(), str(path)), str(path))
    except (OSError, InputError) as error:
        raise FederationError(f"{path} cannot be read: {error}") from None


def note_issued(
    authority: Path, party: str, certificate: x509.Certificate, by_request: bool
) -> None:
    """Note a certificate that was issued."""
    until = certificate.not_valid_after_utc.isoformat()
    one = Issued(party, f"{certificate.serial_number:x}", until, by_request)
    _write(authority, [*read_issued(authority), one])


def note_kit(authority: Path, party: str, kit: Path) -> None:
    """Note the certificate of a kit whose key was made here."""
    certificate = read_certificate(kit / "startup" / f"{base_of(kit)}.crt")
    note_issued(authority, party, certificate, by_request=False)


def revoke(authority: Path, name: str, party: str) -> list[str]:
    """Revoke every certificate of a party that counts; return their serial numbers."""
    now = datetime.now(UTC)
    issued = read_issued(authority)
    serials = [one.serial for one in issued if one.party == party and one.counts]
    if not serials:
        raise FederationError(
            f"there is no certificate of {party!r} to revoke: none that counts was issued here"
        )
    moment = now.isoformat(timespec="seconds")
    after = [replace(one, revoked=moment) if one.serial in serials else one for one in issued]
    _write(authority, after)
    _write_list(authority, read_authority(authority, name), after, now)
    return serials


def _write(authority: Path, issued: Sequence[Issued]) -> None:
    content = replace(_read(authority), certificates=tuple(issued))
    write_json(authority / ISSUED_FILE, asdict(content))


def _write_list(
    authority: Path, own: AuthorityKey, issued: Sequence[Issued], now: datetime
) -> None:
    revoked = [one for one in issued if one.revoked]
    built = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(own.root.subject)
        .last_update(now)
        .next_update(own.root.not_valid_after_utc)  # a party uses the last list it was given
        .add_extension(x509.CRLNumber(len(revoked)), critical=False)
    )
    for one in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(int(one.serial, 16))
        entry = entry.revocation_date(datetime.fromisoformat(one.revoked))
        built = built.add_revoked_certificate(entry.build())
    pem = built.sign(own.key, hashes.SHA256()).public_bytes(Encoding.PEM)
    write_text(authority / REVOKED_FILE, pem.decode("ascii"))

"""What the authority of a federation keeps: its key, the certificates it issued and revoked.

::

    authority/project.json       the plan: who takes part
    authority/NAME/state/        the key of the authority, as NVFlare's provisioning keeps it
    authority/issued.json        every certificate: whose, its serial number, until when, revoked;
                                 and whether parties make their keys themselves
    authority/revoked.pem        the list of revoked certificates (an X.509 CRL), for all parties
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from conovel.errors import FederationError, InputError
from conovel.federation.certificates import base_of, read_certificate
from conovel.federation.processes import REVOKED_FILE
from conovel.rows.storage import write_json, write_text
from conovel.spec.records import as_record, read_json

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

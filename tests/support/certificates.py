"""Authorities and certificates for tests, as NVFlare's provisioning makes them."""

from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from conovel.federation.certificates import NO_ROLE, Authority, Credentials

OPERATOR = "ana@example.org"


@cache
def key_of(name):
    """A key for every name, made once."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def subject(name, role=NO_ROLE):
    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]
    if role:
        parts.append(x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, role))
    return x509.Name(parts)


def issue(name, role=NO_ROLE, by="authority", days=(-1, 30), ca=False, key=None):
    """Issue a certificate that is valid between two days from now."""
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject(name, role))
        .issuer_name(subject(by))
        .public_key((key or key_of(name)).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )
    if ca:
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    return built.sign(key_of(by), hashes.SHA256())


@cache
def root(name="authority"):
    return issue(name, by=name, ca=True)


def authority(*revoked, name="authority"):
    """The authority of a federation, which has revoked these certificates."""
    return Authority(root(name), frozenset(one.serial_number for one in revoked))


@cache
def credentials(name, role=NO_ROLE, by="authority"):
    """What the kit of a party holds."""
    return Credentials(name, issue(name, role, by), key_of(name), authority(name=by))


def revocation_list(*serials, by="authority"):
    """A list of revoked certificates, as bytes."""
    now = datetime.now(UTC)
    built = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(subject(by))
        .last_update(now)
        .next_update(now + timedelta(days=1))
    )
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        built = built.add_revoked_certificate(entry.build())
    return built.sign(key_of(by), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

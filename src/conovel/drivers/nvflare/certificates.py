"""Checks a kit's certificate before anything connects, so that errors are easy to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from conovel.errors import FederationError

WARN_DAYS = 30


def check_certificate(kit: Path, name: str | None = None) -> str:
    """Check a kit's certificate and key; return a warning if it expires soon, else no text.

    Parameters
    ----------
    kit : Path
    name : str, optional
        Name of the party that it must belong to.

    Raises
    ------
    FederationError
        If the certificate belongs to another party, has expired, was issued by another
        authority than the kit's, or does not belong to the key.
    """
    from cryptography import x509  # noqa: PLC0415
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        load_pem_private_key,
    )

    startup = kit / "startup"
    base = "server" if (startup / "server.crt").exists() else "client"
    try:
        certificate = x509.load_pem_x509_certificate((startup / f"{base}.crt").read_bytes())
        authority = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
        key: Any = load_pem_private_key((startup / f"{base}.key").read_bytes(), None)
        certificate.verify_directly_issued_by(authority)
    except (OSError, TypeError) as error:
        raise FederationError(f"{kit} is not a complete kit: {error}") from None
    except (ValueError, InvalidSignature):
        raise FederationError(
            f"the certificate of {kit} was not issued by the authority of its federation"
        ) from None
    whose = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    if name is not None and whose != name:
        raise FederationError(f"the certificate of {kit} is that of {whose!r}, not of {name!r}")
    if key.public_key() != certificate.public_key():
        raise FederationError(f"the key of {kit} does not belong to its certificate")
    return _validity(kit, certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _validity(kit: Path, begins: datetime, ends: datetime) -> str:
    now = datetime.now(UTC)
    if now < begins:
        raise FederationError(f"the certificate of {kit} is not valid before {begins:%Y-%m-%d}")
    if now > ends:
        raise FederationError(f"the certificate of {kit} expired on {ends:%Y-%m-%d}: renew it")
    if ends - now < timedelta(days=WARN_DAYS):
        return f"the certificate of {kit} expires on {ends:%Y-%m-%d}: renew it soon"
    return ""

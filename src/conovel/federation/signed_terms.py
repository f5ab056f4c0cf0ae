"""Terms with the signature of the operator who asks for the run.

The coordinator passes terms on. It can neither make terms up nor change them: every site checks
that an operator of its federation signed them, and that the run id follows from them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conovel.errors import InputError, SignatureError
from conovel.federation.certificates import (
    MAX_CERTIFICATE_BYTES,
    OPERATOR_ROLE,
    Authority,
    Credentials,
    load_certificate,
    name_of,
)
from conovel.federation.signatures import (
    MAX_SIGNATURE_BYTES,
    as_der,
    public_key,
    sign,
    verify,
)
from conovel.federation.terms import Terms
from conovel.spec.bodies import COORDINATOR
from conovel.spec.seeds import canonical_json

MAX_TERMS_BYTES = 1 << 22  # a schema of many categories is the largest part
MAX_AGE_SECONDS = 24 * 3600  # from the signature to the begin of the run
MAX_AHEAD_SECONDS = 600  # how far the clock of the operator may be ahead
_KEYS = frozenset({"terms", "signature", "certificate"})


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

    Parameters
    ----------
    plain : object
        What came from another party.
    authority : Authority
        Of the federation.
    now : float, optional
        Seconds since 1970; the present if not given.

    Raises
    ------
    SignatureError
        If no operator of the federation has signed these terms, they are from another day, or the
        run id is not theirs.
    InputError
        If an operator has signed what are no terms.
    """
    now = time.time() if now is None else now
    terms, signature, certificate = _parts(plain)
    try:
        content = canonical_json(terms)
        signer = load_certificate(certificate)
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
    found = Terms.from_dict(terms)
    if not found.has_own_id:
        raise _refusal("the run id does not follow from them")
    if not -MAX_AGE_SECONDS <= found.asked_at - now <= MAX_AHEAD_SECONDS:
        then = datetime.fromtimestamp(found.asked_at, UTC)
        raise _refusal(
            f"{operator} signed them at {then:%Y-%m-%d %H:%M} UTC, and here it is"
            f" {at:%Y-%m-%d %H:%M}: the run was asked for too long ago, or a clock is wrong"
        )
    return SignedTerms(found, operator)


def terms_of(plain: Any) -> Mapping[str, Any]:
    """Return the terms inside signed terms, unchecked, to say which run is refused."""
    found = plain.get("terms") if isinstance(plain, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _parts(plain: Any) -> tuple[Any, bytes, bytes]:
    """Return terms, signature and certificate; lengths are checked before anything is read."""
    if not isinstance(plain, Mapping) or set(plain) != _KEYS:
        raise _refusal("they are not signed by an operator")
    parts = []
    for name, most in (("signature", MAX_SIGNATURE_BYTES), ("certificate", MAX_CERTIFICATE_BYTES)):
        text = plain[name]
        if not isinstance(text, str) or len(text) > 2 * most:
            raise _refusal(f"their {name} has a wrong length")
        try:
            parts.append(bytes.fromhex(text))
        except ValueError:
            raise _refusal(f"their {name} is not hexadecimal") from None
    return plain["terms"], parts[0], parts[1]


def _refusal(why: str) -> SignatureError:
    return SignatureError(f"the terms of the run are refused: {why}", COORDINATOR)

"""Enrolment by request: a party makes its private key itself, and the key never leaves it.

::

    at the party        request  ─► NAME.key (stays), NAME.csr (goes to the authority)
    at the authority    enrol    ─► a kit without a key, signed by the authority
    at the party        accept   ─► the kit with the key, after all was checked

NVFlare 2.9 has ``nvflare cert request``, ``approve`` and ``package`` for this purpose. They are
not used: they assemble the kit at the party, without our hardening, and keep copies of requests in
the home folder. The kit and the fields of the certificate are those of NVFlare's provisioning.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from conovel.errors import FederationError, InputError
from conovel.federation.certificates import (
    UNREADABLE,
    Authority,
    AuthorityKey,
    base_of,
    check_certificate,
    fingerprint,
    grouped,
    name_of,
    note_issued,
    read_authority,
    read_certificate,
    read_issued,
    read_key,
    role_of,
)
from conovel.federation.kits import (
    COORDINATOR,
    FederationPlan,
    forget_keys,
    give_kit,
    kind_of,
    make_private,
    provision,
    read_plan,
)
from conovel.federation.signatures import sign, verify
from conovel.rows.storage import write_json
from conovel.spec.records import as_record, read_json
from conovel.stats.words import listed

SIGNED_FILE = "kit.signed.json"
N_BITS = 2048  # NVFlare's encryption from site to site has room for keys of this length only
MAX_REQUEST_BYTES = 1 << 14
MAX_SIGNED_BYTES = 1 << 20
MAX_FILES = 10_000  # in a folder that is handed out
MAX_FOLDER_BYTES = 64 << 20


def make_request(name: str, folder: Path) -> tuple[Path, str]:
    """Make a key and a certificate signing request for a party; return it and its digest.

    The authority compares the digest with what the party says by another way, such as by
    telephone.
    """
    kind = kind_of(name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = generate_private_key(public_exponent=65537, key_size=N_BITS)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_key(folder / f"{name}.key", pem)
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, name),
            x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, kind),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA256())
    path = folder / f"{name}.csr"
    path.write_bytes(signed.public_bytes(Encoding.PEM))
    return path, key_digest(key.public_key())


def enrol(
    authority: Path, request: Path, digest: str | None = None, renew: bool = False
) -> tuple[Path, str]:
    """Issue the certificate that a party has requested, and make its kit, without a key.

    Returned are the folder to hand out, and the digest of the key in the request.
    """
    plan = read_plan(authority)
    name, key = read_request(request, plan)
    received = key_digest(key)
    if digest is not None and _digits(digest) != _digits(received):
        raise FederationError(f"the digest of {request} is {received}: it was replaced on its way")
    if not renew and any(one.counts for one in read_issued(authority) if one.party == name):
        raise FederationError(
            f"{name} has a certificate that counts: revoke that first, or give --renew if {name}"
            " asks for another one"
        )
    own = read_authority(authority, plan.name)
    made = provision(authority, plan.name)
    try:
        party = give_kit(plan, authority.parent, made, name)
    finally:
        forget_keys(made)
    startup = party / "kit" / "startup"
    base = base_of(party / "kit")
    (startup / f"{base}.key").unlink()  # of NVFlare's provisioning, for a key of its own
    certificate = _reissue(read_certificate(startup / f"{base}.crt"), key, own)
    (startup / f"{base}.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    note_issued(authority, name, certificate, by_request=True)
    write_json(party / SIGNED_FILE, asdict(_signed(party, name, own)))
    make_private(party)
    return party, received


def accept(party: Path, key: Path, expected: str | None = None) -> tuple[str, str]:
    """Put a party's own key into the kit that the authority made; all is checked before.

    Returned are whose kit it is, and the fingerprint of the authority's certificate.
    """
    kit = party / "kit"
    own = read_key(key)
    files = _files(party)  # before any of them is read
    base = base_of(kit)
    root = Authority.of_kit(kit).root
    certificate = read_certificate(kit / "startup" / f"{base}.crt")
    name = name_of(certificate)
    if expected is not None and _digits(expected) != _digits(fingerprint(root)):
        raise FederationError(
            f"the fingerprint of the authority of {party} is {fingerprint(root)}: this kit is not"
            " from the authority that you know"
        )
    _check_signed(party, files, COORDINATOR if base == "server" else name, root)
    if own.public_key() != certificate.public_key():
        raise FederationError(
            f"the key {key} does not belong to the certificate of {party}: it was issued for"
            " another request"
        )
    target = kit / "startup" / f"{base}.key"
    target.unlink(missing_ok=True)
    _write_key(target, key.read_bytes())
    make_private(party)
    check_certificate(kit)
    return name, fingerprint(root)


def read_request(path: Path, plan: FederationPlan) -> tuple[str, RSAPublicKey]:
    """Read a request and check it against the plan; return the party's name and its key."""
    try:
        if path.stat().st_size > MAX_REQUEST_BYTES:
            raise ValueError(f"more than {MAX_REQUEST_BYTES:,} bytes")
        request = x509.load_pem_x509_csr(path.read_bytes())
        if not request.is_signature_valid:
            raise ValueError("its signature does not fit its key")
        key = request.public_key()
        name, kind = name_of(request), role_of(request)
    except UNREADABLE as error:
        raise FederationError(f"{path} is not a request for a certificate: {error}") from None
    if not isinstance(key, RSAPublicKey) or key.key_size != N_BITS:
        raise FederationError(f"{path} does not have an RSA key of {N_BITS} bits")
    if key.public_numbers().e != 65537:
        raise FederationError(f"{path} has an RSA key with another exponent than 65537")
    planned = {COORDINATOR: COORDINATOR}
    planned |= dict.fromkeys(plan.sites, "site") | dict.fromkeys(plan.operators, "operator")
    if planned.get(name) != kind:
        raise FederationError(
            f"{path} asks for {name!r} as {kind!r}, and the plan has no such party: it has"
            f" {', '.join(planned)}"
        )
    return name, key


def key_digest(key: RSAPublicKey) -> str:
    """Return the SHA-256 of a public key as people compare it."""
    plain = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return grouped(hashlib.sha256(plain).hexdigest())


def _reissue(made: x509.Certificate, key: RSAPublicKey, own: AuthorityKey) -> x509.Certificate:
    """Issue a certificate of NVFlare's provisioning again, for another key."""
    built = (
        x509.CertificateBuilder()
        .subject_name(made.subject)
        .issuer_name(made.issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
    )
    for extension in made.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectKeyIdentifier):
            value = x509.SubjectKeyIdentifier.from_public_key(key)
        built = built.add_extension(value, extension.critical)
    return built.sign(own.key, hashes.SHA256())


@dataclass(frozen=True)
class _SignedKit:
    party: str
    files: dict[str, str]  # the SHA-256 of each
    signature: str  # of the authority, in hexadecimal digits


def _canonical(files: Mapping[str, str]) -> bytes:
    return json.dumps(files, sort_keys=True).encode()


def _signed(party: Path, name: str, own: AuthorityKey) -> _SignedKit:
    files = _digests(_files(party))
    return _SignedKit(name, files, sign(own.key, ("kit", name), _canonical(files)).hex())


def _check_signed(
    party: Path, files: Mapping[str, Path], name: str, root: x509.Certificate
) -> None:
    """Refuse a folder with any file that is not as the authority made it for this party."""
    path = party / SIGNED_FILE
    try:
        plain = read_json(path.read_bytes()[: MAX_SIGNED_BYTES + 1], path.name, MAX_SIGNED_BYTES)
        signed = as_record(_SignedKit, plain, path.name)
        content, signature = _canonical(signed.files), bytes.fromhex(signed.signature)
        key, context = root.public_key(), ("kit", signed.party)
        if not isinstance(key, RSAPublicKey) or not verify(key, context, content, signature):
            raise ValueError("the authority has not signed it")
        if signed.party != name:
            raise ValueError(f"it was signed for {signed.party!r}, and its kit is of {name!r}")
    except (OSError, ValueError) as error:
        raise FederationError(
            f"{party} is not a kit that `federation enrol` made: {error}"
        ) from None
    as_signed, now = signed.files, _digests(files)
    if changed := sorted(n for n in {*as_signed, *now} if as_signed.get(n) != now.get(n)):
        raise FederationError(
            f"{party} was changed on its way, it is not as the authority signed it:"
            f" {listed(changed, 3)}. Accept what you got in a folder of its own; if the party has"
            " one already, move kit/ there afterwards"
        )


def _files(party: Path) -> dict[str, Path]:
    """Name the files of a folder that is handed out, without the list of signed ones and the key.

    A link is refused: it could lead to any file of the party, or to a device without an end.
    """
    files, n_bytes = {}, 0
    paths = sorted(islice(party.rglob("*"), MAX_FILES + 1))
    for path in paths:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise FederationError(
                f"{path} is a link or a device: what the authority made has neither"
            )
        files[path.relative_to(party).as_posix()] = path
        n_bytes += status.st_size
    if len(paths) > MAX_FILES or n_bytes > MAX_FOLDER_BYTES:
        raise FederationError(
            f"{party} has more than {MAX_FILES:,} files or {MAX_FOLDER_BYTES >> 20} MB: accept"
            " what the authority gave you in a folder of its own"
        )
    files.pop(SIGNED_FILE, None)
    files.pop(f"kit/startup/{base_of(party / 'kit')}.key", None)  # the party's own
    return files


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def _write_key(path: Path, pem: bytes) -> None:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise InputError(f"{path} exists already: a key is never overwritten") from None
    with os.fdopen(handle, "wb") as file:
        file.write(pem)


def _digits(text: str) -> str:
    return "".join(text.split()).replace(":", "").lower()

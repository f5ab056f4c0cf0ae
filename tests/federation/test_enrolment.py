"""Enrolment by request, and revocation: no private key travels, and what is revoked is refused."""

import json
import os
import shutil

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from support.federation import SCORER
from support.terms import make_terms
from typer.testing import CliRunner

from conovel.cli import app
from conovel.errors import FederationError, InputError, SignatureError
from conovel.federation import enrolment, kits, loopback
from conovel.federation.certificates import (
    Authority,
    check_certificate,
    read_credentials,
    read_issued,
    read_revoked,
)
from conovel.federation.enrolment import accept, enrol, make_request
from conovel.federation.kits import FederationPlan, make_federation, renew_federation
from conovel.federation.run_records import RunRecords
from conovel.federation.signatures import (
    MessageSigner,
    MessageVerifier,
    check_signed_terms,
    sign_terms,
)

OPERATOR = "ana@example.org"
PLAN = FederationPlan("f", "hub.example.org", ("north", "south"), (OPERATOR,))
PARTIES = ("north", OPERATOR, "coordinator")


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    """A federation of which three parties have made their keys themselves."""
    folder = tmp_path_factory.mktemp("enrolled")
    # NVFlare's provisioning takes seconds; one is enough for all requests here.
    made = folder / "f" / "authority" / "f" / "prod_00"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "forget_keys", lambda made: None)
        patch.setattr(enrolment, "forget_keys", lambda made: None)
        patch.setattr(enrolment, "provision", lambda *args: made)
        assert make_federation(PLAN, folder / "f", by_request=True) == []
        for name in PARTIES:
            request, digest = make_request(name, folder / "keys")
            party, found = enrol(folder / "f" / "authority", request, digest)
            assert found == digest
            shutil.copytree(party, folder / "accepted" / name)
            accept(folder / "accepted" / name, folder / "keys" / f"{name}.key")
    kits.forget_keys(made)
    return folder


def private_keys(folder):
    return [
        path for path in folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()
    ]


def test_only_the_party_has_its_key(enrolled):
    (authority,) = private_keys(enrolled / "f")
    assert authority.name == "cert.json"
    assert set(json.loads(authority.read_text())) == {"root_cert", "root_pri_key"}
    for name in PARTIES:
        (key,) = private_keys(enrolled / "accepted" / name)
        assert key.read_bytes() == (enrolled / "keys" / f"{name}.key").read_bytes()
    for path in [*enrolled.rglob("*.key"), *(enrolled / "accepted").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize("name", PARTIES)
def test_a_kit_is_complete_after_it_was_accepted(enrolled, name):
    whose = "hub.example.org" if name == "coordinator" else name
    assert check_certificate(enrolled / "accepted" / name / "kit", whose) == ""


def test_an_enrolled_operator_can_sign_terms_and_a_site_cannot(enrolled):
    terms = make_terms(("north", "south"))
    authority = Authority.of_kit(enrolled / "accepted" / "north" / "kit")
    own = read_credentials(enrolled / "accepted" / OPERATOR / "kit")
    assert check_signed_terms(sign_terms(terms, own), authority).operator == OPERATOR
    own = read_credentials(enrolled / "accepted" / "north" / "kit")
    with pytest.raises(SignatureError, match="is not that of an operator"):
        check_signed_terms(sign_terms(terms, own), authority)


def test_a_second_request_needs_renew_and_renewing_all_gives_nothing(enrolled):
    authority = enrolled / "f" / "authority"
    with pytest.raises(FederationError, match="has a certificate that counts"):
        enrol(authority, enrolled / "keys" / "north.csr")
    with pytest.raises(FederationError, match="no key of this federation was made here"):
        renew_federation(enrolled / "f")


def add_to(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("00")


def link_away(folder, name):
    """Put a link without an end in the place of a file."""
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")


def sign_for(kit, name):
    path = kit.parent / "kit.signed.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"party": name}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kit: (kit / "startup" / "fed_client.json").write_text("{}"), "fed_client.json"),
        (lambda kit: (kit / "local" / "custom.py").write_text("1"), "local/custom.py"),
        (lambda kit: (kit / "local" / "resources.json").unlink(), "local/resources.json"),
        (lambda kit: (kit.parent / "site.toml").write_text("[site]"), "'site.toml'"),
        (lambda kit: (kit.parent / "site.toml").unlink(), "'site.toml'"),
        (lambda kit: add_to(kit.parent, "state/seed-secret"), "'state/seed-secret'"),
        (lambda kit: add_to(kit, "startup/client.key.py"), "'kit/startup/client.key.py'"),
        (lambda kit: sign_for(kit, "south"), "the authority has not signed it"),
        (lambda kit: (kit / "local" / "more").symlink_to("/dev/zero"), "is a link or a device"),
        (lambda kit: link_away(kit, "startup/rootCA.pem"), "is a link or a device"),
        (lambda kit: link_away(kit, "startup/client.crt"), "is a link or a device"),
        (lambda kit: link_away(kit.parent, "kit.signed.json"), "is a link or a device"),
        (lambda kit: os.mkfifo(kit / "local" / "pipe"), "is a link or a device"),
        (lambda kit: (kit / "empty").symlink_to("local"), "is a link or a device"),
        (lambda kit: (kit / "big").write_bytes(bytes(65 << 20)), "or 64 MB"),
        (lambda kit: [(kit / str(i)).touch() for i in range(10_001)], "more than 10,000 files"),
        (lambda kit: (kit.parent / "kit.signed.json").write_text("{}"), "is not a kit that"),
        (lambda kit: (kit.parent / "kit.signed.json").unlink(), "is not a kit that"),
    ],
)
def test_a_kit_that_was_changed_on_its_way_is_refused(enrolled, tmp_path, change, said):
    party = tmp_path / "north"
    shutil.copytree(enrolled / "f" / "north", party)
    change(party / "kit")
    with pytest.raises(FederationError, match=said):
        accept(party, enrolled / "keys" / "north.key")
    assert not private_keys(party)


def test_what_a_link_leads_to_keeps_its_mode(tmp_path):
    away, folder = tmp_path / "away", tmp_path / "folder"
    (away / "below").mkdir(parents=True)
    (away / "below" / "file").touch()
    (folder / "kit").mkdir(parents=True)
    (folder / "kit" / "file").touch()
    for path in (away, away / "below", away / "below" / "file", folder / "kit"):
        path.chmod(0o755)
    (folder / "kit" / "link").symlink_to(away)
    (folder / "kit" / "other").symlink_to(away / "below" / "file")
    kits.make_private(folder)
    modes = [path.stat().st_mode & 0o777 for path in (folder / "kit", folder / "kit" / "file")]
    assert modes == [0o700, 0o600]
    for path in (away, away / "below", away / "below" / "file"):
        assert path.stat().st_mode & 0o777 == 0o755


def test_the_kit_must_fit_the_key_and_the_authority(enrolled, tmp_path):
    party = tmp_path / "north"
    shutil.copytree(enrolled / "f" / "north", party)
    with pytest.raises(FederationError, match="issued for another request"):
        accept(party, enrolled / "keys" / f"{OPERATOR}.key")
    with pytest.raises(FederationError, match="not from the authority that you know"):
        accept(party, enrolled / "keys" / "north.key", "00 11")
    name, found = accept(party, enrolled / "keys" / "north.key")
    again = found.upper().replace(" ", ":")
    assert accept(party, enrolled / "keys" / "north.key", again) == (name, found)


def request_with(path, name="north", kind="site", key=None, tamper=False):
    key = key() if key else rsa.generate_private_key(65537, 2048)
    parts = [
        x509.NameAttribute(x509.NameOID.COMMON_NAME, name),
        x509.NameAttribute(x509.NameOID.UNSTRUCTURED_NAME, kind),
    ]
    built = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    der = bytearray(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= tamper
    request = x509.load_der_x509_csr(bytes(der))
    path.write_bytes(request.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.parametrize(
    ("request_of", "said"),
    [
        ({"name": "east"}, "the plan has no such party"),
        ({"kind": "operator"}, "asks for 'north' as 'operator'"),
        ({"name": OPERATOR, "kind": "site"}, "the plan has no such party"),
        ({"tamper": True}, "its signature does not fit its key"),
        ({"key": lambda: rsa.generate_private_key(65537, 1024)}, "RSA key of 2048"),
        ({"key": lambda: ec.generate_private_key(ec.SECP256R1())}, "RSA key of 2048"),
        ({"key": lambda: rsa.generate_private_key(3, 2048)}, "another exponent"),
    ],
)
def test_a_request_that_does_not_fit_the_plan_is_refused(enrolled, tmp_path, request_of, said):
    path = request_with(tmp_path / "north.csr", **request_of)
    with pytest.raises(FederationError, match=said):
        enrol(enrolled / "f" / "authority", path, renew=True)


@pytest.mark.parametrize("content", [b"", b"noise", bytes(1 << 15)])
def test_what_is_no_request_is_refused(enrolled, tmp_path, content):
    path = tmp_path / "north.csr"
    path.write_bytes(content)
    with pytest.raises(FederationError, match="is not a request for a certificate"):
        enrol(enrolled / "f" / "authority", path)


def test_a_replaced_request_is_found_by_its_digest(enrolled, tmp_path):
    path = request_with(tmp_path / "south.csr", "south")
    with pytest.raises(FederationError, match="it was replaced on its way"):
        enrol(enrolled / "f" / "authority", path, "0123 4567")


def test_a_key_is_never_overwritten_and_a_name_is_checked(tmp_path):
    make_request("north", tmp_path)
    with pytest.raises(InputError, match="never overwritten"):
        make_request("north", tmp_path)
    for name in ("../north", "authority", "no spaces", ""):
        with pytest.raises(InputError):
            make_request(name, tmp_path)


@pytest.fixture
def authority(enrolled, tmp_path):
    """A copy of the authority, in which a test may revoke."""
    shutil.copytree(enrolled / "f", tmp_path / "f")
    return tmp_path / "f" / "authority"


def test_what_a_revoked_party_signs_is_refused(enrolled, authority, tmp_path):
    own = read_credentials(enrolled / "accepted" / "north" / "kit")
    told = CliRunner().invoke(
        app, ["federation", "revoke", "north", "--authority", str(authority)]
    )
    assert told.exit_code == 0, told.output
    assert "revoked 1 certificate of north" in told.output
    assert read_revoked(authority / "revoked.pem", own.authority.root) == {
        own.certificate.serial_number
    }
    kit = authority.parent / OPERATOR / "kit"
    assert (kit / "startup" / "revoked.pem").stat().st_mode & 0o077 == 0
    after = Authority.of_kit(kit)
    message = MessageSigner(own, "ab" * 16)("south", b"a model")
    with pytest.raises(SignatureError, match="its certificate was revoked"):
        MessageVerifier(after, "south", "ab" * 16)("north", message)
    # The thief's own kit says so too, if the list reaches it.
    shutil.copytree(enrolled / "accepted" / "north" / "kit", tmp_path / "kit")
    shutil.copy(authority / "revoked.pem", tmp_path / "kit" / "startup")
    with pytest.raises(FederationError, match="was revoked"):
        check_certificate(tmp_path / "kit", "north")


@pytest.mark.slow
def test_a_revoked_party_is_enrolled_again_with_another_key(authority, tmp_path):
    kits.revoke_party(authority, "north")
    with pytest.raises(FederationError, match="there is no certificate of 'north' to revoke"):
        kits.revoke_party(authority, "north")
    request, digest = make_request("north", tmp_path / "new")
    party, _ = enrol(authority, request, digest)
    accept(party, tmp_path / "new" / "north.key")
    assert check_certificate(party / "kit", "north") == ""  # and its kit has the list
    assert (party / "kit" / "startup" / "revoked.pem").exists()
    issued = [one.counts for one in read_issued(authority) if one.party == "north"]
    assert issued == [False, True]


@pytest.mark.slow
def test_a_federation_of_an_earlier_version_can_revoke(tmp_path):
    folder = tmp_path / "f"
    make_federation(PLAN, folder)
    assert {one.party for one in read_issued(folder / "authority")} == {
        "coordinator",
        "north",
        "south",
        OPERATOR,
    }
    (folder / "authority" / "issued.json").unlink()
    kits.revoke_party(folder / "authority", "south")
    with pytest.raises(FederationError, match="was revoked"):
        check_certificate(folder / "south" / "kit", "south")
    assert check_certificate(folder / "north" / "kit", "north") == ""
    given = [party.name for party in renew_federation(folder)]
    assert given == ["coordinator", "north", OPERATOR]


def test_the_commands_say_what_to_do_next(enrolled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = CliRunner().invoke(app, ["federation", "request", "north"])
    assert told.exit_code == 0, told.output
    assert "send it to the authority" in told.output
    shutil.copytree(enrolled / "f" / "north", tmp_path / "north")
    key = str(enrolled / "keys" / "north.key")
    told = CliRunner().invoke(app, ["federation", "accept", "north", "--key", key])
    assert told.exit_code == 0, told.output
    assert "is complete: the kit of north" in told.output


@pytest.mark.slow
def test_enrolled_parties_run_until_one_is_revoked(rows, tmp_path, monkeypatch):
    """On real processes: keys made at the parties, then one of them is revoked."""

    def by_request(plan, folder):
        make_federation(plan, folder, by_request=True)
        for name in ("coordinator", *plan.sites, *plan.operators):
            request, digest = make_request(name, tmp_path / "keys")
            party, _ = enrol(folder / "authority", request, digest)
            accept(party, tmp_path / "keys" / f"{name}.key")

    monkeypatch.setattr(loopback, "make_federation", by_request)
    federation = loopback.Loopback(tmp_path / "f", rows, model=f'scorer = "{SCORER}"')
    asked = ("run", "--federation", str(federation.settings(loopback.OPERATOR)))
    try:
        federation.bring_up()
        ended = federation.run(*asked, "--regime", "full")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert asked_by(federation, "west") == loopback.OPERATOR
        kits.revoke_party(federation.folder / "authority", "south")
        ended = federation.run(*asked, "--regime", "full")
        assert ended.returncode == 3, ended.stdout + ended.stderr
        told = " ".join(ended.stdout.split())
        assert "a message of south was refused: its certificate was revoked" in told
        kits.revoke_party(federation.folder / "authority", loopback.OPERATOR)
        ended = federation.run(*asked, "--regime", "full", "--sites", "north,west")
        assert ended.returncode == 3, ended.stdout + ended.stderr
        told = " ".join(ended.stdout.split())
        assert "whoever signed them is no operator here: its certificate was revoked" in told
    finally:
        federation.stop()


def asked_by(federation, site):
    runs = RunRecords(federation.folder / site / "state").runs()
    return next(run["operator"] for run in runs if run["state"] == "done")

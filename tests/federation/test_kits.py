"""Start-up kits: private, hardened, renewable; a wrong certificate is told before it connects."""

import json
import re
import shutil
from dataclasses import fields
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import conovel as cn
from conovel.errors import FederationError, InputError
from conovel.federation.certificates import check_certificate
from conovel.federation.consent import Limits
from conovel.federation.hardening import SERVER_CLASSES, SITE_CLASSES, prepare
from conovel.federation.kits import FederationPlan, make_federation, renew_federation
from conovel.federation.settings import read_federation, read_site
from conovel.federation.terms import Terms

OPERATOR = "ana@example.org"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a federation of two sites."""
    folder = tmp_path_factory.mktemp("kits") / "f"
    make_federation(
        FederationPlan("f", "hub.example.org", ("north", "south"), (OPERATOR,)), folder
    )
    return folder


def settings(folder, party, name):
    return json.loads((folder / party / "kit" / "local" / name).read_text())


@pytest.mark.parametrize("party", ["coordinator", "north", "south"])
def test_nobody_brings_code_or_gets_a_shell(folder, party):
    roles = settings(folder, party, "authorization.json")["permissions"]
    for rights in roles.values():
        for right in ("byoc", "shell_commands", "operate", "clone_job"):
            assert rights[right] == "none"
    assert [role for role, rights in roles.items() if rights["submit_job"] != "none"] == ["lead"]


@pytest.mark.parametrize(
    ("party", "classes"), [("coordinator", SERVER_CLASSES), ("north", SITE_CLASSES)]
)
def test_a_job_may_name_two_classes_only(folder, party, classes):
    resources = settings(folder, party, "resources.json")
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == list(classes)


def test_no_log_leaves_a_site(folder):
    resources = settings(folder, "north", "resources.json")
    assert resources["allow_log_streaming"] is False
    paths = [component["path"] for component in resources["components"]]
    assert not [path for path in paths if "logging" in path]
    server = settings(folder, "coordinator", "resources.json")
    assert not [part for part in server["components"] if "logging" in part["path"]]


def test_what_a_kit_suggests_is_accepted(folder, tmp_path):
    text = (folder / "north" / "site.toml").read_text()
    suggested = re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.MULTILINE)
    assert suggested.count("\n#") < text.count("\n#")
    file = tmp_path / "site.toml"
    file.write_text(suggested)
    columns = cn.Column("a", "number"), cn.Column("b", "number")
    (tmp_path / "schema.toml").write_text(cn.Schema(columns).to_toml())
    assert read_site(file).scorer == ["automatic"]


def test_a_kit_names_every_limit_and_suggests_the_safe_ones(folder):
    text = (folder / "north" / "site.toml").read_text()
    limits, safe = read_site(folder / "north" / "site.toml").limits, Limits()
    for field in fields(Limits):
        assert re.search(rf"^{field.name} = ", text, re.MULTILINE), field.name
        if field.name not in ("regimes", "max_level", "min_agents", "max_bytes_in", "max_seconds"):
            assert getattr(limits, field.name) == getattr(safe, field.name), field.name


def test_kits_are_private(folder):
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_nothing_starts_without_our_settings(folder):
    assert not list(folder.rglob("*.sh"))
    for party in ("coordinator", "north", "south"):
        left = [path.name for path in (folder / party).rglob("*.default")]
        assert left == ["log_config.json.default"]


def test_a_key_is_with_its_party_and_nowhere_else(folder):
    keys = {path.read_text() for path in folder.glob("*/kit/startup/*.key")}
    assert len(keys) == 4
    kept = (folder / "authority" / "f" / "state" / "cert.json").read_text()
    assert set(json.loads(kept)) == {"root_cert", "root_pri_key"}
    assert not list((folder / "authority").rglob("*.key"))


def test_the_files_that_are_handed_out_can_be_read(folder):
    limits = read_site(folder / "north" / "site.toml").limits
    assert limits.min_agents == 2
    assert limits.objection(Terms(("north", "south"))) == ""  # the default regime
    assert read_federation(folder / "coordinator" / "federation.toml").coordinator_kit
    assert read_federation(folder / OPERATOR / "federation.toml").operator == OPERATOR


def test_renewing_keeps_the_authority_and_the_files(folder, tmp_path):
    copy = tmp_path / "f"
    shutil.copytree(folder, copy)
    kit = copy / "north" / "kit"
    before = {name: (kit / "startup" / name).read_bytes() for name in ("client.crt", "rootCA.pem")}
    with (copy / "north" / "site.toml").open("a") as file:
        file.write("# ours\n")
    project = copy / "authority" / "project.json"
    content = json.loads(project.read_text())
    content["participants"].append({"name": "west", "type": "client", "org": "west"})
    project.write_text(json.dumps(content))
    renew_federation(copy)
    assert (kit / "startup" / "rootCA.pem").read_bytes() == before["rootCA.pem"]
    assert (kit / "startup" / "client.crt").read_bytes() != before["client.crt"]
    assert (copy / "north" / "site.toml").read_text().endswith("# ours\n")
    for site in ("north", "west"):
        assert check_certificate(copy / site / "kit", site) == ""


def test_a_federation_is_not_made_twice(folder):
    with pytest.raises(FederationError, match="exists already"):
        make_federation(FederationPlan("f", "hub", ("a", "b"), (OPERATOR,)), folder)
    with pytest.raises(FederationError, match="is not what"):
        renew_federation(folder / "north")


@pytest.mark.parametrize(
    "more",
    [
        {"name": "no spaces"},
        {"host": "-x"},
        {"sites": ("north",)},
        {"sites": ("north", "coordinator")},
        {"sites": ("north", "../south")},
        {"operators": ()},
        {"operators": ("ana",)},
        {"port": 0},
        {"port": 8003},
    ],
)
def test_a_plan_that_cannot_be(more):
    plan = {"name": "f", "host": "hub", "sites": ("a", "b"), "operators": (OPERATOR,)}
    with pytest.raises(InputError):
        FederationPlan(**(plan | more))


def test_a_certificate_of_another_authority(folder, tmp_path):
    kit = tmp_path / "kit"
    shutil.copytree(folder / "north" / "kit", kit)
    _issue_by_oneself(kit, "north")
    with pytest.raises(FederationError, match="not issued by the authority"):
        check_certificate(kit, "north")


def test_a_key_of_somebody_else(folder, tmp_path):
    kit = tmp_path / "kit"
    shutil.copytree(folder / "north" / "kit", kit)
    shutil.copy(folder / "south" / "kit" / "startup" / "client.key", kit / "startup")
    with pytest.raises(FederationError, match="does not belong"):
        check_certificate(kit, "north")


@pytest.mark.parametrize(("days", "said"), [(-1, "expired"), (5, "renew it soon")])
def test_a_certificate_that_ends(folder, tmp_path, days, said):
    kit = tmp_path / "kit"
    shutil.copytree(folder / "north" / "kit", kit)
    _issue_by_oneself(kit, "north", days=days, own_authority=True)
    try:
        told = check_certificate(kit, "north")
    except FederationError as error:
        told = str(error)
    assert said in told


def test_a_folder_that_is_no_kit(tmp_path):
    with pytest.raises(FederationError, match="is not a complete kit"):
        check_certificate(tmp_path, "north")


def _issue_by_oneself(kit, name, days=30, own_authority=False):
    """Put a certificate into a kit that nobody but its owner has signed."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    whose = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(whose)
        .issuer_name(whose)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=60))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    (kit / "startup" / "client.crt").write_bytes(certificate)
    if own_authority:
        (kit / "startup" / "rootCA.pem").write_bytes(certificate)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, plain)
    (kit / "startup" / "client.key").write_bytes(pem)


def test_a_kit_of_another_version_follows_the_installed_one(folder):
    kit = folder / "north" / "kit"
    path = kit / "local" / "resources.json"
    now = path.read_text()
    path.write_text(now.replace("conovel.federation.", "conovel.drivers.nvflare."))
    prepare(kit)
    assert path.read_text() == now
    path.chmod(0o400)
    before = path.stat().st_mtime_ns
    prepare(kit)  # nothing is written where nothing changes
    assert path.stat().st_mtime_ns == before

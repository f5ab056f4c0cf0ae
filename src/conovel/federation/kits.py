"""Start-up kits: made by NVFlare's provisioning, then hardened.

A folder with everything of a federation::

    DIR/authority/     project file, the certificate authority's key, and the certificates that it
                       issued; keep it where the federation was made, off line if possible
    DIR/coordinator/   kit and federation.toml, for the coordinator
    DIR/NAME/          kit and site.toml, for that site
    DIR/NAME@HOST/     kit and federation.toml, for that operator
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from conovel.errors import FederationError, InputError, MissingExtraError
from conovel.federation.hardening import harden
from conovel.federation.processes import REVOKED_FILE
from conovel.protocol.messages import as_name
from conovel.rows.private_files import UMASK
from conovel.rows.storage import write_json, write_text
from conovel.spec.records import Port, check_fields, read_json

PACKAGE = "nvflare"
ROOT_DAYS = 3650  # validity of the authority; certificates of parties are valid for 360 days
COORDINATOR = "coordinator"
_RESERVED = frozenset({COORDINATOR, "authority", "server", "client", "app"})
_SITE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_OPERATOR = re.compile(r"[A-Za-z0-9_.+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True)
class FederationPlan:
    """What a federation is made of."""

    name: str
    host: str  # where sites and operators reach the coordinator; also the name in its certificate
    # Names of sites; e-mail addresses of operators.
    sites: tuple[str, ...]
    operators: tuple[str, ...]
    port: Port = 8002  # for sites
    admin_port: Port = 8003  # for operators

    def __post_init__(self) -> None:
        check_fields(self)
        if not _SITE_NAME.fullmatch(self.name):
            raise InputError(
                f"{self.name!r} cannot be the name of a federation: use letters, digits, - and _"
            )
        if not _HOST.fullmatch(self.host):
            raise InputError(
                f"{self.host!r} is not the name of a machine: use letters, digits, - and ."
            )
        for site in self.sites:
            if not _SITE_NAME.fullmatch(as_name(site)) or site in _RESERVED:
                raise InputError(
                    f"{site!r} cannot be the name of a site: use letters, digits, - and _, but"
                    f" not {', '.join(sorted(_RESERVED))}"
                )
        for operator in self.operators:
            if not _OPERATOR.fullmatch(operator):
                raise InputError(f"operator {operator!r} must look like an e-mail address")
        names = [*self.sites, *self.operators]
        if len(set(names)) < len(names) or len(self.sites) < 2 or not self.operators:
            raise InputError(
                "a federation needs at least two sites and an operator, all with different names"
            )
        if self.port == self.admin_port:
            raise InputError("sites and operators need two different ports")


def require_nvflare() -> None:
    """Raise if NVFlare is not installed."""
    if find_spec(PACKAGE) is None:
        raise MissingExtraError(PACKAGE, "nvflare")


def kind_of(name: str) -> str:
    """Return what kind of party a name is for; :class:`InputError` if for none."""
    if name == COORDINATOR:
        return COORDINATOR
    if _OPERATOR.fullmatch(name):
        return "operator"
    if not _SITE_NAME.fullmatch(name) or name in _RESERVED:
        raise InputError(
            f"{name!r} is neither the name of a site nor an operator's e-mail address, nor"
            f" {COORDINATOR!r}"
        )
    return "site"


def make_federation(plan: FederationPlan, folder: Path, by_request: bool = False) -> list[Path]:
    """Make a new federation with all its kits; return the folders to hand out."""
    require_nvflare()
    if folder.exists():
        raise FederationError(f"{folder} exists already: renew it, or choose another folder")
    folder.mkdir(mode=0o700, parents=True)
    authority = folder / "authority"
    authority.mkdir(mode=0o700)
    write_json(authority / "project.json", _project(plan))
    try:
        _certificates().begin_issued(authority, by_request)
        return _hand_out(plan, folder)
    except BaseException:  # an incomplete folder would block the next attempt
        shutil.rmtree(folder, ignore_errors=True)
        raise


def renew_federation(folder: Path) -> list[Path]:
    """Give every party a new certificate of the same authority; also adds sites and operators.

    The parties' folders get new kits; their TOML files, records and results stay. Parties that
    made their keys themselves, and those that were revoked, get nothing: they are enrolled.
    """
    require_nvflare()
    plan = read_plan(folder / "authority")
    if not _with_keys_from_here(plan, folder / "authority"):
        raise FederationError(
            "no key of this federation was made here: let every party make a request"
            " (`conovel federation request`), and enrol it with --renew"
        )
    return _hand_out(plan, folder)


def read_plan(authority: Path) -> FederationPlan:
    """Read the plan of a federation from the folder of its authority."""
    try:
        path = authority / "project.json"
        project = read_json(path.read_bytes(), str(path))
        kinds: dict[str, list[Any]] = {"server": [], "client": [], "admin": []}
        for party in project["participants"]:
            kinds[party["type"]].append(party)
        (server,) = kinds["server"]
        return FederationPlan(
            name=project["name"],
            host=server["name"],
            sites=tuple(party["name"] for party in kinds["client"]),
            operators=tuple(party["name"] for party in kinds["admin"]),
            port=server["fed_learn_port"],
            admin_port=server["admin_port"],
        )
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FederationError(f"{authority} is not what `federation init` made: {error}") from None


def _project(plan: FederationPlan) -> dict[str, Any]:
    """Return NVFlare's project file; it is YAML, of which JSON is a part."""
    server = {
        "name": plan.host,
        "type": "server",
        "org": plan.name,
        "fed_learn_port": plan.port,
        "admin_port": plan.admin_port,
    }
    sites = [
        {
            "name": site,
            "type": "client",
            "org": re.sub(r"[^A-Za-z0-9_]", "_", site),
            "allow_log_streaming": False,
        }
        for site in plan.sites
    ]
    operators = [
        {"name": name, "type": "admin", "org": plan.name, "role": "lead"}
        for name in plan.operators
    ]
    built_in = "nvflare.lighter.impl"
    return {
        "api_version": 3,
        "name": plan.name,
        "description": "made by conovel federation init",
        "participants": [server, *sites, *operators],
        "builders": [
            {"path": f"{built_in}.workspace.WorkspaceBuilder"},
            {
                "path": f"{built_in}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "grpc"},
            },
            {"path": f"{built_in}.cert.CertBuilder", "args": {"root_valid_days": ROOT_DAYS}},
            {"path": f"{built_in}.signature.SignatureBuilder"},
        ],
    }


def provision(authority: Path, name: str) -> Path:
    """Let NVFlare make the kits; return their folder."""
    command = [sys.executable, "-m", "nvflare.cli", "provision", "--force"]
    command += ["-p", "project.json", "-w", "."]
    done = subprocess.run(  # noqa: S603
        command, cwd=authority, capture_output=True, text=True, check=False, umask=UMASK
    )
    made = sorted((authority / name).glob("prod_*"))
    if done.returncode or not made:
        raise FederationError(f"the kits could not be made: {(done.stderr or done.stdout)[-500:]}")
    return made[-1]


def _hand_out(plan: FederationPlan, folder: Path) -> list[Path]:
    """Make new kits for all parties whose keys are made here."""
    certificates, authority = _certificates(), folder / "authority"
    made = provision(authority, plan.name)
    given = []
    for name in _with_keys_from_here(plan, authority):
        party = give_kit(plan, folder, made, name)
        certificates.note_kit(authority, name, party / "kit")
        given.append(party)
    forget_keys(made)
    make_private(folder)
    return given


def _with_keys_from_here(plan: FederationPlan, authority: Path) -> list[str]:
    parties = (COORDINATOR, *plan.sites, *plan.operators)
    return [name for name in parties if _certificates().gets_its_key_here(authority, name)]


def give_kit(plan: FederationPlan, folder: Path, made: Path, name: str) -> Path:
    """Put the kit that NVFlare made for a party into the party's folder, hardened; return that."""
    party = folder / name
    party.mkdir(mode=0o700, exist_ok=True)
    kit = party / "kit"
    for old in (kit / "startup", kit / "local"):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(made / (plan.host if name == COORDINATOR else name), kit, dirs_exist_ok=True)
    harden(kit)
    revoked = folder / "authority" / REVOKED_FILE
    if revoked.exists():
        shutil.copy(revoked, kit / "startup")
    _write_once(party, plan, name)
    return party


def forget_keys(made: Path) -> None:
    """Delete all keys but the authority's own: only a party has its key."""
    shutil.rmtree(made)
    state = made.parent / "state" / "cert.json"
    certificates = read_json(state.read_bytes(), str(state))
    root = {key: value for key, value in certificates.items() if isinstance(value, str)}
    write_json(state, root)


def revoke_party(authority: Path, name: str) -> tuple[list[str], Path, list[Path]]:
    """Revoke all certificates of a party.

    Returned are the serial numbers, the list of revoked certificates, for all parties, and the
    kits beside the authority into which it was copied.
    """
    require_nvflare()
    plan, certificates = read_plan(authority), _certificates()
    kit = authority.parent / name / "kit"
    if kit.exists() and not any(one.party == name for one in certificates.read_issued(authority)):
        certificates.note_kit(authority, name, kit)  # made by an earlier version
    serials = certificates.revoke(authority, plan.name, name)
    path = authority / REVOKED_FILE
    kits = [kit for kit in sorted(authority.parent.glob("*/kit")) if (kit / "startup").is_dir()]
    for kit in kits:
        shutil.copy(path, kit / "startup")
        (kit / "startup" / REVOKED_FILE).chmod(0o600)
    return serials, path, kits


def _certificates() -> ModuleType:
    from conovel.federation import certificates  # noqa: PLC0415  (loads an extra)

    return certificates


def _write_once(party: Path, plan: FederationPlan, target: str) -> None:
    """Write the TOML file that a person edits, unless it exists."""
    if target in plan.sites:
        path, text = party / "site.toml", _SITE_TOML.format(name=target, n=len(plan.sites))
    else:
        names = ", ".join(f'"{name}"' for name in plan.sites)
        path = party / "federation.toml"
        text = f'[federation]\nname = "{plan.name}"\nsites = [{names}]\n\n'
        if target == COORDINATOR:
            text += '[coordinator]\nkit = "kit"\nkeep_runs = 100\n'
        else:
            text += f'[operator]\nname = "{target}"\nkit = "kit"\n'
    if not path.exists():
        write_text(path, text)


def make_private(folder: Path) -> None:
    """Let nobody but the owner read a folder; what a link in it leads to keeps its mode."""
    folder.chmod(0o700)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o700 if path.is_dir() else 0o600)


_SITE_TOML = """\
# What this site brings to a run, and what it agrees to. Paths are relative to this file.
[site]
name = "{name}"
kit = "kit"
results = "results"
keep_runs = 100   # of older runs only the ids and the audit log are kept

[data]
null = "normal.parquet"   # rows known to be normal: CSV, Parquet or Arrow, a file or a folder
test = "test.parquet"     # rows to test
# known = "known.parquet" # confirmed cases of the same columns: this site's score learns from them
# columns = ["a", "b"]    # features, in the order all sites agreed on; all columns by default
# id = "patient"          # names the rows; never a feature, never sent
# exclude = ["label"]     # columns that are no features
# schema = "schema.toml"  # what the columns are, if not all numbers; the same at all sites
# set = "2026"            # name of these rows in the ε ledger; no row is in two sets

[model]
# scorer = "automatic"    # or extra-trees, random-forest, boosting, logistic, mlp, ...
# bits = "compact"        # how this site's model is sent; runs cannot change it

# [list]                  # a list over several batches, for conovel run --list NAME
# name = "april"
# ledger = "april.json"

[consent]
# "consensus" tells all parties a rounded centre of this site's normals: add it if that is agreed.
# "together" adds sums over this site's rows to those of others, under masks. Totals over three
# sites of 1,000 known normals tell who took part with AUC .84, with privacy of 4 with .58. To ask
# for privacy, set max_epsilon; docs/privacy.md has more figures.
regimes = ["together", "joint", "full", "counts", "isolated", "split", "conservative"]
max_level = 0.2
min_agents = {n}
max_bytes_in = 67_108_864
max_seconds = 7200
min_train_rows = 20            # a model learnt from fewer rows does not leave this site
min_train_share = "own rule"   # of the known normals, or a fraction such as 0.3
min_liars = 0                  # how many lying members a run must tolerate
reveal_to = "coordinator"      # or "members": who may see this site's counts
min_calibration_rows = 10      # counts over fewer calibration rows do not leave it
max_bits = 16                  # of numbers in a model that leaves; or "compact", or "float64"
max_forest_bytes = 16384       # of a forest that leaves; deep ones give single rows away
model_families = ["forest", "linear", "dense"]   # of models that may leave or come in
composites = ["auto", "mean", "stacked"]   # with "max" or "min" one peer decides a score
max_nodes_in = 16384           # of a model that comes in
min_group_rows = "own rule"    # rows that a peer's model or a cell of counts stands for: 5, or 3
ask_seconds = 0.0              # that a run waits for consent in conovel desk; 0 asks nobody
strata = []                    # columns by whose values numbers of rows may leave the site
share_known = false            # whether models and sums that leave are learnt from known rows
masks = true                   # in "together" nobody may see this site's sums
max_sum_rounds = 40            # in "together": rounds of sums,
max_bins = 1024                # bins of a column in a round,
max_trees = 200                # trees,
min_leaf_rows = 5              # and rows of all sites in the smallest leaf
max_runs_per_day = 24          # runs that send a model or counts, within 24 hours
max_runs_per_data = 10         # the same, with the rows of the same files
max_peer_share = 100           # test rows of all other sites for each one of this site
max_epsilon = "none"           # or a sum of ε over runs: models then leave with privacy only
"""

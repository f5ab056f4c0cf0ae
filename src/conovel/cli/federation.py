"""``conovel federation``: make the kits of a federation, renew them, enrol and revoke parties."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import say
from conovel.cli.tables import with_options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from conovel.federation.loopback import Loopback


federation = typer.Typer(
    help="Set up runs between organisations: certificates, start-up kits, settings.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@federation.command("init")
@with_options(
    name=typer.Argument(help="Name of the federation."),
    site="Name of a site; repeat for each.",
    operator="E-mail address of an operator, who may start runs; repeat.",
    host="Where sites and operators reach the coordinator.",
    port="The coordinator's port for sites.",
    admin_port="Its port for operators.",
    out="Folder to make; by default, it has the name of the federation.",
    by_request="Make the authority alone. Every party makes its own key: between organisations"
    " take this.",
)
def init(
    *,
    name: str,
    site: list[str],
    operator: list[str],
    host: str = "localhost",
    port: int = 8002,
    admin_port: int = 8003,
    out: Path | None = None,
    by_request: bool = False,
) -> None:
    """Make a certificate authority, and a hardened start-up kit for every party.

    Without `--by-request` the private keys of all parties are made here, and each has to be
    handed over in secret: for tests, demonstrations, and parties of one organisation. With it no
    private key ever travels: every party runs `federation request`, you run `federation enrol`,
    and the party runs `federation accept`.

    Example: `conovel federation init hospitals --host hub.example.org
    --site north --site south --operator ana@example.org --by-request`
    """
    from conovel.federation.kits import FederationPlan, make_federation  # noqa: PLC0415

    folder = out or Path(name)
    plan = FederationPlan(name, host, tuple(site), tuple(operator), port, admin_port)
    given = make_federation(plan, folder, by_request)
    if by_request:
        _print_next_requests(folder, ["coordinator", *site, *operator])
    else:
        _print_folders(folder, given)
    say(f"Sites must reach {host} on port {port}, operators on port {admin_port}.")


@federation.command("renew")
@with_options(folder=typer.Argument(help="What `federation init` made."))
def renew(*, folder: Path) -> None:
    """Give every party whose key was made here a new certificate of the same authority.

    Sites and operators that were added to authority/project.json get their first certificate. A
    party that made its key itself makes another request, for `federation enrol --renew`.
    """
    from conovel.federation.kits import renew_federation  # noqa: PLC0415

    _print_folders(folder, renew_federation(folder))


@federation.command("request")
@with_options(
    name=typer.Argument(
        help="Name of your site, your e-mail address as operator, or coordinator."
    ),
    out="Folder for the key and the request; NAME-key by default.",
)
def request(*, name: str, out: Path | None = None) -> None:
    """Make your private key, and a request for a certificate. The key stays with you.

    Send the file NAME.csr to whoever keeps the authority of the federation. It is no secret. Tell
    them the digest by another way, such as by telephone, so that nobody can replace the request.

    Example: `conovel federation request north --out north-key`
    """
    from conovel.federation.kits import require_nvflare  # noqa: PLC0415

    require_nvflare()
    from conovel.federation.enrolment import make_request  # noqa: PLC0415

    path, digest = make_request(name, out or Path(f"{name}-key"))
    say(f"{path.parent / f'{name}.key'}")
    say("  your private key: it stays here, for you alone")
    say(f"{path}")
    say("  your request: send it to the authority of the federation")
    say("digest of your key, to tell the authority by another way:")
    say(f"  {digest}")


@federation.command("enrol")
@with_options(
    authority="The folder authority/ that `federation init` made.",
    request="What a party made with `federation request`.",
    digest="The digest that the party told you by another way.",
    renew="The party has a certificate, and asks for another.",
)
def enrol(
    *, authority: Path, request: Path, digest: str | None = None, renew: bool = False
) -> None:
    """Issue the certificate that a party has requested, and make its kit, without a key.

    The name and the kind of party must be in the plan of the federation (authority/project.json).

    Example: `conovel federation enrol --authority hospitals/authority --request north.csr`
    """
    from conovel.federation.kits import require_nvflare  # noqa: PLC0415

    require_nvflare()
    from conovel.federation.certificates import Authority, fingerprint  # noqa: PLC0415
    from conovel.federation.enrolment import enrol as enrol_party  # noqa: PLC0415

    party, key_digest = enrol_party(authority, request, digest, renew)
    say(f"Give {party}/ to {party.name}. It holds no secret.")
    if digest is None:
        say(f"Before that, compare this digest with the one {party.name} has:")
        say(f"  {key_digest}")
    root = fingerprint(Authority.of_kit(party / "kit").root)
    say(f"Tell {party.name} by another way the fingerprint of the authority:")
    say(f"  {root}")


@federation.command("accept")
@with_options(
    kit=typer.Argument(help="The folder that the authority gave you."),
    key="Your key; by default NAME-key/NAME.key, as `request` made it.",
    fingerprint="The fingerprint that the authority told you by another way.",
)
def accept(*, kit: Path, key: Path | None = None, fingerprint: str | None = None) -> None:
    """Put your key into the kit of the authority, after checking that all fits.

    Refused are a kit that the authority has not signed, or that was changed on its way, and a
    certificate for another key.

    Example: `conovel federation accept north --key north-key/north.key`
    """
    from conovel.federation.kits import require_nvflare  # noqa: PLC0415

    require_nvflare()
    from conovel.federation.enrolment import accept as accept_kit  # noqa: PLC0415

    name = kit.resolve().name
    own = key or Path(f"{name}-key") / f"{name}.key"
    whose, authority_print = accept_kit(kit, own, fingerprint)
    say(f"{kit}/ is complete: the kit of {whose}.")
    if fingerprint is None:
        say("Compare the fingerprint of its authority with what you were told:")
        say(f"  {authority_print}")


@federation.command("revoke")
@with_options(
    name=typer.Argument(help="Name of the site or operator, or coordinator."),
    authority="The folder authority/ that `federation init` made.",
)
def revoke(*, name: str, authority: Path) -> None:
    """Revoke all certificates of a party, such as after the theft of its key.

    Give the list to every party, which puts it into its kit as startup/revoked.pem. From the next
    run on, sites and coordinator refuse what is signed with a revoked certificate.

    Example: `conovel federation revoke south --authority hospitals/authority`
    """
    from conovel.federation.kits import revoke_party  # noqa: PLC0415

    serials, path, kits = revoke_party(authority, name)
    word = "certificate" if len(serials) == 1 else "certificates"
    say(f"revoked {len(serials)} {word} of {name}: {', '.join(serials)}")
    for one in kits:
        say(f"  copied to {one / 'startup' / path.name}")
    say(f"Give {path} to every other party, for its kit: startup/{path.name}.")


def _print_next_requests(folder: Path, parties: list[str]) -> None:
    say(f"{folder / 'authority'}/ is the authority. Keep it to yourself, off line.")
    say("")
    say("Every party now makes its key and a request, and sends you the request:")
    say("")
    for name in parties:
        say(f"  conovel federation request {name}")
    say("")
    say(
        f"For each: conovel federation enrol --authority {folder / 'authority'} --request NAME.csr"
    )


def _print_folders(folder: Path, parties: list[Path]) -> None:
    """Print which folder to give to which party, and the command that uses it."""
    rows = []
    for party in parties:
        if party.name == "coordinator":
            rows.append((party, "the coordinator", "conovel coordinate federation.toml"))
        elif (party / "site.toml").exists():
            rows.append((party, party.name, "conovel agent site.toml   (edit it first)"))
        else:
            rows.append((party, party.name, "conovel run --federation federation.toml"))
    folders, people = (max(len(str(row[i])) for row in rows) for i in (0, 1))
    say("Give these folders to the parties, each over a channel that you would trust with a key:")
    say("")
    for party, who, command in rows:
        say(f"  {party}/{'':<{folders - len(str(party))}}  to {who:<{people}}  {command}")
    authority = folder / "authority"
    say("")
    say(f"Keep {authority}/ to yourself, off line: its key makes certificates.")


SITES = ("north", "south", "west")


@federation.command("demo")
@with_options(
    folder="Folder to make and keep; a temporary one if not given.", regime="As in `conovel run`."
)
def demo(*, folder: Path | None = None, regime: str = "auto") -> None:
    """Set up a federation on this machine, run it, show the result, and stop everything.

    Three sites with their own data, processes and certificates: what the pages on deployment
    do step by step.
    """
    with tempfile.TemporaryDirectory() as temporary:
        code = _demo(folder or Path(temporary) / "hospitals", regime)
    if folder is None:
        _print_line(
            "`conovel federation demo --folder hospitals` keeps all files, including the reports"
        )
    raise typer.Exit(code)


def _demo(folder: Path, regime: str) -> int:
    from conovel.deciding.ways import ways_of  # noqa: PLC0415
    from conovel.experiments.gaussian import gaussian_design  # noqa: PLC0415
    from conovel.federation.loopback import OPERATOR, Loopback  # noqa: PLC0415
    from conovel.spec.regimes import REGIMES  # noqa: PLC0415

    drawn = dict(
        zip(SITES, gaussian_design(2.0, 0, n_agents=3, n_null=3000, n_test=1000), strict=True)
    )
    sites = " ".join(f"--site {name}" for name in SITES)
    _print_line(f"$ conovel federation init hospitals {sites} --operator {OPERATOR}")
    deployed = [r.name for r in REGIMES.values() if not ways_of(r).learning.simulated]
    federation = Loopback(
        folder,
        {name: (_columns(a.X_null), _columns(a.X_test)) for name, a in drawn.items()},
        consent=f"regimes = {deployed}",
    )
    try:
        _print_line("$ conovel coordinate coordinator/federation.toml")
        for name in SITES:
            _print_line(f"$ conovel agent {name}/site.toml")
        federation.bring_up()
        out = folder / OPERATOR / "outcome.json"
        arguments = ("--level", "0.1", "--regime", regime, "--out")
        _print_line(
            f"$ conovel run --federation federation.toml {' '.join(arguments)} outcome.json\n"
        )
        settings = str(federation.settings(OPERATOR))
        ended = federation.run("run", "--federation", settings, *arguments, str(out), shown=True)
        if ended.returncode == 0:
            _print_line("\n$ conovel verify outcome.json")
            federation.run("verify", str(out), shown=True)
            federation.wait_for_reports()
            _print_sites(federation, {name: a.is_novel for name, a in drawn.items()})
        return ended.returncode
    finally:
        federation.stop()
        _print_line("\nall parties are stopped")


def _print_line(text: str) -> None:
    """Print at once, before the output of the next process."""
    for line in text.split("\n"):
        say(line)


def _columns(values: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    return {f"x{j}": values[:, j] for j in range(values.shape[1])}


def _print_sites(federation: Loopback, truth: dict[str, NDArray[np.bool_]]) -> None:
    """Show the decisions of each site, which in a deployment only the site can read."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    _print_line("\nwhat each site finds in its own results, which no other party can read:")
    for name, is_novel in truth.items():
        for path in sorted(federation.folder.glob(f"{name}/results/*/decisions.parquet")):
            flagged = pq.read_table(path)["rejected"].to_numpy()
            _print_line(
                f"  {name:<6} {flagged.sum():>4} flagged; {(flagged & is_novel).sum()} of its"
                f" {is_novel.sum()} novel rows are among them"
            )

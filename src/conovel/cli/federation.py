"""``conovel federation``: make the kits of a federation, and renew them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conovel.cli.federation_demo import demo

federation = typer.Typer(
    help="Set up runs between organisations: certificates, start-up kits, settings.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


federation.command("demo")(demo)


@federation.command("init")
def init(
    name: Annotated[str, typer.Argument(help="Name of the federation.")],
    site: Annotated[list[str], typer.Option(help="Name of a site; repeat for each.")],
    operator: Annotated[
        list[str], typer.Option(help="E-mail address of an operator, who may start runs; repeat.")
    ],
    host: Annotated[
        str, typer.Option(help="Where sites and operators reach the coordinator.")
    ] = "localhost",
    port: Annotated[int, typer.Option(help="The coordinator's port for sites.")] = 8002,
    admin_port: Annotated[int, typer.Option(help="Its port for operators.")] = 8003,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to make; by default, it has the name of the federation."),
    ] = None,
) -> None:
    """Make a certificate authority and a hardened start-up kit for every party.

    Example: `conovel federation init hospitals --host hub.example.org
    --site north --site south --operator ana@example.org`
    """
    from conovel.drivers.nvflare.kits import FederationPlan, make_federation  # noqa: PLC0415

    folder = out or Path(name)
    plan = FederationPlan(name, host, tuple(site), tuple(operator), port, admin_port)
    _print_folders(folder, make_federation(plan, folder))
    typer.echo(f"Sites must reach {host} on port {port}, operators on port {admin_port}.")


@federation.command("renew")
def renew(
    folder: Annotated[Path, typer.Argument(help="What `federation init` made.")],
) -> None:
    """Give every party a new certificate of the same authority.

    Sites and operators that were added to authority/project.json get their first certificate.
    """
    from conovel.drivers.nvflare.kits import renew_federation  # noqa: PLC0415

    _print_folders(folder, renew_federation(folder))


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
    typer.echo(
        "Give these folders to the parties, each over a channel that you would trust with a key:\n"
    )
    for party, who, command in rows:
        typer.echo(f"  {party}/{'':<{folders - len(str(party))}}  to {who:<{people}}  {command}")
    authority = folder / "authority"
    typer.echo(f"\nKeep {authority}/ to yourself, off line: its key makes certificates.")

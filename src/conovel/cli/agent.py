"""``conovel agent`` and ``conovel coordinate``: the two processes of a federation."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import facts_table, print_fitted, require_there, say
from conovel.cli.tables import with_options
from conovel.errors import ConovelError
from conovel.spec.exits import NO

if TYPE_CHECKING:
    from conovel.federation.settings import MetricsAddress, SiteFile

_ONCE = typer.Option("--once", help="End after one run; exit code 3 if it failed.")
_JOIN = typer.Option(help="Seconds until it must be connected.", min=1)
_METRICS = typer.Option(
    help="Serve a page of metrics for Prometheus on this port; off by default. The address is"
    " 127.0.0.1, or that of [metrics] in the file.",
    min=1,
    max=65535,
)
_WAIT = typer.Option(help="With --once: seconds until a run must begin.", min=1)


@with_options(
    settings=typer.Argument(help="The site's settings, site.toml."),
    check=typer.Option(
        "--check",
        help="Read the rows and say what the site would refuse, then end: exit code 3 if anything."
        " Nothing is sent.",
    ),
    terms=typer.Option(
        help="With --check: the terms of a run, as `conovel run --announce` writes them. If not"
        " given, a run with all defaults."
    ),
    once=_ONCE,
    join_seconds=_JOIN,
    wait_seconds=_WAIT,
    metrics=_METRICS,
)
def agent(
    *,
    settings: Path,
    check: bool = False,
    terms: Path | None = None,
    once: bool = False,
    join_seconds: float = 60.0,
    wait_seconds: float = math.inf,
    metrics: int | None = None,
) -> None:
    """Serve a site: take part in runs within the limits of its site.toml.

    Example: `conovel agent site.toml --check --terms announced.json`

    Decisions go to the site's results folder; no row leaves the site. Ends on Ctrl-C.
    """
    require_there(settings)
    from conovel.federation.settings import read_site  # noqa: PLC0415
    from conovel.federation.supervise import serve_site  # noqa: PLC0415
    from conovel.rows.datafiles import open_files  # noqa: PLC0415

    file = read_site(settings)
    if check or terms is not None:
        _rehearse(file, terms)
        return
    for key, path in ("null", file.null), ("test", file.test):
        if key not in file.addresses:  # a wrong path is an error now, not in the middle of a run
            open_files(path, file.reading)
    if file.limits.ask_seconds:
        _print_line(f"each run waits for a person's consent: conovel desk {settings}")
    code = serve_site(
        file,
        _print_line,
        join_seconds=join_seconds,
        once=once,
        wait_seconds=wait_seconds,
        on_done=_write_report,
        metrics=_metrics_at(file.metrics, metrics),
    )
    raise typer.Exit(code)


def _rehearse(file: SiteFile, path: Path | None) -> None:
    """Say what a site would do in a run; exit code 3 if it would refuse."""
    require_there(path)
    from conovel.federation.rehearsal import rehearse, usual_terms  # noqa: PLC0415
    from conovel.federation.terms import Terms  # noqa: PLC0415
    from conovel.rows.storage import read_json  # noqa: PLC0415

    terms = usual_terms(file) if path is None else Terms.from_dict(read_json(path))
    outcome = rehearse(file, terms)
    table = facts_table()
    table.add_row("run", f"{terms.spec.regime.name}, level {float(terms.promised.level):g}")
    for name, value in outcome.facts:
        table.add_row(name, value)
    for objection in outcome.objections:
        table.add_row("refused", objection)
    if not outcome.objections:
        table.add_row("answer", f"{file.name} would take part; the sizes of others are not known")
    print_fitted(table)
    if outcome.objections:
        raise typer.Exit(NO)


@with_options(
    settings=typer.Argument(help="The coordinator's federation.toml."),
    once=_ONCE,
    join_seconds=_JOIN,
    wait_seconds=_WAIT,
    metrics=_METRICS,
)
def coordinate(
    *,
    settings: Path,
    once: bool = False,
    join_seconds: float = 60.0,
    wait_seconds: float = math.inf,
    metrics: int | None = None,
) -> None:
    """Serve a federation as its coordinator, which sees counts, but no rows and no models."""
    require_there(settings)
    from conovel.federation.settings import read_federation  # noqa: PLC0415
    from conovel.federation.supervise import serve_coordinator  # noqa: PLC0415

    file = read_federation(settings)
    code = serve_coordinator(
        file,
        _print_line,
        join_seconds=join_seconds,
        once=once,
        wait_seconds=wait_seconds,
        metrics=_metrics_at(file.metrics, metrics),
    )
    raise typer.Exit(code)


def _metrics_at(of_file: MetricsAddress | None, port: int | None) -> MetricsAddress | None:
    """Return where metrics are served: as the file says, but for a port of the command line."""
    from conovel.federation.settings import MetricsAddress  # noqa: PLC0415

    if port is None:
        return of_file
    return replace(of_file, port=port) if of_file else MetricsAddress(port)


def _write_report(folder: Path) -> None:
    """Write a page beside the decisions; they are complete without it."""
    try:
        from conovel.report import write_report  # noqa: PLC0415

        write_report(folder / "run.json", folder / "report.html")
    except (ConovelError, ImportError) as error:
        _print_line(f"no report was written: {error}")


def _print_line(text: str) -> None:
    say(f"{datetime.now():%H:%M:%S} {text}")

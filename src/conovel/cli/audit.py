"""``conovel audit``: show and check a site's audit log, and what the site has revealed so far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import (
    facts_table,
    print_fitted,
    print_json,
    require_there,
    styled,
    text_table,
)
from conovel.cli.tables import with_options
from conovel.spec.exits import NO
from conovel.stats.words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.federation.exposure import EpsilonSpent, Exposure, LoggedRun
    from conovel.rows.chained_lines import Chain


@with_options(
    settings=typer.Argument(help="The site's settings, site.toml."),
    noted="A last hash that was noted earlier; it must be in the log.",
    last=typer.Option(min=0, help="How many runs to show."),
)
def audit(*, settings: Path, noted: str | None = None, last: int = 10, json: bool = False) -> None:
    """Check a site's audit log, and show what has left the site.

    Exit code 3 if a line does not hold. That the last lines were removed cannot be seen in the
    log: note the last hash elsewhere, and give it with --noted the next time.

    Example: `conovel audit site.toml`
    """
    require_there(settings)
    from conovel.federation.consent import NO_BOUND  # noqa: PLC0415
    from conovel.federation.exposure import (  # noqa: PLC0415
        exposure_of,
        runs_of,
        spent_by_set,
    )
    from conovel.federation.settings import read_site  # noqa: PLC0415

    file = read_site(settings)
    chain = file.audit_log.read()
    exposure, runs = exposure_of(chain.entries), runs_of(chain.entries)
    wrong, spent = _wrong(chain, noted), spent_by_set(runs)
    if json:
        print_json(_content(file.name, chain, exposure, runs, wrong, spent))
    else:
        facts = _facts(file.name, file.audit_log.path, chain, exposure, wrong)
        for name, one in spent.items():
            most = file.limits.max_epsilon
            bounded = most != NO_BOUND and name == file.data_set
            budget = f"{one} of at most {most}" if bounded else str(one)
            facts.add_row("privacy", f"data set {name}: {budget}" if name else budget)
        print_fitted(facts)
        if runs[-last:] and last:
            print_fitted(_table(runs[-last:]))
    if wrong:
        raise typer.Exit(NO)


def _wrong(chain: Chain, noted: str | None) -> str:
    """Say what is wrong with the log; an empty text if nothing is."""
    if chain.broken:
        more = ": the next run notes that and goes on" if "incomplete" in chain.why else ""
        return f"line {chain.broken} does not hold: {chain.why}{more}"
    if noted is not None and noted not in {entry["hash"] for entry in chain.entries}:
        return "the noted hash is not in the log: lines were removed, or it is another log"
    return ""


def _content(
    site: str,
    chain: Chain,
    exposure: Exposure,
    runs: list[LoggedRun],
    wrong: str,
    spent: dict[str, EpsilonSpent],
) -> dict[str, Any]:
    from dataclasses import asdict  # noqa: PLC0415

    refused = [entry for entry in chain.entries if entry["entry"] == "refused"]
    return {
        "site": site,
        "holds": not wrong,
        "wrong": wrong,
        "broken_line": chain.broken,
        "incomplete_lines": chain.incomplete,
        "n_entries": len(chain.entries),
        "last_hash": chain.last,
        "exposure": exposure._asdict(),
        "privacy": {
            name: one._asdict() | {"epsilon": str(one.epsilon), "delta": str(one.delta)}
            for name, one in spent.items()
        },
        "runs": [asdict(run) for run in runs],
        "refused": refused,
    }


def _facts(site: str, path: Path, chain: Chain, exposure: Exposure, wrong: str) -> Table:
    table = facts_table()
    receivers = ", ".join(f"{n:,} to {name}" for name, n in exposure.receivers.items())
    sent = f"{exposure.n_models:,}" + (f": {receivers}" if receivers else "")
    table.add_row("site", site)
    table.add_row("log", str(path))
    holds = f"all {len(chain.entries):,} entries hold"
    table.add_row("", styled((wrong, "red")) if wrong else holds)
    for number in chain.incomplete:
        table.add_row("", f"line {number} was broken off, as the line after it says")
    table.add_row("last hash", chain.last)
    table.add_row("runs", f"{exposure.n_runs:,} began, {exposure.n_refused:,} refused before")
    table.add_row("models sent", sent)
    table.add_row(
        "learnt from",
        f"{counted(exposure.n_data, 'data set')}, at most {counted(exposure.n_rows, 'row')}",
    )
    table.add_row("", f"at most {exposure.n_trained:,} known normals in null_train")
    return table


def _table(runs: list[LoggedRun]) -> Table:
    from rich.box import SIMPLE  # noqa: PLC0415

    from conovel.federation.exposure import spec_of  # noqa: PLC0415

    table = text_table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("began (UTC)", "run", "asked by", "regime"):
        table.add_column(name, overflow="fold")
    for name in ("models", "counts"):
        table.add_column(name, justify="right")
    table.add_column("outcome", overflow="fold", ratio=1)
    for run in runs:
        outcome = f"{run.state}: {run.reason}" if run.reason else run.state
        regime = str(spec_of(run).get("regime", ""))
        table.add_row(
            run.began[:16].replace("T", " "),
            run.run[:8],
            run.operator or "-",
            regime,
            f"{run.n_models:,}",
            f"{run.n_counts:,}",
            outcome,
        )
    return table

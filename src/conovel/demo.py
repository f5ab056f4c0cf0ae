"""``make demo``: three sites find the same kind of novelty, alone and together.

The rows are the paper's Gaussian design, where each site has normals of its own. The labels
are used only to show how well the decisions did.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from conovel.drivers.agents import Agent
from conovel.drivers.network import Network
from conovel.drivers.results import NetworkRun
from conovel.experiments.gaussian import gaussian_design
from conovel.report import correct_counts, network_content, write_report
from conovel.site.storage import write_json

REPORT = Path("conovel-demo.html")
NAMES = ("north", "south", "west")
EXCHANGED = {"isolated": "nothing", "counts": "counts", "joint": "models, counts"}


def main() -> None:
    """Run the network in three regimes, print them in one table, and report on the last."""
    rows = dict(zip(NAMES, gaussian_design(1.0, 0, n_null=1500, n_test=500), strict=True))
    agents = [Agent(name, r.X_null, r.X_test) for name, r in rows.items()]
    truth = {name: r.is_novel for name, r in rows.items()}
    console = Console()
    console.print("\n[bold]conovel[/bold] · three sites that may not share their rows\n")
    for name, r in rows.items():
        console.print(
            f"  {name:5}  {len(r.X_null)} known normals, {len(r.X_test)} rows to test,"
            f" {int(r.is_novel.sum())} of them novel"
        )
    console.print()
    table = Table(title="At most one false alarm in ten flagged rows (α = 0.1)")
    table.add_column("regime", no_wrap=True)
    table.add_column("exchanged", no_wrap=True)
    for head in ("flagged", "found", "false alarms", "bytes sent", "rounds"):
        table.add_column(head, justify="right")
    with Progress(
        SpinnerColumn(), "{task.description}", TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("", total=None)
        for regime, exchanged in EXCHANGED.items():
            progress.update(task, description=f"running {regime}")
            run = Network(agents, regime=regime).run()
            table.add_row(regime, exchanged, *_cells(run, truth))
    console.print(table)
    models = [e.n_bytes for e in run.transcript.entries if e.kind == "MODEL"]
    console.print(
        f"A model takes about {int(np.median(models))} bytes and holds no row."
        " Every decision follows from the counts.\n"
    )
    console.print(f"[bold]Guaranteed for the last run:[/bold] {run.guarantee}\n")
    write_json(REPORT.with_suffix(".json"), network_content(run, truth))
    write_report(REPORT.with_suffix(".json"), REPORT)
    console.print(f"[bold]A report on the last run:[/bold] {REPORT} (open it in any browser)")


def _cells(run: NetworkRun, truth: dict[str, np.ndarray]) -> list[str]:
    counts = [correct_counts(run[name].rejected, truth[name]) for name in run]
    found, novel, false = (sum(c[key] for c in counts) for key in ("found", "novel", "false"))
    sent = run.transcript.totals()["by_agent"]
    return [
        str(run.n_rejected),
        f"{found} of {novel}",
        str(false),
        f"{sum(sent[name]['sent'] for name in run):,}",
        str(run.rounds),
    ]


if __name__ == "__main__":
    main()

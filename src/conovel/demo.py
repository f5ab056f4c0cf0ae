"""``make demo``: three banks find fraud together, and say why each payment was flagged.

The payments are drawn at random. Each bank has normal payments of its own, and fraud is of two
kinds everywhere. Which payments are fraud is used only to show how well the decisions did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from conovel.report import correct_counts, network_content, write_report
from conovel.rows.storage import write_json
from conovel.runs.agents import Agent
from conovel.runs.network import Network
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import SiteResult

REPORT = Path("conovel-demo.html")
WIDTH = 80
# Of each bank: the usual amount, hour of the day and distance from home in km.
HABITS = {"north": (60.0, 13.0, 5.0), "south": (90.0, 15.0, 9.0), "west": (45.0, 12.0, 3.0)}
N_NULL, N_TEST, N_FRAUD = 1200, 300, 20
SHOWN_ROWS, SHOWN_REASONS = 2, 2  # of each bank, and of each row


def main() -> None:
    """Let the banks decide alone and together, print what they found and why, and report."""
    console = Console()
    console.width = min(console.width, WIDTH)
    rng = np.random.default_rng(0)
    is_fraud = np.arange(N_TEST) >= N_TEST - N_FRAUD
    agents = []
    for name in HABITS:
        ids = [f"{name[0].upper()}{number:03d}" for number in range(N_TEST)]
        normals, today = payments(name, N_NULL, 0, rng), payments(name, N_TEST, N_FRAUD, rng)
        agents.append(Agent(name, normals, today, ids=ids))
    truth = dict.fromkeys(HABITS, is_fraud)

    with Progress(
        SpinnerColumn(), "{task.description}", TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("each bank by itself", total=None)
        alone = Network(agents, regime="isolated").run()
        progress.update(task, description="the banks together")
        run = Network(agents).run()
        content = network_content(run, truth)

    console.print("[bold]conovel[/bold]: three banks that may not show each other a payment\n")
    console.print(_decisions(run, truth))
    n_alone = sum(correct_counts(alone[name].rejected, truth[name])["found"] for name in alone)
    console.print(
        f"Each bank by itself would find {n_alone} of the {len(alone) * N_FRAUD} frauds. Together"
        " they learnt one score: each bank sent counts and sums over its payments.\n"
    )
    console.print(_reasons(run))
    console.print(f"\n[bold]Guaranteed:[/bold] {run.guarantee!s}\n")
    write_json(REPORT.with_suffix(".json"), content)
    write_report(REPORT.with_suffix(".json"), REPORT)
    console.print(f"[bold]Report:[/bold] {REPORT} opens with the reasons of all flagged payments.")


def payments(bank: str, n: int, n_fraud: int, rng: np.random.Generator) -> pa.Table:
    """Draw payments of a bank; the last ones are fraud.

    Half of the frauds are large payments at night and far from home, half are many small payments
    in a row.

    Examples
    --------
    >>> payments("north", 30, 4, np.random.default_rng(0)).shape
    (30, 4)
    """
    usual_amount, usual_hour, usual_km = HABITS[bank]
    amount = usual_amount * np.exp(rng.normal(0, 0.5, n))
    hour = np.clip(rng.normal(usual_hour, 2.5, n), 0, 23.9)
    km = usual_km * np.exp(rng.normal(0, 0.7, n))
    in_a_row = rng.poisson(1.5, n) + 1.0
    large = np.arange(n) >= n - n_fraud // 2
    many = (np.arange(n) >= n - n_fraud) & ~large
    amount[large] *= rng.uniform(2, 5, large.sum())
    hour[large] = rng.uniform(0, 7, large.sum())
    km[large] *= rng.uniform(3, 20, large.sum())
    amount[many] *= rng.uniform(0.05, 0.4, many.sum())
    in_a_row[many] += rng.integers(3, 9, many.sum())
    columns = {"amount": amount, "hour": hour, "km_away": km, "in_a_row": in_a_row}
    return pa.table({column: np.round(values, 1) for column, values in columns.items()})


def _decisions(run: NetworkRun, truth: dict[str, NDArray[np.bool_]]) -> Table:
    """Show one line for each bank, and one for all."""
    heads = ("bank", "known normals", "payments", "flagged", "fraud", "false", "missed")
    title = f"On average at most {run.spec.level} of the flagged payments are false alarms"
    table = Table(*heads, title=title, box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = []
    for name, site in run.items():
        counts = correct_counts(site.rejected, truth[name])
        n_true, missed = counts["found"], counts["novel"] - counts["found"]
        rows.append((run.n_null[name], N_TEST, site.n_rejected, n_true, counts["false"], missed))
        table.add_row(name, *map(str, rows[-1]))
    table.add_section()
    table.add_row("together", *(str(sum(column)) for column in zip(*rows, strict=True)))
    return table


def _reasons(run: NetworkRun) -> Table:
    """Show the most novel payments of each bank, and why they were flagged."""
    table = Table("bank", "payment", "p-value", "why it was flagged", box=None, pad_edge=False)
    for name, site in run.items():
        for line in _told(name, site):
            table.add_row(*line)
    return table


def _told(name: str, site: SiteResult) -> Iterator[tuple[str, str, str, str]]:
    reasons = site.most_novel_reasons(SHOWN_ROWS)
    for row, texts in zip(reasons.rows, reasons.texts(SHOWN_REASONS), strict=True):
        payment = str(row) if site.ids is None else str(site.ids[row])
        yield name, payment, f"{site.p_values[row]:.4f}", texts[0]
        yield from (("", "", "", text) for text in texts[1:])


if __name__ == "__main__":
    main()

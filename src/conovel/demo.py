"""``make demo``: one of three banks knows a new fraud, and together they find it everywhere.

The payments are drawn at random. Each bank has normal payments of its own. The fraud is the same
everywhere: money comes in and most of it leaves within minutes, to a payee who is not known for
long. Each of these is usual by itself. Which payments are fraud is used only to show how well the
decisions did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from conovel.runs.detector import AdaDetect
from conovel.runs.network import Network
from conovel.runs.results import NetworkRun
from conovel.runs.site_results import SiteResult

REPORT = Path("conovel-demo.html")
WIDTH = 80
HABITS = {"north": (60.0, 13.0), "south": (90.0, 15.0), "west": (45.0, 12.0)}  # amount, hour
N_NULL, N_TEST, N_FRAUD, N_CONFIRMED = 1200, 300, 12, 40
KNOWS = "north"
SHOWN_ROWS, SHOWN_REASONS = 2, 2  # of each bank, and of each row


def main() -> None:
    """Let the banks decide alone and together, print what they found and why, and report."""
    console = Console()
    console.width = min(console.width, WIDTH)
    rng = np.random.default_rng(0)
    normals = {bank: payments(bank, N_NULL, 0, rng) for bank in HABITS}
    today = {bank: payments(bank, N_TEST, N_FRAUD, rng) for bank in HABITS}
    confirmed = payments(KNOWS, N_CONFIRMED, N_CONFIRMED, rng)
    agents = [
        Agent(
            bank,
            normals[bank],
            today[bank],
            X_known=confirmed if bank == KNOWS else None,
            ids=[f"{bank[0].upper()}{number:03d}" for number in range(N_TEST)],
        )
        for bank in HABITS
    ]
    truth = dict.fromkeys(HABITS, np.arange(N_TEST) >= N_TEST - N_FRAUD)

    with Progress(
        SpinnerColumn(), "{task.description}", TimeElapsedColumn(), console=console, transient=True
    ) as progress:
        task = progress.add_task("each bank by itself", total=None)
        alone = {
            bank: AdaDetect().detect(
                normals[bank], today[bank], confirmed if bank == KNOWS else None, check=False
            )
            for bank in HABITS
        }
        progress.update(task, description="the banks together")
        run = Network(agents).run()
        progress.update(task, description="reasons and report")
        content = network_content(run, truth)

    console.print(
        f"[bold]conovel[/bold]: three banks that may not show each other a payment. Bank {KNOWS}"
        f" has confirmed {N_CONFIRMED} cases of a new fraud; the other two have never seen it.\n"
    )
    console.print(_decisions(alone, run, truth))
    console.print(
        "Together the banks learnt one score: each sent sums over its payments, and no payment"
        " left a bank.\n"
    )
    console.print(_reasons(run))
    certificate = run.certificate(0.95)
    console.print(
        "\n[bold]Guaranteed:[/bold] on average at most 10 % of the flagged payments are false"
        " alarms.\n[bold]Certificate for this very list:[/bold] with 95 % probability at most"
        f" {certificate.max_false} of the {run.n_rejected} flagged payments are false alarms, and"
        f" at least {certificate.min_novelties} of the tested payments are not normal.\n"
    )
    write_json(REPORT.with_suffix(".json"), content)
    write_report(REPORT.with_suffix(".json"), REPORT)
    console.print(f"[bold]Report:[/bold] {REPORT} opens with the reasons of all flagged payments.")


def payments(bank: str, n: int, n_fraud: int, rng: np.random.Generator) -> pa.Table:
    """Draw payments of a bank; the last ones are fraud.

    Examples
    --------
    >>> payments("north", 30, 4, np.random.default_rng(0)).shape
    (30, 7)
    """
    usual_amount, usual_hour = HABITS[bank]
    columns = {
        "amount": usual_amount * np.exp(0.6 * rng.standard_t(4, n)),
        "hour": np.clip(rng.normal(usual_hour, 3, n), 0, 23.9),
        "km_away": np.exp(rng.normal(1.6, 1.2, n)),
        "in_a_row": rng.poisson(1.2, n) + 1.0,
        "share_of_balance": rng.beta(0.6, 2.5, n),
        "payee_days": 10 ** rng.normal(2.6, 0.6, n),
        "minutes_since_credit": 10 ** rng.normal(2.2, 0.7, n),
    }
    fraud = {
        "amount": usual_amount * np.exp(rng.normal(1.0, 0.3, n_fraud)),
        "share_of_balance": rng.beta(8, 3, n_fraud),
        "payee_days": 10 ** rng.normal(1.5, 0.3, n_fraud),
        "minutes_since_credit": 10 ** rng.normal(1.1, 0.25, n_fraud),
    }
    for column, values in fraud.items():
        columns[column][n - n_fraud :] = values
    digits = {"share_of_balance": 2}
    return pa.table({name: values.round(digits.get(name, 1)) for name, values in columns.items()})


def _decisions(
    alone: Mapping[str, SiteResult], run: NetworkRun, truth: dict[str, NDArray[np.bool_]]
) -> Table:
    """Show one line for each bank, and one for all."""
    heads = ("bank", "frauds", "found alone", "false", "found together", "false", "missed")
    table = Table(*heads, box=SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = []
    for bank, is_fraud in truth.items():
        by_itself, together = (
            correct_counts(result.rejected, is_fraud) for result in (alone[bank], run[bank])
        )
        missed = together["novel"] - together["found"]
        counts = [by_itself["found"], by_itself["false"], together["found"], together["false"]]
        rows.append([N_FRAUD, *counts, missed])
        table.add_row(bank, *map(str, rows[-1]))
    table.add_section()
    table.add_row("all", *(str(sum(column)) for column in zip(*rows, strict=True)))
    return table


def _reasons(run: NetworkRun) -> Table:
    """Show the most novel payments of each bank, and why they were flagged."""
    table = Table("bank", "payment", "why it was flagged", box=None, pad_edge=False)
    for bank, site in run.items():
        for line in _lines(bank, site):
            table.add_row(*line)
    return table


def _lines(bank: str, site: SiteResult) -> Iterator[tuple[str, str, str]]:
    reasons = site.most_novel_reasons(SHOWN_ROWS)
    for row, texts in zip(reasons.rows, reasons.texts(SHOWN_REASONS), strict=True):
        payment = str(row) if site.ids is None else str(site.ids[row])
        yield bank, payment, texts[0]
        yield from (("", "", text) for text in texts[1:])


if __name__ == "__main__":
    main()

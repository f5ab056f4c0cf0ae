"""``conovel report``: a page about any run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conovel.cli.show import require_there, say


def report(
    run: Annotated[
        Path,
        typer.Argument(help="A result of detect, simulate, a deployment or reproduce (.json)."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to write the page; beside the result if not given."
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run.

    Example: `conovel report flagged.parquet.json -o report.html`

    The page says what was decided and what is guaranteed. It shows the most novel rows, the
    step-up, p-values and scores, and for networks every message and what it revealed. It works
    offline, on a phone and on paper.
    """
    require_there(run)
    from conovel.report import write_report  # noqa: PLC0415

    page = out or run.with_suffix(".html")
    write_report(run, page)
    say(f"written to {page}")

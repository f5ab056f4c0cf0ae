"""``conovel verify``: derive the outcome of a run again from its transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(
    run: Annotated[Path, typer.Argument(help="A run written by `conovel simulate --out`.")],
) -> None:
    """Check that the decisions of a run follow from its counts.

    Exit code 0 when everything holds, 1 when something does not.
    """
    from conovel.audit import verify as audit  # noqa: PLC0415
    from conovel.files import read_json  # noqa: PLC0415

    findings = audit(read_json(run))
    for finding in findings:
        typer.echo(f"does not hold: {finding}")
    if findings:
        raise typer.Exit(1)
    typer.echo(f"{run}: the outcome follows from the transcript")

"""``conovel verify``: compute the outcome of a run again from its transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from conovel.cli.show import require_there, say
from conovel.spec.exits import NO


def verify(
    run: Annotated[
        Path, typer.Argument(help="What `simulate`, `run` or `detect` wrote with `--out` (.json).")
    ],
) -> None:
    """Check that everything a run published follows from its counts and ranks.

    Also lists what cannot be derived and was not checked. Exit code 0 if everything holds, 3 if
    something does not.
    """
    require_there(run)
    from conovel.protocol.not_checked import not_checked  # noqa: PLC0415
    from conovel.protocol.replay import verify as audit  # noqa: PLC0415
    from conovel.rows.storage import read_json  # noqa: PLC0415

    content = read_json(run)
    if content.get("command") == "detect":
        content = _with_ranks(content, run)
    findings = audit(content)
    for finding in findings:
        say(f"does not hold: {finding}")
    if findings:
        raise typer.Exit(NO)
    if content.get("command") == "detect":
        say(
            f"{run}: a result of one site, without messages. Its numbers and its guarantee agree"
            + _about_rows(content)
        )
    else:
        say(f"{run}: the outcome follows from the transcript")
    for path in not_checked(content):
        say(f"not checked: {path}")


def _about_rows(content: dict[str, Any]) -> str:
    what, key = ("flags", "flagged_in_runs") if "repeats" in content else ("ranks", "ranks")
    return f", and follow from the {what}" if key in content else f"; its {what} are not here"


def _with_ranks(content: dict[str, Any], run: Path) -> dict[str, Any]:
    """Add ranks or flags and decisions from the file beside the result, if it is there."""
    from conovel.rows.storage import read_columns  # noqa: PLC0415

    name = content.pop("table", None)
    table = run.with_name(name) if isinstance(name, str) and Path(name).name == name else None
    if table is None or not table.exists():
        return content
    keys = {"ranks": "rank", "p_values": "p_value", "rejected": "rejected"}
    if "repeats" in content:
        keys = {name: name for name in ("flagged_in_runs", "times_flagged", "rejected")}
        keys["e_values"] = "e_value"
    columns = read_columns(table, list(keys.values()))
    return content | {key: columns[column] for key, column in keys.items()}

"""``conovel report``, ``verify`` and ``inspect``: what is done with files that a run wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from conovel.cli.show import print_fitted, print_json, require_there, say, styled, text_table
from conovel.cli.tables import with_options
from conovel.spec.exits import NO


@with_options(
    run=typer.Argument(help="A result of detect, simulate, a deployment or reproduce (.json)."),
    out=typer.Option(
        "--out", "-o", help="Where to write the page; beside the result if not given."
    ),
)
def report(*, run: Path, out: Path | None = None) -> None:
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


@with_options(
    run=typer.Argument(help="What `simulate`, `run` or `detect` wrote with `--out` (.json).")
)
def verify(*, run: Path) -> None:
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
    if "weights" in content:
        what, key = "numbers of rows that each row needs", "needs_flagged"
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
    if "weights" in content:
        keys = {name: name for name in ("needs_flagged", "rejected")}
    columns = read_columns(table, list(keys.values()))
    return content | {key: columns[column] for key, column in keys.items()}


@with_options(file=typer.Argument(help="A model as `conovel.encode` makes it."))
def inspect(*, file: Path, json: bool = False) -> None:
    """Describe an encoded model: its size, its shape, and the bytes of each part."""
    require_there(file)
    from conovel.models.wire import MAX_BYTES, decode, describe  # noqa: PLC0415
    from conovel.rows.storage import read_bytes  # noqa: PLC0415

    facts = describe(decode(read_bytes(file, MAX_BYTES)))
    if json:
        print_json(facts)
        return
    table = text_table(title=styled(str(file)), show_header=False)
    table.add_column(style="dim", overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for name, value in _flat(facts):
        table.add_row(name, value)
    print_fitted(table)


def _flat(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in facts.items():
        label = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            rows += _flat(value, f"{label}: ")
        else:
            shown = f"{value:,.2f}" if isinstance(value, float) else value
            rows.append((label, f"{shown:,}" if isinstance(shown, int) else str(shown)))
    return rows

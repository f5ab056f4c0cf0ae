"""``conovel verdicts``: add what was found out about flagged rows, and show what came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import print_fitted, print_json, print_numbers, require_there, say, styled
from conovel.cli.tables import with_options
from conovel.errors import InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.runs.judged import VerdictUpdate
    from conovel.runs.verdicts import Verdicts

DEFAULT = Path("site.verdicts")
_FILE = "The file of verdicts of this site."

verdicts = typer.Typer(
    help="Show the verdicts on flagged rows beside what was promised, or `add` some.",
    invoke_without_command=True,
    rich_markup_mode="markdown",
)


@verdicts.callback()
@with_options(
    context=typer.Option(hidden=True),
    file=typer.Option("--verdicts", help=_FILE),
    picture="Where to draw the shares of false alarms (.svg).",
)
def show(
    *,
    context: typer.Context,
    file: Path = DEFAULT,
    picture: Path | None = None,
    json: bool = False,
) -> None:
    """Show the share of false alarms of every batch and agent beside the promise.

    Example: `conovel verdicts --verdicts site.verdicts --picture shares.svg`

    A false alarm is a flagged row that was judged normal. Its share is among the rows that were
    judged novel or normal; the interval is exact, at 95 %.
    """
    if context.invoked_subcommand is not None:
        return
    require_there(file)
    from conovel.report.verdicts import picture_of  # noqa: PLC0415
    from conovel.rows.storage import write_text  # noqa: PLC0415
    from conovel.runs.verdicts import Verdicts  # noqa: PLC0415

    summary = Verdicts(file).summary()
    if picture is not None:
        if picture.suffix.lower() != ".svg":
            raise InputError(f"{picture}: name the picture .svg")
        write_text(picture, picture_of(summary))
    if json:
        print_json(summary)
        return
    _print_shares(summary)
    if picture is not None:
        say(f"written to {picture}")


def _print_shares(summary: dict[str, Any]) -> None:
    several = len(summary["agents"]) > 1 or any(one["agent"] for one in summary["agents"])
    heads = ["batch", "flagged", "judged", "false", "share", "95 % interval", "promise"]
    rows, totals = [], []
    for one in summary["batches"]:
        name = f"{one['agent']}: {one['name']}" if one["agent"] else one["name"]
        rows.append([name, *_cells(one, [one["level"]])])
    for one in summary["agents"]:
        name = (one["agent"] or "this site") if several else "all batches"
        totals.append([name, *_cells(one, one["levels"])])
    print_numbers("False alarms among rows with a verdict", heads, rows, totals)
    n_unclear = sum(one["n_unclear"] for one in summary["batches"])
    if n_unclear:
        print_fitted(f"{counted(n_unclear, 'row')} judged unclear, in no share.")
    print_fitted(f"{counted(summary['n_known'], 'row')} judged novel can train the next score.")
    for one in summary["agents"]:
        most = max(map(_as_number, one["levels"]), default=1.0)
        if one["n_judged"] and one["low"] > most:
            whose = f"{one['agent']}: " if one["agent"] else ""
            print_fitted(
                styled(
                    (f"{whose}more false alarms than promised.", "bold"),
                    " Are the known normals like today's normal rows? See `conovel check`.",
                )
            )


def _cells(one: dict[str, Any], levels: list[str]) -> list[str]:
    share = "–" if one["share"] is None else f"{one['share']:.3f}"
    interval = f"{one['low']:.3f}–{one['high']:.3f}" if one["n_judged"] else "–"
    promise = "≤ " + ", ".join(f"{_as_number(level):g}" for level in levels)
    numbers = [f"{one[key]:,}" for key in ("n_flagged", "n_judged", "n_normal")]
    return [*numbers, share, interval, promise]


def _as_number(level: str) -> float:
    from conovel.stats.levels import as_level  # noqa: PLC0415

    return float(as_level(level))


@verdicts.command("add")
@with_options(
    flagged=typer.Argument(help="The decisions: what --out of `detect` wrote, or a run (.json)."),
    judged=typer.Argument(help="CSV with the columns id and verdict, and maybe kind and note."),
    file=typer.Option(
        "--verdicts", help=f"{_FILE} By default the one that `detect` was given, else {DEFAULT}."
    ),
    agent="Whose decisions they are, if they do not say it.",
    level="The level of the decisions, if no .json beside them says it.",
    who="Who judged; the user if not given.",
)
def add(
    *,
    flagged: Path,
    judged: Path,
    file: Path | None = None,
    agent: str | None = None,
    level: str | None = None,
    who: str | None = None,
) -> None:
    """Add verdicts on flagged rows: novel, normal or unclear.

    Example: `conovel verdicts add flagged.csv verdicts.csv --verdicts site.verdicts`

    The page of `conovel report` has buttons for verdicts and saves such a CSV. A later verdict on
    a row replaces an earlier one; both stay in the file. Decisions of a network, or of a kept
    detector, are added as a batch of their own. Its verdicts are shown, and train no score.
    """
    require_there(flagged, judged)
    from conovel.runs.verdict_tables import add_from_files  # noqa: PLC0415

    added = add_from_files(flagged, judged, file, agent=agent, level=level, who=who)
    rows = counted(added.n_verdicts, "verdict")
    say(f"{rows} added to {added.file}, on {', '.join(added.batches)}")
    say(f"what came out: conovel verdicts --verdicts {added.file}")


def open_for_detect(
    file: Path | None, learn: bool | None, detector: Path | None
) -> Verdicts | None:
    """Return the verdicts that a detection takes, if any."""
    if file is None:
        if learn is not None:
            raise InputError("--learn is about verdicts: name their file with --verdicts")
        return None
    if detector is not None:
        raise InputError(
            "a kept detector has its calibration rows and cannot learn: leave --verdicts, and add"
            " verdicts on its decisions with `conovel verdicts add`"
        )
    from conovel.runs.verdicts import Verdicts  # noqa: PLC0415

    return Verdicts(file, learn)


def add_verdict_rows(table: Table, update: VerdictUpdate, out: Path | None) -> None:
    """Say in a table what verdicts did."""
    n_rows = update.n_novel + update.n_normal
    learnt = f"{counted(n_rows, 'row')} with a verdict trained the score" if n_rows else ""
    table.add_row("verdicts", f"{update.file}, this batch is {update.batch}")
    if learnt:
        table.add_row("", f"{learnt}: {update.n_novel:,} novel, {update.n_normal:,} normal")
        left = f"{update.n_spent:,} known normals are spent, {update.n_left:,} are left"
        table.add_row("", left)
    if update.waiting:
        table.add_row("", f"verdicts wait: {', '.join(update.waiting)}")
    if out is not None:
        command = f"conovel verdicts add {out} verdicts.csv"
        table.add_row("", f"add verdicts: {command}")

"""Functions that several commands use: all that is printed, progress, and readers of options.

Commands print by the functions here alone. File names, columns, ids and what other parties say
go through :func:`conovel.spec.shown.printable`, and none of it is read as markup.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from conovel.errors import FileError, InputError
from conovel.spec.shown import printable
from conovel.stats.words import counted

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.progress import Progress, ProgressColumn, TaskID
    from rich.table import Table
    from rich.text import Text

    from conovel.runs.site_results import SiteResult
    from conovel.spec.findings import Finding


_log = logging.getLogger("conovel.cli")
_MOST_NOTES = 10  # findings that a terminal shows
ADDRESSES: dict[str, str] = {}  # copy of a table -> where the table is


def addressed(text: str | Path) -> str:
    """Give a text in which tables that were copied are called by their addresses."""
    shown = str(text)
    for copy, address in ADDRESSES.items():
        shown = shown.replace(copy, address)
    return shown


def say(text: str, *, err: bool = False) -> None:
    """Print one line, whatever the text holds."""
    import typer  # noqa: PLC0415

    typer.echo(printable(addressed(text)), err=err)


def warn(text: str) -> None:
    """Print a warning on standard error, and remember it: it is not said again."""
    say(f"conovel: warning: {text}", err=True)
    _NOTES.append(text)


_NOTES: list[str] = []  # notes and warnings of the command that runs


def forget_notes() -> None:
    """Begin a command: nothing was said yet."""
    _NOTES.clear()


def _is_noted(finding: Finding) -> bool:
    whose = f"{finding.agent}: " if finding.agent else ""  # a warning names no agent
    return any(f"{whose}{finding.message}" in note for note in _NOTES)


def _is_one_stream() -> bool:
    """Return whether standard output and standard error go to the same place."""
    try:
        places = [os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr)]
        both = sys.stdout.isatty() and sys.stderr.isatty()
    except (OSError, ValueError, AttributeError):  # a stream that is no file
        return False
    # Windows has no numbers for consoles and pipes.
    return both or (places[0].st_ino != 0 and os.path.samestat(*places))


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a text for the terminal; a part may have a style, such as ("12", "bold")."""
    from rich.text import Text  # noqa: PLC0415

    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((printable(addressed(text)), style) for text, style in pairs))


def print_fitted(content: RenderableType) -> None:
    """Print a table, or a text in lines that fit the terminal."""
    from rich.console import Console  # noqa: PLC0415

    Console().print(styled(content) if isinstance(content, str) else content)


class StageDisplay:
    """Shows the current stage, and prints findings that stay, on standard error."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task, self._notes = progress, task, count(1)

    def stage(self, name: str) -> None:
        """Show the stage that begins."""
        _log.info(printable(name))
        self._progress.update(self._task, description=printable(name))

    def finding(self, finding: Finding) -> None:
        """Print a finding unless a warning was about it; of many, only the first ones."""
        _log.warning(printable(str(finding)))
        console = self._progress.console
        if _is_noted(finding):
            return
        if (number := next(self._notes)) <= _MOST_NOTES:
            console.print(styled(f"conovel: note: {finding}"), soft_wrap=True)
            _NOTES.append(str(finding))
        elif number == _MOST_NOTES + 1:
            console.print("conovel: note: further findings are in the result")


@contextmanager
def stages() -> Iterator[StageDisplay]:
    """Show the current stage and the time spent, on standard error if it is a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield StageDisplay(progress, progress.add_task("starting", total=None))


def bar(done: ProgressColumn, speed_seconds: float) -> Progress:
    """Return a progress bar with the time left, on standard error if it is a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        done,
        TimeElapsedColumn(),
        "left",
        TimeRemainingColumn(),
        console=console,
        speed_estimate_period=speed_seconds,
        disable=not console.is_terminal,
    )


@contextmanager
def bars() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show the progress of each stage and the time left, if standard error is a terminal."""
    from rich.progress import TaskProgressColumn  # noqa: PLC0415

    with bar(TaskProgressColumn(show_speed=True), speed_seconds=60) as progress:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                _log.info(printable(stage))
                # Work that an earlier run did must not count for the speed.
                tasks[stage] = progress.add_task(printable(stage), total=total, completed=done)
            progress.update(tasks[stage], completed=done)

        yield show


def facts_table() -> Table:
    """Return an empty table of two columns, names and values, without lines."""
    table = text_table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", overflow="fold", max_width=24)
    table.add_column(overflow="fold")  # nothing is cut off
    return table


def text_table(**options: Any) -> Table:
    """Return an empty table whose cells are texts, each in one line and without markup."""
    from rich.table import Table  # noqa: PLC0415

    class TextTable(Table):
        def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
            texts = (styled(cell) if isinstance(cell, str) else cell for cell in cells)
            super().add_row(*texts, **more)

    return TextTable(**options)


def require_there(*paths: Path | None) -> None:
    """Refuse files that do not exist, before anything slow is loaded."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileError(f"{path} does not exist")


def split_names(text: str) -> list[str]:
    """Read names separated by commas; a name with a comma stands in quotes.

    Examples
    --------
    >>> split_names('amount, "price, net"')
    ['amount', 'price, net']
    """
    import csv  # noqa: PLC0415

    rows = csv.reader([text], skipinitialspace=True)
    return [name.strip() for row in rows for name in row if name.strip()]


def is_dask(engine: str, scheduler: str | None) -> bool:
    """Return whether ``--engine`` is dask; check it together with ``--scheduler``."""
    if (engine, scheduler) == ("local", None):
        return False
    if engine != "dask" or scheduler is None:
        raise InputError("--engine is local, or dask together with --scheduler ADDRESS")
    return True


def spelled_range(numbers: Iterable[int]) -> str:
    """Write the smallest and the largest of some numbers.

    Examples
    --------
    >>> spelled_range([7, 5, 9]), spelled_range([4, 4]), spelled_range([])
    ('5 to 9', '4', 'none')
    """
    ascending = sorted(numbers)
    if not ascending:
        return "none"
    ends = [f"{ascending[0]:,}", f"{ascending[-1]:,}"]
    return " to ".join(dict.fromkeys(ends))


def times_in_words(result: SiteResult) -> str:
    """Say in how many runs the flagged rows of a site were flagged."""
    return f"{spelled_range(result.times_flagged[result.rejected].tolist())} of {result.repeats}"


def print_findings(findings: Sequence[Finding], headline: str = "") -> None:
    """Print boxes with what speaks against a result, under its headline, and what else to know.

    What a note or a warning said is not said again where it can be read above.
    """
    from rich import box  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from conovel.spec.findings import AGAINST, by_weight, worst_of  # noqa: PLC0415

    one_stream = _is_one_stream()
    for title, part in by_weight(findings):
        others = [one for one in part if not (one_stream and _is_noted(one))]
        words, worst = [], worst_of(part)
        if worst is not None and headline:
            words.append(f"{headline}.")
            if worst not in others:
                short = headline.replace(f": {worst.message};", ";")
                words = [f"{short}. A note above says what was seen, and what to do."]
            elif worst.message in headline:  # then it need not be said again
                words[0] += f" What to do: {worst.fix}."
                others.remove(worst)
        words += map(str, others[:_MOST_NOTES])
        if (more := len(others) - _MOST_NOTES) > 0:
            words.append(f"{counted(more, 'more finding')} in the JSON, under warnings.")
        if words:
            content = Text("\n\n").join(map(styled, words))
            style = "bold" if title == AGAINST else "dim"
            print_fitted(Panel(content, title=title, box=box.ASCII2, border_style=style))


def print_certificate(result: Any, confidence: str | None) -> None:
    """Print a certificate that was asked for, or what is proven where nothing is flagged."""
    if confidence is not None:
        print_fitted(str(result.certificate(confidence)))
    elif not result.n_rejected:
        from conovel.runs.certificates import proof_of  # noqa: PLC0415

        if proof_of(result) is not None:
            print_fitted(str(result.certificate()))


def print_json(content: Any) -> None:
    """Print JSON for a script to read; what is not printable is written as JSON escapes it."""
    import json  # noqa: PLC0415

    text = json.dumps(content, ensure_ascii=False)
    # Outside of its strings, JSON on one line holds printable characters only.
    say("".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text))


_NAME = 24  # characters after which the name of a row goes on in another line


def print_numbers(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    totals: Sequence[Sequence[str]] = (),
) -> None:
    """Print rows of numbers under their heads; the first column names the rows.

    Where they are too wide for the terminal, heads are broken into lines; where that is not
    enough, each row is a block with a number in each line.
    """
    from rich.console import Console  # noqa: PLC0415

    console = Console()
    for words in (heads, [head.replace(" ", "\n") for head in heads]):
        table = _table(title, words, rows, totals)
        if _least_width(console, table) <= console.width:
            console.print(table)
            return
    console.print(styled((title, "italic")))
    for row in (*rows, *totals):
        _print_block(console, heads, row)


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    totals: Sequence[Sequence[str]],
) -> Table:
    from rich import box  # noqa: PLC0415

    table = text_table(title=styled(title), box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column(heads[0], overflow="fold", max_width=_NAME)
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    if totals:
        table.add_section()
    for row in totals:
        table.add_row(*row, style="bold")
    return table


def _least_width(console: Console, table: Table) -> int:
    unlimited = console.options.update(max_width=1 << 16)
    return int(console.measure(table, options=unlimited).minimum)


def _print_block(console: Console, heads: Sequence[str], row: Sequence[str]) -> None:
    block = facts_table()
    for head, cell in zip(heads, row, strict=True):
        if cell:
            block.add_row(head, cell)
    console.print(block)
    console.print()

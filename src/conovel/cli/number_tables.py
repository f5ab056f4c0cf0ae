"""Tables of numbers that fit the terminal: no number is cut or broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from conovel.cli.show import facts_table, styled, text_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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

    Parameters
    ----------
    title : str
    heads : sequence of str
    rows, totals : sequences of rows
        A row has a text for each head; totals come last, in bold.
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

"""``conovel ledger``: show the list so far, or write it to a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from conovel.cli.show import facts_table, print_fitted, print_json, require_there, styled
from conovel.cli.tables import with_options
from conovel.errors import InputError
from conovel.stats.words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.rows.dialects import ReadingOptions
    from conovel.runs.kept import KeptDetector
    from conovel.runs.ledger_records import LedgerUpdate, ListedRow


@with_options(
    path=typer.Argument(help="The file of a ledger, such as month.json."),
    out="Where to write the flagged rows of all batches (.csv, .parquet, .jsonl or .xlsx).",
)
def ledger(*, path: Path, out: Path | None = None, json: bool = False) -> None:
    """Check a ledger, and show what is on the list of all batches so far.

    Example: `conovel ledger month.json --out list.csv`
    """
    require_there(path)
    from conovel.rows.storage import require_writable, write_table  # noqa: PLC0415
    from conovel.runs.ledger import Ledger  # noqa: PLC0415
    from conovel.runs.ledger_file import list_columns, read_prepared  # noqa: PLC0415

    if out is not None:
        require_writable(out)
    book = Ledger.load(path)
    if out is not None:
        write_table(out, list_columns(book))
    masks = zip(book.entries, book.decisions(), strict=True)
    batches = [
        {"name": entry.name, "n_tests": entry.batch.n_tests, "n_listed": int(mask.sum())}
        for entry, mask in masks
    ]
    score = "kept" if book.facts is None else book.facts.score
    promise = book.guarantee
    if json:
        listed = [row._asdict() for row in book.listed()]
        content = {"level": str(book.level), "final": book.final, "score": score}
        print_json({**content, "batches": batches, "list": listed})
        return
    table = facts_table()
    table.add_row("batches", f"{len(batches):,}, {score} scores")
    table.add_row(
        "list so far", f"{book.n_listed:,} of {counted(book.n_tests, 'row')} in all batches"
    )
    for batch in batches:
        table.add_row("", f"{batch['n_listed']:,} of {batch['n_tests']:,} in {batch['name']}")
    if batches and (needs := book.needs(int(str(batches[-1]["n_tests"])))) is not None:
        table.add_row("next", str(needs))
    table.add_row("level", f"{float(book.level):g}{', final decisions' if book.final else ''}")
    table.add_row("guaranteed", promise.statement)
    for assumption in promise.assumptions:
        table.add_row("", styled(("needs:", "dim"), f" {assumption}"))
    if (waiting := read_prepared(path, book)) is not None:
        entry = waiting.ledger.entries[-1]
        table.add_row(
            "prepared",
            f"{entry.batch.n_tests:,} more rows, of a run that was broken off while the sites"
            " wrote their ledgers. The next run of the list takes them or gives them up",
        )
    if out is not None:
        table.add_row("written", str(out))
    print_fitted(table)


_NAMED_ROWS = 10  # rows that a table names


def begin_ledger(path: Path | None, level: str | None, *, final: bool, batches: int) -> str | None:
    """Make a new ledger of final decisions, or check the one that is there; return its level."""
    from conovel.runs.ledger import Ledger  # noqa: PLC0415

    if path is None:
        if final:
            raise InputError("--final is about a ledger: name its file with --ledger")
        return level
    if path.exists():
        ledger = Ledger.load(path)
        if final and not ledger.final:
            raise InputError(f"{path} was begun without --final: begin a new ledger")
        return str(ledger.level) if level is None else level
    if final:
        Ledger("0.1" if level is None else level, True, batches).save(path)
    return level


def read_batch(
    detector: KeptDetector, test: Path, id_column: str | None, reading: ReadingOptions
) -> tuple[Any, Any]:
    """Read the rows to test with the columns of a detector; other columns are left out."""
    from conovel.rows.datafiles import agree_on_features, column_names, open_files  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import read_features, require_features  # noqa: PLC0415

    columns = None if detector.schema is not None else detector.columns
    reading, names = columns_read(detector.schema, reading, columns)
    files = open_files(test, reading)
    names = names or [c for c in column_names(files) if c != id_column]
    types = agree_on_features([files], require_features(names, id_column))
    sample = read_features(test, types, id_column, reading)
    return sample.features, sample.ids


def add_ledger_rows(table: Table, update: LedgerUpdate, path: Path) -> None:
    """Say in a table what a batch changed on the list."""
    table.add_row("ledger", f"{path}, {update.name} is batch {update.number:,}")
    table.add_row(
        "list so far",
        styled(
            (f"{update.n_listed:,}", "bold"),
            f" of {counted(update.n_tests, 'row')} in all batches",
        ),
    )
    for word, rows in (("joined", update.joined), ("left", update.left)):
        if rows:
            table.add_row(word, spelled_rows(rows))
    if update.is_full:
        table.add_row("next", "no further batch: the ledger is full")
    elif update.needs is not None:
        table.add_row("next", str(update.needs))


def spelled_rows(rows: Sequence[ListedRow]) -> str:
    """Name rows by their batch, the first ones of many.

    Examples
    --------
    >>> from conovel.runs.ledger_records import ListedRow
    >>> spelled_rows([ListedRow("mon.csv", 3, None), ListedRow("tue.csv", 0, "t7")])
    '1 of mon.csv: row 3; 1 of tue.csv: t7'
    """
    by_batch: dict[str, list[str]] = {}
    for row in rows:
        by_batch.setdefault(row.batch, []).append(row.named)
    return "; ".join(
        f"{len(names):,} of {batch}: {', '.join(names[:_NAMED_ROWS])}"
        + (f" and {len(names) - _NAMED_ROWS:,} more" if len(names) > _NAMED_ROWS else "")
        for batch, names in by_batch.items()
    )

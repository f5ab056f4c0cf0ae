"""What ``fit``, ``detect`` and ``watch`` share about kept detectors and ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.cli.show import styled
from conovel.stats.words import counted

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.rows.dialects import Reading
    from conovel.runs.kept import KeptDetector
    from conovel.runs.ledger_records import LedgerUpdate, ListedRow

_SHOWN = 10  # rows that a table names


def begin_ledger(path: Path | None, level: str | None, *, final: bool, batches: int) -> str | None:
    """Make a new ledger of final decisions, or check the one that is there; return its level."""
    from conovel.errors import InputError  # noqa: PLC0415
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
    detector: KeptDetector, test: Path, id_column: str | None, reading: Reading
) -> tuple[Any, Any]:
    """Read the rows to test with the columns of a detector; other columns are left out."""
    from conovel.rows.asked import columns_read  # noqa: PLC0415
    from conovel.rows.datafiles import agree_on_features, column_names, open_files  # noqa: PLC0415
    from conovel.rows.storage import read_sample, require_features  # noqa: PLC0415

    known = None if detector.schema is not None else detector.columns
    reading, names = columns_read(detector.schema, reading, known)
    files = open_files(test, reading)
    names = names or [c for c in column_names(files) if c != id_column]
    types = agree_on_features([files], require_features(names, id_column))
    sample = read_sample(test, types, id_column, reading)
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
    needs = "no further batch: the ledger is full" if update.needs is None else str(update.needs)
    table.add_row("next", needs)


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
        f"{len(names):,} of {batch}: {', '.join(names[:_SHOWN])}"
        + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        for batch, names in by_batch.items()
    )

"""Known novelties on the command line: their file, and what is said about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from conovel.cli.tables import FileOptions
    from conovel.rows.known_files import KnownFile
    from conovel.runs.detection import Detection
    from conovel.runs.file_detection import FileDetection


def as_known_file(known: Path | None, kind_column: str | None) -> KnownFile | None:
    """Return the file of known novelties, if there is one."""
    from conovel.rows.known_files import KnownFile  # noqa: PLC0415

    if known is None and kind_column is not None:
        raise InputError("--kind-column names a column of --known: give that file, too")
    return None if known is None else KnownFile(known, kind_column)


def about_known(result: Detection | FileDetection, known: Path | None) -> dict[str, Any]:
    """Return what a summary says of known novelties, where there are any."""
    if known is None:
        return {}
    about: dict[str, Any] = {"path": str(known), "n_rows": result.n_known}
    if (choice := result.choices.get("known")) is not None:
        about["choice"] = choice.to_dict()
    return {"known": about}


def add_known_rows(table: Table, result: Detection | FileDetection) -> None:
    """Say in a table how many novelties were known, and how far they counted."""
    if not result.n_known:
        return
    table.add_row("known novelties", f"{result.n_known:,}")
    if (choice := result.choices.get("known")) is not None:
        table.add_row("", choice.rule)


def read_labelled_known(
    path: Path, rows: pa.Table, label: str, order: str | None, options: FileOptions
) -> pa.Table:
    """Read known novelties for a labelled table; its label and order are no features of theirs."""
    import pyarrow as pa  # noqa: PLC0415

    from conovel.rows.known_files import KnownFile  # noqa: PLC0415

    left_out = {label, order}
    types = pa.schema([field for field in rows.schema if field.name not in left_out])
    reading = options.reading
    more = tuple(name for name in (label, order) if name is not None)
    reading = replace(reading, ignore=(*reading.ignore, *more))
    return KnownFile(path).read(types, None, reading).features

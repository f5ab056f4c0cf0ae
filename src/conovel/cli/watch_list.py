"""The list that ``conovel watch`` writes: flagged rows of all files, with reasons and columns.

Reasons are made when a file is tested, and kept in a file beside the ledger: a row may join the
list later, and another watch may go on. Columns are read from the files of the folder, as long as
they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.errors import ConovelError

if TYPE_CHECKING:
    from conovel.rows.dialects import ReadingOptions
    from conovel.runs.detection import Detection
    from conovel.runs.ledger_records import ListedRow

_LEAST_EXPLAINED = 100  # rows of each file: those that are not flagged today may be later
_MOST_NOTED = 100_000  # rows whose reasons are kept


class ListFile:
    """Writes the list so far."""

    def __init__(self, out: Path, ledger: Path, folder: Path, reading: ReadingOptions) -> None:
        self.out, self.ledger, self.folder, self.reading = out, ledger, folder, reading
        self._notes = ledger.with_name(f".{ledger.name}.reasons")
        self._why = _read_reasons(self._notes)

    def note(self, name: str, result: Detection) -> None:
        """Keep the reasons of the most novel rows of a file."""
        from conovel.rows.storage import write_json  # noqa: PLC0415
        from conovel.site.explain.reasons import MOST_EXPLAINED, Reasons  # noqa: PLC0415

        if result.explainer is None or sum(map(len, self._why.values())) >= _MOST_NOTED:
            return
        n = min(max(result.n_rejected, _LEAST_EXPLAINED), MOST_EXPLAINED, result.scores.size)
        rows = (-result.scores).argsort(kind="stable")[:n]
        rows.sort()
        texts = Reasons.of(result.explainer, result.test_rows, rows).texts()
        self._why[name] = {
            str(row): "; ".join(own) for row, own in zip(rows.tolist(), texts, strict=True)
        }
        write_json(self._notes, self._why)

    def write(self) -> None:
        """Write the rows on the list, their reasons, and their columns."""
        from conovel.rows.storage import write_table  # noqa: PLC0415
        from conovel.runs.ledger import Ledger  # noqa: PLC0415
        from conovel.runs.ledger_file import list_columns  # noqa: PLC0415
        from conovel.site.output import free_name  # noqa: PLC0415

        ledger = Ledger.load(self.ledger)
        rows, columns = ledger.listed(), dict[str, Any](list_columns(ledger))
        if self._why:
            columns["reasons"] = [self._why.get(r.batch, {}).get(str(r.row)) for r in rows]
        for name, values in self._originals(rows).items():
            columns[free_name(name, columns)] = values
        write_table(self.out, columns)

    def _originals(self, rows: Sequence[ListedRow]) -> dict[str, list[str | None]]:
        """Read the columns of some rows as texts; nothing of a file that is gone."""
        from conovel.rows.storage import read_table_as_text  # noqa: PLC0415

        read: dict[str, dict[str, list[str | None]]] = {}
        for batch in {row.batch for row in rows}:
            path, read[batch] = self.folder / batch, {}
            if path.parent != self.folder or path.is_symlink():  # a ledger may name anything
                continue
            with suppress(ConovelError):  # it was moved away, or cannot be read any more
                read[batch] = read_table_as_text(path, self.reading)
        names = dict.fromkeys(name for columns in read.values() for name in columns)
        return {name: [_at(read[row.batch].get(name), row.row) for row in rows] for name in names}


def _at(values: list[str | None] | None, row: int) -> str | None:
    return None if values is None or row >= len(values) else values[row]


def _read_reasons(path: Path) -> dict[str, dict[str, str]]:
    from conovel.rows.storage import read_json  # noqa: PLC0415

    try:
        noted = read_json(path)
    except ConovelError:  # there are none yet, or none that can be read
        return {}
    return {
        batch: {row: text for row, text in rows.items() if isinstance(text, str)}
        for batch, rows in noted.items()
        if isinstance(rows, dict)
    }

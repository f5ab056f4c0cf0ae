"""The list of known normals to look at, as a file: what is read back is not trusted.

A CSV with a line for each row: `id`, `verdict`, `kind` and `note` to fill in, how suspicious the
row is and why, and the row as it is in the file. An id is the place of the row and a digest of its
values, so that a list of other rows, or of a file that was changed or sorted, is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from conovel.errors import FileError, InputError
from conovel.rows.storage import write_rows, write_table
from conovel.runs.clean import Cleaned, Suspicious, clean_normals
from conovel.runs.verdict_file import MAX_TEXT, WORDS
from conovel.runs.verdict_tables import read_texts
from conovel.stats.words import counted

_OWN = ("id", "verdict", "kind", "note", "suspicion", "reasons")
_ID = re.compile(r"row([0-9]{1,15})-([0-9a-f]{12})")
MOST_LISTED = 100_000


class Entry(NamedTuple):
    """One line of a list."""

    row: int
    verdict: str  # empty: not judged yet
    kind: str
    note: str
    suspicion: str
    reasons: str


class Listed(NamedTuple):
    """A list as it was read."""

    entries: tuple[Entry, ...]

    @property
    def verdicts(self) -> dict[int, str]:
        """The verdicts, by row."""
        return {one.row: one.verdict for one in self.entries if one.verdict}

    @property
    def waiting(self) -> int:
        """How many rows have no verdict yet."""
        return sum(not one.verdict for one in self.entries)


def read_list(path: Path, table: Mapping[str, pa.ChunkedArray], n: int) -> Listed:
    """Read a list of rows of a table with n rows; a list of other rows is refused."""
    lines = read_texts(path, ("id", "verdict"))
    if len(lines) > MOST_LISTED:
        raise FileError(f"{path} has {counted(len(lines), 'row')}: a list has {MOST_LISTED:,}")
    entries: dict[int, Entry] = {}
    for line in lines:
        shown = line["id"][:60]
        shape = _ID.fullmatch(line["id"].strip())
        row = int(shape[1]) if shape else n
        if row >= n or shape is None or shape[2] != digest_of(table, row):
            raise InputError(
                f"{path}: {shown!r} is no row of these known normals. Ids must stay as they were"
                " written, and the file of known normals too: list the rows again"
            )
        word = line["verdict"].strip().lower()
        if word and word not in WORDS:
            raise InputError(
                f"{path}: the verdict on {shown!r} is {word[:40]!r}: write {', '.join(WORDS)}, or"
                " leave it empty"
            )
        if row in entries:
            raise InputError(f"{path}: {shown!r} stands there twice: leave one line")
        rest = [line.get(name, "")[:MAX_TEXT] for name in _OWN[2:]]
        entries[row] = Entry(row, word, *rest)
    return Listed(tuple(entries.values()))


def extended(listed: Listed, more: Suspicious) -> Listed:
    """Add rows to look at to a list."""
    added = [
        Entry(int(row), "", "", "", f"{score:.4f}", "; ".join(reasons))
        for row, score, reasons in zip(more.rows, more.scores, more.reasons, strict=True)
    ]
    return Listed((*listed.entries, *added))


def write_list(path: Path, listed: Listed, table: Mapping[str, pa.ChunkedArray]) -> None:
    """Write a list with the rows as they are in the file."""
    rows = np.array([one.row for one in listed.entries], dtype=np.int64)
    own: dict[str, Any] = {
        "id": pa.array([f"row{row}-{digest_of(table, row)}" for row in rows.tolist()], pa.string())
    }
    for name in _OWN[1:]:
        own[name] = pa.array([getattr(one, name) for one in listed.entries], pa.string())
    for name, values in table.items():
        own[f"column {name}" if name in _OWN else name] = values.take(pa.array(rows))
    write_table(path, own)


def digest_of(table: Mapping[str, pa.ChunkedArray], row: int) -> str:
    """Return a short digest of the values of a row."""
    values = [repr(column[row].as_py()) for column in table.values()]
    return hashlib.sha256("\0".join(values).encode()).hexdigest()[:12]


def write_cleaned(
    listed: Listed,
    table: Mapping[str, pa.ChunkedArray],
    out: Path | None,
    known_out: Path | None,
    separator: str = ",",
) -> Cleaned:
    """Write the rows that are left, and those that were judged novel, as they are in the file."""
    cleaned = clean_normals(pa.table(dict(table)), listed.verdicts)
    if out is not None:
        write_rows(out, _columns(cleaned.X_null), separator)
    if known_out is not None and cleaned.n_novel:
        kinds = {one.row: one.kind for one in listed.entries}
        novel = sorted(row for row, word in listed.verdicts.items() if word == "novel")
        columns = _columns(cleaned.X_known)
        if any(kinds[row] for row in novel) and "kind" not in columns:
            columns["kind"] = pa.array([kinds[row] for row in novel], pa.string())
        write_rows(known_out, columns, separator)
    return cleaned


def _columns(table: pa.Table) -> dict[str, Any]:
    return {name: table[name] for name in table.column_names}

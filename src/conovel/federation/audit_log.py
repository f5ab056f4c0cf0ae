"""A site's audit log: the terms of every run, what left the site, what came in, how it ended.

One JSON object a line, chained by hashes as :mod:`conovel.rows.chained_lines` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, ValidationError, convert, defstruct

from conovel.errors import FederationError
from conovel.rows import chained_lines
from conovel.rows.chained_lines import Chain, ChainedFile, LogEntry

MAX_LINE = 1 << 16  # bytes


def as_line(entry: Mapping[str, Any], number: int, previous: str) -> bytes:
    """Return the line of an entry."""
    line = chained_lines.as_line(entry, number, previous)
    if len(line) > MAX_LINE:
        raise FederationError(f"an entry of {len(line):,} bytes is too long for the audit log")
    return line


def read_chain(lines: Iterable[bytes]) -> Chain:
    """Check the lines of a log; stop at the first that does not hold."""
    return chained_lines.read_chain(lines, MAX_LINE, _has_its_fields)


class AuditLog(ChainedFile):
    """The file of the log; several processes of a site may write to it."""

    most, error, what = MAX_LINE, FederationError, "the audit log"
    no_end = (
        "does not end with an entry that holds: see `conovel audit`, then move the file away; the"
        " next run begins a new one"
    )

    def fits(self, entry: LogEntry) -> bool:
        """Tell whether an entry has the fields that are read later."""
        return _has_its_fields(entry)


# What is read of an entry later, by kind; a right hash says nothing of that.
_OF_A_RUN: list[Any] = [("run", str), ("time", Annotated[datetime, Meta(tz=True)])]
_SENT = [*_OF_A_RUN, ("kind", str), ("to", str), ("bytes", int)]
_ENTRIES: dict[str, list[Any]] = {
    "begin": [*_OF_A_RUN, ("operator", str, ""), ("terms", dict[str, Any], {})],
    "data": [*_OF_A_RUN, ("data", str), ("set", str, ""), ("n_null", int), ("n_test", int)],
    "sent": _SENT,
    "sent MODEL": [*_SENT, ("n_train", int)],
    "received": _OF_A_RUN,
    "end": [*_OF_A_RUN, ("state", str), ("reason", str)],
    "refused": _OF_A_RUN,
    "other": [("run", str, "")],
}
_SHAPES = {kind: defstruct("Entry", keys, kw_only=True) for kind, keys in _ENTRIES.items()}


def _has_its_fields(entry: LogEntry) -> bool:
    """Tell whether what is read of an entry later is there."""
    kind = entry.get("entry")
    if not isinstance(kind, str):
        return False
    kind = "sent MODEL" if kind == "sent" and entry.get("kind") == "MODEL" else kind
    try:
        convert(entry, _SHAPES.get(kind, _SHAPES["other"]))
    except (ValidationError, UnicodeError, RecursionError):
        return False
    return True

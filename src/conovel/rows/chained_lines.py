"""Files of entries that only grow: JSON lines, each with a hash of itself and of the line before.

A line holds its own hash first, the SHA-256 of its other fields as they are written, then these
fields: with its number, and with the hash of the line before (``previous``). So a change, a
removal or a swap of lines is found, but not the removal of the last lines: note the last hash
elsewhere to find that.

A process that is killed while it writes leaves an incomplete line. It stays. The next entry is
written on a line after it and holds its hash, so the file says where it was broken off.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, ClassVar, TypeAlias

from conovel.errors import ConovelError, FileError
from conovel.rows.datafiles import first_line
from conovel.rows.private_files import FILE_MODE, make_private_folder
from conovel.rows.storage import locked

LogEntry: TypeAlias = dict[str, Any]
START = "0" * 64  # the hash before the first line
INCOMPLETE = "incomplete line"  # the entry after a line that was broken off
_LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})",(.*\})\n')  # group 2: what the hash is of


@dataclass
class Chain:
    """What a log says."""

    entries: list[LogEntry] = field(default_factory=list)  # the oldest first
    last: str = START  # the hash of the last line
    incomplete: list[int] = field(default_factory=list)  # broken off, as a later line says
    broken: int = 0  # the first line that does not hold; 0 if all do
    why: str = ""


def as_line(entry: Mapping[str, Any], number: int, previous: str) -> bytes:
    """Return the line of an entry."""
    body = _canonical({**entry, "line": number, "previous": previous})
    return b'{"hash":"' + sha256(body).encode() + b'",' + body[1:] + b"\n"


def read_chain(lines: Iterable[bytes], most: int, fits: Callable[[LogEntry], bool]) -> Chain:
    """Check lines, each with its end, one after the other; stop at the first that does not hold.

    Lines that are no entries must be followed by an entry that holds their hash. `most` is the
    length of a line, and `fits` tells whether an entry has the fields that are read later.
    """
    chain, odd, first_odd = Chain(), b"", 0
    for number, line in enumerate(lines, 1):
        entry = _entry(line, number, chain.last)
        if entry is None:
            first_odd = first_odd or number
            odd += line
            if len(odd) > 2 * most:
                break
            continue
        if not fits(entry):
            chain.broken, chain.why = number, "its fields are not those of an entry"
            return chain
        says = entry.get("sha256") if entry.get("entry") == INCOMPLETE else None
        if says != (sha256(odd.removesuffix(b"\n")) if odd else None):
            chain.broken, chain.why = first_odd or number, "it is not the line that was written"
            return chain
        chain.incomplete += range(first_odd, number) if odd else ()
        odd, first_odd = b"", 0
        chain.entries.append(entry)
        chain.last = entry["hash"]
    if odd:
        chain.broken = first_odd
        chain.why = "it is not the line that was written" if b"\n" in odd else "it is incomplete"
    return chain


class ChainedFile:
    """A file of entries; several processes of a site may write to it."""

    most: ClassVar[int] = 1 << 16  # bytes of a line
    error: ClassVar[type[ConovelError]] = FileError
    what: ClassVar[str] = "the file"  # what it is called in an error
    no_end: ClassVar[str] = "does not end with an entry that holds"

    def __init__(self, path: Path) -> None:
        self.path = path

    def fits(self, entry: LogEntry) -> bool:
        """Tell whether an entry has the fields that are read later."""
        return isinstance(entry.get("entry"), str)

    def read(self) -> Chain:
        """Read and check the whole file; one that does not exist is empty."""
        try:
            with self.path.open("rb") as file:
                lines = iter(lambda: file.readline(self.most + 1), b"")
                return read_chain(lines, self.most, self.fits)
        except FileNotFoundError:
            return Chain()
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {first_line(error)}") from None

    def n_lines(self) -> int:
        """Return how many lines the log has, from its last entry; it is not checked."""
        try:
            with self.path.open("rb") as file:
                return self._tail(file).number
        except (OSError, ConovelError):
            return 0

    def append(self, *entries: LogEntry, durable: bool = True) -> None:
        """Add entries; with `durable`, return when the disk has them."""
        with self._locked():
            self._append(entries, durable)

    @contextmanager
    def reading(self) -> Iterator[tuple[Chain, list[LogEntry]]]:
        """Give the log and a list; what is put on the list is added before anybody else writes."""
        with self._locked():
            new: list[LogEntry] = []
            yield self.read(), new
            self._append(new, durable=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private_folder(self.path.parent)
        with locked(self.path):
            yield

    def _append(self, entries: Iterable[LogEntry], durable: bool) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE_MODE)
            with os.fdopen(handle, "rb+") as file:
                tail = self._tail(file)
                file.seek(0, os.SEEK_END)
                file.write(tail.then(entries, self._line))
                file.flush()
                if durable:
                    os.fsync(file.fileno())
        except OSError as error:
            raise FileError(f"{self.path} cannot be written: {first_line(error)}") from None

    def _line(self, entry: LogEntry, number: int, previous: str) -> bytes:
        line = as_line(entry, number, previous)
        if len(line) > self.most:
            raise self.error(f"an entry of {len(line):,} bytes is too long for {self.what}")
        return line

    def _tail(self, file: IO[bytes]) -> Tail:
        size = file.seek(0, os.SEEK_END)
        for window in (1 << 12, 3 * self.most):
            file.seek(max(size - window, 0))
            if tail := find_tail(file.read(), whole=window >= size):
                return tail
        raise self.error(f"{self.path} {self.no_end}")


@dataclass(frozen=True)
class Tail:
    """The end of a log: its last entry, and bytes after it that are no entry."""

    number: int = 0  # of the line of the last entry
    previous: str = START  # its hash
    odd: bytes = b""  # without the end of the last line
    needs_end: bool = False

    def then(
        self, entries: Iterable[LogEntry], line_of: Callable[[LogEntry, int, str], bytes]
    ) -> bytes:
        """Return the bytes to add for entries, and for what was broken off."""
        number, previous = self.number, self.previous
        lines = [b"\n"] if self.needs_end else []
        if self.odd:
            number += self.odd.count(b"\n") + 1
            about = {"sha256": sha256(self.odd), "bytes": len(self.odd)}
            entries = [{"entry": INCOMPLETE, "time": now(), **about}, *entries]
        for entry in entries:
            number += 1
            lines.append(line_of(entry, number, previous))
            previous = lines[-1][9:73].decode()
        return b"".join(lines)


def find_tail(data: bytes, *, whole: bool) -> Tail | None:
    """Find the end of a log in its last bytes; None if there is none that can be gone on from.

    A line with an end that is no entry was changed, not broken off, unless more was broken off
    after it.
    """
    lines = data.split(b"\n")
    number, previous, n_whole = 0, START, 0
    for place in range(len(lines) - 1, 0, -1):
        if (entry := _entry(lines[place - 1] + b"\n")) is not None:
            number, previous, n_whole = entry["line"], entry["hash"], place
            break
    else:
        if not whole:
            return None
    odd = b"\n".join(lines[n_whole:])
    if (last := _entry(odd + b"\n", number + 1, previous)) is not None:
        return Tail(last["line"], last["hash"], needs_end=True)  # only its end was missing
    if odd.endswith(b"\n"):
        return None
    return Tail(number, previous, odd, needs_end=bool(odd))


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def now() -> str:
    """Return the time, to the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _entry(line: bytes, number: int | None = None, previous: str | None = None) -> LogEntry | None:
    """Read a line; None if it is not one that :func:`as_line` made, or not of this place."""
    match = _LINE.fullmatch(line)
    if match is None or sha256(b"{" + match[2]) != match[1].decode():
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry.get("line"), int):
        return None
    if number is not None and (entry["line"], entry.get("previous")) != (number, previous):
        return None
    return dict(entry)


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

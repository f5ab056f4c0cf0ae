"""The file of a site's verdicts: JSON lines that are only added, read with suspicion.

Lines are chained by hashes (:mod:`conovel.rows.chained_lines`). Every line has the fields `hash`,
`line`, `previous`, `entry` and `time`, and those of its kind of entry::

    begin    conovel "verdicts", format 1, key: what digests of rows are keyed with
    sample   digest, rows: digests of rows in ascending order, 8 bytes each, in base64
    batch    name, agent, level, n_tests, ids of the flagged rows, columns (null for an array),
             kinds: the type of each column, values: the flagged rows as they were read, normals
             and tested: the digests of the samples of known normals and of tested rows
    verdict  batch (its number from 1), id, verdict "novel", "normal" or "unclear", kind, note, who
    trained  batches (numbers) whose verdicts a score has learnt from

`values`, `normals` and `tested` are null where a batch comes from a file of decisions. The file
holds rows. It is made for its owner alone and never leaves the site.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from conovel.errors import ConovelError, FileError, InputError, SavedFileError
from conovel.rows.chained_lines import INCOMPLETE, Chain, ChainedFile, LogEntry, now
from conovel.spec.records import Digest, as_record
from conovel.stats.levels import as_level

FORMAT = 1
MAX_BYTES = 256 * 2**20
MAX_LINE = 32 * 2**20
MAX_ROWS = 2**21  # of a sample, so that its digests fit a line
MAX_TEXT = 4096
WORDS = ("novel", "normal", "unclear")
Word: TypeAlias = Literal["novel", "normal", "unclear"]
Digests: TypeAlias = NDArray[np.uint64]
_Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=2**40)]
_Time: TypeAlias = Annotated[str, Meta(max_length=40)]
_TOO_LARGE = "its rows are too many for the file: record fewer rows at a time, or begin a new file"


@dataclass(frozen=True)
class _Begin:
    time: _Time
    conovel: Literal["verdicts"]
    format: int
    key: Digest


@dataclass(frozen=True)
class _Sample:
    time: _Time
    digest: Digest
    rows: str


@dataclass(frozen=True)
class VerdictBatch:
    """One batch: what was promised, which rows were flagged, and what decided about them."""

    time: _Time
    name: _Text
    agent: _Text
    level: _Text
    n_tests: _Count
    ids: list[_Text]
    columns: list[_Text] | None
    kinds: list[list[_Text]] | None
    values: list[list[Any]] | None  # of the flagged rows: numbers, texts or None
    normals: Digest | None
    tested: Digest | None

    @property
    def promise(self) -> Fraction:
        """The level α, exact."""
        return as_level(self.level)

    @property
    def is_recorded(self) -> bool:
        """Whether its verdicts can train: its rows and what decided are in the file."""
        return self.values is not None and self.normals is not None


@dataclass(frozen=True)
class Verdict:
    """What somebody found out about a flagged row."""

    time: _Time
    batch: _Count  # its number, from 1
    id: _Text
    verdict: Word
    kind: _Text
    note: _Text
    who: _Text


@dataclass(frozen=True)
class _Trained:
    time: _Time
    batches: list[_Count]


_RECORDS: dict[str, Any] = {
    "begin": _Begin,
    "sample": _Sample,
    "batch": VerdictBatch,
    "verdict": Verdict,
    "trained": _Trained,
}


@dataclass
class Content:
    """What a file says."""

    key: str = ""
    samples: dict[str, Digests] = field(default_factory=dict)
    batches: list[VerdictBatch] = field(default_factory=list)
    history: list[Verdict] = field(default_factory=list)  # the oldest first
    trained: set[int] = field(default_factory=set)  # numbers of batches
    names: list[frozenset[str]] = field(default_factory=list)  # the ids of each batch
    n_settled: int = 0  # verdicts that were there when a score last began to learn

    @property
    def verdicts(self) -> dict[tuple[int, str], Verdict]:
        """The verdict that holds, by the number of the batch and the id of the row."""
        return {(one.batch, one.id): one for one in self.history}

    @property
    def settled(self) -> dict[tuple[int, str], Verdict]:
        """The verdicts from which the scores of the running epoch learn."""
        return {(one.batch, one.id): one for one in self.history[: self.n_settled]}

    def take(self, entry: LogEntry) -> None:
        """Add an entry if it agrees with those before."""
        kind = entry.get("entry")
        if kind == INCOMPLETE:
            return
        make = _RECORDS.get(str(kind))
        if make is None:
            raise SavedFileError(f"there is no entry {str(kind)[:40]!r}")
        _require((kind == "begin") == (not self.key), "it does not begin with its key")
        chain = {"hash", "line", "previous", "entry"}
        plain = {key: value for key, value in entry.items() if key not in chain}
        _require_unicode(plain)
        record = as_record(make, plain)
        _require_time(record.time)
        getattr(self, f"_take_{kind}")(record)

    def _take_begin(self, record: _Begin) -> None:
        reads = f"its format is {record.format}, and this release reads {FORMAT}"
        _require(record.format == FORMAT, reads)
        self.key = record.key

    def _take_sample(self, record: _Sample) -> None:
        digests = _unpacked(record.rows)
        _require(sample_digest(digests) == record.digest, "a sample has another digest")
        self.samples[record.digest] = digests

    def _take_batch(self, batch: VerdictBatch) -> None:
        _ = batch.promise  # a level
        taken = {(one.name, one.agent) for one in self.batches}
        _require((batch.name, batch.agent) not in taken, "two batches have one name")
        _require(len(batch.ids) <= batch.n_tests, "a batch has more flagged rows than tests")
        for sample in (batch.normals, batch.tested):
            _require(sample is None or sample in self.samples, "a batch has an unknown sample")
        _require_values(batch)
        first = next((one for one in self.batches if one.is_recorded), batch)
        is_same = not batch.is_recorded or _columns_of(first) == _columns_of(batch)
        _require(is_same, "batches have different columns")
        self.batches.append(batch)
        self.names.append(frozenset(batch.ids))

    def _take_verdict(self, verdict: Verdict) -> None:
        _require(verdict.batch <= len(self.batches), "a verdict is about an unknown batch")
        names = self.names[verdict.batch - 1]
        _require(verdict.id in names, "a verdict is about a row that was not flagged")
        self.history.append(verdict)

    def _take_trained(self, record: _Trained) -> None:
        for number in record.batches:
            is_there = number <= len(self.batches) and self.batches[number - 1].is_recorded
            _require(is_there, "a batch that is not recorded has trained")
        self.trained.update(record.batches)
        self.n_settled = len(self.history)


def require_readable(content: Content, entries: Sequence[LogEntry], path: Path) -> None:
    """Refuse entries that could not be read again, before they are written."""
    for entry in entries:
        try:
            content.take(entry)
        except ConovelError as error:
            raise InputError(f"{path} cannot hold this: {error}") from None
    size = path.stat().st_size if path.exists() else 0
    if size + sum(len(json.dumps(entry)) + 300 for entry in entries) > MAX_BYTES:
        raise FileError(
            f"{path} would be too large. Move it to an archive, and begin a new one with fresh"
            " known normals: spent ones are not recognised without it"
        )


class VerdictFile(ChainedFile):
    """The file; several processes of a site may write to it."""

    most, error, what = MAX_LINE, FileError, "a file of verdicts"
    no_end = "does not end with an entry that holds: bring back a copy that does"

    def fits(self, entry: LogEntry) -> bool:
        """Tell whether an entry has a known kind; :meth:`Content.take` reads it."""
        return isinstance(entry.get("entry"), str)

    def content(self) -> Content:
        """Read and check everything; :class:`SavedFileError` for anything else."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return Content()
        except OSError as error:
            raise FileError(f"{self.path} cannot be read: {error}") from None
        if size > MAX_BYTES:
            raise SavedFileError(f"{self.path} is larger than a file of verdicts may be")
        return self.content_of(self.read())

    def content_of(self, chain: Chain) -> Content:
        """Check lines that were read."""
        content = Content()
        try:
            is_end = chain.why == "it is incomplete"  # broken off, and not confirmed to anybody
            _require(not chain.broken or is_end, f"line {chain.broken}: {chain.why}")
            for number, entry in enumerate(chain.entries, 1):
                try:
                    content.take(entry)
                except ConovelError as error:
                    raise SavedFileError(f"entry {number}: {error}") from None
        except ConovelError as error:
            raise SavedFileError(f"{self.path} is not a file of verdicts: {error}") from None
        return content


def begin_entry() -> LogEntry:
    """Return the first entry of a new file."""
    key = token_hex(32)
    return {"entry": "begin", "time": now(), "conovel": "verdicts", "format": FORMAT, "key": key}


def sample_entry(digests: Digests) -> LogEntry:
    """Return the entry of a sample, by the digests of its rows."""
    if digests.size > MAX_ROWS:
        raise InputError(f"a sample has {digests.size:,} rows: {_TOO_LARGE}")
    packed = base64.b64encode(_packed(digests)).decode()
    return {"entry": "sample", "time": now(), "digest": sample_digest(digests), "rows": packed}


def sample_digest(digests: Digests) -> str:
    """Return what a sample is called."""
    return hashlib.sha256(_packed(digests)).hexdigest()


def _packed(digests: Digests) -> bytes:
    return np.sort(digests).astype("<u8").tobytes()


def _unpacked(text: str) -> Digests:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SavedFileError("the digests of a sample are not in base64") from None
    _require(len(data) % 8 == 0, "the digests of a sample are not whole")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise SavedFileError(what)


def _require_unicode(plain: LogEntry) -> None:
    try:
        json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can spell half of a character
        raise SavedFileError("a text is not Unicode") from None


def _require_time(text: str) -> None:
    try:
        has_zone = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_zone = False
    _require(has_zone, f"{text!r} is no time with its zone")


def _require_values(batch: VerdictBatch) -> None:
    """Check that the flagged rows are a table of numbers and texts."""
    values, kinds, columns = batch.values, batch.kinds, batch.columns
    _require((values is None) == (kinds is None), "a batch has values without kinds")
    if values is None or kinds is None:
        _require(columns is None, "a batch has columns without values")
        return
    fits = columns is None or len(columns) == len(set(columns)) == len(kinds)
    _require(fits, "columns and kinds disagree")
    _require(len(values) == len(batch.ids), "a batch has not one row for each id")
    _require(all(len(row) == len(kinds) for row in values), "a row has another width")
    _require(all(_are_alike(column) for column in zip(*values, strict=True)), "values are mixed")


def _columns_of(batch: VerdictBatch) -> list[str] | int:
    """Return the names of columns in one order, or their number where they have no names."""
    return len(batch.kinds or ()) if batch.columns is None else sorted(batch.columns)


def _are_alike(column: Sequence[Any]) -> bool:
    """Tell whether values are all numbers or all texts, but for those that are missing."""
    held = [value for value in column if value is not None]
    if all(isinstance(value, str) for value in held):
        return all(len(value) <= MAX_TEXT for value in held)
    is_number = (isinstance(v, int | float) and not isinstance(v, bool) for v in held)
    return all(is_number) and all(abs(v) <= 1e300 and math.isfinite(v) for v in held)

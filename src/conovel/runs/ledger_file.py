"""The file of a ledger: JSON with a checksum, read with suspicion and replaced as a whole.

Layout (all fields are required, in any order; docs/how-to/every-day.md describes them)::

    {"conovel": "ledger", "format": 2, "level": "1/10", "final": false, "n_batches": 30,
     "facts": {"score": "kept", "source": "…", "schema": "…",
               "settings": {"scorer": "…", "seed": "…"}, empty for a kept score} or null,
     "batches": [{"name": "monday.csv", "content": "…", "n_tests": 500, "n_calibration": 999,
                  "rows": [3, 17], "ranks": [1, 40], "ids": ["a", "b"] or null,
                  "network": [tests, rejections] of all agents or null}, …],
                  in format 3 "evidence": ["40/3", "0"], whose places are the ranks
     "list_size": 0, or in a network the rows on the list over all agents,
     "checksum": SHA-256 of the other fields}

Format 3 has strata, whose columns have a digest in "settings"; format 2 has none. In format 1
facts have no settings, and those of the next batch are noted.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from conovel.errors import ConovelError, FileError, InputError, SavedFileError
from conovel.rows.storage import locked, read_bytes, write_durably
from conovel.runs.detection import Detection
from conovel.runs.ledger import MAX_BATCHES, GiveEvidence, Ledger, final_limit
from conovel.runs.ledger_records import BatchFacts, Entry, LedgerUpdate, Score
from conovel.runs.site_results import with_part
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.records import Digest, as_record
from conovel.stats.batches import Batch, largest_listed_rank

FORMAT, _WITHOUT_STRATA = 3, 2
MAX_BYTES = 256 * 2**20
_MAX_ROWS = 2**40
_MAX_NAME = 4096
_MOST_VALUES = 128  # different e-values of a batch: one for each group of strata, and zero
_RowNumber: TypeAlias = Annotated[int, Meta(ge=0, le=_MAX_ROWS)]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=_MAX_ROWS)]
_Name: TypeAlias = Annotated[str, Meta(max_length=_MAX_NAME)]
_Value: TypeAlias = Annotated[str, Meta(pattern=r"\A[0-9]{1,200}(/[1-9][0-9]{0,199})?\Z")]


@dataclass(frozen=True)
class _FactsRecord:
    score: Score
    source: Digest
    schema: Digest
    settings: Annotated[dict[_Name, Digest], Meta(max_length=32)] = field(default_factory=dict)


@dataclass(frozen=True)
class _BatchRecord:
    name: _Name
    content: Digest
    n_tests: _Count
    n_calibration: _Count
    rows: list[_RowNumber]
    ranks: list[_Count]
    ids: list[str] | None
    network: Annotated[list[_RowNumber], Meta(min_length=2, max_length=2)] | None
    evidence: Annotated[list[_Value], Meta(min_length=1, max_length=_MOST_VALUES)] | None = None


@dataclass(frozen=True)
class _LedgerRecord:
    conovel: Literal["ledger"]
    format: int
    level: str
    final: bool
    n_batches: Annotated[int, Meta(ge=1, le=MAX_BATCHES)]
    facts: _FactsRecord | None
    batches: Annotated[list[Any], Meta(max_length=MAX_BATCHES)]
    list_size: _RowNumber
    checksum: Digest


@dataclass(frozen=True)
class _PreparedRecord:
    conovel: Literal["prepared ledger"]
    format: Literal[1]
    run_id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
    agents: Annotated[list[str], Meta(max_length=MAX_AGENTS)]
    ledger: Any


def open_ledger(ledger: Ledger | str | Path, level: Any) -> Ledger:
    """Return a ledger as it is now: an object, the content of a file, or a new one."""
    if isinstance(ledger, Ledger):
        book = ledger
    elif isinstance(ledger, str | Path):
        path = Path(ledger)
        book = read_ledger(path) if path.exists() else Ledger(level)
    else:
        raise InputError(f"ledger must be a conovel.Ledger or a path, not {ledger!r}")
    if book.level != Ledger(level).level:
        raise InputError(
            f"the ledger has level {book.level} and the detector {Ledger(level).level}: give"
            " both the same level"
        )
    return book


def take_batch(
    ledger: Ledger | str | Path,
    level: Any,
    ranks: NDArray[np.int64],
    n_calibration: int,
    facts: BatchFacts,
    ids: Sequence[Any] | NDArray[Any] | None = None,
    name: str | None = None,
    evidence: GiveEvidence | None = None,
) -> LedgerUpdate:
    """Add a batch to a ledger; a file is locked, read anew, and replaced as a whole."""
    batch = ranks, n_calibration, facts, ids, name, evidence
    if isinstance(ledger, Ledger):
        return open_ledger(ledger, level).add(*batch)
    path = Path(ledger)
    with locked(path):
        for unfinished in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):
            unfinished.unlink(missing_ok=True)  # a process was killed while it wrote
        book = open_ledger(path, level)
        update = book.add(*batch)
        write_ledger(book, path)
    return update


def with_update(result: Detection, update: LedgerUpdate) -> Detection:
    """Let the list of all batches so far decide about the rows of a batch."""
    changed = {"rejected": update.rejected, "guarantee": update.guarantee}
    return with_part(result, "ledger", update, **changed)


def list_columns(ledger: Ledger) -> dict[str, NDArray[Any]]:
    """Return the list so far as columns: the batch of each row, its position and its name."""
    rows = ledger.listed()
    names = np.array(["" if row.id is None else row.id for row in rows], dtype=np.str_)
    return {
        "batch": np.array([row.batch for row in rows], dtype=np.str_),
        "row": np.array([row.row for row in rows], dtype=np.int64),
        "id": names,
    }


def write_ledger(ledger: Ledger, path: Path) -> None:
    """Write a ledger, whole or not at all."""
    write_plain(path, ledger_as_plain(ledger))


def write_plain(path: Path, content: Mapping[str, Any]) -> None:
    """Write what holds a ledger, whole or not at all; it must not be too large to be read."""
    data = json.dumps(content, ensure_ascii=False)
    if len(data) > MAX_BYTES // 4:
        raise FileError(f"{path} would be too large: begin a new ledger")
    write_durably(path, data.encode() + b"\n")


def ledger_as_plain(ledger: Ledger) -> dict[str, Any]:
    """Give a ledger as JSON types, with its checksum."""
    facts = ledger.facts
    content = {
        "conovel": "ledger",
        "format": FORMAT if facts is not None and facts.strata else _WITHOUT_STRATA,
        "level": str(ledger.level),
        "final": bool(ledger.final),
        "n_batches": ledger.n_batches,
        "facts": None if facts is None else _facts_as_plain(facts),
        "batches": [
            {
                "name": entry.name,
                "content": entry.content,
                "n_tests": entry.batch.n_tests,
                "n_calibration": entry.batch.n_calibration,
                "rows": entry.batch.rows.tolist(),
                "ranks": entry.batch.ranks.tolist(),
                "ids": None if entry.ids is None else list(entry.ids),
                "network": None if entry.network is None else list(entry.network),
            }
            | ({"evidence": list(map(str, own))} if (own := entry.batch.values) else {})
            for entry in ledger.entries
        ],
        "list_size": ledger.list_size,
    }
    return {**content, "checksum": _checksum(content)}


def _facts_as_plain(facts: BatchFacts) -> dict[str, Any]:
    plain = facts._asdict() | {"settings": dict(facts.settings)}
    return {name: plain[name] for name in ("score", "source", "schema", "settings")}


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_ledger(path: Path) -> Ledger:
    """Read a ledger and check every field; :class:`SavedFileError` for anything else."""
    return ledger_of_plain(read_plain(path), path)


def read_plain(path: Path) -> Any:
    """Read the JSON of a file that holds a ledger."""
    data = read_bytes(path, MAX_BYTES)
    if len(data) > MAX_BYTES:
        raise SavedFileError(f"{path} is larger than a ledger may be")
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        raise SavedFileError(f"{path} is not a ledger: it holds no JSON") from None


def ledger_of_plain(content: Any, path: Path) -> Ledger:
    """Read what :func:`ledger_as_plain` gave, and check it; `path` is for messages."""
    try:
        return _as_ledger(content)
    except ConovelError as error:
        raise SavedFileError(f"{path} is not a ledger: {error}") from None


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise SavedFileError(what)


def _as_ledger(content: Any) -> Ledger:
    _require(isinstance(content, dict), "it holds no JSON object")
    _require(content.get("conovel") == "ledger", "the field 'conovel' is not 'ledger'")
    format_ = content.get("format")
    is_read = type(format_) is int and 1 <= format_ <= FORMAT
    _require(is_read, f"its format is {format_!r}, and this release reads 1 to {FORMAT}")
    _require(
        content.keys() == {one.name for one in fields(_LedgerRecord)},
        "fields are missing or unknown",
    )
    others = {name: value for name, value in content.items() if name != "checksum"}
    checksum = _checksum(others)
    _require(content["checksum"] == checksum, "the checksum is wrong: the file was changed")
    record = as_record(_LedgerRecord, content)
    ledger = Ledger(record.level, record.final, record.n_batches)
    if (facts := record.facts) is not None:
        has_settings = "settings" in content["facts"]
        _require(has_settings == (format_ > 1), "facts are not as expected")
        settings = tuple(sorted(facts.settings.items()))
        ledger.facts = BatchFacts(facts.score, facts.source, facts.schema, "", settings)
        _require(bool(ledger.facts.strata) == (format_ == FORMAT), "strata go with format 3")
    ledger.list_size = record.list_size
    _require((facts is None) == (not record.batches), "facts and batches contradict each other")
    for number, plain in enumerate(record.batches, 1):
        _take(ledger, as_record(_BatchRecord, plain, f"batch {number}"), f"batch {number}")
    return ledger


def _take(ledger: Ledger, record: _BatchRecord, label: str) -> None:
    """Put a batch into a ledger if it agrees with itself and with the batches before."""
    seen = any(
        record.content == entry.content or record.name == entry.name for entry in ledger.entries
    )
    _require(not seen, f"{label} occurs twice")
    size = record.n_calibration
    most = largest_listed_rank(ledger.level, size) if not ledger.final else size + 1
    values = _as_values(ledger, record.evidence, label)
    most = 1 if ledger.in_network else len(values) - 1 if values else most
    rows, ranks = (np.array(one, dtype=np.int64) for one in (record.rows, record.ranks))
    _require(rows.size == ranks.size, f"{label} has not one rank for each row")
    _require(ranks.max(initial=0) <= most, f"a rank of {label} is too large")
    _require(rows.max(initial=0) < record.n_tests, f"a row of {label} is not among its tests")
    _require(bool((np.diff(rows) > 0).all()), f"the rows of {label} are not in order")
    ids = None if record.ids is None else tuple(record.ids)
    _require(ids is None or len(ids) == rows.size, f"{label} has not one id for each row")
    batch = Batch(record.n_tests, size, rows, ranks, values)
    network = _as_network(ledger, record.network, rows.size, label)
    _check_batch(ledger, batch, label)
    ledger.entries.append(Entry(record.name, record.content, batch, ids, network))


def _as_values(ledger: Ledger, given: list[str] | None, label: str) -> tuple[Fraction, ...]:
    """Check the e-values of a batch with strata: they descend to zero."""
    has_strata = ledger.facts is not None and bool(ledger.facts.strata)
    values = tuple(map(Fraction, given or ()))
    descend = all(one > other for one, other in pairwise(values)) and not any(values[-1:])
    _require(descend and (given is not None) == has_strata, f"the evidence of {label} is wrong")
    return values


def _as_network(
    ledger: Ledger, numbers: list[int] | None, n_rows: int, label: str
) -> tuple[int, int] | None:
    _require((numbers is not None) == ledger.in_network, f"the network of {label} is wrong")
    if numbers is None:
        return None
    n_tests, n_rejected = numbers
    fits = n_rows <= n_rejected <= n_tests and not ledger.final
    _require(fits, f"the numbers of {label} contradict each other")
    return n_tests, n_rejected


def _check_batch(ledger: Ledger, batch: Batch, label: str) -> None:
    """Check that kept scores have one calibration sample, and that final decisions follow."""
    is_kept = ledger.facts is not None and ledger.facts.score == "kept"
    if is_kept and ledger.entries:
        same = ledger.entries[0].batch.n_calibration == batch.n_calibration
        _require(same, f"{label} has another number of calibration rows")
    if ledger.final:
        limit = 0 if ledger.is_full else final_limit(ledger, batch, ledger.n_listed)
        follows = batch.ranks.max(initial=0) <= limit
        _require(follows, f"the decisions of {label} do not follow from its ranks")


PREPARED_FORMAT = 1


class Prepared(NamedTuple):
    """A ledger with one batch more than the file has."""

    run_id: str  # of the run of the batch
    agents: tuple[str, ...]  # who took part in it
    ledger: Ledger


def prepared_path(path: Path) -> Path:
    """Name the file of the prepared batch that belongs to a ledger.

    Examples
    --------
    >>> prepared_path(Path("april.json")).name
    'april.json.prepared'
    """
    return path.with_name(f"{path.name}.prepared")


def write_prepared(prepared: Prepared, path: Path) -> None:
    """Write a prepared batch beside the ledger at `path`, whole or not at all."""
    content = {
        "conovel": "prepared ledger",
        "format": PREPARED_FORMAT,
        "run_id": prepared.run_id,
        "agents": list(prepared.agents),
        "ledger": ledger_as_plain(prepared.ledger),
    }
    write_plain(prepared_path(path), content)


def read_prepared(path: Path, ledger: Ledger) -> Prepared | None:
    """Read the batch that is prepared for a ledger; None if there is none.

    Parameters
    ----------
    path : Path
        Of the ledger.
    ledger : Ledger
        What is in that file. A batch that it has already is not prepared any more.
    """
    beside = prepared_path(path)
    if not beside.exists():
        return None
    prepared = _as_prepared(read_plain(beside), beside)
    earlier, later = ([e.content for e in one.entries] for one in (ledger, prepared.ledger))
    if earlier == later:
        return None
    if earlier != later[:-1] or ledger.level != prepared.ledger.level:
        raise SavedFileError(
            f"{beside} is not about the next batch of {path}: bring back the ledger that belongs"
            " to it, or delete it to give its batch up"
        )
    return prepared


def take_prepared(path: Path, prepared: Prepared) -> None:
    """Put a prepared batch into the ledger."""
    write_ledger(prepared.ledger, path)
    drop_prepared(path)


def drop_prepared(path: Path) -> None:
    """Give a prepared batch up, or remove what is left of one that was taken."""
    prepared_path(path).unlink(missing_ok=True)


def _as_prepared(content: Any, path: Path) -> Prepared:
    try:
        record = as_record(_PreparedRecord, content)
    except ConovelError as error:
        raise SavedFileError(f"{path} is not a prepared ledger: {error}") from None
    ledger = ledger_of_plain(record.ledger, path)
    if not ledger.in_network or not ledger.entries:
        raise SavedFileError(f"{path} is not a prepared ledger: it holds no batch of a network")
    return Prepared(record.run_id, tuple(record.agents), ledger)

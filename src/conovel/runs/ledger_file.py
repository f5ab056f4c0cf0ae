"""The file of a ledger: JSON with a checksum, read with suspicion and replaced as a whole.

Layout (all fields are required, in any order; docs/how-to/every-day.md describes them)::

    {"conovel": "ledger", "format": 2, "level": "1/10", "final": false, "n_batches": 30,
     "facts": {"score": "kept", "source": "…", "schema": "…",
               "settings": {"scorer": "…", "seed": "…"}, empty for a kept score} or null,
     "batches": [{"name": "monday.csv", "content": "…", "n_tests": 500, "n_calibration": 999,
                  "rows": [3, 17], "ranks": [1, 40], "ids": ["a", "b"] or null,
                  "network": [tests, rejections] of all agents or null}, …],
     "list_size": 0, or in a network the rows on the list over all agents,
     "checksum": SHA-256 of the other fields}

Format 1 is read, too. Its facts have no settings: those of the next batch are then noted.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ConovelError, FileError, InputError, SavedFileError
from conovel.rows.storage import locked, read_bytes, write_durably
from conovel.runs.ledger import MAX_BATCHES, Ledger
from conovel.runs.ledger_records import BatchFacts, Entry, LedgerUpdate
from conovel.runs.one_site import Detection
from conovel.runs.site_results import with_part
from conovel.stats.batches import (
    Batch,
    final_by_evidence,
    final_by_ranks,
    largest_listed_rank,
)

FORMAT = 2
MAX_BYTES = 256 * 2**20
_MAX_ROWS = 2**40
_MAX_NAME = 4096
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = {
    "conovel",
    "format",
    "level",
    "final",
    "n_batches",
    "facts",
    "batches",
    "list_size",
    "checksum",
}
_BATCH_FIELDS = {"name", "content", "n_tests", "n_calibration", "rows", "ranks", "ids", "network"}
_FACTS_FIELDS = {1: {"score", "source", "schema"}, 2: {"score", "source", "schema", "settings"}}
_READ = " and ".join(map(str, _FACTS_FIELDS))
_MAX_SETTINGS = 32


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
) -> LedgerUpdate:
    """Add a batch to a ledger; a file is locked, read anew, and replaced as a whole."""
    if isinstance(ledger, Ledger):
        return open_ledger(ledger, level).add(ranks, n_calibration, facts, ids, name)
    path = Path(ledger)
    with locked(path):
        for unfinished in path.parent.glob(f".{glob.escape(path.name)}.[0-9]*"):
            unfinished.unlink(missing_ok=True)  # a process was killed while it wrote
        book = open_ledger(path, level)
        update = book.add(ranks, n_calibration, facts, ids, name)
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
        "format": FORMAT,
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
    except (_WrongError, ConovelError) as error:
        raise SavedFileError(f"{path} is not a ledger: {error}") from None


class _WrongError(Exception):
    """A field that is missing or wrong."""


def _require(ok: bool, what: str) -> None:
    if not ok:
        raise _WrongError(what)


def _as_ledger(content: Any) -> Ledger:
    _require(isinstance(content, dict), "it holds no JSON object")
    _require(content.get("conovel") == "ledger", "the field 'conovel' is not 'ledger'")
    format_ = content.get("format")
    _require(
        type(format_) is int and format_ in _FACTS_FIELDS,
        f"its format is {format_!r}, and this release reads {_READ}",
    )
    _require(set(content) == _FIELDS, "fields are missing or unknown")
    checksum = content.pop("checksum")
    _require(checksum == _checksum(content), "the checksum is wrong: the file was changed")
    _require(isinstance(content["level"], str), "the level is not a text")
    _require(isinstance(content["final"], bool), "final is not true or false")
    n_batches = _whole(content["n_batches"], "n_batches", 1, MAX_BATCHES)
    ledger = Ledger(content["level"], content["final"], n_batches)
    ledger.facts = _as_facts(content["facts"], content["format"])
    batches = content["batches"]
    _require(isinstance(batches, list) and len(batches) <= MAX_BATCHES, "batches is no list")
    ledger.list_size = _whole(content["list_size"], "list_size", 0, _MAX_ROWS)
    _require((ledger.facts is None) == (not batches), "facts and batches contradict each other")
    for number, plain in enumerate(batches, 1):
        _take(ledger, plain, f"batch {number}")
    return ledger


def _as_facts(plain: Any, format_: int) -> BatchFacts | None:
    if plain is None:
        return None
    fields = _FACTS_FIELDS[format_]
    _require(isinstance(plain, dict) and set(plain) == fields, "facts are not as expected")
    _require(plain["score"] in ("kept", "refitted", "network"), "its score is unknown")
    settings = plain.get("settings", {})
    _require(isinstance(settings, dict) and len(settings) <= _MAX_SETTINGS, "settings are none")
    digests = [plain["source"], plain["schema"], *settings.values()]
    _require(all(map(_is_digest, digests)), "a digest is none")
    _require(all(len(name) <= _MAX_NAME for name in settings), "a setting has no name")
    pairs = tuple(sorted(settings.items()))
    return BatchFacts(plain["score"], plain["source"], plain["schema"], "", pairs)


def _take(ledger: Ledger, plain: Any, label: str) -> None:
    _require(
        isinstance(plain, dict) and set(plain) == _BATCH_FIELDS,
        f"the fields of {label} are not as expected",
    )
    name, content = plain["name"], plain["content"]
    _require(isinstance(name, str) and len(name) <= _MAX_NAME, f"{label} has no name")
    _require(_is_digest(content), f"the digest of {label} is none")
    seen = any(content == entry.content or name == entry.name for entry in ledger.entries)
    _require(not seen, f"{label} occurs twice")
    n_tests = _whole(plain["n_tests"], f"n_tests of {label}", 1, _MAX_ROWS)
    size = _whole(plain["n_calibration"], f"n_calibration of {label}", 1, _MAX_ROWS)
    rows = _wholes(plain["rows"], f"rows of {label}", 0, n_tests - 1)
    most = largest_listed_rank(ledger.level, size) if not ledger.final else size + 1
    most = 1 if ledger.in_network else most
    ranks = _wholes(plain["ranks"], f"ranks of {label}", 1, most)
    _require(rows.size == ranks.size, f"{label} has not one rank for each row")
    _require(bool((np.diff(rows) > 0).all()), f"the rows of {label} are not in order")
    ids = plain["ids"]
    if ids is not None:
        is_list = isinstance(ids, list) and len(ids) == rows.size
        _require(is_list and all(isinstance(i, str) for i in ids), f"ids of {label} are wrong")
    batch = Batch(n_tests, size, rows, ranks)
    network = _as_network(ledger, plain["network"], rows.size, label)
    _check_batch(ledger, batch, label)
    names = None if ids is None else tuple(ids)
    ledger.entries.append(Entry(name, content, batch, names, network))


def _as_network(ledger: Ledger, plain: Any, n_rows: int, label: str) -> tuple[int, int] | None:
    _require((plain is not None) == ledger.in_network, f"the network of {label} is wrong")
    if plain is None:
        return None
    numbers = _wholes(plain, f"the numbers of {label}", 0, _MAX_ROWS).tolist()
    _require(len(numbers) == 2, f"the numbers of {label} are not two")
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
        number = len(ledger.entries) + 1
        decide = final_by_ranks if is_kept else final_by_evidence
        limit = decide(batch, ledger.n_listed, ledger.level, number, ledger.n_batches)
        follows = number <= ledger.n_batches and batch.ranks.max(initial=0) <= limit
        _require(follows, f"the decisions of {label} do not follow from its ranks")


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _whole(value: Any, name: str, least: int, most: int) -> int:
    _require(type(value) is int and least <= value <= most, f"{name} is no number in range")
    return int(value)


def _wholes(values: Any, name: str, least: int, most: int) -> NDArray[np.int64]:
    is_list = isinstance(values, list) and all(type(v) is int for v in values)
    _require(is_list and all(least <= v <= most for v in values), f"{name} are wrong")
    return np.array(values, dtype=np.int64)


PREPARED_FORMAT = 1
_RUN_ID = re.compile(r"[0-9a-f]{32}")
_MAX_AGENTS = 200


class Prepared(NamedTuple):
    """A ledger with one batch more than the file has.

    Attributes
    ----------
    run_id : str
        Of the run of the batch.
    agents : tuple of str
        Who took part in it.
    ledger : Ledger
    """

    run_id: str
    agents: tuple[str, ...]
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
    match content:
        case {
            "conovel": "prepared ledger",
            "format": 1,
            "run_id": str(run_id),
            "agents": [*agents],
            "ledger": ledger,
            **others,
        } if not others and _RUN_ID.fullmatch(run_id) and len(agents) <= _MAX_AGENTS:
            if all(isinstance(name, str) for name in agents):
                prepared = Prepared(run_id, tuple(agents), ledger_of_plain(ledger, path))
                if prepared.ledger.in_network and prepared.ledger.entries:
                    return prepared
    raise SavedFileError(f"{path} is not a prepared ledger: fields are missing, unknown or wrong")

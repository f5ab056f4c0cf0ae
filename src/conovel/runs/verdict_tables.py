"""Verdicts from files: a table of decisions or a run, and a CSV of verdicts on its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conovel.errors import FileError, InputError
from conovel.rows.chained_lines import LogEntry, now
from conovel.rows.datafiles import column_names, open_files
from conovel.rows.storage import beside, original_text, read_bytes, read_columns, read_json
from conovel.runs.verdict_file import MAX_TEXT
from conovel.runs.verdicts import Verdicts
from conovel.stats.levels import as_level

_MOST_BYTES = 64 * 2**20
_DEFAULT = Path("site.verdicts")
_NAMES = ("id", "verdict", "kind", "note", "agent", "batch")
_ALSO = {"row": "id", "site": "agent"}  # how the page of a report calls them in other files


class Added(NamedTuple):
    """What was added to which file."""

    n_verdicts: int
    file: Path
    batches: tuple[str, ...]


class Decisions(NamedTuple):
    """What a table or a run says about the rows of one agent."""

    agent: str
    ids: list[str]  # of the flagged rows
    n_tests: int


def add_from_files(
    flagged: Path,
    judged: Path,
    file: Path | None,
    *,
    agent: str | None = None,
    level: str | None = None,
    who: str | None = None,
) -> Added:
    """Add the verdicts of a CSV on the flagged rows of a file of decisions."""
    return add_judged(flagged, read_verdicts(judged), file, agent=agent, level=level, who=who)


def add_judged(
    flagged: Path,
    records: list[dict[str, str]],
    file: Path | None,
    *,
    agent: str | None = None,
    level: str | None = None,
    who: str | None = None,
) -> Added:
    """Add verdicts on the flagged rows of a file of decisions; :func:`read_verdicts` has them."""
    about = _about(flagged)
    if file is None:
        part = about.get("verdicts")
        file = Path(str(part["file"])) if isinstance(part, dict) and "file" in part else _DEFAULT
    book, batches = Verdicts(file), {}
    for one in _decisions(flagged, about, agent):
        batches[one.agent] = _batch_of(book, one, flagged, about, level)
    for record in records:
        name = record.get("agent") or (next(iter(batches)) if len(batches) == 1 else "")
        if name not in batches:
            raise InputError(
                f"row {record['id']!r} is of agent {name!r}, and {flagged} has"
                f" {', '.join(map(repr, batches))}: give the verdicts a column agent, or name it"
                " with --agent"
            )
        record["batch"], record["agent"] = batches[name]
    names = tuple(dict.fromkeys(batch for batch, _ in batches.values()))
    return Added(book.add(records, who=who), file, names)


def flagged_ids(flagged: Path) -> list[str]:
    """Read which rows a table of decisions flagged."""
    return [name for one in _decisions(flagged, {}, None) for name in one.ids]


def read_verdicts(path: Path) -> list[dict[str, str]]:
    """Read a CSV of verdicts as texts; a row without a verdict is left out."""
    rows = read_texts(path, ("id", "verdict"), "and may have kind, note and agent")
    return [
        {name: row.get(name, "")[:MAX_TEXT] for name in _NAMES}
        for row in rows
        if row.get("verdict", "").strip()
    ]


def read_texts(path: Path, needed: Sequence[str], besides: str = "") -> list[dict[str, str]]:
    """Read a CSV that people filled in as texts, by the names of its columns."""
    data = read_bytes(path, _MOST_BYTES)
    if len(data) > _MOST_BYTES:
        raise FileError(f"{path} is too large for a file of verdicts")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} cannot be read: it is not in UTF-8") from None
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    names = {_ALSO.get(name, name) for name in (rows[0] if rows else {}) if name is not None}
    if lacking := [name for name in needed if name not in names]:
        needs = ", ".join(part for part in (" and ".join(needed), besides) if part)
        raise InputError(f"{path} has no column {lacking[0]!r}: it needs {needs}")
    return [
        {_ALSO.get(str(key), str(key)): value or "" for key, value in row.items()} for row in rows
    ]


def _about(flagged: Path) -> dict[str, Any]:
    """Read the JSON that belongs to a file of decisions, or is one."""
    for path in (flagged, beside(flagged), flagged.with_name("run.json")):
        if path.suffix == ".json" and path.exists():
            return read_json(path)
    return {}


def _decisions(flagged: Path, about: Mapping[str, Any], agent: str | None) -> list[Decisions]:
    if flagged.suffix == ".json":
        return _of_run(flagged, about, agent)
    names = column_names(open_files(flagged))
    wanted = [name for name in ("rejected", "id", "agent", "row", "tested") if name in names]
    if "rejected" not in wanted:
        raise InputError(f"{flagged} has no column 'rejected': give a file of decisions")
    columns = read_columns(flagged, wanted)
    n_rows = len(columns["rejected"])
    rejected = np.array([str(value).lower() in ("true", "1") for value in columns["rejected"]])
    tested = np.array([str(v).lower() != "false" for v in columns.get("tested", [""] * n_rows)])
    ids = list(map(str, columns.get("id") or columns.get("row") or range(n_rows)))
    if flagged.suffix.lower() == ".csv":
        ids = list(map(original_text, ids))
    whose = [str(name) for name in columns.get("agent", [agent or _site(about)] * n_rows)]
    listed = []
    for name in dict.fromkeys(whose):
        own = np.array([one == name for one in whose])
        if agent is None or name == agent:
            places = np.flatnonzero(rejected & own).tolist()
            n_tests = int((own & tested).sum())
            listed.append(Decisions(name, [ids[i] for i in places], n_tests))
    if not listed:
        raise InputError(f"{flagged} has no rows of agent {agent!r}")
    return listed


def _site(about: Mapping[str, Any]) -> str:
    """Return whose decisions a JSON is about, if it says so."""
    site = about.get("site", "")
    return site if isinstance(site, str) else ""


def _of_run(flagged: Path, about: Mapping[str, Any], agent: str | None) -> list[Decisions]:
    """Read the flagged rows of a run in one file: their names stand beside their reasons."""
    reasons, decisions = about.get("reasons"), about.get("decisions")
    listed = []
    for name, site in reasons.items() if isinstance(reasons, dict) else ():
        if agent not in (None, name) or not isinstance(site, dict):
            continue
        rows = [str(row.get("row")) for row in site.get("rows", ()) if isinstance(row, dict)]
        if len(rows) < int(site.get("flagged", 0)):
            raise InputError(f"{flagged} does not name all flagged rows of {name!r}")
        own = decisions.get(name, {}) if isinstance(decisions, dict) else {}
        n_tests = sum(map(bool, own.get("tested", ()))) or len(own.get("rejected", ()))
        listed.append(Decisions(name, rows, n_tests or int(about.get("n_test", 0)) or len(rows)))
    if not listed:
        whose = "" if agent is None else f" of agent {agent!r}"
        raise InputError(f"{flagged} names no flagged rows{whose}: give the table of decisions")
    return listed


def _batch_of(
    book: Verdicts, one: Decisions, flagged: Path, about: Mapping[str, Any], level: str | None
) -> tuple[str, str]:
    """Return the name and the agent of the batch of some decisions; it is made if need be."""
    for batch in reversed(book.batches):
        same = sorted(batch.ids) == sorted(one.ids) and batch.n_tests == one.n_tests
        if same and batch.agent in ("", one.agent):
            return batch.name, batch.agent
    stated = level or _level(about)
    if stated is None:
        raise InputError(f"nothing beside {flagged} says its level: give it with --level")
    title = flagged.name if flagged.stem != "decisions" else flagged.absolute().parent.name
    batches = book.batches
    is_taken = (title, one.agent) in [(batch.name, batch.agent) for batch in batches]
    name = f"{title} (batch {len(batches) + 1})" if is_taken else title
    entry: LogEntry = {"entry": "batch", "time": now(), "name": name, "agent": one.agent}
    entry |= {"level": str(as_level(stated)), "n_tests": max(one.n_tests, 1), "ids": one.ids}
    nothing = dict.fromkeys(("columns", "kinds", "values", "normals", "tested"))
    book.record([entry | nothing])
    return name, one.agent


def _level(about: Mapping[str, Any]) -> str | None:
    """Find the level in the record of a detection or of a run."""
    transcript = about.get("transcript")
    spec = transcript.get("spec") if isinstance(transcript, dict) else None
    for place in (about.get("ledger"), about, about.get("spec"), spec):
        if isinstance(place, dict) and isinstance(place.get("level"), str):
            return str(place["level"])
    return None

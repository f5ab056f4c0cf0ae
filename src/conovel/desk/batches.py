"""Flagged rows and the verdicts on them, as a page shows and takes them.

A batch of the file of verdicts and a run that was published are shown alike. The first verdict on
a run makes it a batch of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from conovel.desk.site_view import MOST_BYTES, RunView, SiteView, TooLargeError, bounded
from conovel.errors import ConovelError, InputError, SpentRowsError
from conovel.report.flagged import read_flagged
from conovel.report.view import Checked
from conovel.rows.samples import read_sample
from conovel.rows.schemas import columns_read
from conovel.rows.storage import pick_columns, read_features
from conovel.runs.judged import enough_rows
from conovel.runs.spent_rows import row_digests, spent_mask
from conovel.runs.verdict_file import MAX_TEXT, WORDS, Content, Verdict, VerdictBatch
from conovel.runs.verdict_rows import recorded, require_columns, spent_by
from conovel.runs.verdict_tables import add_judged, flagged_ids
from conovel.runs.verdicts import Verdicts
from conovel.stats.words import briefly

ON_PAGE = 25  # rows that are judged at once
_MOST_NULL = 100 * 2**20  # bytes of known normals that are read for a page
_MOST_CELLS = 8  # values of a row that are shown


@dataclass(frozen=True)
class JudgedRow:
    """A flagged row, why it was flagged, and the verdict on it."""

    place: int  # in its batch
    id: str
    why: str
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Rows:
    """The flagged rows of one batch or run."""

    title: str
    batch: VerdictBatch | None  # in the file of verdicts, if it is there
    ids: list[str]
    why: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, Verdict] = field(default_factory=dict)  # by the id of a row

    @property
    def n_pages(self) -> int:
        """How many pages its rows are."""
        return max(1, -(-len(self.ids) // ON_PAGE))

    @property
    def n_judged(self) -> int:
        """How many rows have a verdict."""
        return sum(name in self.held for name in self.ids)

    def page(self, number: int) -> list[JudgedRow]:
        """Return the rows of a page, from 1."""
        first = (number - 1) * ON_PAGE
        return [
            JudgedRow(first + i, name, self.why.get(name, ""), self.held.get(name))
            for i, name in enumerate(self.ids[first : first + ON_PAGE])
        ]

    def new_verdicts(self, form: Mapping[str, str]) -> list[dict[str, str]]:
        """Read the verdicts of a form that say something new."""
        records = []
        for key, word in form.items():
            if not key.startswith("verdict-") or word not in WORDS:
                continue
            place = key.removeprefix("verdict-")
            if not place.isdecimal() or len(place) > 9 or int(place) >= len(self.ids):
                raise InputError("The form names a row that is not in this batch.")
            name = self.ids[int(place)]
            before = self.held.get(name)
            texts = {k: form.get(f"{k}-{place}", "").strip()[:MAX_TEXT] for k in ("kind", "note")}
            now_is = (word, texts["kind"], texts["note"])
            if before is None or (before.verdict, before.kind, before.note) != now_is:
                records.append({"id": name, "verdict": word, **texts})
        return records


def content_of(site: SiteView) -> Content:
    """Read the file of verdicts."""
    path = site.verdicts_path
    return site.kept.get("verdicts", (path,), lambda: Verdicts(path).read())


def summary_of(site: SiteView) -> dict[str, Any]:
    """Read the shares of false alarms, of every batch and agent."""
    path = site.verdicts_path
    return site.kept.get("summary", (path,), lambda: Verdicts(path).summary())


def rows_of_batch(site: SiteView, number: int) -> Rows:
    """Return the rows of a batch of the file of verdicts, from 1."""
    content = content_of(site)
    if not 1 <= number <= len(content.batches):
        raise InputError("There is no such batch in the file of verdicts.")
    batch = content.batches[number - 1]
    return Rows(batch.name, batch, batch.ids, _values(batch), _held(content, number))


def rows_of_run(site: SiteView, view: RunView, result: Mapping[str, Any]) -> Rows | None:
    """Return the rows that a run flagged here; None if it was not published.

    `result` is where the reasons are; it may be empty.
    """
    path = view.decisions
    if path is None:
        return None
    if path.stat().st_size > MOST_BYTES:
        raise TooLargeError(
            "The decisions are too large for a page: judge them with conovel verdicts add."
        )
    ids = site.kept.get("decisions", (path,), lambda: flagged_ids(path))
    content, why = content_of(site), _reasons(result)
    for number, batch in enumerate(content.batches, 1):
        if batch.name == view.run_id:
            return Rows(batch.name, batch, ids, why, _held(content, number))
    return Rows(view.run_id, None, ids, why)


def save_batch(site: SiteView, number: int, form: Mapping[str, str]) -> int:
    """Add the verdicts of a form on a batch; return how many."""
    rows = rows_of_batch(site, number)
    if rows.batch is None or not (records := rows.new_verdicts(form)):
        return 0
    agent = rows.batch.agent
    named = [record | {"batch": rows.batch.name, "agent": agent} for record in records]
    return Verdicts(site.verdicts_path).add(named, who=_who(form))


def save_run(site: SiteView, view: RunView, form: Mapping[str, str]) -> int:
    """Add the verdicts of a form on the rows of a run; return how many."""
    rows = rows_of_run(site, view, {})
    if rows is None or view.decisions is None or not (records := rows.new_verdicts(form)):
        return 0
    bounded(view.decisions.with_name("run.json"))  # its level is read there
    return add_judged(view.decisions, records, site.verdicts_path, who=_who(form)).n_verdicts


def _who(form: Mapping[str, str]) -> str | None:
    return form.get("who", "").strip()[:200] or None


def _held(content: Content, number: int) -> dict[str, Verdict]:
    return {name: one for (batch, name), one in content.verdicts.items() if batch == number}


def _values(batch: VerdictBatch) -> dict[str, str]:
    """Return the first values of each row, in words."""
    if batch.values is None:
        return {}
    names = batch.columns or [f"column {j + 1}" for j in range(len(batch.kinds or ()))]
    return {
        name: ", ".join(
            f"{column} {_cell(value)}"
            for column, value in list(zip(names, row, strict=True))[:_MOST_CELLS]
        )
        + (f" and {len(row) - _MOST_CELLS} more" if len(row) > _MOST_CELLS else "")
        for name, row in zip(batch.ids, batch.values, strict=True)
    }


def _cell(value: Any) -> str:
    if value is None:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else briefly(value, 40).strip("'")


def _reasons(result: Mapping[str, Any]) -> dict[str, str]:
    """Return why each row was flagged, as the report says it."""
    try:
        flagged = read_flagged(Checked(result))
    except ConovelError:
        return {}
    return {} if flagged is None else {row.id or row.row: row.why for row in flagged.rows}


class CalibrationRows(NamedTuple):
    """The known normals that a detection with the file of verdicts would have today."""

    n_spent: int  # verdicts that they decided have trained a score
    n_used: int  # decided about a batch that has not trained
    n_fresh: int  # no batch had them
    n_needed: int  # fresh ones from which on new verdicts train


def calibration_rows(site: SiteView) -> CalibrationRows | str:
    """Count spent and fresh known normals; return why not, where that cannot be told."""
    file, path = site.file, site.verdicts_path
    if not file.null.is_file():
        return "They are a folder of files, or at an address, and are not counted here."
    if file.null.stat().st_size > _MOST_NULL:
        return f"Their file has more than {_MOST_NULL >> 20} MB, and is not counted here."
    try:
        return site.kept.get("calibration", (path, file.null), lambda: _count(site))
    except SpentRowsError as error:
        return str(error)
    except ConovelError as error:
        return f"They cannot be counted: {error}"


def _count(site: SiteView) -> CalibrationRows:
    file, content = site.file, content_of(site)
    reading, columns = columns_read(file.schema, file.reading, file.columns)
    test = file.test if file.test.exists() else file.null
    types = pick_columns(file.null, test, columns, file.id_column, reading)
    features = read_features(file.null, types, None, reading).features
    null = read_sample(features, "X_null", None, file.schema)
    level = content.batches[-1].promise if content.batches else Fraction(1, 10)
    if not recorded(content):
        return CalibrationRows(0, 0, len(null), enough_rows(level))
    require_columns(content, null)
    digests = row_digests(null, content.key)
    spent = spent_mask(digests, spent_by(content, content.trained))
    used = spent_mask(digests, spent_by(content, recorded(content)))
    n_spent, n_fresh = int(spent.sum()), int((~used).sum())
    n_used = len(null) - n_spent - n_fresh
    return CalibrationRows(n_spent, n_used, n_fresh, enough_rows(level))

"""Decisions on rows that are kept in a folder, written chunk by chunk in the order of the rows."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.errors import FileError
from conovel.rows.datafiles import changed, first_line
from conovel.rows.pieces import FileSource
from conovel.rows.private_files import keep_mode, make_private_file
from conovel.rows.storage import neutral_table
from conovel.rows.stored import StoredRows
from conovel.rows.tables import numbered, with_ids
from conovel.rows.written import writer, written_as
from conovel.scorers.base import Vector
from conovel.site.blocks import Ranked, RankedPart
from conovel.site.checks.rows import CheckedRows, Outcome, check_outcome, check_rows
from conovel.site.explain.reasons import MOST_EXPLAINED, Reasons, most_novel, n_explained
from conovel.site.roaming import Roaming
from conovel.site.site import Site
from conovel.site.stored_blocks import Store
from conovel.site.strata import StrataResult, checked_within
from conovel.spec.findings import Finding
from conovel.stats.cells import reaches
from conovel.stats.stepup import within_limit

_GROUP = 1 << 20  # rows of a Parquet row group: pyarrow's own default, whatever the pieces


def explain_files(site: Site, limit: int, most: int | None = None) -> Reasons:
    """Explain the most novel of the rejected rows; only they are read again.

    Without a number these are as many as :func:`n_explained` says.
    """
    ranked, source, store = _ranked_files(site)
    chosen, novelty = _most_novel(site, ranked, limit, most)
    store.begin("explaining")
    assert site.explainer is not None  # noqa: S101  (rows are ranked before)
    rows, ids = source.rows_at(chosen, store.plan.piece)
    reasons = Reasons.of(site.explainer, rows, np.arange(chosen.size), ids)
    return replace(reasons, rows=chosen, novelty=novelty)


def _ranked_files(site: Site) -> tuple[Ranked, FileSource, Store]:
    """Return what is written of a site whose rows are kept in a folder."""
    assert isinstance(site.test, StoredRows)  # noqa: S101
    assert site.ranked is not None and site.store is not None  # noqa: PT018, S101
    return site.ranked, site.test.source, site.store


def _rejected(site: Site, part: RankedPart, limit: int) -> NDArray[np.bool_]:
    """Tell which tested rows of a part are rejected."""
    if site.scale is not None:
        codes = site.strata_rows.of_part(part, site.tested)
        return site.scale.rejected(codes, site.scale.cells(codes, part.scores))
    if site.cells_of is None:
        return within_limit(part.ranks, limit)
    return reaches(site.cells_of(part.scores), limit)


def _most_novel(
    site: Site, ranked: Ranked, limit: int, most: int | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the most novel rejected rows, and the order of their novelty."""
    rows, ranks = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
    scores, n_flagged = np.zeros(0), 0
    for part in ranked.parts():
        here = np.flatnonzero(_rejected(site, part, limit))
        tested = np.flatnonzero(ranked.tested[part.start : part.stop])
        rows = np.append(rows, part.start + tested[here])
        ranks, scores = np.append(ranks, part.ranks[here]), np.append(scores, part.scores[here])
        n_flagged += here.size
        kept = np.lexsort((-scores, ranks))[: MOST_EXPLAINED if most is None else most]
        rows, ranks, scores = rows[kept], ranks[kept], scores[kept]
    if most is None:
        most = n_explained(n_flagged, int(ranked.tested.sum()), drift=False)
    return most_novel(rows, ranks, scores, most)


class DecisionFile:
    """Writes the decisions of a site chunk by chunk, and keeps what checks and reports need.

    Parameters
    ----------
    site : Site
        Its rows are kept in a folder, and are ranked.
    limit : int
        The largest rejected rank, or the lowest rejected cell.
    conforming : mapping of int, optional
        In the regime `consensus`, from which cell of distances on rows do not conform to each
        agent's normals.

    Attributes
    ----------
    sketch : Sketch
        What a report draws of the rows of a site alone.
    histogram : RankHistogram
        How often each rank occurs.
    """

    sketch: Sketch

    def __init__(
        self, site: Site, limit: int, conforming: Mapping[str, int] | None = None
    ) -> None:
        self.site, self.limit, self.conforming = site, limit, conforming
        self._ranked, self._source, self._store = _ranked_files(site)
        self.histogram = self._ranked.histogram
        self.n_flagged: NDArray[np.int64] | None = None  # of each stratum, once written
        self.strata = None if site.strata is None else StrataResult.of(site.strata, site.weight)
        self._seen = SeenDecisions(CheckedRows.of(site.null, site.test))

    def write(self, path: Path, reasons: Reasons | None = None) -> None:
        """Write the decisions of an agent, as `conovel.SiteResult` has them."""
        seen = map(self._seen.see, map(self._decide, self._ranked.parts("writing")))
        write_rows(path, with_reasons(seen, reasons), self._store.work.folder)

    def write_alone(
        self, path: Path, reasons: Reasons | None = None, keep_columns: bool = False
    ) -> None:
        """Write the decisions of a site alone, as `conovel.Detection` has them."""
        self.sketch = Sketch(self._ranked)
        ranks, adjusted_p_values = self.histogram.adjusted()
        adjusted = np.zeros(self.histogram.n_calibration + 2)  # by rank
        adjusted[ranks] = adjusted_p_values

        def decide(part: RankedPart) -> pa.Table:
            return self._table(
                part,
                score=part.scores,
                rank=part.ranks,
                p_value=part.ranks / (self.histogram.n_calibration + 1),
                adjusted_p_value=adjusted[part.ranks],
                rejected=within_limit(part.ranks, self.limit),
            )

        of_part = decide if self.strata is None else self._decide
        seen = map(self._seen.see, map(of_part, self._ranked.parts("writing")))
        tables = with_reasons(map(self.sketch.draw, seen), reasons)
        if keep_columns:
            tables = with_originals(tables, self._source, self._store.plan.piece)
        write_rows(path, tables, self._store.work.folder)

    def _table(self, part: RankedPart, **columns: NDArray[Any]) -> pa.Table:
        assert isinstance(self.site.test, StoredRows)  # noqa: S101
        ids = self.site.test.ids(part.start)
        named = with_ids(ids, **columns)
        return pa.table(numbered(named, part.stop - part.start, part.start))

    def _decide(self, part: RankedPart) -> pa.Table:
        """Give all rows of a part; one that was not tested has rank 0 and no score."""
        here = slice(part.start, part.stop)
        tested = self._ranked.tested[here]
        scores, ranks = np.full(tested.size, np.nan), np.zeros(tested.size, dtype=np.int64)
        rejected = np.zeros(tested.size, dtype=np.bool_)
        scores[tested], ranks[tested] = part.scores, part.ranks
        rejected[tested] = _rejected(self.site, part, self.limit)
        if self.strata is not None:
            codes = self.strata.codes[here][rejected]
            own = np.bincount(codes, minlength=len(self.strata.labels))
            self.n_flagged = own if self.n_flagged is None else self.n_flagged + own
        size: Any = self.histogram.n_calibration
        stratum, normal_at = {}, {}
        if self.strata is not None:
            size = self.strata.n_calibration_of_rows[here]
            stratum = {"stratum": self.strata.label_of_rows[here].tolist()}
        p_values = np.where(tested, ranks / (size + 1), np.nan)
        if self.conforming:
            cells = {name: own[here] for name, own in self.site.cells_by_agent.items()}
            roaming = Roaming.of(cells, self.conforming)
            normal_at = {"normal_at": roaming.spelled.tolist()}
        return self._table(
            part,
            **stratum,
            score=scores,
            rank=ranks,
            p_value=p_values,
            tested=tested,
            **normal_at,
            rejected=rejected,
        )

    def findings(self, *others: Finding | None, name: str = "") -> tuple[Finding, ...]:
        """Look for what speaks against the decisions, once they are written."""
        n_smallest, n_agents = self.histogram.at_most(1), self.site.work.n_agents
        compared, of_strata = checked_within(self._seen.checked, self.site.strata)
        return self._seen.findings(n_smallest, (*others, *of_strata), n_agents, name, compared)


def with_reasons(tables: Iterator[pa.Table], reasons: Reasons | None) -> Iterator[pa.Table]:
    """Add the reasons of the rows to tables that follow one another."""
    start = 0
    for table in tables:
        stop = start + table.num_rows
        columns = {} if reasons is None else reasons.file_columns(start, stop)
        for name, values in columns.items():
            table = table.append_column(name, values)  # noqa: PLW2901
        yield table
        start = stop


def with_originals(
    tables: Iterator[pa.Table], source: FileSource, size: int
) -> Iterator[pa.Table]:
    """Add the columns that the rows came with; one of a name that is taken gets another name."""
    for decided, originals in zip_longest(tables, source.originals(size)):
        if decided is None or originals is None or decided.num_rows != originals.num_rows:
            raise changed(source.path)
        table = decided
        for name in originals.column_names:
            table = table.append_column(free_name(name, table.column_names), originals[name])
        yield table


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name for an original column.

    Examples
    --------
    >>> free_name("amount", ["score"]), free_name("score", ["score"])
    ('amount', 'original score')
    """
    while name in taken:
        name = f"original {name}"
    return name


def write_rows(path: Path, tables: Iterator[pa.Table], beside: Path) -> None:
    """Write tables as one file, whole or not at all.

    The bytes depend on the rows only, not on how they are spread over the tables; they are
    those of :func:`conovel.rows.storage.write_table`. Until it is whole, the file is in the folder
    `beside`, on the same disk.
    """
    temporary, form = beside / path.name, written_as(path)
    if form == "csv":
        tables = map(neutral_table, tables)
    try:
        make_private_file(temporary)
        first = next(tables)
        with writer(temporary, form, first.schema) as file:
            waiting = first.slice(0, 0)
            for table in chain([first], tables):
                waiting = pa.concat_tables([waiting, table])
                while waiting.num_rows >= _GROUP:
                    file.write_table(waiting.slice(0, _GROUP).combine_chunks())
                    waiting = waiting.slice(_GROUP)
            if waiting.num_rows:
                file.write_table(waiting.combine_chunks())
        keep_mode(path, temporary)
        os.replace(temporary, path)
    except FileError:  # about a file that is read
        raise
    except (OSError, pa.ArrowException) as error:
        raise FileError(f"{path} cannot be written: {first_line(error)}") from None


_BINS = 30
_MOST_ROWS = 100


class Sketch:
    """Counts rows by their scores, and keeps the most novel ones.

    Parameters
    ----------
    ranked : Ranked
        The scores, for their range.

    Attributes
    ----------
    tests, rejected : int arrays
        Test rows, and those rejected, by score.
    lowest_rejected : float
        Infinite if none was rejected.
    most_novel : pyarrow Table
        The first rows by rank and score.
    """

    def __init__(self, ranked: Ranked) -> None:
        self._calibration = ranked.calibration_scores
        scores = [self._calibration, *(part.scores for part in ranked.parts())]
        self._low = float(min(one.min(initial=np.inf) for one in scores))
        self._high = float(max(one.max(initial=-np.inf) for one in scores))
        self.tests = np.zeros(_BINS, dtype=np.int64)
        self.rejected = np.zeros(_BINS, dtype=np.int64)
        self.lowest_rejected = np.inf
        self.most_novel = pa.table({})
        self._n_drawn = 0

    @property
    def drawable(self) -> bool:
        """Whether an axis can hold the scores."""
        return bool(np.isfinite(self._low) and np.isfinite(self._high))

    @property
    def edges(self) -> Vector:
        """Edges of the bins."""
        low, high = self._low, self._high
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = low - 0.5, high + 0.5
        return np.linspace(low, high, _BINS + 1)

    @property
    def calibration(self) -> NDArray[np.int64]:
        """Calibration rows by score."""
        return self._count(self._calibration)

    def _count(self, scores: Vector) -> NDArray[np.int64]:
        """Count by bins; told that they are even, numpy need not search for each score."""
        edges = self.edges
        return np.histogram(scores, _BINS, (edges[0], edges[-1]))[0]

    def draw(self, decided: pa.Table) -> pa.Table:
        """Count rows by score and keep the most novel ones."""
        scores = decided["score"].to_numpy()
        flagged = scores[decided["rejected"].to_numpy()]
        if self.drawable:
            self.tests += self._count(scores[~np.isnan(scores)])  # of rows that are tested
            self.rejected += self._count(flagged)
        self.lowest_rejected = float(flagged.min(initial=self.lowest_rejected))
        self._keep_most_novel(decided)
        return decided

    def _keep_most_novel(self, decided: pa.Table) -> None:
        shown = decided.select(["score", "rank", "rejected"])
        place = np.arange(self._n_drawn, self._n_drawn + decided.num_rows)
        self._n_drawn += decided.num_rows
        name = decided["id"] if "id" in decided.column_names else pa.chunked_array([place])
        shown = shown.append_column("row", name)
        if (untested := shown["rank"].to_numpy() == 0).any():
            shown = shown.filter(pa.array(~untested))
        if not shown.num_rows:
            return
        shown = _first(shown)
        if self.most_novel.num_rows:
            shown = _first(pa.concat_tables([self.most_novel, shown]))
        self.most_novel = shown


def _first(rows: pa.Table) -> pa.Table:
    """Take the first rows by rank, score and place."""
    ranks = rows["rank"].to_numpy()
    last = min(_MOST_ROWS, ranks.size) - 1
    near = np.flatnonzero(ranks <= np.partition(ranks, last)[last])
    order = np.lexsort((-rows["score"].to_numpy()[near], ranks[near]))
    return rows.take(near[order[:_MOST_ROWS]])


class SeenDecisions:
    """Keeps the decisions on the rows that are looked at, and counts all.

    Parameters
    ----------
    checked : CheckedRows
        The rows.
    """

    def __init__(self, checked: CheckedRows) -> None:
        self.checked = checked
        self._parts: list[pa.Table] = []
        self._n_seen = self._n_tested = self._n_rejected = 0

    def see(self, part: pa.Table) -> pa.Table:
        """Look at decisions, in the order of the rows."""
        stride = self.checked.test_stride
        places = np.arange(-self._n_seen % stride, part.num_rows, stride)
        names = [name for name in ("id", "tested", "rejected") if name in part.column_names]
        self._parts.append(part.select(names).take(pa.array(places)))
        self._n_seen += part.num_rows
        self._n_rejected += int(part["rejected"].to_numpy().sum())
        is_some = "tested" in names
        self._n_tested += int(part["tested"].to_numpy().sum()) if is_some else part.num_rows
        return part

    def findings(
        self,
        n_smallest: int,
        others: Sequence[Finding | None],
        n_agents: int,
        name: str,
        compared: CheckedRows,
    ) -> tuple[Finding, ...]:
        """Look for what speaks against the decisions; `compared` are the rows of before."""
        seen = pa.concat_tables(self._parts)
        rejected = seen["rejected"].to_numpy()
        tested = np.ones(rejected.size, dtype=np.bool_)
        if "tested" in seen.column_names:
            tested = seen["tested"].to_numpy()
        ids = seen["id"].to_numpy() if "id" in seen.column_names else None
        before = check_rows(compared, ids, lambda _: None, *others, n_agents=n_agents)
        counts = self._n_tested, self._n_rejected, n_smallest
        return check_outcome(self.checked, Outcome(rejected, tested, *counts), before, name)

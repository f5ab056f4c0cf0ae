"""What a report draws of rows that stream by: ranges, histograms and the most novel rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.scorers.base import Vector
from conovel.site.blocks import Ranked
from conovel.site.checks.rows import Outcome, check_outcome, check_rows
from conovel.site.checks.sample import Looked
from conovel.spec.findings import Finding

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
            self.tests += self._count(scores)
            self.rejected += self._count(flagged)
        self.lowest_rejected = float(flagged.min(initial=self.lowest_rejected))
        self._keep_most_novel(decided)
        return decided

    def _keep_most_novel(self, decided: pa.Table) -> None:
        shown = decided.select(["score", "rank", "rejected"])
        place = np.arange(self._n_drawn, self._n_drawn + decided.num_rows)
        self._n_drawn += decided.num_rows
        name = decided["id"] if "id" in decided.column_names else pa.chunked_array([place])
        shown = _first(shown.append_column("row", name))
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
    looked : Looked
        The rows.
    """

    def __init__(self, looked: Looked) -> None:
        self.looked = looked
        self._parts: list[pa.Table] = []
        self._n_seen = self._n_tested = self._n_rejected = 0

    def see(self, part: pa.Table) -> pa.Table:
        """Look at decisions, in the order of the rows."""
        stride = self.looked.test_stride
        places = np.arange(-self._n_seen % stride, part.num_rows, stride)
        names = [name for name in ("id", "tested", "rejected") if name in part.column_names]
        self._parts.append(part.select(names).take(pa.array(places)))
        self._n_seen += part.num_rows
        self._n_rejected += int(part["rejected"].to_numpy().sum())
        is_some = "tested" in names
        self._n_tested += int(part["tested"].to_numpy().sum()) if is_some else part.num_rows
        return part

    def findings(
        self, n_smallest: int, known: Sequence[Finding | None], n_agents: int, name: str
    ) -> tuple[Finding, ...]:
        """Look for what speaks against the decisions."""
        seen = pa.concat_tables(self._parts)
        rejected = seen["rejected"].to_numpy()
        tested = np.ones(rejected.size, dtype=np.bool_)
        if "tested" in seen.column_names:
            tested = seen["tested"].to_numpy()
        ids = seen["id"].to_numpy() if "id" in seen.column_names else None
        before = check_rows(self.looked, ids, lambda _: None, *known, n_agents=n_agents)
        counts = self._n_tested, self._n_rejected, n_smallest
        return check_outcome(self.looked, Outcome(rejected, tested, *counts), before, name)

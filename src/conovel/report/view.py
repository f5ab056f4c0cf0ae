"""The content of a page as plain records: the picture, tables, sections and the story."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from conovel.protocol.fields import MAX_AGENTS
from conovel.report.checked import Checked
from conovel.report.picture_content import BINS, FORMAT, MOST_POINTS, MOST_ROWS, shortened

if TYPE_CHECKING:
    from conovel.report.drawing import Plot
    from conovel.report.flagged import FlaggedRows
    from conovel.spec.findings import Finding

MOST_SITES = MAX_AGENTS


@dataclass(frozen=True)
class Histogram:
    """Tested rows by bin, and how many of them were flagged."""

    edges: Sequence[float]
    tests: Sequence[int]
    rejected: Sequence[int]
    calibration: Sequence[int] = ()


@dataclass(frozen=True)
class Curve:
    """Sorted p-values at some places k, and the line ``slope · k`` that they are compared with."""

    sites: Sequence[str]
    n_tests: int
    n_rejected: int
    n_rejected_here: int
    slope: float
    whole: bool
    k: Sequence[int]
    p_value: Sequence[float]

    @property
    def threshold(self) -> float:
        """Largest p-value that is flagged."""
        return self.slope * self.n_rejected


@dataclass(frozen=True)
class SiteView:
    """One site's numbers.

    Attributes
    ----------
    limit : int
        Largest rank that is flagged.
    fewest : int
        The fewest rows that its step-up could have flagged together.
    """

    n_tested: int
    n_calibration: int
    n_rejected: int
    limit: int
    fewest: int
    lowest_rejected_score: float | None
    scores: Histogram | None


@dataclass(frozen=True)
class Row:
    """One row and what was decided about it."""

    site: str
    row: str
    score: float | None
    rank: int
    p_value: float
    rejected: bool


@dataclass(frozen=True)
class Picture:
    """A picture as :func:`conovel.report.picture.picture` wrote it, checked."""

    step_up: Sequence[Curve]
    p_values: Histogram
    sites: Mapping[str, SiteView]
    most_novel: Sequence[Row]


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows; `text` says which others are not numbers."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    text: frozenset[int] = frozenset()
    shown: int | None = None  # rows that are visible at first; the others unfold
    total: bool = False  # whether the last row is a total


@dataclass(frozen=True)
class Figure:
    """A finished image, as a ``data:`` address."""

    name: str
    address: str


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    title: str
    words: Sequence[str] = ()
    points: Sequence[tuple[str, str]] = ()  # a term and its description
    plots: Sequence[Plot] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Story:
    """Everything a page says, from the headline down."""

    kind: str
    headline: str
    lead: str
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    finding_plots: Sequence[Plot] = ()
    flagged: FlaggedRows | None = None
    guarantee: str = ""
    assumptions: Sequence[str] = ()
    caveats: Sequence[str] = ()
    sections: Sequence[Section] = field(default=())


def read_picture(content: Checked) -> Picture:
    """Check a picture from a file."""
    if content.text("format") != FORMAT:
        content.refuse("format", f"is not {FORMAT}")
    sites = content.object("sites")
    if len(sites.value) > MOST_SITES:
        content.refuse("sites", f"has more than {MOST_SITES} entries")
    return Picture(
        step_up=[_read_curve(curve) for curve in content.objects("step_up")[:MOST_SITES]],
        p_values=_read_histogram(content.object("p_values")),
        sites={name: _read_site(sites.object(name)) for name in sites},
        most_novel=[_read_row(row) for row in content.objects("most_novel")[:MOST_ROWS]],
    )


def _read_curve(content: Checked) -> Curve:
    k, p_value = content.integers("k"), content.numbers("p_value")
    if not 1 <= len(k) == len(p_value) <= MOST_POINTS + 2:
        content.refuse("k", "is not one place for each p-value")
    slope = content.number("slope")
    if slope <= 0:
        content.refuse("slope", "is not above zero")
    if min(k) < 1 or sorted(k) != k:
        content.refuse("k", "does not ascend from 1 on")
    return Curve(
        sites=content.texts("sites"),
        n_tests=content.integer("n_tests"),
        n_rejected=content.integer("n_rejected"),
        n_rejected_here=content.integer("n_rejected_here"),
        slope=slope,
        whole=content.flag("whole"),
        k=k,
        p_value=p_value,
    )


def _read_histogram(content: Checked) -> Histogram:
    edges = content.numbers("edges")
    if len(edges) < 2 or len(edges) > BINS + 1 or any(a >= b for a, b in pairwise(edges)):
        content.refuse("edges", "are not ascending numbers")
    counts = {"tests": content.integers("tests"), "rejected": content.integers("rejected")}
    if "calibration" in content:
        counts["calibration"] = content.integers("calibration")
    for key, values in counts.items():
        if len(values) != len(edges) - 1:
            content.refuse(key, f"has {len(values)} counts for {len(edges) - 1} bins")
    return Histogram(edges=edges, **counts)


def _read_site(content: Checked) -> SiteView:
    scores = _read_histogram(content.object("scores")) if "scores" in content else None
    if scores is not None and not scores.calibration:
        content.object("scores").integers("calibration")
    return SiteView(
        n_tested=content.integer("n_tested"),
        n_calibration=content.integer("n_calibration"),
        n_rejected=content.integer("n_rejected"),
        limit=content.integer("limit"),
        fewest=content.integer("fewest"),
        lowest_rejected_score=content.number("lowest_rejected_score", None),
        scores=scores,
    )


def _read_row(content: Checked) -> Row:
    return Row(
        site=shortened(content.text("site")),
        row=shortened(content.text("row")),
        score=content.number("score", None),
        rank=content.integer("rank"),
        p_value=content.number("p_value"),
        rejected=content.flag("rejected"),
    )

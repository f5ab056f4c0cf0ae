"""The analyst's part of a page: which rows were flagged and why, by the patterns they share.

The first rows are in the page as a table. A script that the page contains sorts, filters and
copies all of them, and keeps verdicts on them until they are saved; without it the table still
says what it says.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from conovel.report.picture import shortened
from conovel.report.view import MOST_SITES, Checked
from conovel.site.explain.alike import Alike
from conovel.site.explain.explainer import IN_RANGE
from conovel.site.explain.reasons import COMBINATION, MOST_EXPLAINED, none_stands_out

_MOST_COLUMNS = 2_000
_MOST_REASONS = 10  # of a row
_TABLE_ROWS = 50  # rows that are a table of the page
_MOST_PATTERNS = 12  # that are listed
_MOST_ID = 4096  # letters of the name of a row in a file of verdicts


@dataclass(frozen=True)
class ReasonView:
    """One reason of a row."""

    label: str
    values: str
    usual: str
    nearest: str
    share: float  # of all that raises the score

    @property
    def percent(self) -> str:
        """The share for people."""
        return f"{self.share:.0%}"


@dataclass(frozen=True)
class FlaggedRow:
    """A flagged row and its reasons."""

    row: str
    site: str
    pattern: str
    reasons: Sequence[ReasonView]
    id: str = ""  # the whole name, for verdicts; `row` may be cut
    like: str = ""  # which known novelties it is like, in words

    @property
    def why(self) -> str:
        """Its reasons in a line."""
        labels = [reason.label for reason in self.reasons]
        return ", ".join([*labels, *([self.like] if self.like else [])]) or "no reason"


@dataclass(frozen=True)
class FlaggedRows:
    """All flagged rows that a page explains, the most novel first."""

    rows: Sequence[FlaggedRow]
    n_flagged: int

    @property
    def shown(self) -> Sequence[FlaggedRow]:
        """The rows of the table."""
        return self.rows[:_TABLE_ROWS]

    @property
    def several(self) -> bool:
        """Whether the rows are of several sites."""
        return len({row.site for row in self.rows}) > 1

    @property
    def patterns(self) -> list[tuple[str, int, str]]:
        """The largest patterns: text, number of rows, share of the rows."""
        counts = Counter(row.pattern for row in self.rows)
        return [(p, n, f"{n / len(self.rows):.1%}") for p, n in counts.most_common(_MOST_PATTERNS)]

    @property
    def n_more_patterns(self) -> int:
        """How many patterns are not listed."""
        return max(0, len({row.pattern for row in self.rows}) - _MOST_PATTERNS)

    @property
    def data(self) -> str:
        """All rows as JSON that may stand inside HTML."""
        texts: dict[str, int] = {}

        def place(text: str) -> int:
            return texts.setdefault(text, len(texts))

        rows = [
            [
                row.row,
                place(row.site),
                place(row.pattern),
                [
                    [place(r.label), r.values, place(r.usual), r.nearest, round(r.share, 3)]
                    for r in row.reasons
                ],
                place(row.like),
                *([row.id] if row.id not in ("", row.row) else []),
            ]
            for row in self.rows
        ]
        return in_html({"texts": list(texts), "rows": rows, "several": self.several})


def in_html(content: Mapping[str, Any]) -> str:
    """Write JSON that may stand inside HTML."""
    plain = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def read_flagged(run: Checked) -> FlaggedRows | None:
    """Read the reasons of a result; None if it has none."""
    if "reasons" not in run:
        return None
    sites = run.object("reasons")
    if len(sites.value) > MOST_SITES:
        run.refuse("reasons", f"has more than {MOST_SITES} sites")
    rows: list[FlaggedRow] = []
    n_flagged = 0
    for name in sites:
        site = sites.object(name)
        n_flagged += site.integer("flagged")
        rows += _read_site(name, site)
    order = _novelty(run)
    rows.sort(key=lambda row: order.get((row.site, row.row), len(order)))
    return FlaggedRows(rows[:MOST_EXPLAINED], n_flagged) if rows else None


def _novelty(run: Checked) -> dict[tuple[str, str], int]:
    """Return the places of the most novel rows, where the picture lists them."""
    picture = run.object("picture") if "picture" in run else Checked({})
    listed = picture.objects("most_novel") if "most_novel" in picture else []
    return {
        (shortened(row.text("site", "")), shortened(row.text("row", ""))): place
        for place, row in enumerate(listed)
    }


def _read_site(name: str, site: Checked) -> list[FlaggedRow]:
    columns = [
        (shortened(column.text("name")), shortened(column.text("usual", ""), 120))
        for column in site.objects("columns")[:_MOST_COLUMNS]
    ]
    patterns = [shortened(text, 200) for text in site.texts("patterns")]
    flagged = []
    for row in site.objects("rows")[:MOST_EXPLAINED]:
        pattern = row.integer("pattern")
        if pattern >= len(patterns):
            row.refuse("pattern", "is none of the patterns")
        reasons = [_read_reason(r, columns) for r in row.objects("reasons")[:_MOST_REASONS]]
        if "far" in row and reasons:
            reasons = _of_usual_values(reasons, row.number("far"))
        about = shortened(row.text("row")), shortened(name), patterns[pattern]
        whole = shortened(row.text("row"), _MOST_ID)
        flagged.append(FlaggedRow(*about, reasons, whole, _read_known(row)))
    return flagged


def _of_usual_values(reasons: Sequence[ReasonView], far: float) -> list[ReasonView]:
    """Say before the first of some usual values that none stands out."""
    first, *others = (replace(r, label=r.label.removesuffix(f" {IN_RANGE}")) for r in reasons)
    return [replace(first, label=f"{none_stands_out(far)}; most by {first.label}"), *others]


def _read_known(row: Checked) -> str:
    if "known" not in row:
        return ""
    alike = row.object("known")
    kind = shortened(alike.text("kind", ""))
    return str(Alike(alike.integer("n_rows"), kind, alike.integer("n_of_kind")))


def _read_reason(reason: Checked, columns: Sequence[tuple[str, str]]) -> ReasonView:
    places = reason.integers("columns")
    if not places or max(places) >= len(columns):
        reason.refuse("columns", "is none of the columns")
    names = " with ".join(columns[j][0] for j in places)
    how, share = shortened(reason.text("how"), 30), reason.number("share")
    together = how == COMBINATION
    usual = "; ".join(columns[j][1] for j in places)
    return ReasonView(
        label=names if together else f"{names} {how}",
        values=shortened("; ".join(reason.texts("values"))),
        usual=f"{usual} (seldom together)" if together else usual,
        nearest=shortened("; ".join(reason.texts("nearest"))),
        share=min(max(share, 0.0), 1.0),
    )


@cache
def page_script() -> Mapping[str, str]:
    """Return the script of a page, and its digest for the content security policy."""
    path = Path(__file__).parent / "templates" / "flagged.js"
    return with_policy(path.read_text(encoding="utf-8"))


def with_policy(text: str) -> Mapping[str, str]:
    """Return a script with its digest for the content security policy."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"text": text, "policy": f"'sha256-{digest}'"}

"""The box on top of a page: what speaks against the result, and the headline that goes with it."""

from __future__ import annotations

from dataclasses import replace

from conovel.report.picture import shortened
from conovel.report.plots import BOTTOM, TOP, Dot, Key, Mark, Plot, ticks, trace, x_scale, y_scale
from conovel.report.view import Checked, Section, Story, Table
from conovel.spec.findings import (
    KINDS,
    Finding,
    by_weight,
    key_figure,
    named,
    presumed,
    subject,
    verdict_of,
    worst_of,
)

_MOST = 50  # findings on a page
_MOST_PLACES = 200
_MOST_PLOTS = 6


def read_findings(run: Checked) -> tuple[Finding, ...]:
    """Read the findings of a result as its command wrote them; none in older files."""
    if "warnings" not in run:
        return ()
    return tuple(_read(one) for one in run.objects("warnings")[:_MOST])


def with_findings(story: Story, run: Checked) -> Story:
    """Put the findings of a result on top of its page; a broken promise changes the headline."""
    findings = read_findings(run)
    if not findings:
        return story
    plots = [drift_plot(finding) for finding in findings if len(finding.trace) > 1]
    parts = by_weight(findings)
    story = replace(story, findings=parts, finding_plots=plots[:_MOST_PLOTS])
    worst = worst_of(findings)
    if worst is None or run.text("command") == "check":  # whose headline is about a rehearsal
        return story
    promise, facts = "promise", list(story.facts)
    if facts and facts[0][0].startswith("false alarms"):
        promise, facts[0] = f"{facts[0][1]} promise", (key_figure(worst), facts[0][1])
    lead = f"{worst.message}; {presumed(worst, promise)}. {story.headline}."
    return replace(
        story,
        headline=subject(worst),
        facts=facts,
        lead=lead[:1].upper() + lead[1:],
        caveats=["This promise is in doubt: the box on top of the page says why.", *story.caveats],
    )


def drift_plot(finding: Finding) -> Plot:
    """Draw the mean of a column along the known normals, and where it changes most."""
    places = finding.trace
    rows, values = [row for row, _ in places], [value for _, value in places]
    low, high = min(values), max(values)
    pad = 0.08 * (high - low) or 1.0
    x, y = x_scale(0, max(rows)), y_scale(low - pad, high + pad)
    points = [(x(row), y(value)) for row, value in places]
    marks: list[Mark] = [trace(points, "line thick"), *(Dot(*at, "full") for at in points)]
    keys = [Key("line thick", "mean of a segment")]
    since = finding.numbers.get("since")
    if since is not None and 0 <= since <= max(rows):
        marks.insert(0, trace([(x(since), TOP), (x(since), BOTTOM)], "line limit"))
        keys.append(Key("line limit", "largest change"))
    column = named(shortened(finding.columns[0], 40)) if finding.columns else "a column"
    whose = f" of {shortened(finding.agent, 30)}" if finding.agent else ""
    return Plot(
        title=f"{column[:1].upper()}{column[1:]} along the known normals{whose}",
        description=f"Means of {len(places)} segments, from {values[0]:.4g} to {values[-1]:.4g}.",
        x_label="known normals, in their order",
        y_label="mean",
        x_ticks=ticks(x, whole=True),
        y_ticks=ticks(y, 6),
        marks=marks,
        keys=keys,
    )


def check_story(run: Checked) -> Story:
    """Describe a rehearsal on known normals, as ``conovel check`` wrote it."""
    n_rows, p_value = run.integer("n_rows"), run.number("p_value")
    n_latest, n_flagged = run.integer("n_latest"), run.integer("n_flagged")
    columns = run.objects("columns")[:_MOST]
    drifting = [
        Finding(
            "drift",
            "",
            "",
            (one.text("column"),),
            "",
            {"since": one.number("since")},
            _places(one),
        )
        for one in columns
    ]
    rows = [
        [
            shortened(one.text("column"), 40),
            f"{one.integer('since'):,}",
            *(f"{one.number(key):.4g}" for key in ("before", "after", "p_value")),
        ]
        for one in columns
    ]
    table = Table("Columns that drift", ["column", "since row", "mean before", "after", "p"], rows)
    return Story(
        kind="Known normals",
        headline=verdict_of(run.flag("exchangeable"), read_findings(run)),
        lead=f"Tested as if they were new, {n_flagged:,} of the latest {n_latest:,} known normals"
        " are flagged. Each of them is a false alarm.",
        facts=[
            ("level of the rehearsal", shortened(run.text("level"))),
            ("known normals", f"{n_rows:,}"),
            ("p-value", f"{p_value:.2g}"),
        ],
        sections=[
            Section(
                table.caption,
                plots=[drift_plot(one) for one in drifting[:_MOST_PLOTS] if len(one.trace) > 1],
                tables=[table],
            )
        ]
        if rows
        else [],
    )


def _places(one: Checked) -> tuple[tuple[float, float], ...]:
    rows = one.rows("trace")[:_MOST_PLACES] if "trace" in one else []
    pairs = [Checked({"place": place}, one.path).numbers("place") for place in rows]
    if any(len(pair) != 2 for pair in pairs):
        one.refuse("trace", "is not a list of places")
    return tuple((row, value) for row, value in pairs)


def _read(one: Checked) -> Finding:
    kind = one.text("kind")
    if kind not in KINDS:
        one.refuse("kind", "is no kind of finding")
    numbers = one.object("numbers") if "numbers" in one else Checked({})
    return Finding(
        kind,
        shortened(one.text("message"), 1000),
        shortened(one.text("fix"), 1000),
        tuple(shortened(column) for column in one.texts("columns", [])[:_MOST]),
        shortened(one.text("agent", "")),
        {key: numbers.number(key) for key in numbers},
        _places(one),
    )

"""Parts of a page that runs of one site and of several share."""

from __future__ import annotations

from collections.abc import Iterable

from conovel.report.checked import Checked
from conovel.report.choices import choice_tables, in_words, read_choices
from conovel.report.picture_content import shortened
from conovel.report.plots import p_value_plot, score_plot, step_up_plot
from conovel.report.tables import novel_rows, resolution_rows
from conovel.report.view import Picture, Section
from conovel.spec.findings import percent
from conovel.stats.words import counted

MOST_PANELS = 6  # plots of the same kind

NOT_CLAIMED = (
    "The bound is on the average over many runs like this one, not on this very run, and says"
    " nothing about novelties that were missed."
)


def row_sections(drawn: Picture) -> list[Section]:
    """Show the most novel rows, how they were decided, and the resolution."""
    rows, resolution = novel_rows(drawn), resolution_rows(drawn)
    return [
        Section(rows.caption, tables=[rows]),
        _decision(drawn),
        *_scores(drawn),
        Section(resolution.caption, _tolerance(drawn), tables=[resolution]),
    ]


def selection_section(run: Checked, chosen: str | None = None) -> list[Section]:
    """Show the candidates of each choice and the values that decided; none without a choice."""
    choices = []
    if "selection" in run:
        choices += read_choices(run.object("selection"), chosen=chosen)
    decisions = run.object("decisions") if "decisions" in run else Checked({})
    for name in decisions:
        if "choices" in (site := decisions.object(name)):
            choices += read_choices(site.object("choices"), name)
    if not choices:
        return []
    words = [
        "The choice did not use which rows are the known normals that test rows are compared with,"
        " so the guarantee holds for it.",
        *in_words(choices),
    ]
    return [Section("How the score was chosen", words, tables=choice_tables(choices))]


def settings_section(settings: Iterable[tuple[str, object]]) -> Section:
    """List the settings of the run."""
    points = [
        (shortened(term).replace("_", " "), shortened(str(value), 200))
        for term, value in settings
        if isinstance(value, str | int | float) and value != ""
    ]
    return Section("Settings", points=points)


def lead(n_rejected: int, level: float, where: str = "") -> str:
    """Return one sentence that says what a flag means."""
    if n_rejected == 0:
        return "No row stands out enough to be flagged at this level."
    return f"On average at most {percent(level)} of the flagged rows{where} are false alarms."


def threshold_fact(drawn: Picture) -> list[tuple[str, str]]:
    """Return the largest p-value that is flagged, if it is the same for all sites."""
    if len(drawn.step_up) != 1 or not drawn.step_up[0].n_rejected:
        return []
    return [("flagged up to p-value", f"{drawn.step_up[0].threshold:.3g}")]


def _decision(drawn: Picture) -> Section:
    words = [
        "A row is flagged when its p-value lies at or below the threshold: the last point where"
        " the sorted p-values are on or below the line. All comparisons were made in whole"
        " numbers.",
        "Normal rows have evenly spread p-values; novel ones pile up on the left.",
    ]
    if not drawn.step_up:  # joint
        words[0] = (
            "Rows of all sites are compared on a common scale, which is cut into cells. A row is"
            " flagged when it lies in the lowest flagged cell or above, and at or above the floor"
            " of its site. The p-values below are for information: they do not decide."
        )
    several = len(drawn.step_up) > 1
    curves = [
        step_up_plot(c, f"Step-up of {shortened(c.sites[0], 30)}" if several else "The step-up")
        for c in drawn.step_up[:MOST_PANELS]
    ]
    return Section(
        "How it was decided",
        words + _not_drawn(len(drawn.step_up)),
        plots=[*curves, p_value_plot(drawn.p_values, "The p-values")],
    )


def _scores(drawn: Picture) -> list[Section]:
    plots = [
        score_plot(
            site.scores,
            site.lowest_rejected_score,
            f"Scores at {shortened(name, 30)}" if name else "Scores",
        )
        for name, site in drawn.sites.items()
        if site.scores is not None
    ]
    if not plots:
        return []
    words = "Tested rows upwards, the known normals they are compared with downwards."
    return [Section("Scores", [words, *_not_drawn(len(plots))], plots=plots[:MOST_PANELS])]


def _not_drawn(n: int) -> list[str]:
    return [f"{n - MOST_PANELS} further sites are not drawn."] if n > MOST_PANELS else []


def _tolerance(drawn: Picture) -> list[str]:
    sites = {(site.limit, site.n_calibration) for site in drawn.sites.values()}
    if len(sites) != 1:
        return []
    ((limit, known),) = sites
    if limit == 0:
        return [
            f"Even a row that is more novel than all of {counted(known, 'known normal')} would"
            " not be flagged."
        ]
    most = f"at most {limit - 1:,}" if limit > 1 else "none"
    return [
        f"A row is flagged when {most} of {counted(known, 'known normal')} look at least as novel."
    ]

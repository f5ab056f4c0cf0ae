"""Parts of a page that runs of one site and of several share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from conovel.report.picture import shortened
from conovel.report.plots import p_value_plot, score_plot, step_up_plot
from conovel.report.tables import novel_rows, resolution_rows
from conovel.report.view import MOST_SITES, Checked, Picture, Section, Table
from conovel.spec.findings import percent
from conovel.stats.words import counted

MOST_PANELS = 6  # plots of the same kind
_MOST_FILES = 200  # that are listed
_VERSIONS = "conovel", "python", "numpy", "scikit-learn"

RESOLUTION = "Resolution left"
NOT_CLAIMED = (
    "The bound is on the average over many runs like this one, not on this very run, and says"
    " nothing about novelties that were missed."
)


_BY_WEIGHTS = (
    "Each known normal counts by its weight: how much more often such a row occurs among the"
    " normal tests. Each row looks for its own threshold, and what it needs is the number of"
    " flagged rows at which its evidence is enough. The most rows are flagged of which none needs"
    " more. All comparisons were made in whole numbers. The p-values below are weighted; they do"
    " not decide by themselves."
)


def row_sections(drawn: Picture, *, weighted: bool = False) -> list[Section]:
    """Show the most novel rows, how they were decided, and the resolution."""
    rows, resolution = novel_rows(drawn), resolution_rows(drawn)
    if weighted:
        words = [_BY_WEIGHTS]
        plot = p_value_plot(drawn.p_values, "The p-values")
        decision = Section("How it was decided", words, plots=[plot])
        return [Section(rows.caption, tables=[rows]), decision, *_scores(drawn)]
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


def made_section(run: Checked) -> list[Section]:
    """Say how a result was made; nothing if its file does not."""
    if "made" not in run:
        return []
    made = run.object("made")
    files = made.object("files") if "files" in made else Checked({})
    columns = made.texts("columns") if "columns" in made else []
    points = [
        ("command", f"conovel {' '.join(made.texts('command'))}"),
        ("time", made.text("time", "")),
        ("versions", ", ".join(f"{name} {made.text(name)}" for name in _VERSIONS if name in made)),
        ("seed", str(made.integer("seed")) if "seed" in made else ""),
        (f"{len(columns)} columns used", ", ".join(columns)),
        *((name, _file(files.object(name))) for name in list(files)[:_MOST_FILES]),
    ]
    shown = [(shortened(term), shortened(text, 500)) for term, text in points if text]
    return [Section("How it was made", ["conovel repeat makes it again and compares."], shown)]


def _file(file: Checked) -> str:
    size = f"{file.integer('bytes'):,} bytes"
    digest = file.text("sha256", "") or file.text("sha256_of_ends", "")
    return f"{size}, SHA-256 {digest}" if "sha256" in file else f"{size}, of both ends {digest}"


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
    several, shown = len(drawn.step_up) > 1, drawn.step_up[:MOST_PANELS]
    titles = [
        f"Step-up of {shortened(c.sites[0], 30)}" if several else "The step-up" for c in shown
    ]
    curves = [step_up_plot(c, title, shown) for c, title in zip(shown, titles, strict=True)]
    return Section(
        "How it was decided",
        words + _not_drawn(len(drawn.step_up)),
        plots=[*curves, p_value_plot(drawn.p_values, "The p-values")],
    )


def _scores(drawn: Picture) -> list[Section]:
    shown = [
        (f"Scores at {shortened(name, 30)}" if name else "Scores", site, site.scores)
        for name, site in drawn.sites.items()
        if site.scores is not None
    ]
    beside, common = [scores for *_, scores in shown[:MOST_PANELS]], not drawn.step_up
    plots = [
        score_plot(scores, site.lowest_rejected_score, title, beside, common)
        for title, site, scores in shown
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
    ((limit, normals),) = sites
    if limit == 0:
        return [
            f"Even a row that is more novel than all of {counted(normals, 'known normal')} would"
            " not be flagged."
        ]
    most = f"at most {limit - 1:,}" if limit > 1 else "none"
    return [
        f"A row is flagged when {most} of {counted(normals, 'known normal')} look at least as"
        " novel."
    ]


MOST_CANDIDATES = 12
MOST_TABLES = 12

# What the criteria of a choice measure.
CRITERIA = {
    "enrichment": "the share of the mixture of tested and compared rows in the far tail of the"
    " normals hidden among them, as a multiple of the share that normals alone would have",
    "rejections": "rows flagged when held-out normals are used for the comparison",
    "excess": "most rows on top beyond those that held-out normals alone would have there",
}
# A choice by these follows a rule of its own, which it says.
DESCRIPTIONS = {
    "columns": "columns of the training normals that look Gaussian, which a blend of smooth"
    " scores needs, and those that do not, for which there are forests",
    "apart": "tests and calibration rows that are further from their neighbours than all known"
    " normals that train, and far above the median",
}


@dataclass(frozen=True)
class Choice:
    """One choice between candidates, and the values it was made by."""

    site: str
    what: str
    names: Sequence[str]
    chosen: str | None
    criteria: Mapping[str, Sequence[float]]  # one value for each candidate
    rule: str = ""  # how the choice followed, where that is not the largest value


def read_choices(
    selection: Checked, site: str = "", what: str = "", chosen: str | None = None
) -> list[Choice]:
    """Read a selection, or several by what they choose.

    A selection holds ``candidates`` and, for each criterion, a list with one number for each
    candidate. Its ``chosen`` is a name or a position; `chosen` is used if it has none.
    """
    if "candidates" not in selection:
        inner = [key for key in selection if isinstance(selection.value[key], Mapping)]
        return [
            choice
            for key in (() if what else inner)
            for choice in read_choices(selection.object(key), site, key, chosen)
        ]
    names = selection.texts("candidates")
    given = selection.value.get("chosen", chosen)
    if isinstance(given, int) and 0 <= given < len(names):
        given = names[given]
    criteria = {
        key: selection.numbers(key)
        for key, values in selection.value.items()
        if key != "candidates" and isinstance(values, list) and len(values) == len(names)
    }
    rule = selection.text("rule") if "rule" in selection else ""
    return [Choice(site, what, names, given if isinstance(given, str) else None, criteria, rule)]


def choice_tables(choices: Sequence[Choice]) -> list[Table]:
    """Show candidates with their values; sites with the same candidates share a table."""
    groups: dict[tuple[str, ...], list[Choice]] = {}
    for choice in choices:
        key = (choice.what, *choice.names, "", *choice.criteria)
        groups.setdefault(key, []).append(choice)
    tables: list[Table] = []
    for group in groups.values():
        if len(group) > 1 and len(group[0].criteria) == 1:
            tables.append(_by_site(group))
        else:
            tables += map(_by_candidate, group)
    return tables[:MOST_TABLES]


def in_words(choices: Sequence[Choice]) -> list[str]:
    """Explain the criteria in words."""
    used = dict.fromkeys(key for choice in choices for key in choice.criteria)
    words = [
        f"{key.capitalize()}: {CRITERIA[key]}. More is better." for key in used if key in CRITERIA
    ]
    words += [f"{key.capitalize()}: {DESCRIPTIONS[key]}." for key in used if key in DESCRIPTIONS]
    rules = [choice for choice in choices if choice.rule][:MOST_SITES]
    return words + [
        shortened(f"{choice.site}: {choice.rule}." if choice.site else f"{choice.rule}.", 400)
        for choice in rules
    ]


def _by_site(group: Sequence[Choice]) -> Table:
    first = group[0]
    ((criterion, _),) = first.criteria.items()
    rows = []
    for choice in group[:MOST_SITES]:
        values = choice.criteria[criterion][:MOST_CANDIDATES]
        cells = [
            f"● {_value(value)}" if name == choice.chosen else _value(value)
            for name, value in zip(choice.names, values, strict=False)
        ]
        rows.append([shortened(choice.site), *cells])
    columns = ["site", *(shortened(name, 40) for name in first.names[:MOST_CANDIDATES])]
    what = f"{first.what or 'score'}, by {criterion.replace('_', ' ')} (● chosen)"
    return Table(shortened(what[0].upper() + what[1:]), columns, rows, shown=30)


def _by_candidate(choice: Choice) -> Table:
    rows = [
        [
            shortened(name),
            "● chosen" if name == choice.chosen else "○",
            *(_value(values[i]) for values in choice.criteria.values()),
        ]
        for i, name in enumerate(choice.names[: 5 * MOST_CANDIDATES])
    ]
    columns = ["candidate", "choice", *(key.replace("_", " ") for key in choice.criteria)]
    caption = " ".join(filter(None, [choice.what, choice.site and f"at {choice.site}"]))
    return Table(
        shortened(caption[:1].upper() + caption[1:] or "Candidates"),
        [shortened(column) for column in columns],
        rows,
        text=frozenset({0, 1}),
    )


def _value(number: float) -> str:
    return f"{number:,.3f}" if isinstance(number, float) else f"{number:,}"

"""Tables of how scorers and composites were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conovel.report.checked import Checked
from conovel.report.picture_content import shortened
from conovel.report.view import MOST_SITES, Table

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
}


@dataclass(frozen=True)
class Choice:
    """One choice between candidates, and the values it was made by.

    Attributes
    ----------
    site : str
        Site that chose; empty if there is only one site.
    what : str
        What was chosen, such as "scorer".
    names : sequence of str
        The candidates.
    chosen : str or None
    criteria : mapping
        By the name of a criterion, one value for each candidate.
    rule : str
        How the choice followed, where that is not the largest value.
    """

    site: str
    what: str
    names: Sequence[str]
    chosen: str | None
    criteria: Mapping[str, Sequence[float]]
    rule: str = ""


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

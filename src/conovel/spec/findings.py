"""What speaks against a result: the record of a finding, its kinds, and the headline.

A finding changes no decision. It says what was seen and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from conovel.stats.words import counted

# What a kind of finding means for the promise, the most certain mistakes first; None: nothing.
_PRESUMES = "the {promise} presumes they are"
KINDS: Mapping[str, str | None] = {
    "id": _PRESUMES,
    "label": "the flags repeat that column",
    "one_value": "the flags repeat that column",
    "units": _PRESUMES,
    "values": _PRESUMES,
    "missing": _PRESUMES,
    "drift": _PRESUMES,
    "one_column": _PRESUMES,
    "most_flagged": _PRESUMES,
    "weights": "the {promise} is approximate",
    "shared_rows": "novelties among these rows are not found",
    "constant": None,
    "clipped": None,
    "duplicate_ids": None,
    "thin_calibration": None,
    "known_among_normals": None,
    "known_among_tests": None,
    "spent": None,
    "strange_normals": None,
    "untested_strata": None,
    "thin_strata": None,
}


@dataclass(frozen=True)
class Finding:
    """Something that a user should know before relying on a result.

    Attributes
    ----------
    kind : str
        One of "id", "label", "one_value", "units", "values", "missing", "drift", "one_column",
        "most_flagged", "weights", "shared_rows", "constant", "clipped", "duplicate_ids",
        "thin_calibration", "known_among_normals", "known_among_tests", "spent",
        "strange_normals", "untested_strata" and "thin_strata".
    message : str
        What was seen.
    fix : str
        What to do.
    columns : tuple of str
        The columns that it is about, as the user named them.
    agent : str
        The agent whose rows it is about; empty for one site alone.
    numbers : mapping of numbers
        What the message says, for a script.
    trace : tuple of (row, value)
        For a drift, the mean of the first column along the order of the rows, to be drawn.

    See Also
    --------
    conovel.Detection : Has its findings as `warnings`.
    conovel.check : Looks for a drift before anything is tested.

    Examples
    --------
    >>> finding = Finding("constant", "column 'a' never changes", "leave it out", ("a",))
    >>> print(finding)
    column 'a' never changes. What to do: leave it out.
    """

    kind: str
    message: str
    fix: str
    columns: tuple[str, ...] = ()
    agent: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)
    trace: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        whose = f"{self.agent}: " if self.agent else ""
        return f"{whose}{self.message}. What to do: {self.fix}."

    @property
    def breaks_promise(self) -> bool:
        """Whether the promise may not apply to this result."""
        return KINDS.get(self.kind) is not None

    def of_agent(self, name: str) -> Finding:
        """Name the agent whose rows it is about."""
        return replace(self, agent=name)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON types."""
        return {
            "kind": self.kind,
            "message": self.message,
            "fix": self.fix,
            "columns": list(self.columns),
            "agent": self.agent,
            "numbers": dict(self.numbers),
            "trace": [list(place) for place in self.trace],
        }


def headline(
    n_flagged: int,
    n_tested: int,
    level: Fraction,
    findings: Iterable[Finding],
    proof: Mapping[str, Any] | None = None,
    confidence: Fraction | None = None,
    why: str = "",
) -> str:
    """Say in one sentence what came out; a finding that breaks the promise comes first.

    `proof` has the numbers of a certificate where nothing is flagged and novelties are proven.
    With `confidence` the promise is about this list. `why` says how few rows could have been
    flagged, where none is.
    """
    flagged, share = f"{n_flagged:,} of {counted(n_tested, 'row')} flagged", percent(level)
    worst = worst_of(findings)
    if worst is not None:
        sentence = f"{subject(worst)}: {worst.message}; {presumed(worst, f'{share} promise')}."
        return f"{sentence} {flagged}"
    if n_flagged == 0:
        if proof:
            return nothing_flagged(level, proof) + (f" {why[:1].upper()}{why[1:]}." if why else "")
        return f"{flagged}: no row stands out enough at this level" + (f"; {why}" if why else "")
    if confidence is not None:
        sure = percent(confidence)
        return f"{flagged}; with {sure} probability at most {share} of them are false alarms"
    return f"{flagged}; on average at most {share} of the flagged rows are false alarms"


WHAT_HELPS = "More calibration rows, known cases of novelties or joining others would help."


def certificate_words(level: Fraction | None, numbers: Mapping[str, Any]) -> str:
    """Say what a certificate says, from its numbers."""
    if not numbers["n_flagged"]:
        return nothing_flagged(level, numbers)
    sure = percent(Fraction(numbers["confidence"]))
    return (
        f"With {sure} probability at most {numbers['max_false']:,} of the"
        f" {counted(numbers['n_flagged'], 'flagged row')} are false alarms, and at least"
        f" {numbers['min_novelties']:,} of the {counted(numbers['n_test'], 'tested row')} are"
        " novel."
    )


def nothing_flagged(level: Fraction | None, proof: Mapping[str, Any]) -> str:
    """Say what is proven where no row is flagged, from the numbers of a certificate.

    Examples
    --------
    >>> most = {"rows": 40, "min_novelties": 9}
    >>> proof = {"confidence": "19/20", "n_test": 500, "min_novelties": 14, "most_novel": most}
    >>> print(nothing_flagged(Fraction(1, 10), proof)[:77])
    No single row can be flagged at 10 %. But at least 14 of the 500 rows are nov
    """
    at = "" if level is None else f" at {percent(level)}"
    if not proof["min_novelties"]:
        return f"No single row can be flagged{at}, and no novelties are proven. {WHAT_HELPS}"
    most, sure = proof["most_novel"], percent(Fraction(proof["confidence"]))
    return (
        f"No single row can be flagged{at}. But at least {proof['min_novelties']:,} of the"
        f" {counted(proof['n_test'], 'row')} are novel ({sure}): the {most['rows']:,} most novel"
        f" contain at least {most['min_novelties']:,}. {WHAT_HELPS}"
    )


def worst_of(findings: Iterable[Finding]) -> Finding | None:
    """Return the finding that a headline names: the first that breaks the promise, by kind."""
    order = list(KINDS)
    broken = [finding for finding in findings if finding.breaks_promise]
    return min(broken, key=lambda finding: order.index(finding.kind), default=None)


AGAINST, WORTH_KNOWING = "What speaks against this result", "Worth knowing"


def by_weight(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """Part findings into those that break the promise and others, under their titles.

    Terminal and page show these parts.

    Examples
    --------
    >>> thin, drift = Finding("thin_calibration", "few", "add"), Finding("drift", "moves", "see")
    >>> [(title, [one.kind for one in part]) for title, part in by_weight([thin, drift])]
    [('What speaks against this result', ['drift']), ('Worth knowing', ['thin_calibration'])]
    """
    every = list(findings)
    parts = [
        (AGAINST, [one for one in every if one.breaks_promise]),
        (WORTH_KNOWING, [one for one in every if not one.breaks_promise]),
    ]
    return [(title, part) for title, part in parts if part]


def percent(share: Fraction | float) -> str:
    """Write a share for people.

    Examples
    --------
    >>> percent(Fraction(1, 10)), percent(0.005)
    ('10 %', '0.5 %')
    """
    return f"{100 * float(share):.4g} %"


def subject(finding: Finding) -> str:
    """Say in a few words what a finding that breaks the promise is about."""
    whose = f" of {finding.agent}" if finding.agent else ""
    if finding.kind == "label":
        return f"A label is among the columns{whose}"
    if finding.kind == "weights":
        return f"The weights{whose} are estimated"
    if finding.kind == "shared_rows":
        return f"Test rows{whose} are among the known normals"
    return f"The known normals{whose} are not like today's rows"


def key_figure(finding: Finding) -> str:
    """Name the promised share of false alarms on a page whose headline is such a finding."""
    if finding.kind == "weights":
        return "false alarms, approximately at most on average"
    return "false alarms, promised on average but in doubt"


def presumed(finding: Finding, promise: str) -> str:
    """Say what such a finding means for the promise, such as "10 % promise"."""
    return str(KINDS[finding.kind]).format(promise=promise)


def verdict_of(exchangeable: bool, findings: Iterable[Finding]) -> str:
    """Say what a rehearsal on known normals says of them, besides its findings."""
    if not exchangeable:
        return "The known normals are not exchangeable in their order"
    what = "Nothing" if worst_of(findings) is None else "Nothing else"
    return f"{what} speaks against these known normals"


def named(column: str) -> str:
    """Write the name of a column in a sentence; columns of an array have numbers.

    Examples
    --------
    >>> named("amount"), named("3")
    ("column 'amount'", 'column 3')
    """
    return f"column {column}" if column.isdigit() else f"column {column!r}"

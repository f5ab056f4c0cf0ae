"""All checks of one site, before the score is learnt and after the decisions are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from conovel.rows.tables import count_shared_rows
from conovel.site.checks.columns import column_findings, label_finding, named_label_findings
from conovel.site.checks.drift import (
    MOST_DRAWS,
    UNDECIDED,
    drift_finding,
    find_drift,
    level_of_each,
    settled,
)
from conovel.site.checks.outcome import column_finding, share_finding
from conovel.site.checks.sample import Looked
from conovel.spec.findings import Finding
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.runs.site_results import SiteResult

_SHOWN = 5  # ids that a message spells out
_WARNED = ("constant", "shared_rows")  # reading the rows warns of them
Result = TypeVar("Result", bound="SiteResult")


class Outcome(NamedTuple):
    """What was decided, as far as checks look at it.

    Attributes
    ----------
    rejected, tested : bool arrays
        Of the test rows that are looked at.
    n_tested, n_rejected, n_smallest : int
        Numbers of all rows: tested, rejected, and with the smallest possible p-value.
    """

    rejected: NDArray[np.bool_]
    tested: NDArray[np.bool_]
    n_tested: int
    n_rejected: int
    n_smallest: int


def check_rows(
    looked: Looked,
    ids: NDArray[Any] | None,
    on_finding: Callable[[Finding], None],
    *known: Finding | None,
    n_agents: int = 1,
) -> list[Finding]:
    """Look at the rows of a site before anything is learnt from them, and tell what was found."""
    null, test, features, sources = looked[:4]
    mistakes = [
        *column_findings(null, test, features, sources, looked.n_null + looked.n_test),
        *named_label_findings(null, test, features, sources),
    ]
    explained = {column for finding in mistakes for column in finding.columns}
    rest = [j for j, source in enumerate(sources) if source not in explained]
    level = level_of_each(n_agents)
    draws = min(int(2 / level) - 1, MOST_DRAWS)  # p-values down to half of the level
    names = [features[j] for j in rest]
    drift = find_drift(null[:, rest], names, draws, looked.null_stride)
    drift = drift and replace(drift, n_rows=looked.n_null)
    moved = drift_finding(drift, null[:, rest], test[:, rest], names, level)
    found = [
        *known,
        *mistakes,
        moved and _of_sources(moved, looked),
        _shared_rows(null, test),
        _duplicate_ids(ids),
    ]
    seen = [finding for finding in found if finding is not None]
    for finding in seen:
        if finding.kind not in (*_WARNED, UNDECIDED):
            on_finding(finding)
    return seen


def check_outcome(
    looked: Looked, outcome: Outcome, before: Sequence[Finding], agent: str = ""
) -> tuple[Finding, ...]:
    """Give the findings of before, and those about the decisions, each with its agent."""
    names, sources = looked.features, looked.sources
    flagged, test = outcome.rejected[outcome.tested], looked.test[outcome.tested]
    explained = {name for finding in before for name in finding.columns}
    alone = [
        label_finding(looked.null, test, flagged, names, sources),
        column_finding(looked.null, test, flagged, names, sources),
    ]
    named = [one for one in alone if one and not explained.intersection(one.columns)]
    after = [
        *named[:1],  # a label explains the flags
        share_finding(outcome.n_tested, outcome.n_rejected, outcome.n_smallest),
    ]
    share = outcome.n_rejected / max(outcome.n_tested, 1)
    found = [*(settled(finding, share) for finding in before), *after]
    return tuple(finding.of_agent(agent) for finding in found if finding is not None)


def with_findings(result: Result, before: Sequence[Finding], looked: Looked) -> Result:
    """Give a result the findings of before, and those about its decisions."""
    some = slice(None, None, looked.test_stride)
    outcome = Outcome(result.rejected[some], result.tested[some], *_counts(result))
    return replace(result, warnings=check_outcome(looked, outcome, before, result.name))


def with_outcome_findings(result: Result, *known: Finding | None) -> Result:
    """Give a result the findings that need no known normals: a kept detector has none."""
    found = [*known, _duplicate_ids(result.ids), share_finding(*_counts(result))]
    return replace(result, warnings=tuple(one for one in found if one is not None))


def _counts(result: SiteResult) -> tuple[int, int, int]:
    """Count the tested rows, those rejected, and those with the smallest possible p-value."""
    smallest = int((result.ranks[result.tested] == 1).sum())
    return int(result.tested.sum()), result.n_rejected, smallest


def _of_sources(finding: Finding, looked: Looked) -> Finding:
    """Name the columns of the user's table instead of features."""
    source = dict(zip(looked.features, looked.sources, strict=True))
    return replace(finding, columns=tuple(dict.fromkeys(source[f] for f in finding.columns)))


def _shared_rows(null: NDArray[np.float64], test: NDArray[np.float64]) -> Finding | None:
    if not (shared := count_shared_rows(null, test)):
        return None
    return Finding(
        "shared_rows",
        f"{shared:,} of {counted(len(test), 'test row')} are known normals, too",
        "if they are the same observations, remove them from the known normals",
        numbers={"n_shared": shared},
    )


def _duplicate_ids(ids: NDArray[Any] | None) -> Finding | None:
    if ids is None:
        return None
    names, times = np.unique(np.asarray(ids).astype(str), return_counts=True)
    twice = names[times > 1]
    if not twice.size:
        return None
    shown = ", ".join(map(repr, twice[:_SHOWN].tolist())) + (" …" if twice.size > _SHOWN else "")
    verb = "names" if twice.size == 1 else "name"
    return Finding(
        "duplicate_ids",
        f"{counted(twice.size, 'id')} {verb} more than one test row: {shown}",
        "give every row its own id, or remove the rows that occur twice",
        numbers={"n_ids": int(twice.size)},
    )

"""All checks of one site, before the score is learnt and after the decisions are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2, kstest, skew

from conovel.rows.stored import RowSource
from conovel.rows.tables import LARGEST, count_shared_rows
from conovel.scorers.automatic import normality
from conovel.scorers.blend import MahalanobisDistance
from conovel.site.checks.columns import (
    column_findings,
    label_finding,
    mix_finding,
    named_label_findings,
)
from conovel.site.checks.drift import (
    MOST_DRAWS,
    UNDECIDED,
    drift_finding,
    find_drift,
    level_of_each,
    settled,
    stride_of,
)
from conovel.site.checks.remedies import Compared, in_strata, with_remedy
from conovel.spec.findings import Finding, named, percent
from conovel.stats.words import counted

if TYPE_CHECKING:
    from conovel.runs.site_results import SiteResult


_MOST_ROWS = 1 << 14
_MOST_VALUES = 1 << 21
_FEWEST_ROWS = 64


def most_rows(width: int) -> int:
    """Return how many rows of a sample are looked at, at most.

    Examples
    --------
    >>> most_rows(10), most_rows(1000)
    (16384, 2097)
    """
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_VALUES // max(width, 1)))


class CheckedRows(NamedTuple):
    """The rows that checks look at, of both samples of a site."""

    # null, test: of shape (n', d) and (m', d); every 2^k-th row
    null: NDArray[np.float64]
    test: NDArray[np.float64]
    features: tuple[str, ...]  # names of the columns of these arrays
    sources: tuple[str, ...]  # for each of them, the column of the user's table that it comes from
    # n_null, n_test: numbers of all rows
    n_null: int
    n_test: int
    clipped: tuple[Finding, ...] = ()  # of all rows, not of these alone

    @classmethod
    def of(cls, null: RowSource, test: RowSource) -> CheckedRows:
        """Take the rows of both samples."""
        most = most_rows(null.width)
        features = null.columns or tuple(map(str, range(null.width)))
        normals, tests = (
            rows.take(np.arange(0, len(rows), stride_of(len(rows), most))) for rows in (null, test)
        )
        sources = features if null.encoder is None else null.encoder.source
        clipped = []
        for rows, some, which in ((null, normals, "known normals"), (test, tests, "test rows")):
            parts = rows.chunks() if len(some) < len(rows) else [(0, some)]
            clipped += clipped_findings(parts, which, sources)
        numbers = len(null), len(test)
        return cls(normals, tests, features, sources, *numbers, tuple(clipped))

    def entries_of(self, of_tests: NDArray[Any] | None) -> NDArray[Any] | None:
        """Take the entries of the test rows that are looked at, if there are any."""
        return None if of_tests is None else of_tests[:: self.test_stride]

    @property
    def null_stride(self) -> int:
        """Every how many known normals are looked at."""
        return stride_of(self.n_null, most_rows(len(self.features)))

    @property
    def test_stride(self) -> int:
        """Every how many test rows are looked at."""
        return stride_of(self.n_test, most_rows(len(self.features)))


def clipped_findings(
    parts: Iterable[tuple[int, NDArray[np.float64]]], which: str, sources: Sequence[str]
) -> list[Finding]:
    """Find values that were infinite or beyond single precision, and moved to its bounds."""
    places: dict[int, list[int]] = {}  # feature -> its first such row, and how many there are
    for start, rows in parts:
        if rows.size and rows.min() > -LARGEST and rows.max() < LARGEST:
            continue
        clipped = np.abs(rows) >= LARGEST
        for j in np.flatnonzero(clipped.any(axis=0)).tolist():
            place = places.setdefault(j, [start + int(np.argmax(clipped[:, j])), 0])
            place[1] += int(clipped[:, j].sum())
    return [
        Finding(
            "clipped",
            f"{named(str(sources[j]))} has {counted(n, 'value')} beyond {LARGEST:.3g} in the"
            f" {which} (first in row {row}), taken as that number",
            "correct it, or mark it as missing with --na or an empty value",
            (str(sources[j]),),
            numbers={"row": row, "n": n},
        )
        for j, (row, n) in places.items()
    ]


_MOST_IDS = 5  # ids that a message spells out
_WARNED = ("constant", "shared_rows")  # reading the rows warns of them
Result = TypeVar("Result", bound="SiteResult")


class Outcome(NamedTuple):
    """What was decided, as far as checks look at it."""

    # rejected, tested: of the test rows that are looked at
    rejected: NDArray[np.bool_]
    tested: NDArray[np.bool_]
    # n_tested, n_rejected, n_smallest: numbers of all rows: tested, rejected, and with the
    # smallest possible p-value
    n_tested: int
    n_rejected: int
    n_smallest: int


def check_rows(
    checked: CheckedRows,
    ids: NDArray[Any] | None,
    on_finding: Callable[[Finding], None],
    *others: Finding | None,
    n_agents: int = 1,
    presumes_alike: bool = True,
) -> list[Finding]:
    """Look at the rows of a site before anything is learnt from them, and tell what was found.

    Without `presumes_alike` known normals need not be distributed like the tests: no drift is
    looked for.
    """
    null, test, features, sources = checked[:4]
    stride = checked.null_stride
    mistakes = [
        *column_findings(null, test, features, sources, checked.n_null + checked.n_test),
        *named_label_findings(null, test, features, sources),
    ]
    mixed = mix_finding(null, test, features, sources, mistakes) if presumes_alike else None
    explained = {column for finding in mistakes for column in finding.columns}
    rest = [j for j, source in enumerate(sources) if source not in explained]
    kept = null[:, rest], test[:, rest], [features[j] for j in rest], [sources[j] for j in rest]
    level = level_of_each(n_agents)
    draws = min(int(2 / level) - 1, MOST_DRAWS)  # p-values down to half of the level
    drift = find_drift(kept[0], kept[2], draws, stride) if presumes_alike else None
    drift = drift and replace(drift, n_rows=checked.n_null)
    moved = drift_finding(drift, *kept[:3], level)
    if drift is not None and moved is not None and moved.kind != UNDECIDED:
        moved = with_remedy(moved, drift, Compared(*kept, level, draws, stride))
    elif mixed is not None:
        moved = replace(mixed, fix=in_strata(mixed.columns[0]))
    findings = [
        *others,
        *mistakes,
        moved and _of_sources(moved, checked),
        strange_finding(null[:, rest], checked.n_null),
        _shared_rows(null, test),
        *checked.clipped,
        _duplicate_ids(ids),
    ]
    seen = [finding for finding in findings if finding is not None]
    for finding in seen:
        if finding.kind not in (*_WARNED, UNDECIDED):
            on_finding(finding)
    return seen


def check_outcome(
    checked: CheckedRows, outcome: Outcome, before: Sequence[Finding], agent: str = ""
) -> tuple[Finding, ...]:
    """Give the findings of before, and those about the decisions, each with its agent."""
    names, sources = checked.features, checked.sources
    flagged, test = outcome.rejected[outcome.tested], checked.test[outcome.tested]
    explained = {name for finding in before for name in finding.columns}
    alone = [
        label_finding(checked.null, test, flagged, names, sources),
        column_finding(checked.null, test, flagged, names, sources),
    ]
    named = [one for one in alone if one and not explained.intersection(one.columns)]
    after = [
        *named[:1],  # a label explains the flags
        share_finding(outcome.n_tested, outcome.n_rejected, outcome.n_smallest),
    ]
    share = outcome.n_rejected / max(outcome.n_tested, 1)
    findings = [*(settled(finding, share) for finding in before), *after]
    return tuple(finding.of_agent(agent) for finding in findings if finding is not None)


def with_findings(result: Result, before: Sequence[Finding], checked: CheckedRows) -> Result:
    """Give a result the findings of before, and those about its decisions."""
    some = slice(None, None, checked.test_stride)
    outcome = Outcome(result.rejected[some], result.tested[some], *_counts(result))
    return replace(result, warnings=check_outcome(checked, outcome, before, result.name))


def with_outcome_findings(result: Result, *others: Finding | None) -> Result:
    """Give a result the findings that need no known normals: a kept detector has none."""
    findings = [*others, _duplicate_ids(result.ids), share_finding(*_counts(result))]
    return replace(result, warnings=tuple(one for one in findings if one is not None))


def _counts(result: SiteResult) -> tuple[int, int, int]:
    """Count the tested rows, those rejected, and those with the smallest possible p-value."""
    smallest = int((result.ranks[result.tested] == 1).sum())
    return int(result.tested.sum()), result.n_rejected, smallest


def _of_sources(finding: Finding, checked: CheckedRows) -> Finding:
    """Name the columns of the user's table instead of features."""
    source = dict(zip(checked.features, checked.sources, strict=True))
    columns = dict.fromkeys(source.get(name, name) for name in finding.columns)
    return replace(finding, columns=tuple(columns))


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
    shown = ", ".join(map(repr, twice[:_MOST_IDS].tolist())) + (
        " …" if twice.size > _MOST_IDS else ""
    )
    verb = "names" if twice.size == 1 else "name"
    return Finding(
        "duplicate_ids",
        f"{counted(twice.size, 'id')} {verb} more than one test row: {shown}",
        "give every row its own id, or remove the rows that occur twice",
        numbers={"n_ids": int(twice.size)},
    )


_FEWEST_FLAGGED = 20
MOST_PLAUSIBLE = Fraction(1, 2)  # more novelties than this are no exceptions any more
_SUSPICIOUS = Fraction(1, 4)  # if one column explains nearly all flags
_NEARLY_ALL = Fraction(19, 20)
_FIX = (
    "compare the known normals with the test rows column by column: another time, source, unit or"
    " preparation; take known normals that were made like the test rows"
)

Matrix = NDArray[np.float64]


def share_finding(n_tested: int, n_rejected: int, n_smallest: int) -> Finding | None:
    """Say that more rows stand out than novelties plausibly are."""
    most = max(n_rejected, n_smallest)
    if n_tested < _FEWEST_FLAGGED or most <= MOST_PLAUSIBLE * n_tested:
        return None
    what = f"{n_rejected:,} of {counted(n_tested, 'row')} are flagged"
    if n_smallest > MOST_PLAUSIBLE * n_tested:
        what += f", and {n_smallest:,} have the smallest possible p-value"
    numbers = {"share_flagged": n_rejected / n_tested, "share_smallest": n_smallest / n_tested}
    return Finding("most_flagged", what, _FIX, numbers=numbers)


def column_finding(
    null: Matrix,
    test: Matrix,
    rejected: NDArray[np.bool_],
    names: Sequence[str],
    sources: Sequence[str] | None = None,
) -> Finding | None:
    """Say that one column by itself explains nearly all of many flags.

    It does where flagged rows lie outside of the range of all known normals.
    """
    n_rejected = int(rejected.sum())
    if rejected.size < _FEWEST_FLAGGED or n_rejected <= _SUSPICIOUS * rejected.size:
        return None
    flagged = test[rejected]
    outside = ((flagged > null.max(axis=0)) | (flagged < null.min(axis=0))).sum(axis=0)
    j = int(outside.argmax())
    if outside[j] < _NEARLY_ALL * n_rejected:
        return None
    name, low, high = str((sources or names)[j]), null[:, j].min(), null[:, j].max()
    return Finding(
        "one_column",
        f"{percent(n_rejected / rejected.size)} of the rows are flagged, and"
        f" {int(outside[j]):,} of these {n_rejected:,} have a value of"
        f" {named(str(names[j]))} outside of {low:.6g} to {high:.6g}, the range of all"
        " known normals",
        f"look at {named(name)}: leave it out with --exclude {name!r} if it is a time, a counter"
        " or an id, and give both samples the same unit",
        (name,),
        numbers={"outside": int(outside[j]), "flagged": n_rejected},
    )


_FEWEST_GAUSSIAN = 200
_ROWS_PER_COLUMN = 10
_NEAR = 0.9  # the rows nearest to the centre, from which its shape is estimated
_ROUNDS = 4
_BULK = 0.95  # of a Gaussian sample: its distances must fit
_FITS = 0.05  # the p-value from which on they do
_LEANS = 5  # standard errors of the skewness of a column that is no Gaussian one
_TAIL = 0.99  # of a Gaussian sample; strange rows are further away
_LONGER = 1.5  # so many times as many rows in the tail as a Gaussian sample has are no reason
_BY_CHANCE = 1e-4  # the p-value of more rows than that
_LEAST_STRANGE, _MOST_STRANGE = 0.005, 0.2  # share of strange rows
_FEW_STRANGE = 0.07  # more rows apart are another kind of normal rows rather than mistakes
_FREQUENT = 0.05  # a larger share of rows with one value is no sample of a density


def strange_finding(null: Matrix, n_null: int) -> Finding | None:
    """Say that some known normals may be novelties, and about how many.

    `null` are the known normals that checks look at, of `n_null` in all. Whether strange rows are
    novelties or a heavy tail cannot be told in general. It can where the bulk of the rows is so
    much like a Gaussian sample that its tail is known, too.
    """
    rows = null[:, [_varies(column) for column in null.T]]
    n, width = rows.shape
    if width < 2 or n < max(_FEWEST_GAUSSIAN, _ROWS_PER_COLUMN * width):
        return None
    squares, n_far, share = _squares(rows), 0, 0.0
    for _ in range(_ROUNDS):  # strange rows are above the median of all rows: the others have less
        scale = chi2.ppf(0.5 / (1 - share), width) / np.median(squares)
        n_far = int((scale * squares > chi2.ppf(_TAIL, width)).sum())
        share = min(max((n_far / n - (1 - _TAIL)) / _TAIL, 0.0), _MOST_STRANGE)
    if (
        not _LEAST_STRANGE <= share <= _FEW_STRANGE
        or binom.sf(n_far - 1, n, _LONGER * (1 - _TAIL)) > _BY_CHANCE
    ):
        return None
    squares = scale * squares
    near = rows[squares <= chi2.ppf(_TAIL, width)]
    leans = np.abs(skew(near)).max() > _LEANS * np.sqrt(6 / n)  # of few columns all may seem so
    if leans or not normality(near).is_plausible:
        return None
    bulk = squares[squares <= chi2.ppf(_BULK, width)]
    if kstest(bulk, lambda x: chi2.cdf(x, width) / _BULK).pvalue < _FITS:
        return None
    return Finding(
        "strange_normals",
        f"about {percent(round(share, 3))} of {counted(n_null, 'known normal')} lie apart from the"
        " others, which look Gaussian: they may be novelties, and then hide those among the tests",
        "look at some of them with `conovel clean`, and remove those that are novel; do not remove"
        " any without a look",
        numbers={"share": share, "n_far": n_far},
    )


def _varies(column: Matrix) -> bool:
    """Tell whether no value of a column is frequent: categories and filled gaps have no tail."""
    return bool(np.unique(column, return_counts=True)[1].max(initial=1) <= _FREQUENT * column.size)


def _squares(rows: Matrix) -> Matrix:
    """Return squared distances from the centre, by the shape of the rows that are near it."""
    n, rows = len(rows), (rows - np.median(rows, axis=0)) / rows.std(axis=0)
    squares = (rows**2).sum(axis=1)
    for _ in range(_ROUNDS):
        kept = np.argsort(squares, kind="stable")[: int(_NEAR * n)]
        squares = np.exp(MahalanobisDistance().fit(rows[kept]).score_samples(rows))
    return np.asarray(squares, dtype=np.float64)

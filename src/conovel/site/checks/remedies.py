"""What to do about a drift: strata, the last known normals, or fresh ones; tried on the rows.

A remedy is named only if the same checks find nothing after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from conovel.site.checks.columns import few_values, shares_apart
from conovel.site.checks.drift import Drift, are_apart, drift_finding, find_drift
from conovel.spec.findings import Finding, named

_FEWEST_ROWS = 100  # known normals that a window holds at least
_FEWEST_OF_STRATUM = 20  # known normals of a stratum that counts
_MOST_TRIED = 5  # columns that are tried as strata
_COVERED = 0.9  # share of the test rows whose stratum has known normals
_MOVED = 0.1  # share of the rows that another mix of strata moves at least

Matrix = NDArray[np.float64]


class Compared(NamedTuple):
    """The rows that were compared, and at which level."""

    null: Matrix
    test: Matrix
    names: Sequence[str]  # of the features
    sources: Sequence[str]  # for each feature, the column that it comes from
    level: Fraction
    draws: int
    stride: int  # every how many known normals are here

    def without(self, sources: Collection[str]) -> Compared:
        """Leave columns out."""
        rest = [j for j, source in enumerate(self.sources) if source not in sources]
        return self._replace(
            null=self.null[:, rest],
            test=self.test[:, rest],
            names=[self.names[j] for j in rest],
            sources=[self.sources[j] for j in rest],
        )

    def drift(self) -> Drift | None:
        """Look for a drift of the known normals."""
        return find_drift(self.null, self.names, self.draws, self.stride)

    def finding(self) -> Finding | None:
        """Look for a drift of the known normals that the test rows share."""
        return drift_finding(self.drift(), self.null, self.test, self.names, self.level)


def with_remedy(finding: Finding, drift: Drift, rows: Compared) -> Finding:
    """Say in a finding about a drift what to run, so that nothing is found any more."""
    if (column := _stratum(rows)) is not None:
        fix = in_strata(column)
    elif (n := _last(rows, drift, int(finding.numbers["since"]))) > 0:
        fix = (
            f"keep the last {n:,} known normals, along which nothing changes (X_null[-{n}:], or"
            f" (head -n 1 normal.csv; tail -n {n} normal.csv) > recent.csv), or take a fresh"
            " sample of normals from the time of the test rows"
        )
    else:
        fix = (
            "the last known normals are not like the test rows, either: take a fresh sample of"
            " normals from the time of the test rows"
        )
        if left_out := _drifting(rows):
            options = " ".join(f"--exclude {name!r}" for name in left_out)
            fix += f", or leave out what changes ({options}) if novelties do not show there"
    return replace(finding, fix=f"{fix}; conovel check shows all that changes")


def in_strata(column: str) -> str:
    """Say how to compare rows within the values of a column."""
    return (
        f"use --strata {column!r}, or strata={column!r} in Python: then rows are compared within"
        f" each value of {named(column)}, whatever the shares of these values are"
    )


def within_strata(
    null: Matrix, test: Matrix, null_strata: NDArray[np.intp], test_strata: NDArray[np.intp]
) -> tuple[Matrix, Matrix]:
    """Replace values by their ranks within the stratum, between 0 and 1.

    If rows are exchangeable within strata, neither the order nor the sample can be told from the
    ranks, whatever the shares of the strata are.
    """
    both = np.concatenate([null, test])
    strata = np.concatenate([null_strata, test_strata])
    ranks = np.zeros_like(both)
    for stratum in np.unique(strata):
        here = strata == stratum
        ranks[here] = rankdata(both[here], axis=0) / (int(here.sum()) + 1)
    return ranks[: len(null)], ranks[len(null) :]


def _stratum(rows: Compared) -> str | None:
    """Find a column within whose values nothing changes."""
    tried = sorted(_candidates(rows), key=lambda one: -one[0])[:_MOST_TRIED]
    for _, column, of_null, of_test in tried:
        enough = [k for k in np.unique(of_null) if (of_null == k).sum() >= _FEWEST_OF_STRATUM]
        kept, covered = np.isin(of_null, enough), np.isin(of_test, enough)
        others = rows.without([column])
        if not others.names or covered.mean() < _COVERED:
            continue
        null, test = within_strata(
            others.null[kept], others.test[covered], of_null[kept], of_test[covered]
        )
        if others._replace(null=null, test=test).finding() is None:
            return column
    return None


def _candidates(rows: Compared) -> Iterator[tuple[float, str, NDArray[np.intp], NDArray[np.intp]]]:
    """Give columns of few values whose shares differ, by how much, with the value of each row."""
    for column in dict.fromkeys(rows.sources):
        features = [j for j, source in enumerate(rows.sources) if source == column]
        values = few_values(rows.null[:, features], rows.test[:, features])
        if values is not None and (moved := shares_apart(*values)) > _MOVED:
            yield moved, column, *values


def _last(rows: Compared, whole: Drift, since: int) -> int:
    """Count the last known normals along which nothing changes, if the test rows are like them.

    How many follows from the known normals alone.
    """
    n = len(rows.null)
    for start in sorted({since // rows.stride, n // 2, 3 * n // 4, 7 * n // 8}):
        left = whole.n_rows - start * rows.stride
        if left < _FEWEST_ROWS:
            break
        window = rows._replace(null=rows.null[start:])
        drift = window.drift()
        if drift is not None and not drift.drifting(rows.level):
            drifting = whole.drifting(rows.level)
            return 0 if are_apart(drifting, window.null, rows.test, rows.names) else left
    return 0


def _drifting(rows: Compared) -> list[str]:
    """Name the columns without which nothing changes; none if nothing is left."""
    left_out: list[str] = []
    rest = rows
    while rest.names and (finding := rest.finding()) is not None:
        source = dict(zip(rest.names, rest.sources, strict=True))
        left_out += dict.fromkeys(source[name] for name in finding.columns)
        rest = rest.without(left_out)
    return left_out if rest.names else []

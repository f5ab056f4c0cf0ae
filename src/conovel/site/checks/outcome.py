"""Is the outcome plausible? Looks at the decisions, after they were made."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from conovel.spec.findings import Finding, named, percent
from conovel.stats.words import counted

_FEWEST_ROWS = 20
MOST_PLAUSIBLE = Fraction(1, 2)  # more novelties than this are no exceptions any more
_SUSPICIOUS = Fraction(1, 4)  # if one column explains nearly all flags
_NEARLY_ALL = Fraction(19, 20)
_FIX = (
    "compare the known normals with the test rows column by column: another time, source, unit or"
    " preparation; take known normals that were made like the test rows"
)

Matrix = NDArray[np.float64]


def share_finding(n_tested: int, n_rejected: int, n_smallest: int) -> Finding | None:
    """Say that more rows stand out than novelties plausibly are.

    Examples
    --------
    >>> print(share_finding(1000, 30, 40), share_finding(1000, 876, 900).message)
    None 876 of 1,000 rows are flagged, and 900 have the smallest possible p-value
    """
    most = max(n_rejected, n_smallest)
    if n_tested < _FEWEST_ROWS or most <= MOST_PLAUSIBLE * n_tested:
        return None
    what = f"{n_rejected:,} of {counted(n_tested, 'row')} are flagged"
    if n_smallest > MOST_PLAUSIBLE * n_tested:
        what += f", and {n_smallest:,} have the smallest possible p-value"
    numbers = {
        "share_flagged": n_rejected / n_tested,
        "share_smallest": n_smallest / n_tested,
    }
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
    if rejected.size < _FEWEST_ROWS or n_rejected <= _SUSPICIOUS * rejected.size:
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

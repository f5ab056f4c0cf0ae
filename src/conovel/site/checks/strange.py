"""Known normals that lie apart from the others, where the others look Gaussian.

Whether a few strange rows are novelties or a heavy tail cannot be told in general. It can where
the bulk of the rows is so much like a Gaussian sample that its tail is known, too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, chi2, kstest

from conovel.scorers.automatic import normality
from conovel.scorers.blend import MahalanobisDistance
from conovel.spec.findings import Finding, percent
from conovel.stats.words import counted

_FEWEST_ROWS = 200
_ROWS_PER_COLUMN = 10
_KEPT = 0.9  # the rows nearest to the centre, from which its shape is estimated
_STEPS = 4
_BULK = 0.95  # of a Gaussian sample: its distances must fit
_FITS = 0.05  # the p-value from which on they do
_TAIL = 0.99  # of a Gaussian sample; strange rows are further away
_LONGER = 1.5  # so many times as many rows in the tail as a Gaussian sample has are no reason
_BY_CHANCE = 1e-4  # the p-value of more rows than that
_LEAST, _MOST = 0.005, 0.2  # share of strange rows


def strange_finding(null: NDArray[np.float64], n_null: int) -> Finding | None:
    """Say that some known normals may be novelties, and about how many.

    `null` are the known normals that checks look at, of `n_null` in all.
    """
    rows = null[:, np.ptp(null, axis=0) > 0]
    n, width = rows.shape
    if width < 2 or n < max(_FEWEST_ROWS, _ROWS_PER_COLUMN * width):
        return None
    squares, n_far, share = _squares(rows), 0, 0.0
    for _ in range(_STEPS):  # strange rows are above the median of all rows: the others have less
        scale = chi2.ppf(0.5 / (1 - share), width) / np.median(squares)
        n_far = int((scale * squares > chi2.ppf(_TAIL, width)).sum())
        share = min(max((n_far / n - (1 - _TAIL)) / _TAIL, 0.0), _MOST)
    if share < _LEAST or binom.sf(n_far - 1, n, _LONGER * (1 - _TAIL)) > _BY_CHANCE:
        return None
    squares = scale * squares
    if not normality(rows[squares <= chi2.ppf(_TAIL, width)]).is_plausible:
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


def _squares(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared distances from the centre, by the shape of the rows that are near it."""
    n = len(rows)
    spread = rows.std(axis=0)
    rows = (rows - np.median(rows, axis=0)) / spread
    squares = (rows**2).sum(axis=1)
    for _ in range(_STEPS):
        kept = np.argsort(squares, kind="stable")[: int(_KEPT * n)]
        squares = np.exp(MahalanobisDistance().fit(rows[kept]).score_samples(rows))
    return np.asarray(squares, dtype=np.float64)

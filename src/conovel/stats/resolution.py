"""How few rows can be rejected together; it depends on the numbers of rows only."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.errors import ResolutionWarning
from conovel.stats.levels import Level, as_level, as_whole
from conovel.stats.words import counted


class Resolution(NamedTuple):
    """How few of m tests a calibration sample can reject together, whatever the scores.

    See Also
    --------
    conovel.resolution : Makes it.
    """

    fewest: int  # the fewest rows that can be rejected together; above m: no row can be
    rows_for_any: int  # calibration rows needed for any rejection, of all m rows together
    rows_for_one: int  # calibration rows needed to be able to reject a single row


def resolution(n_calibration: int, m: int, level: Level) -> Resolution:
    """Return how few of m tests can be rejected together with ℓ calibration rows.

    Examples
    --------
    >>> resolution(166, 999, 0.1)
    Resolution(fewest=60, rows_for_any=9, rows_for_one=9989)
    """
    alpha = as_level(level)
    n_calibration, m = as_whole(n_calibration, "n_calibration"), as_whole(m, "m")
    return Resolution(
        fewest=math.ceil(m / (alpha * (n_calibration + 1))),
        rows_for_any=math.ceil(1 / alpha) - 1,
        rows_for_one=math.ceil(m / alpha) - 1,
    )


def resolution_words(
    n_calibration: int, fewest: int, m: int, level: Fraction, row: str = "row", where: str = ""
) -> str:
    """Say how few of m rows can be flagged together; all pages, commands and files say it so.

    `row` names whose row it is, such as "row of va". `where` says whose the m rows are.

    Examples
    --------
    >>> print(resolution_words(63, 8, 50, Fraction(1, 10)))
    with 63 calibration rows, no row can be flagged unless at least 8 of the 50 rows are flagged
    at once
    >>> print(resolution_words(7, 63, 50, Fraction(1, 10)))
    with 7 calibration rows, no row can be flagged at level 1/10
    >>> print(resolution_words(999, 1, 50, Fraction(1, 10)))
    with 999 calibration rows, a single row can be flagged
    """
    rows = counted(n_calibration, "calibration row")
    if fewest > m:
        return f"with {rows}, no {row} can be flagged at level {level}"
    if fewest <= 1:
        return f"with {rows}, a single {row} can be flagged"
    return (
        f"with {rows}, no {row} can be flagged unless at least {fewest:,} of the"
        f" {counted(m, 'row')}{where} are flagged at once"
    )


def warn_resolution(
    blocks: Sequence[tuple[int, int]], level: Fraction, *, trains: bool = True
) -> None:
    """Warn when no rejection is possible even if every row had rank 1.

    `blocks` are pairs (n_tests, n_calibration) that are decided together. `trains` says whether
    some known normals train, which could calibrate instead.
    """
    m = best = sum(n_tests for n_tests, _ in blocks)
    last = -1
    while best != last:  # the step-up of ranks that are all 1
        last = best
        best = sum(n for n, size in blocks if rank_limit(level / m, last, size) >= 1)
    if best == 0:
        most = max(size for n, size in blocks if n)
        need = resolution(most, m, level)
        warnings.warn(
            f"{resolution_words(most, m + 1, m, level)}: p-values are at least 1/{most + 1}. At"
            f" least {counted(need.rows_for_any, 'calibration row')} are needed, and"
            f" {need.rows_for_one} to be able to flag a single one of {counted(m, 'row')}:"
            f" add known normals{' or lower train_fraction' if trains else ''}",
            ResolutionWarning,
            stacklevel=3,
        )


def rank_limit(slope: Fraction, k: int, n_calibration: int) -> int:
    """Largest rank that BH rejects when it rejects `k` in all: floor(slope·k·(ℓ+1)).

    `slope` is α/m, or α divided by the estimated number of nulls. Python integers do not
    overflow, so m and ℓ may be of any size.

    Proof: Theorem 2 (docs/theory.md#thm-main).
    """
    return slope.numerator * int(k) * (int(n_calibration) + 1) // slope.denominator


def first_k(slope: Fraction, rank: int, n_calibration: int) -> int:
    """Smallest k whose limit admits a rank: the inverse of :func:`rank_limit`."""
    return -(-rank * slope.denominator // (slope.numerator * (int(n_calibration) + 1)))

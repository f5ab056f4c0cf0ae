"""P-values that hold given one calibration sample, with a stated confidence.

A conformal p-value is valid on average over calibration samples. A kept detector has one sample
for its whole life, and given that one a normal row may have rank r or less more often than
r/(ℓ+1). Bates, Candès, Lei, Romano and Sesia (2023), "Testing for outliers with conformal
p-values", adjust p-values so that, with probability 1 - δ over calibration samples, they are valid
given the sample. Here rank r gets the p-value

    b_r = 1 - (δ · C(ℓ+1-r, k) / C(ℓ, k))^(1/k)    with k = ⌈ℓ/2⌉, and 1 where ℓ+1-r < k.

It is rounded up to a whole number of 2⁻⁴⁰, and whole numbers decide.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ResolutionWarning
from conovel.stats.resolution import Resolution, rank_limit, resolution_words
from conovel.stats.stepup import StepUp, within_limit
from conovel.stats.words import counted

UNITS = 2**40


@dataclass(frozen=True, eq=False)
class Conditional:
    """The p-value of each rank, valid given a calibration sample with a stated confidence."""

    n_calibration: int
    confidence: Fraction  # 1 - δ

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """The p-value of each rank from 1 to ℓ+1, as a number of 2⁻⁴⁰; it does not fall.

        Proof: Theorem 23 (docs/theory.md#thm-conditional).
        """
        n, delta = self.n_calibration, 1 - self.confidence
        k = max(-(-n // 2), 1)
        # log C(n+1-r, k) - log C(n, k) is the sum over j < r-1 of log((n-k-j)/(n-j))
        j = np.arange(max(n - k, 0))
        falls = np.concatenate([[0.0], np.cumsum(np.log1p(-k / (n - j)))])
        log_delta = math.log(delta.numerator) - math.log(delta.denominator)
        # A sum of n numbers of one sign is wrong by n·2⁻⁵² of itself at most; the exponents are
        # above -3 - log(1/δ).
        slack = 2.0**-30 + (3 - log_delta) * n * 2.0**-50
        values = -np.expm1((log_delta + falls) / k) + slack
        units = np.full(n + 1, UNITS, dtype=np.int64)
        units[: values.size] = np.ceil(np.minimum(values, 1.0) * UNITS).astype(np.int64)
        return units

    def p_values(self, ranks: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the p-value of each rank."""
        return np.asarray(self.units[ranks - 1] / UNITS)

    def limit(self, slope: Fraction, k: int) -> int:
        """Return the largest rank whose p-value is at most `slope` times k; 0 if there is none.

        Proof: Theorem 23 (docs/theory.md#thm-conditional).
        """
        most = slope.numerator * int(k) * UNITS // slope.denominator
        return int(np.searchsorted(self.units, min(most, UNITS), "right"))

    def step_up(self, ranks: NDArray[np.int64], level: Fraction) -> StepUp:
        """Run BH on these p-values, by integers: start with all rows, and count until it stays.

        Proof: Theorem 23 (docs/theory.md#thm-conditional).
        """
        m = ranks.size
        slope, k, counts = level / max(m, 1), m, []
        while True:
            limit = self.limit(slope, k)
            count = int(np.count_nonzero(ranks <= limit))
            counts.append((count,))
            if count == k:
                break
            k = count
        return StepUp(k, (within_limit(ranks, limit),), tuple(counts), (limit,), level, None)

    def resolution(self, m: int, level: Fraction) -> Resolution:
        """Return how few of m rows can be rejected together."""
        return Resolution(
            fewest=-(-int(self.units[0]) * m * level.denominator // (level.numerator * UNITS)),
            rows_for_any=self._rows_for(float(level)),
            rows_for_one=self._rows_for(float(level) / max(m, 1)),
        )

    def warn_resolution(self, m: int, level: Fraction) -> None:
        """Warn when no row can be rejected, whatever the scores."""
        need = self.resolution(m, level)
        if need.fewest > m:
            warnings.warn(
                f"{resolution_words(self.n_calibration, need.fewest, m, level)} with confidence"
                f" {float(self.confidence):g}: about {need.rows_for_any:,} calibration rows are"
                f" needed, and {need.rows_for_one:,} to be able to flag a single one of"
                f" {counted(m, 'row')}: add known normals, or leave the confidence out",
                ResolutionWarning,
                stacklevel=3,
            )

    def _rows_for(self, p_value: float) -> int:
        """Return about how many calibration rows give rank 1 this p-value."""
        return 2 * math.ceil(math.log(1 - self.confidence) / math.log1p(-p_value))


def price(confidence: Fraction) -> int:
    """Return about how many ranks the first one counts for: 2·log(1/δ).

    Examples
    --------
    >>> price(Fraction(19, 20))
    6
    """
    return max(1, math.ceil(-2 * math.log(1 - confidence)))


class LongRun(NamedTuple):
    """How often one kept detector flags a row of a batch that holds normal rows only.

    Between detectors that differ in their calibration sample alone, the share of such batches in
    which some row is flagged by itself has the quantiles 5 % and 95 % `low` and `high`.
    """

    n_tests: int  # rows of a batch
    low: float
    high: float

    def __str__(self) -> str:
        low, high = (f"{100 * rate:.2g} %" for rate in (self.low, self.high))
        return f"in {low} to {high} of batches of {self.n_tests:,} normal rows"


def long_run(n_calibration: int, level: Fraction, n_tests: int = 100) -> LongRun | None:
    """Say between which rates detectors with so many calibration rows lie; None if none can flag.

    A row is flagged by itself if its rank is at most r = ⌊α(ℓ+1)/m⌋. Given the calibration sample
    that has probability U for a normal row, and U has the distribution Beta(r, ℓ+1-r) over
    samples. So a batch has such a row with probability 1 - (1-U)^m, which grows with U. A batch of
    more rows than α(ℓ+1) is taken for one of so many.

    Proof: Theorem 23 (docs/theory.md#thm-conditional).

    Examples
    --------
    >>> rate = long_run(999, Fraction(1, 10))
    >>> rate.n_tests, round(rate.low, 3), round(rate.high, 3)
    (100, 0.005, 0.259)
    """
    m = min(n_tests, rank_limit(level, 1, n_calibration))
    if m < 1:
        return None
    r = rank_limit(level / m, 1, n_calibration)
    from scipy.special import betaincinv  # noqa: PLC0415  (few runs need it)

    u = betaincinv(r, n_calibration + 1 - r, np.array([0.05, 0.95]))
    low, high = (float(-np.expm1(m * np.log1p(-one))) for one in u)
    return LongRun(m, low, high)

"""What novelties among the calibration rows do to a level, in whole numbers."""

from __future__ import annotations

from fractions import Fraction

from conovel.stats.levels import Level, as_level, as_whole


def level_with_novelties(level: Level, n_calibration: int, n_novel: int) -> Fraction:
    """Return the largest false discovery rate if so many calibration rows are novelties.

    It is α(ℓ+1)/(ℓ₀+1), with ℓ₀ = ℓ - `n_novel` calibration rows that are normal, whatever the
    scores of the others are.

    Proof: Theorem 25(a) (docs/theory.md#thm-contaminated).

    Examples
    --------
    >>> level_with_novelties(0.1, 999, 0), level_with_novelties(0.1, 999, 30)
    (Fraction(1, 10), Fraction(10, 97))
    """
    n = as_whole(n_calibration, "n_calibration", 0)
    n_novel = as_whole(n_novel, "n_novel", 0, n)
    return min(as_level(level) * Fraction(n + 1, n - n_novel + 1), Fraction(1))

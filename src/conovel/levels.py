"""Levels as exact fractions: what the user typed, not its nearest binary float."""

from __future__ import annotations

from fractions import Fraction
from numbers import Rational
from typing import TypeAlias

from conovel.errors import LevelError

Level: TypeAlias = float | str | Rational


def as_level(level: Level, name: str = "level") -> Fraction:
    """Read a level exactly as it is written: 0.1, "0.1" and Fraction(1, 10) are 1/10.

    Examples
    --------
    >>> as_level(0.1), as_level("1/20")
    (Fraction(1, 10), Fraction(1, 20))
    """
    try:
        # str of a float is its shortest decimal form: what the user typed.
        exact = Fraction(level) if isinstance(level, Rational) else _exact(str(level))
    except (ValueError, ZeroDivisionError):
        raise LevelError(f"{name} must be a number such as 0.1 or '1/10', not {level!r}") from None
    if not 0 < exact < 1:
        raise LevelError(f"{name} must lie strictly between 0 and 1, not {level}")
    return exact


def _exact(text: str) -> Fraction:
    if "/" not in text and float(text) == 0:  # and do not expand the likes of 1e-9999999999
        return Fraction(0)
    return Fraction(text)

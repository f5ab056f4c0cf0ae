"""Levels as exact fractions: what the user typed, not its nearest binary float."""

from __future__ import annotations

import re
from fractions import Fraction
from numbers import Rational
from typing import TypeAlias

from conovel.errors import LevelError

Level: TypeAlias = float | str | Rational

# Texts of levels come from files, jobs and messages. These bounds allow every float between 0 and
# 1 (the smallest is 5e-324) and keep the cost of exact arithmetic small.
MAX_TEXT = 400  # characters
MAX_EXPONENT = 400
MAX_BITS = 1200  # of numerator and denominator
_SHAPE = re.compile(r"\s*[-+]?(\d+/\d+|(\d+\.?\d*|\.\d+)(e[-+]?(?P<exponent>\d+))?)\s*", re.I)


def as_level(level: Level, name: str = "level") -> Fraction:
    """Read a level exactly as it is written: 0.1, "0.1" and Fraction(1, 10) are 1/10.

    Examples
    --------
    >>> as_level(0.1), as_level("1/20")
    (Fraction(1, 10), Fraction(1, 20))
    """
    # str of a float is its shortest decimal form: what the user typed.
    exact = Fraction(level) if isinstance(level, Rational) else as_fraction(str(level), name)
    if not 0 < exact < 1:
        raise LevelError(f"{name} must lie strictly between 0 and 1, not {_shown(level)}")
    if exact.denominator.bit_length() > MAX_BITS:
        raise LevelError(f"{name} has too many digits: {_shown(level)}")
    return exact


def as_fraction(text: str, name: str = "level") -> Fraction:
    """Read a fraction or a decimal number; refuse numbers that would take long to expand.

    Examples
    --------
    >>> as_fraction("3/20"), as_fraction("1e-1")
    (Fraction(3, 20), Fraction(1, 10))
    >>> as_fraction("1e300000000")
    Traceback (most recent call last):
    ...
    conovel.errors.LevelError: level must be a number such as 0.1 or '1/10', not '1e300000000'
    """
    shape = _SHAPE.fullmatch(text) if len(text) <= MAX_TEXT else None
    exponent = (shape["exponent"] or "0") if shape else ""
    if shape and len(exponent) <= len(str(MAX_EXPONENT)) and int(exponent) <= MAX_EXPONENT:
        try:
            return Fraction(text)
        except ZeroDivisionError:
            pass
    raise LevelError(f"{name} must be a number such as 0.1 or '1/10', not {_shown(text)!r}")


def _shown(level: object) -> str:
    """Shorten a level for an error message."""
    try:
        text = str(level)
    except ValueError:  # an integer of more digits than Python writes
        return "a number of too many digits"
    return text if len(text) <= 40 else f"{text[:37]}..."

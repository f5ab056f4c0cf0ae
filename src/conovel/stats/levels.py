"""Levels as exact fractions: what the user typed, not its nearest binary float."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any, TypeAlias

import numpy as np

from conovel.errors import InputError, LevelError
from conovel.stats.words import briefly

Level: TypeAlias = float | str | Rational

# Texts of levels come from files, jobs and messages. These bounds allow every float between 0 and
# 1 (the smallest is 5e-324) and keep the cost of exact arithmetic small.
MAX_TEXT = 400  # characters
MAX_EXPONENT = 400
MAX_FRACTION_BITS = 1200  # of numerator and denominator
_SHAPE = re.compile(r"\s*[-+]?(\d+/\d+|(\d+\.?\d*|\.\d+)(e[-+]?(?P<exponent>\d+))?)\s*", re.I)


def as_level(level: Level, name: str = "level") -> Fraction:
    """Read a level exactly as it is written: 0.1, "0.1" and Fraction(1, 10) are 1/10."""
    # str of a float is its shortest decimal form: what the user typed.
    exact = Fraction(level) if isinstance(level, Rational) else as_fraction(str(level), name)
    if not 0 < exact < 1:
        raise LevelError(f"{name} must lie strictly between 0 and 1, not {_shown(level)}")
    if exact.denominator.bit_length() > MAX_FRACTION_BITS:
        raise LevelError(f"{name} has too many digits: {_shown(level)}")
    return exact


def as_fraction(text: str, name: str = "level") -> Fraction:
    """Read a fraction or a decimal number; refuse numbers that would take long to expand."""
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


_LARGEST = sys.float_info.max
SEED_BITS = 32  # what scikit-learn takes
MAX_SEED_BITS = 128  # what numpy draws as fresh entropy
# What a `random_state` may be: all that scikit-learn takes, and numpy's newer kinds.
Generators: TypeAlias = np.random.RandomState | np.random.Generator | np.random.SeedSequence
RandomState: TypeAlias = int | Generators | None


def as_whole(
    number: Any, name: str, least: int = 0, most: int | None = None, *, others: str = ""
) -> int:
    """Check a whole number from `least` to `most`; `others` are other right values."""
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not whole or number < least or (most is not None and number > most):
        up_to = "on" if most is None else f"to {most}"
        raise InputError(
            f"{name} must be a whole number from {least} {up_to}{others}, not {briefly(number)}"
        )
    return int(number)


def is_finite_number(value: Any) -> bool:
    """Tell whether a value from JSON or TOML is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST <= value <= _LARGEST  # exact, also for integers that no float can hold


def as_seed(random_state: RandomState) -> int:
    """Return the seed that a `random_state` stands for, as a whole number.

    Call it where the work begins, once: a generator of numpy draws another seed at each call.
    None draws a fresh seed, below 2**32. A SeedSequence gives the same seed each time.
    """
    if random_state is None:
        random_state = np.random.SeedSequence()
    if isinstance(random_state, np.random.SeedSequence):
        return int(random_state.generate_state(1)[0])
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**SEED_BITS))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**SEED_BITS, dtype=np.uint64))
    others = ", None, or a RandomState or Generator of numpy"
    return as_seed_number(random_state, "random_state", others=others)


def as_seed_number(number: Any, name: str, *, others: str = "") -> int:
    """Check a seed: a whole number from 0 on, of at most 128 bits."""
    seed = as_whole(number, name, others=others)
    if seed.bit_length() > MAX_SEED_BITS:
        raise InputError(
            f"{name} must have at most {MAX_SEED_BITS} bits, not {seed.bit_length():,}"
        )
    return seed


def as_callback(function: Any, name: str) -> Any:
    """Check that an argument is a function; None becomes a function that does nothing."""
    if function is None:
        return lambda *_: None
    if not callable(function):
        raise InputError(f"{name} must be a function, not {briefly(function)}")
    return function


_MOST_AGENTS = 10**9  # more than any network has; a number that every message can hold


def as_liars(liars: Any, n_agents: int | None = None) -> int:
    """Check how many lying agents are tolerated: fewer than there are agents."""
    number = as_whole(liars, "liars", most=_MOST_AGENTS)
    if n_agents is not None and number >= n_agents:
        raise InputError(
            f"liars must be smaller than the number of agents, {n_agents}, not {number}: nothing"
            " can be decided if everybody may lie"
        )
    return number


MAX_REPEATS = 100


def as_repeats(repeats: Any) -> int:
    """Check a number of runs."""
    return as_whole(repeats, "repeats", 1, MAX_REPEATS)


def as_ties(ties: str) -> str:
    """Read how ties between a test row and calibration rows are counted."""
    if not isinstance(ties, str) or ties not in ("against", "random"):
        raise InputError(f"ties must be 'against' or 'random', not {ties!r}")
    return ties


def ties_seed(seed: int) -> int:
    """Return the seed of the order of equal scores; nothing else follows from it."""
    return int(np.random.SeedSequence(seed).generate_state(3)[2])


def chance_seed(seed: int) -> int:
    """Return the seed of the number that prunes weighted rows; nothing else follows from it."""
    return int(np.random.SeedSequence(seed).generate_state(4)[3])

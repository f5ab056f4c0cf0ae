"""Checks of simple arguments: whole numbers, seeds, arrays and callbacks."""

from __future__ import annotations

import sys
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.words import briefly

_LARGEST = sys.float_info.max
SEED_BITS = 32  # what scikit-learn takes
MAX_SEED_BITS = 128  # what numpy draws as fresh entropy
# What a `random_state` may be: all that scikit-learn takes, and numpy's newer kinds.
Generators: TypeAlias = np.random.RandomState | np.random.Generator | np.random.SeedSequence
RandomState: TypeAlias = int | Generators | None


def as_whole(
    number: Any, name: str, least: int = 0, most: int | None = None, *, others: str = ""
) -> int:
    """Check a whole number from `least` to `most`.

    `others` says in an error what else would have been right.

    Examples
    --------
    >>> as_whole(np.int64(3), "n_folds")
    3
    """
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not whole or number < least or (most is not None and number > most):
        up_to = "on" if most is None else f"to {most}"
        raise InputError(
            f"{name} must be a whole number from {least} {up_to}{others}, not {briefly(number)}"
        )
    return int(number)


def is_finite_number(value: Any) -> bool:
    """Tell whether a value from JSON or TOML is a number that a float can hold.

    Examples
    --------
    >>> [is_finite_number(value) for value in (1, 0.5, 10**400, float("nan"), "1", True)]
    [True, True, False, False, False, False]
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST <= value <= _LARGEST  # exact, also for integers that no float can hold


def as_seed(random_state: RandomState) -> int:
    """Return the seed that a `random_state` stands for, as a whole number.

    Call it where the work begins, once: a generator gives another seed at each call.

    Parameters
    ----------
    random_state : int, None, RandomState, Generator or SeedSequence
        A whole number is the seed. None draws a fresh one. numpy's generators draw one, and
        their state changes. A SeedSequence gives the same seed each time.

    Returns
    -------
    int
        Below 2**32 where it was drawn.

    Examples
    --------
    >>> as_seed(7), as_seed(np.random.SeedSequence(0)), as_seed(np.random.RandomState(0))
    (7, 2968811710, 2357136044)
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
    """Check a seed: a whole number from 0 on, of at most 128 bits.

    More bits would take long to mix, and say nothing more.
    """
    seed = as_whole(number, name, others=others)
    if seed.bit_length() > MAX_SEED_BITS:
        raise InputError(
            f"{name} must have at most {MAX_SEED_BITS} bits, not {seed.bit_length():,}"
        )
    return seed


def as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Convert to an array of any shape and type."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise SampleError(
            f"{name} cannot become an array: its parts have different lengths"
        ) from None


def as_callback(function: Any, name: str) -> Any:
    """Check that an argument is a function; None becomes a function that does nothing."""
    if function is None:
        return lambda *_: None
    if not callable(function):
        raise InputError(f"{name} must be a function, not {briefly(function)}")
    return function

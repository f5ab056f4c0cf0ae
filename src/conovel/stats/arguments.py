"""Checks of simple arguments: whole numbers, seeds, arrays and callbacks."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError


def as_whole(number: Any, name: str, least: int = 0, most: int | None = None) -> int:
    """Check a whole number from `least` to `most`.

    Examples
    --------
    >>> as_whole(np.int64(3), "n_folds")
    3
    """
    whole = isinstance(number, Integral) and not isinstance(number, bool)
    if not whole or number < least or (most is not None and number > most):
        up_to = "on" if most is None else f"to {most}"
        raise InputError(f"{name} must be a whole number from {least} {up_to}, not {number!r}")
    return int(number)


def as_seed(random_state: Any) -> int | None:
    """Read a seed: a whole number, or None for a fresh one.

    Generators are refused: their state changes with use, so a run could not be repeated.
    """
    return None if random_state is None else as_whole(random_state, "random_state (or None)")


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
        raise InputError(f"{name} must be a function, not {function!r}")
    return function

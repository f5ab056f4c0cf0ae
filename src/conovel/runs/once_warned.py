"""What every set of repeated runs needs: warnings once, and stages that name the run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conovel.errors import ConovelWarning


@contextmanager
def once_warned(b: int) -> Iterator[None]:
    """Silence our warnings in all runs but the first: rows and numbers are the same in all."""
    with warnings.catch_warnings():
        if b:
            warnings.simplefilter("ignore", ConovelWarning)
        yield


def in_run(tell: Callable[[str], None], b: int, repeats: int) -> Callable[[str], None]:
    """Name the run before each stage of it.

    Examples
    --------
    >>> in_run(print, 0, 5)("scoring")
    run 1 of 5: scoring
    """
    return lambda stage: tell(f"run {b + 1} of {repeats}: {stage}")

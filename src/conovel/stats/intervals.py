"""Exact confidence intervals of a share."""

from __future__ import annotations

from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """The lowest and the highest share that counts do not contradict."""

    low: float
    high: float


def exact_interval(n_hits: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Return the interval of Clopper and Pearson for a probability, from hits among n draws.

    It covers the probability at least as often as `confidence` says, for every n.

    Examples
    --------
    >>> exact_interval(0, 10).low, round(exact_interval(0, 10).high, 3)
    (0.0, 0.308)
    >>> exact_interval(0, 0)
    Interval(low=0.0, high=1.0)
    """
    from scipy.stats import beta  # noqa: PLC0415  (it takes long to import)

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, n_hits, n - n_hits + 1)) if n_hits else 0.0
    high = float(beta.ppf(1 - tail, n_hits + 1, n - n_hits)) if n_hits < n else 1.0
    return Interval(low, high)

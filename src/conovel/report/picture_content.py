"""The records of a picture as JSON types, however the rows were summarised."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.stats.resolution import rank_limit

FORMAT = "conovel-picture-1"
MOST_ROWS = 100  # rows listed, the most novel first
MOST_POINTS = 400  # points of a step-up
MOST_LETTERS = 80  # of a row's name
BINS = 30  # of scores
P_VALUE_BINS = 20


@dataclass(frozen=True)
class Line:
    """One step-up: p-values are compared with ``slope · k``.

    Attributes
    ----------
    sites : tuple of str
        Sites whose rows take part and are known here.
    slope : Fraction
        α/m, or α over the estimated number of nulls.
    n_rejected : int
        The k it ended with, over all sites that took part.
    whole : bool
        False if rows of other sites took part, which are not known here.
    is_step_up : bool
        False in the regime `joint`, where cells decide. The line then only says which rank was
        the largest rejected one.
    """

    sites: tuple[str, ...]
    slope: Fraction
    n_rejected: int
    whole: bool = True
    is_step_up: bool = True


def curve_content(
    line: Line,
    n_tests: int,
    n_rejected_here: int,
    places: NDArray[np.int64],
    p_values: Iterable[float],
) -> dict[str, Any]:
    """Return a step-up as JSON types: the p-values at some places, and the line."""
    return {
        "sites": list(line.sites),
        "n_tests": n_tests,
        "n_rejected": line.n_rejected,
        "n_rejected_here": n_rejected_here,
        "slope": float(line.slope),
        "whole": line.whole,
        "k": places.tolist(),
        "p_value": [short(p) for p in p_values],
    }


def site_content(
    line: Line,
    *,
    n_tested: int,
    n_calibration: int,
    n_rejected: int,
    lowest_rejected_score: float | None,
    scores: dict[str, list[Any]] | None,
) -> dict[str, Any]:
    """Return the numbers of one site as JSON types."""
    lowest = lowest_rejected_score
    return {
        "n_tested": n_tested,
        "n_calibration": n_calibration,
        "n_rejected": n_rejected,
        "limit": rank_limit(line.slope, line.n_rejected, n_calibration),
        "fewest": math.ceil(1 / (line.slope * (n_calibration + 1))),
        "lowest_rejected_score": None if lowest is None else short(lowest),
        "scores": scores,
    }


def row_content(
    site: str, name: object, score: float | None, rank: int, n_calibration: int, rejected: bool
) -> dict[str, Any]:
    """Return one row and its decision as JSON types."""
    return {
        "site": site,
        "row": shortened(str(name)),
        "score": None if score is None else short(score),
        "rank": rank,
        "p_value": short(rank / (n_calibration + 1)),
        "rejected": rejected,
    }


def p_value_edges() -> list[float]:
    """Return the edges of the bins of p-values."""
    return [short(edge) for edge in np.linspace(0, 1, P_VALUE_BINS + 1)]


def thinned(m: int, n_rejected: int, most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Pick the places 1 ≤ k ≤ m of a step-up that are drawn.

    The picture ends at three times the number of rejections, so that the crossing is visible.
    The places around the crossing are always included.

    Examples
    --------
    >>> thinned(1000, 5)[[0, -1]]
    array([ 1, 40])
    >>> thinned(10**6, 10**5).size <= MOST_POINTS + 2
    True
    """
    last = min(m, max(40, 3 * n_rejected))
    even = np.linspace(1, last, min(last, most)).round().astype(np.int64)
    near = np.array([n_rejected, n_rejected + 1])
    return np.union1d(even, near[(near >= 1) & (near <= m)])


def shortened(text: str, most: int = MOST_LETTERS) -> str:
    """Cut a long name.

    Examples
    --------
    >>> shortened("north-east", 6)
    'north…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def short(number: float) -> float:
    """Round to six digits, which is enough for any drawing."""
    return float(f"{number:.6g}")

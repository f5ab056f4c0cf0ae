"""The numbers that a report draws: a few hundred, however many rows the run has.

The commands write them under ``"picture"`` in the file of results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.report.list_numbers import lists_of
from conovel.stats.resolution import rank_limit

if TYPE_CHECKING:
    from conovel.runs.detection import Detection
    from conovel.site.strata import StrataResult

FORMAT = "conovel-picture-1"
MOST_ROWS = 100  # rows listed, the most novel first
MOST_POINTS = 400  # points of a step-up
MOST_LETTERS = 80  # of a row's name
BINS = 30  # of scores
P_VALUE_BINS = 20


@dataclass(frozen=True)
class Line:
    """One step-up: p-values are compared with ``slope · k``."""

    sites: tuple[str, ...]  # whose rows take part and are known here
    slope: Fraction  # α/m, or α over the estimated number of nulls
    n_rejected: int  # the k it ended with, over all sites that took part
    whole: bool = True  # False if rows of other sites took part, which are not known here
    is_step_up: bool = True  # False where cells decide: then it gives the largest rejected rank
    # Where no step-up decides: the fewest rows that could be flagged together, 0 if none could be,
    # None if it is not known
    fewest: int | None = None

    def fewest_of(self, n_calibration: int, n_tests: int | None) -> int | None:
        """Return how few rows could be flagged together; 0 where more than all of them would."""
        if not self.is_step_up:
            return self.fewest
        fewest = math.ceil(1 / (self.slope * (n_calibration + 1)))
        return 0 if n_tests is not None and fewest > n_tests else fewest


@dataclass(frozen=True, eq=False)
class SiteRanks:
    """The tested rows of one site."""

    ranks: NDArray[np.int64]
    rejected: NDArray[np.bool_]
    n_calibration: int
    names: NDArray[Any]
    scores: NDArray[np.float64] | None = None
    calibration_scores: NDArray[np.float64] | None = None

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Conformal p-values."""
        return self.ranks / (self.n_calibration + 1)


def of_detection(detection: Detection) -> dict[str, Any]:
    """Summarise the decisions at one site."""
    if detection.repeated is not None:
        from conovel.report.run_pictures import of_repeats, repeated_rows  # noqa: PLC0415

        return of_repeats(repeated_rows({detection.name: detection}))
    if detection.strata is not None:
        rows = StrataRows(
            row_names(detection.ids, detection.ranks.size),
            detection.ranks,
            detection.scores,
            detection.rejected,
        )
        return of_strata(detection.strata, rows) | {"lists": lists_of(detection)}
    outcome = detection.stepup
    slope = outcome.level / (detection.ranks.size * (outcome.pi0 or 1))
    block = SiteRanks(
        ranks=detection.ranks,
        rejected=detection.rejected,
        n_calibration=detection.n_calibration,
        names=row_names(detection.ids, detection.ranks.size),
        scores=detection.scores,
        calibration_scores=detection.calibration_scores,
    )
    line = Line(("",), slope, detection.n_rejected)
    if detection.weighted is not None:  # a p-value is drawn where a rank would have it
        places = np.ceil(detection.p_values * (detection.n_calibration + 1)).astype(np.int64)
        block = replace(block, ranks=places)
        line = by_largest_rank("", block)
    if detection.ledger is not None:  # all batches so far decide, not this one by itself
        line = by_largest_rank("", block)
    return picture({"": block}, [line]) | {"lists": lists_of(detection)}


class StrataRows(NamedTuple):
    """All test rows of a site with strata; a row that was not tested has rank 0."""

    names: NDArray[Any]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]
    rejected: NDArray[np.bool_]


def of_strata(strata: StrataResult, rows: StrataRows) -> dict[str, Any]:
    """Summarise the decisions at one site, each stratum by itself; cells decide."""
    blocks = {}
    for s in np.flatnonzero(strata.tested).tolist():
        here = strata.codes == s
        blocks[strata.labels[s]] = SiteRanks(
            ranks=rows.ranks[here],
            rejected=rows.rejected[here],
            n_calibration=int(strata.n_calibration[s]),
            names=rows.names[here],
            scores=rows.scores[here],
        )
    return picture(blocks, [by_largest_rank(name, block) for name, block in blocks.items()])


def picture(blocks: Mapping[str, SiteRanks], lines: Sequence[Line]) -> dict[str, Any]:
    """Summarise rows for drawing.

    Examples
    --------
    >>> block = SiteRanks(
    ...     np.array([1, 5, 1]), np.array([True, False, True]), 9, np.array(list("abc"))
    ... )
    >>> drawn = picture({"here": block}, [Line(("here",), Fraction(1, 15), 2)])
    >>> drawn["step_up"][0]["k"], drawn["step_up"][0]["p_value"]
    ([1, 2, 3], [0.1, 0.1, 0.5])
    >>> [row["row"] for row in drawn["most_novel"]]
    ['a', 'c', 'b']
    """
    blocks = {name: _drawable(block) for name, block in blocks.items()}
    line_of = {name: line for line in lines for name in line.sites}
    return {
        "format": FORMAT,
        "step_up": [
            _curve(line, [blocks[name] for name in line.sites])
            for line in lines
            if line.is_step_up
        ],
        "p_values": _p_value_histogram(list(blocks.values())),
        "sites": {
            name: _site(block, line_of[name], _n_tests(line_of[name], blocks))
            for name, block in blocks.items()
        },
        "most_novel": most_novel(blocks, MOST_ROWS),
    }


def _n_tests(line: Line, blocks: Mapping[str, SiteRanks]) -> int | None:
    """Return how many rows a step-up decides about; None where some are not known here."""
    return sum(blocks[name].ranks.size for name in line.sites) if line.whole else None


def by_largest_rank(name: str, block: SiteRanks, fewest: int | None = None) -> Line:
    """Say which rank of a site was the largest rejected one where no step-up of it decided.

    `fewest` is as of :class:`Line`.
    """
    k = int(block.rejected.sum())
    largest = int(block.ranks[block.rejected].max(initial=0))
    # Without a rejection any slope above 0 will do: k = 0 allows no rank.
    slope = Fraction(max(largest, 1), max(k, 1) * (block.n_calibration + 1))
    return Line((name,), slope, k, is_step_up=False, fewest=fewest)


def most_novel(blocks: Mapping[str, SiteRanks], most: int) -> list[dict[str, Any]]:
    """List rows by p-value, and by score where p-values are equal."""
    rows: list[tuple[float, float, dict[str, Any]]] = []
    for name, block in blocks.items():
        scores = np.zeros(block.ranks.size) if block.scores is None else block.scores
        # Sort only the rows that can be among the first: there may be millions.
        last = min(most, block.ranks.size) - 1
        near = np.flatnonzero(block.ranks <= np.partition(block.ranks, last)[last])
        for i in near[np.lexsort((-scores[near], block.ranks[near]))[:most]]:
            rank = int(block.ranks[i])
            p_value = rank / (block.n_calibration + 1)
            score = None if block.scores is None else float(scores[i])
            rejected = bool(block.rejected[i])
            row = row_content(name, block.names[i], score, rank, block.n_calibration, rejected)
            rows.append((p_value, -float(scores[i]), row))
    rows.sort(key=lambda item: item[:2])
    return [row for *_, row in rows[:most]]


def score_histogram(block: SiteRanks, bins: int = BINS) -> dict[str, list[Any]] | None:
    """Count calibration and test rows by score.

    Where the calibration scores were not kept, they are counted from the ranks: r - 1 of them are
    at or above a test row of rank r. The edges are then test scores, and calibration scores
    outside of them are counted in the outermost bins.
    """
    if block.scores is None or block.scores.size == 0:
        return None
    scores, kept = block.scores, block.calibration_scores
    every = scores if kept is None else np.concatenate([scores, kept])
    low, high = float(every.min()), float(every.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    if kept is not None:
        calibration = np.histogram(kept, edges)[0]
    else:
        order = np.argsort(scores)
        ascending, above = scores[order], block.ranks[order] - 1
        if (np.diff(above) > 0).any():  # with folds, ranks of two rows follow from two scores
            return None
        edges = _edges_among(ascending, edges)
        first = np.searchsorted(ascending, edges[1:-1])
        calibration = -np.diff([block.n_calibration, *above[first], 0])
    return {
        "edges": edges.tolist(),
        "calibration": calibration.tolist(),
        "tests": np.histogram(scores, edges)[0].tolist(),
        "rejected": np.histogram(scores[block.rejected], edges)[0].tolist(),
    }


def _edges_among(ascending: NDArray[np.float64], even: NDArray[np.float64]) -> NDArray[np.float64]:
    """Move inner edges up to the next score, and leave out edges that are too close."""
    inner = even[1:-1]
    moved = ascending[np.searchsorted(ascending, inner[inner <= ascending[-1]])]
    narrowest = (even[-1] - even[0]) / (2 * (even.size - 1))
    edges = [even[0]]
    for edge in moved:
        if edge - edges[-1] >= narrowest and even[-1] - edge >= narrowest:
            edges.append(edge)
    return np.array([*edges, even[-1]])


def row_names(ids: NDArray[Any] | None, m: int) -> NDArray[Any]:
    """Return the names of rows: their ids, or else their positions from 0."""
    return np.arange(m) if ids is None else ids


def _curve(line: Line, blocks: Sequence[SiteRanks]) -> dict[str, Any]:
    p_values = np.sort(np.concatenate([block.p_values for block in blocks]))
    here = sum(int(block.rejected.sum()) for block in blocks)
    places = thinned(p_values.size, here)
    return curve_content(line, int(p_values.size), here, places, p_values[places - 1])


def _p_value_histogram(blocks: Sequence[SiteRanks]) -> dict[str, list[Any]]:
    # A p-value on an edge belongs to the bin below: p is one of 1/(ℓ+1), …, 1.
    counts = {key: np.zeros(P_VALUE_BINS, dtype=int) for key in ("tests", "rejected")}
    for block in blocks:
        bins = -(-block.ranks * P_VALUE_BINS // (block.n_calibration + 1)) - 1
        counts["tests"] += np.bincount(bins, minlength=P_VALUE_BINS)
        counts["rejected"] += np.bincount(bins[block.rejected], minlength=P_VALUE_BINS)
    return {"edges": p_value_edges()} | {key: c.tolist() for key, c in counts.items()}


def _drawable(block: SiteRanks) -> SiteRanks:
    """Leave out scores that are not finite; decisions need only ranks."""
    finite = block.scores is not None and np.isfinite(block.scores).all()
    kept = block.calibration_scores
    if finite and (kept is None or np.isfinite(kept).all()):
        return block
    return replace(block, scores=None, calibration_scores=None)


def _site(block: SiteRanks, line: Line, n_tests: int | None) -> dict[str, Any]:
    flagged = None if block.scores is None else block.scores[block.rejected]
    return site_content(
        line,
        n_tests=n_tests,
        n_tested=int(block.ranks.size),
        n_calibration=block.n_calibration,
        n_rejected=int(block.rejected.sum()),
        lowest_rejected_score=None if flagged is None or not flagged.size else flagged.min(),
        scores=score_histogram(block),
    )


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
    n_tests: int | None,
    n_tested: int,
    n_calibration: int,
    n_rejected: int,
    lowest_rejected_score: float | None,
    scores: dict[str, list[Any]] | None,
) -> dict[str, Any]:
    """Return the numbers of one site as JSON types; `n_tests` are decided together."""
    lowest = lowest_rejected_score
    return {
        "n_tested": n_tested,
        "n_calibration": n_calibration,
        "n_rejected": n_rejected,
        "limit": rank_limit(line.slope, line.n_rejected, n_calibration),
        "fewest": line.fewest_of(n_calibration, n_tests),
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

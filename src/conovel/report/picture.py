"""The numbers that a report draws: a few hundred, however many rows the run has.

The commands write them under ``"picture"`` in the file of results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from conovel.report.picture_content import (
    BINS,
    FORMAT,
    MOST_ROWS,
    P_VALUE_BINS,
    Line,
    curve_content,
    p_value_edges,
    row_content,
    site_content,
    thinned,
)
from conovel.report.repeats_content import RepeatedRows, of_repeats
from conovel.site.explain.reasons import MOST_EXPLAINED
from conovel.stats.null_proportion import NullProportion
from conovel.stats.stepup import step_up

if TYPE_CHECKING:
    from conovel.protocol.transcript import Transcript
    from conovel.runs.results import NetworkRun
    from conovel.runs.site_results import Detection, SiteResult


@dataclass(frozen=True, eq=False)
class SiteRanks:
    """The tested rows of one site.

    Attributes
    ----------
    ranks, rejected : arrays of shape (m,)
    n_calibration : int
    names : array of shape (m,)
        Names of the rows.
    scores : float array of shape (m,), optional
    calibration_scores : float array of shape (ℓ,), optional
    """

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


def picture(blocks: Mapping[str, SiteRanks], lines: Sequence[Line]) -> dict[str, Any]:
    """Summarise rows for drawing.

    Parameters
    ----------
    blocks : mapping of SiteRanks
        By the name of the site.
    lines : sequence of Line
        The step-ups that decided; every site is in one of them.

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
        "sites": {name: _site(block, line_of[name]) for name, block in blocks.items()},
        "most_novel": most_novel(blocks, MOST_ROWS),
    }


def of_detection(detection: Detection) -> dict[str, Any]:
    """Summarise the decisions at one site."""
    if detection.repeated is not None:
        return of_repeats(_repeated_rows({detection.name: detection}))
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
    if detection.ledger is not None:  # all batches so far decide, not this one by itself
        return picture({"": block}, [_by_largest_rank("", block)])
    return picture({"": block}, [Line(("",), slope, detection.n_rejected)])


def _repeated_rows(sites: Mapping[str, SiteResult]) -> dict[str, RepeatedRows]:
    return {
        name: RepeatedRows(site.repeated, site.rejected, site.n_calibration, site.ids)
        for name, site in sites.items()
        if site.repeated is not None
    }


def of_network(run: NetworkRun) -> dict[str, Any]:
    """Summarise the decisions of a network."""
    if run.runs:
        return of_repeats(_repeated_rows(run.sites))
    blocks = {}
    for name, site in run.items():
        if name in run.lost:
            continue
        rows = np.flatnonzero(site.tested)
        blocks[name] = SiteRanks(
            ranks=site.ranks[rows],
            rejected=site.rejected[rows],
            n_calibration=site.n_calibration,
            names=row_names(site.ids, site.tested.size)[rows],
            scores=site.scores[rows],
        )
    return picture(blocks, lines_of(run.transcript, blocks))


def network_content(
    run: NetworkRun, truth: Mapping[str, NDArray[np.bool_]] | None = None
) -> dict[str, Any]:
    """Return a run as JSON types, with its picture, and with the truth if it is known.

    Parameters
    ----------
    run : NetworkRun
    truth : mapping of bool arrays, optional
        In a simulation, which test rows of each site are novel.
    """
    content = {**run.to_dict(), "picture": of_network(run), "reasons": network_reasons(run)}
    if truth is not None:
        content["truth"] = {
            name: correct_counts(site.rejected, truth[name]) for name, site in run.items()
        }
    return content


def network_reasons(run: NetworkRun) -> dict[str, Any]:
    """Say why rows were flagged, at every site of a network in one process."""
    explained = {name: site for name, site in run.items() if site.explainer is not None}
    most = MOST_EXPLAINED // max(len(explained), 1)
    return {
        name: site.most_novel_reasons(most).to_dict(site.n_rejected)
        for name, site in explained.items()
    }


def correct_counts(rejected: NDArray[np.bool_], is_novel: NDArray[np.bool_]) -> dict[str, int]:
    """Count novelties, those that were found, and false alarms, in a simulation.

    Examples
    --------
    >>> correct_counts(np.array([True, True, False]), np.array([True, False, True]))
    {'novel': 2, 'found': 1, 'false': 1}
    """
    found = int((rejected & is_novel).sum())
    return {
        "novel": int(is_novel.sum()),
        "found": found,
        "false": int(rejected.sum()) - found,
    }


def lines_of(transcript: Transcript, blocks: Mapping[str, SiteRanks]) -> list[Line]:
    """Find the step-ups of a network run: one for all through counts, or one per site."""
    spec = transcript.settings
    level, estimator = spec.level, spec.pi0
    outcome, names = transcript.outcome, tuple(blocks)
    if spec.regime.divides_level:
        level = spec.test_level(len(transcript.roster))
        return [_decided({name: block}, level, estimator) for name, block in blocks.items()]
    if outcome is None:  # rows were pooled, and no message was sent
        return [_decided(blocks, level, estimator)]
    if spec.regime.decides_by_cells:
        return [_by_largest_rank(name, block) for name, block in blocks.items()]
    whole = set(outcome.participants) <= set(names)
    return [Line(names, outcome.slope, outcome.step.k, whole)]


def _by_largest_rank(name: str, block: SiteRanks) -> Line:
    """Say which rank of a site was the largest rejected one where no step-up of it decided."""
    k = int(block.rejected.sum())
    largest = int(block.ranks[block.rejected].max(initial=0))
    # Without a rejection any slope above 0 will do: k = 0 allows no rank.
    slope = Fraction(max(largest, 1), max(k, 1) * (block.n_calibration + 1))
    return Line((name,), slope, k, is_step_up=False)


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


def _decided(
    blocks: Mapping[str, SiteRanks], level: Fraction, estimator: NullProportion | None
) -> Line:
    pairs = [(block.ranks, block.n_calibration) for block in blocks.values()]
    m = sum(ranks.size for ranks, _ in pairs)
    outcome = step_up(pairs, level, estimator)
    return Line(tuple(blocks), level / (m * (outcome.pi0 or 1)), outcome.n_rejected)


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


def _site(block: SiteRanks, line: Line) -> dict[str, Any]:
    flagged = None if block.scores is None else block.scores[block.rejected]
    return site_content(
        line,
        n_tested=int(block.ranks.size),
        n_calibration=block.n_calibration,
        n_rejected=int(block.rejected.sum()),
        lowest_rejected_score=None if flagged is None or not flagged.size else flagged.min(),
        scores=score_histogram(block),
    )

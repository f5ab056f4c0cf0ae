"""Pictures of networks, of several runs on the same rows, and of rows that are in files."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.cell_groups import fewest_of_groups, thin_groups
from conovel.deciding.counts import step_of
from conovel.deciding.ways import ways_of
from conovel.report.list_numbers import lists_of
from conovel.report.picture import (
    FORMAT,
    MOST_ROWS,
    P_VALUE_BINS,
    Line,
    SiteRanks,
    StrataRows,
    by_largest_rank,
    curve_content,
    of_strata,
    p_value_edges,
    picture,
    row_content,
    row_names,
    short,
    shortened,
    site_content,
    thinned,
)
from conovel.rows.storage import read_columns
from conovel.site.explain.reasons import MOST_EXPLAINED
from conovel.spec.training import Numbers
from conovel.stats.null_proportion import NullProportion
from conovel.stats.repeats import Repeated
from conovel.stats.stepup import step_up

if TYPE_CHECKING:
    from conovel.protocol.transcript import Transcript
    from conovel.runs.file_detection import FileDetection
    from conovel.runs.results import NetworkRun
    from conovel.runs.site_results import SiteResult
    from conovel.site.strata import StrataResult

REPEATS_FORMAT = "conovel-repeats-1"


def of_network(run: NetworkRun) -> dict[str, Any]:
    """Summarise the decisions of a network."""
    if run.runs:
        return of_repeats(repeated_rows(run.sites))
    blocks = {}
    for name, site in run.items():
        if name in run.lost:
            continue
        rows = np.flatnonzero(site.tested)
        blocks[name] = SiteRanks(
            ranks=_site_ranks(site)[rows],
            rejected=site.rejected[rows],
            n_calibration=site.n_calibration,
            names=row_names(site.ids, site.tested.size)[rows],
            scores=site.scores[rows],
        )
    return picture(blocks, lines_of(run.transcript, blocks))


def _site_ranks(site: SiteResult) -> NDArray[np.int64]:
    """Give ranks among all calibration rows; with strata the nearest that has the p-value."""
    if site.strata is None:
        return site.ranks
    size = site.n_calibration + 1
    return np.maximum(np.nan_to_num(np.rint(site.p_values * size)).astype(np.int64), 1)


def network_content(
    run: NetworkRun, truth: Mapping[str, NDArray[np.bool_]] | None = None
) -> dict[str, Any]:
    """Return a run as JSON types, with its picture, and with the truth if it is known."""
    content = {**run.to_dict(), "picture": of_network(run), "reasons": network_reasons(run)}
    if truth is not None:
        content["truth"] = {
            name: correct_counts(site.rejected, truth[name]) for name, site in run.items()
        }
    return content


def network_reasons(run: NetworkRun) -> dict[str, Any]:
    """Say why rows were flagged, at every site of a network in one process."""
    explained = {name: site for name, site in run.items() if site.explainer is not None}
    most = MOST_EXPLAINED // max(len(explained), 1)  # of all sites together
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
    n_found = int((rejected & is_novel).sum())
    return {"novel": int(is_novel.sum()), "found": n_found, "false": int(rejected.sum()) - n_found}


def lines_of(transcript: Transcript, blocks: Mapping[str, SiteRanks]) -> list[Line]:
    """Find the step-ups of a network run: one for all through counts, or one per site."""
    spec = transcript.settings
    level, estimator = spec.level, spec.pi0
    outcome, names = transcript.outcome, tuple(blocks)
    ways = ways_of(spec.regime)
    if not (ways.deciding.shares_counts or ways.learning.simulated):  # each decides alone
        level = spec.test_level(len(transcript.roster))
        return [_decided({name: block}, level, estimator) for name, block in blocks.items()]
    if outcome is None:  # rows were pooled, and no message was sent
        return [_decided(blocks, level, estimator)]
    if ways.deciding.by_cells:
        fewest = _fewest_of(transcript) if ways.deciding.thin is thin_groups else {}
        return [by_largest_rank(name, block, fewest.get(name)) for name, block in blocks.items()]
    whole = set(outcome.participants) <= set(names)
    return [Line(names, outcome.slope, step_of(outcome).k, whole)]


def _fewest_of(transcript: Transcript) -> dict[str, int]:
    """Return how few rows could be flagged together by agent; empty where sizes are not known."""
    agents, names = transcript.agents, transcript.roster
    if not names or not set(names) <= agents.keys():
        return {}
    numbers = {name: Numbers(agents[name].n_null, agents[name].n_test) for name in names}
    return {
        name: fewest if fewest <= n_tests else 0
        for members, _, fewest, n_tests in fewest_of_groups(transcript.settings, numbers)
        for name in members
    }


def _decided(
    blocks: Mapping[str, SiteRanks], level: Fraction, estimator: NullProportion | None
) -> Line:
    pairs = [(block.ranks, block.n_calibration) for block in blocks.values()]
    m = sum(ranks.size for ranks, _ in pairs)
    outcome = step_up(pairs, level, estimator)
    return Line(tuple(blocks), level / (m * (outcome.pi0 or 1)), outcome.n_rejected)


class RepeatedRows(NamedTuple):
    """The rows of one site, all of which were tested in every run."""

    repeated: Repeated
    rejected: NDArray[np.bool_]
    n_calibration: int
    ids: NDArray[Any] | None = None


def of_repeats(sites: Mapping[str, RepeatedRows]) -> dict[str, Any]:
    """Summarise the rows by how often they were flagged; nothing in it is of one run alone."""
    repeats = max(site.repeated.repeats for site in sites.values())
    times = np.concatenate([site.repeated.times_flagged for site in sites.values()])
    rejected = np.concatenate([site.rejected for site in sites.values()])
    return {
        "format": REPEATS_FORMAT,
        "times": {
            "tests": np.bincount(times, minlength=repeats + 1).tolist(),
            "rejected": np.bincount(times[rejected], minlength=repeats + 1).tolist(),
        },
        "sites": {
            name: {
                "n_tested": site.rejected.size,
                "n_calibration": site.n_calibration,
                "n_rejected": int(site.rejected.sum()),
            }
            for name, site in sites.items()
        },
        "rows": _rows(sites),
    }


def _rows(sites: Mapping[str, RepeatedRows]) -> list[dict[str, Any]]:
    """List the rows with the largest e-values, of those that were flagged in any run."""
    listed: list[tuple[float, dict[str, Any]]] = []
    for name, site in sites.items():
        values, times = site.repeated.e_values, site.repeated.times_flagged
        first = np.argsort(-values, kind="stable")[:MOST_ROWS]
        for i in first[times[first] > 0].tolist():
            row = {
                "site": name,
                "row": shortened(str(i if site.ids is None else site.ids[i])),
                "times_flagged": int(times[i]),
                "e_value": short(values[i]),
                "rejected": bool(site.rejected[i]),
            }
            listed.append((-float(values[i]), row))
    listed.sort(key=lambda item: item[0])
    return [row for _, row in listed[:MOST_ROWS]]


def repeated_rows(sites: Mapping[str, SiteResult]) -> dict[str, RepeatedRows]:
    """Return the rows of the sites that decided by several runs."""
    return {
        name: RepeatedRows(site.repeated, site.rejected, site.n_calibration, site.ids)
        for name, site in sites.items()
        if site.repeated is not None
    }


def of_files(detection: FileDetection) -> dict[str, Any]:
    """Summarise the decisions, as :func:`conovel.report.of_detection` does in memory."""
    if detection.strata is not None:
        return _of_strata_files(detection, detection.strata) | {"lists": lists_of(detection)}
    outcome, histogram, sketch = detection.stepup, detection.histogram, detection.sketch
    m, n_calibration, n_rejected = histogram.size, histogram.n_calibration, outcome.n_rejected
    line = Line(("",), outcome.level / (m * (outcome.pi0 or 1)), n_rejected)
    places = thinned(m, n_rejected)
    scores = {
        "edges": sketch.edges.tolist(),
        "calibration": sketch.calibration.tolist(),
        "tests": sketch.tests.tolist(),
        "rejected": sketch.rejected.tolist(),
    }
    site = site_content(
        line,
        n_tests=m,
        n_tested=m,
        n_calibration=n_calibration,
        n_rejected=n_rejected,
        lowest_rejected_score=sketch.lowest_rejected if sketch.drawable and n_rejected else None,
        scores=scores if sketch.drawable else None,
    )
    p_values = (rank / (n_calibration + 1) for rank in histogram.smallest(places).tolist())
    return {
        "format": FORMAT,
        "step_up": [curve_content(line, m, n_rejected, places, p_values)],
        "p_values": _p_values(detection),
        "sites": {"": site},
        "most_novel": _most_novel(detection),
        "lists": lists_of(detection),
    }


def _of_strata_files(detection: FileDetection, strata: StrataResult) -> dict[str, Any]:
    """Read ranks and scores of all rows again: each stratum is drawn by itself."""
    columns = read_columns(detection.out, ["score", "rank", "rejected"])
    scores = np.array([np.nan if s is None else s for s in columns["score"]], dtype=np.float64)
    ranks = np.array(columns["rank"], dtype=np.int64)
    names = row_names(None, ranks.size)
    rejected = np.array(columns["rejected"], dtype=np.bool_)
    return of_strata(strata, StrataRows(names, ranks, scores, rejected))


def _p_values(detection: FileDetection) -> dict[str, list[Any]]:
    """Count p-values in bins, each closed by its upper edge."""
    histogram, limit = detection.histogram, detection.stepup.limits[0]
    # The largest rank of each bin, so that counts up to it need no rows.
    last = [(histogram.n_calibration + 1) * i // P_VALUE_BINS for i in range(P_VALUE_BINS + 1)]
    tests = np.diff([histogram.at_most(rank) for rank in last])
    rejected = np.diff([histogram.at_most(min(rank, limit)) for rank in last])
    return {"edges": p_value_edges(), "tests": tests.tolist(), "rejected": rejected.tolist()}


def _most_novel(detection: FileDetection) -> list[dict[str, Any]]:
    return [
        row_content(
            "",
            row["row"],
            row["score"] if detection.sketch.drawable else None,
            row["rank"],
            detection.n_calibration,
            row["rejected"],
        )
        for row in detection.sketch.most_novel.to_pylist()
    ]

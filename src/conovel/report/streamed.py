"""The picture of a detection on files, whose rows are not in memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from conovel.report.picture import FORMAT, short, shortened, thinned
from conovel.stats.rank_counts import rank_limit

if TYPE_CHECKING:
    from conovel.site.files import FileDetection


def of_files(detection: FileDetection) -> dict[str, Any]:
    """Summarise the decisions, as :func:`conovel.report.of_detection` does in memory."""
    outcome, histogram, sketch = detection.stepup, detection.histogram, detection.sketch
    m, n_calibration, n_rejected = histogram.size, histogram.n_calibration, outcome.n_rejected
    slope = outcome.level / (m * (outcome.pi0 or 1))
    places = thinned(m, n_rejected)
    curve = {
        "sites": [""],
        "n_tests": m,
        "n_rejected": n_rejected,
        "n_rejected_here": n_rejected,
        "slope": float(slope),
        "whole": True,
        "k": places.tolist(),
        "p_value": [short(r / (n_calibration + 1)) for r in histogram.smallest(places).tolist()],
    }
    scores = {
        "edges": sketch.edges.tolist(),
        "calibration": sketch.calibration.tolist(),
        "tests": sketch.tests.tolist(),
        "rejected": sketch.rejected.tolist(),
    }
    lowest = sketch.lowest_rejected if sketch.drawable and n_rejected else None
    site = {
        "n_tested": m,
        "n_calibration": n_calibration,
        "n_rejected": n_rejected,
        "limit": rank_limit(slope, n_rejected, n_calibration),
        "fewest": math.ceil(1 / (slope * (n_calibration + 1))),
        "lowest_rejected_score": None if lowest is None else short(lowest),
        "scores": scores if sketch.drawable else None,
    }
    return {
        "format": FORMAT,
        "step_up": [curve],
        "p_values": _p_values(detection),
        "sites": {"": site},
        "most_novel": _most_novel(detection),
    }


def _p_values(detection: FileDetection) -> dict[str, list[Any]]:
    """Count p-values in twenty bins, each closed by its upper edge."""
    histogram, limit = detection.histogram, detection.stepup.limits[0]
    # The largest rank of each bin, so that counts up to it need no rows.
    last = [(histogram.n_calibration + 1) * i // 20 for i in range(21)]
    tests = np.diff([histogram.at_most(rank) for rank in last])
    rejected = np.diff([histogram.at_most(min(rank, limit)) for rank in last])
    return {
        "edges": [short(edge) for edge in np.linspace(0, 1, 21)],
        "tests": tests.tolist(),
        "rejected": rejected.tolist(),
    }


def _most_novel(detection: FileDetection) -> list[dict[str, Any]]:
    return [
        {
            "site": "",
            "row": shortened(str(row["row"])),
            "score": short(row["score"]) if detection.sketch.drawable else None,
            "rank": row["rank"],
            "p_value": short(row["rank"] / (detection.n_calibration + 1)),
            "rejected": row["rejected"],
        }
        for row in detection.sketch.most_novel.to_pylist()
    ]

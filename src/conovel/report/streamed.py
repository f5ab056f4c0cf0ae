"""The picture of a detection on files, whose rows are not in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from conovel.report.picture_content import (
    FORMAT,
    P_VALUE_BINS,
    Line,
    curve_content,
    p_value_edges,
    row_content,
    site_content,
    thinned,
)

if TYPE_CHECKING:
    from conovel.runs.file_detection import FileDetection


def of_files(detection: FileDetection) -> dict[str, Any]:
    """Summarise the decisions, as :func:`conovel.report.of_detection` does in memory."""
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
    }


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

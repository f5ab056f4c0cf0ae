"""The numbers that a report shows of several runs on the same rows, as JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.report.picture_content import MOST_ROWS, short, shortened
from conovel.stats.repeats import Repeated

FORMAT = "conovel-repeats-1"


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
        "format": FORMAT,
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
    found: list[tuple[float, dict[str, Any]]] = []
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
            found.append((-float(values[i]), row))
    found.sort(key=lambda item: item[0])
    return [row for _, row in found[:MOST_ROWS]]

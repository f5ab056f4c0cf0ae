"""Computing again what one site decided by weights, from what each row needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conovel.protocol.recompute import differences
from conovel.spec.guarantee import weighted
from conovel.stats.levels import as_fraction, as_level
from conovel.stats.weighted import rejected_by_needs


def weighted_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the numbers of one site's detection with weights, and its decisions if they are here.

    What each row needs follows from scores and weights of calibration rows, which are not here.
    """
    m, k = run["n_test"], run["n_rejected"]
    fewest = run["fewest_rejections_possible"]
    numbers = (k, m, run["n_calibration"], run["n_train"], fewest)
    if not all(type(n) is int and n >= 0 for n in numbers) or k > m:
        yield "numbers of rows must be whole numbers from 0 on, and not more than were tested"
        return
    if 0 < k < fewest:
        yield f"{k} rows are flagged, and no fewer than {fewest} could be"
    promise = weighted(as_level(run["level"]), estimated=run["weights"]["estimated"])
    stated = {"statement": promise.statement, "assumptions": [*promise.assumptions]}
    if run["guarantee"] != stated:
        yield "the guarantee is not that of these settings"
    if not 0 < as_fraction(run["weights"]["chance"], "chance") <= 1:
        yield "the chance does not lie between 0 and 1"
    if "needs_flagged" not in run:
        return
    needs = np.asarray(run["needs_flagged"])
    if needs.dtype.kind != "i" or needs.shape != (m,) or needs.min() < 1:
        yield f"there must be a whole number from 1 on for each of {m} rows"
        return
    rejected = rejected_by_needs(needs)
    yield from differences(run["rejected"], rejected.tolist(), "rejected")
    yield from differences(k, int(rejected.sum()), "n_rejected")

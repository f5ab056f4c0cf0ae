"""Checking the result of one site with strata: its numbers, and its rows if they are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conovel.spec.guarantee import over_time, this_list, within_strata
from conovel.stats.levels import as_level


def strata_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check that the numbers of all strata add up, and follow from the rows.

    The cells that decided are not in the result; that they were used rightly is not checked.
    """
    strata = run["strata"]["strata"]
    names = ("n_train", "n_calibration", "n_test", "n_rejected")
    if any(type(one[name]) is not int or one[name] < 0 for one in strata for name in names):
        yield "numbers of rows must be whole numbers from 0 on"
        return
    tested = [one for one in strata if one["tested"]]
    for name in names:
        total = sum(one[name] for one in (strata if name == "n_train" else tested))
        if total != run[name]:
            yield f"{name} is {run[name]}, and of all strata together it is {total}"
    for one in strata:
        if one["n_rejected"] > (one["n_test"] if one["tested"] else 0):
            yield f"stratum {one['stratum']!r} has more rejected rows than tests"
        if one["tested"] and not (one["n_test"] and one["n_calibration"]):
            yield f"stratum {one['stratum']!r} is tested without rows to compare"
    yield from _promise_findings(run)
    yield from _row_findings(run)


def _promise_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the guarantee."""
    level = as_level(run["level"])
    runs = len(run["repeats"]["seeds"]) if "repeats" in run else 1
    is_kept = "detector" in run
    promises = [within_strata(level, run["strata"]["columns"], runs, is_kept=is_kept)]
    if "ledger" in run:
        score = "kept" if is_kept else "refitted"
        promises = [over_time(level, score, final=final, within=True) for final in (False, True)]
    elif "confidence" in run:
        promises = [this_list(promises[0], level, as_level(run["confidence"], "confidence"))]
    stated = [{"statement": one.statement, "assumptions": [*one.assumptions]} for one in promises]
    if run["guarantee"] not in stated:
        yield "the guarantee is not that of these settings"


def _row_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the rows, if they are at hand."""
    if "rejected" in run:
        rejected = np.asarray(run["rejected"])
        if int(rejected.sum()) != run["n_rejected"]:
            yield f"{int(rejected.sum())} rows are rejected, not {run['n_rejected']}"
        if "ranks" in run:
            untested = np.asarray(run["ranks"]) == 0
            if (rejected & untested).any() or int((~untested).sum()) != run["n_test"]:
                yield "a row is rejected that was not tested, or other rows were tested"

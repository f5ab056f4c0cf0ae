"""Deriving again what a detection at one site published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from conovel.spec.guarantee import Guarantee, kept_score, one_site, over_time
from conovel.stats.levels import as_level
from conovel.stats.null_proportion import as_estimator
from conovel.stats.ranks import as_block
from conovel.stats.resolution import rank_limit, resolution
from conovel.stats.stepup import step_up, within_limit
from conovel.stats.words import counted


def one_site_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check the numbers of one site's detection, and its decisions if there are ranks."""
    level, k = as_level(run["level"]), run["n_rejected"]
    size, m, largest = run["n_calibration"], run["n_test"], run["largest_rejected_rank"]
    if any(type(n) is not int or n < 0 for n in (k, size, m, largest, run["n_train"])):
        yield "a number of rows is none"
        return
    if run["fewest_rejections_possible"] != resolution(size, m, level).fewest:
        yield "the fewest rejections that are possible are not those of these numbers"
    if not 0 <= k <= m or (k == 0) != (largest == 0) or largest > size + 1:
        yield f"{k} of {m} rows up to rank {largest} among {size} cannot be rejected"
    elif _is_plain(run) and k and largest > rank_limit(level / m, k, size):
        yield f"rank {largest} is not within the limit of {k} rejections"
    possible = _possible(run, level)
    if "ranks" in run:
        yield from _rank_findings(run)
    told = run["guarantee"]
    if told not in [{"statement": g.statement, "assumptions": [*g.assumptions]} for g in possible]:
        yield "the guarantee is not that of these settings"


def _is_plain(run: Mapping[str, Any]) -> bool:
    """Tell whether BH on this batch alone decided: no ledger, and no estimate of the nulls."""
    return run["pi0"] is None and "ledger" not in run


def _possible(run: Mapping[str, Any], level: Fraction) -> list[Guarantee]:
    """Return the guarantees that a result with these settings may state."""
    if "ledger" in run:
        score = "kept" if "detector" in run else "refitted"
        return [over_time(level, score, final=final) for final in (False, True)]
    if "detector" in run:
        return [kept_score(level)]
    if run["pi0"] is None:
        return [one_site(level, None)]
    return [one_site(level, as_estimator(pi0)) for pi0 in ("storey", "quantile")]


def _rank_findings(run: Mapping[str, Any]) -> Iterator[str]:
    """Check that the decisions and numbers of one site follow from its ranks."""
    ranks, size = as_block(run["ranks"], run["n_calibration"])
    rejected, largest = np.asarray(run["rejected"]), run["largest_rejected_rank"]
    if ranks.size != run["n_test"] or not np.array_equal(rejected, within_limit(ranks, largest)):
        yield f"the rejected rows are not those up to rank {largest}"
    elif run["n_rejected"] != rejected.sum() or largest != ranks[rejected].max(initial=0):
        yield f"{counted(int(rejected.sum()), 'row')} rejected, and {run['n_rejected']} are told"
    if not np.array_equal(np.asarray(run["p_values"]), ranks / (size + 1)):
        yield f"the p-values are not those of {size} calibration rows"
    level = as_level(run["level"])
    if _is_plain(run) and step_up([(ranks, size)], level, None).n_rejected != rejected.sum():
        yield f"the step-up at level {level} rejects another number of rows"

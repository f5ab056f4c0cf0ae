"""Why a site refuses that sums over its rows leave it: without masks, or too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conovel.deciding.ways import ways_of
from conovel.spec.run_spec import RunSpec

if TYPE_CHECKING:
    from conovel.federation.consent import Limits


def objection_to_sums(limits: Limits, spec: RunSpec) -> str:
    """Return why sums over a site's rows may not leave it; an empty text if they may."""
    if not ways_of(spec.regime).learning.by_sums:
        return ""
    if limits.masks and not spec.masks:
        return (
            "the coordinator would see sums over its rows: leave out --no-masks, or the site"
            " sets masks = false in its site.toml"
        )
    from conovel.learning.together.demands import demands_of  # noqa: PLC0415  (loads numba)

    needs = demands_of()
    for key, n, what in (
        ("max_sum_rounds", needs.rounds, "rounds of sums"),
        ("max_bins", needs.bins, "bins of a column in a round"),
        ("max_trees", needs.trees, "trees"),
    ):
        if n > getattr(limits, key):
            return (
                f"a run has up to {n} {what}, and it agrees to {getattr(limits, key)}: choose"
                f" another regime, or the site raises {key} in its site.toml"
            )
    if needs.least < limits.min_leaf_rows:
        return (
            f"a leaf may have {needs.least} rows of all sites, and it asks for"
            f" {limits.min_leaf_rows}: choose another regime, or the site lowers min_leaf_rows"
            " in its site.toml"
        )
    return ""

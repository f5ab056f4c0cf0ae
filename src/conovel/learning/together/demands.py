"""What a run of `together` asks of every site, before any row is counted.

A site compares this with its consent (:mod:`conovel.federation.consent`).
"""

from __future__ import annotations

from typing import NamedTuple

from conovel.learning.together import bins, learner, moments
from conovel.learning.together.rounds import Settings


class Demands(NamedTuple):
    """Rounds of sums, bins of a column in a round, trees, and rows of all in the smallest leaf."""

    rounds: int
    bins: int
    trees: int
    least: int


def demands_of(settings: Settings | None = None) -> Demands:
    """Return the most that learning with these settings asks for.

    Examples
    --------
    >>> demands_of().trees
    200
    """
    chosen = settings or Settings()
    n_bins = bins.MOST_INTERVALS, learner.MOST_DERIVED_BINS, moments.CELLS.size + 1
    rounds = bins.N_ROUNDS + learner.MOMENT_ROUNDS + chosen.depth + learner.SCORE_ROUNDS
    n_trees = chosen.n_trees + chosen.n_plain_trees + chosen.n_known_trees
    return Demands(rounds, max(n_bins), n_trees, chosen.least)

"""What all agents learn from the known novelties of any of them, from sums alone.

A forest tells known novelties from a half of null_train; the other half, and the mixture, it does
not see. So the two can be compared: how many mixture rows it lifts above the half that is held
back says whether today's rows are like the known novelties (:mod:`conovel.scorers.known` does the
same at one site). What it lifts, and how many rows stand out without it, decide how much its score
counts. Fewer known novelties than a leaf holds are not learnt from.
"""

from __future__ import annotations

import numpy as np

from conovel.learning.together.forest import Forest, Whole
from conovel.learning.together.rounds import AgentRows, Settings, by_kind, require_rows
from conovel.learning.together.scale import N_NARROW, likely_from, lowest_score, narrow_cells
from conovel.scorers.base import Vector
from conovel.scorers.known import likeness_share

_MORE = 3  # times as many candidates are compared as in other forests
_SHRINKAGE = 10.0  # as many rows the share of a parent counts for
_STANDING_OUT = 0.005  # the share of the mixture that may stand out by chance
# Of the rows that stand out in a score that has learnt from them: those that are novel, and those
# that likeness must lift at least.
_NOVEL, _LEAST = 0.5, 0.2
_MOST_WEIGHT = 6.0  # of the score, beside about 1.5 for the other parts
_OTHERS = 1.5
N_COUNTS = 4 * N_NARROW


class KnownPart:
    """A forest that tells known novelties, and how much it counts.

    Parameters
    ----------
    n_bins, shares
        As of :class:`Forest`.
    settings : Settings
    seed : int
    numbers : tuple of int
        Rows of null_train of all agents, those of them that are held back, known novelties, and
        rows of the mixture.
    """

    def __init__(
        self,
        n_bins: tuple[int, ...],
        shares: Vector,
        settings: Settings,
        seed: int,
        numbers: tuple[int, int, int, int],
    ) -> None:
        n_null, self._n_held, self._n_known, self._n_mixture = numbers
        n_told = n_null - self._n_held
        self.forest = Forest(
            n_bins,
            shares,
            settings.n_known_trees,
            settings.known_depth,
            settings.least,
            seed,
            _SHRINKAGE,
            first=settings.n_trees + settings.n_plain_trees,
            weight=max(1, n_told // (2 * self._n_known)),
            more=_MORE,
        )
        self.forest.begin(n_told, self._n_known)
        self._n_null = n_null

    def place(self, rows: AgentRows, of_known: Whole) -> None:
        """Bring an agent's rows to the roots; `of_known` are the bins of its known novelties."""
        of_null = rows.codes[~rows.is_mixture][~rows.is_held]
        rows.known_codes = np.concatenate([of_null, of_known])
        rows.known_nodes = np.zeros((self.forest.n_trees, len(rows.known_codes)), dtype=np.int64)

    def count(self, rows: AgentRows) -> Whole:
        """Count an agent's rows for every candidate of this level."""
        if self.forest.level:
            self.forest.move(rows.known_codes, rows.known_nodes)
        is_known = np.arange(len(rows.known_codes)) >= len(rows.known_codes) - rows.n_known
        return self.forest.count(rows.known_codes, is_known, rows.known_nodes)

    def compare(self, rows: AgentRows, others: Vector, own: Vector) -> Whole:
        """Count rows by the score without known novelties, and by this one.

        Both in standard units of the mixture, in narrow cells.
        """
        n_mixture = int(rows.is_mixture.sum())
        kept = np.append(rows.is_held, np.ones(n_mixture, dtype=np.bool_))
        by_others = by_kind(narrow_cells(others), rows.is_mixture, N_NARROW)
        by_own = by_kind(narrow_cells(own[kept]), rows.is_mixture[kept], N_NARROW)
        return np.concatenate([by_others, by_own])

    def weight_from(self, totals: Whole) -> float:
        """Return how much the score counts, from the counts of all agents."""
        null, mixture, held, by_likeness = np.split(totals, 4)
        numbers = self._n_null, self._n_mixture, self._n_held, self._n_mixture
        for counts, n_rows in zip((null, mixture, held, by_likeness), numbers, strict=True):
            require_rows(counts, n_rows)
        centres = np.array([lowest_score(cell) for cell in range(N_NARROW)])
        likely = int(mixture[centres >= likely_from(null, mixture)].sum())
        n_likely = max(0.0, likely - _STANDING_OUT * self._n_mixture)
        scores = np.repeat(centres, held), np.repeat(centres, by_likeness)
        share = likeness_share(*scores, self._n_known, _NOVEL * n_likely, _LEAST * n_likely)
        return part_weight(share)


def part_weight(share: float) -> float:
    """Return what a part with this share in the whole score counts, beside the other parts."""
    return min(_OTHERS * share / (1 - share), _MOST_WEIGHT)

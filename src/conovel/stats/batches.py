"""Batches of tests that arrive over time, and one decision about all of them.

The same known normals serve every batch. BH on each batch by itself promises nothing about the
batches together. Four rules do, each with its theorem in docs/theory.md, "Over time":

* the list so far, one kept score: BH over all rows of all batches (:func:`list_by_ranks`);
* the list so far, scores refitted for each batch: e-BH over all rows, on evidence of each batch
  (:func:`list_by_evidence`);
* final decisions, one kept score: batch t of T is decided with the share γ_t of the level and
  with what was rejected before (:func:`final_by_ranks`);
* final decisions, refitted scores: the same on evidence (:func:`final_by_evidence`).

All is decided in integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.stats.evidence import accepted_values
from conovel.stats.resolution import rank_limit
from conovel.stats.stepup import RankHistogram, descend, within_limit

# Where the evidence of a batch stops (docs/results/over-time.md has the measurements). A list so
# far stops at half the level, and no later than if one row in 20 were rejected: otherwise the rows
# of a batch with very many novelties would weigh too little to be listed.
LIST_SHARE, LIST_MOST = Fraction(1, 2), Fraction(1, 20)
# The run of a batch in a network has half the level of the list.
NETWORK_SHARE = Fraction(1, 2)
# Final decisions stop at the share of the batch, times t/2 for what earlier batches rejected.
FINAL_MOST = Fraction(1, 10)


@dataclass(frozen=True, eq=False)
class Batch:
    """The ranks of one batch that can still matter, and the positions of their rows."""

    n_tests: int
    n_calibration: int
    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    # With strata, the e-values of rows, descending to 0: the rank of a row is the place of its own
    values: tuple[Fraction, ...] = ()

    @classmethod
    def of(
        cls,
        ranks: NDArray[np.int64],
        n_calibration: int,
        most: int,
        values: tuple[Fraction, ...] = (),
    ) -> Batch:
        """Hold the ranks up to `most`, and count the others."""
        rows = np.flatnonzero(within_limit(ranks, most))
        return cls(ranks.size, n_calibration, rows, ranks[rows], values)

    @property
    def histogram(self) -> RankHistogram:
        """How often each rank occurs; rows whose rank is not held have the largest one."""
        others = self.n_tests - self.rows.size
        largest = self.n_calibration + 1
        values, counts = np.unique(self.ranks, return_counts=True)
        return RankHistogram.of_pairs(
            np.append(values, largest), np.append(counts, others), self.n_calibration
        )

    def mask(self, limit: int) -> NDArray[np.bool_]:
        """Tell for every row of the batch whether its rank is at most the limit."""
        rejected = np.zeros(self.n_tests, dtype=np.bool_)
        rejected[self.rows[within_limit(self.ranks, limit)]] = True
        return rejected


def largest_listed_rank(level: Fraction, n_calibration: int) -> int:
    """Return the largest rank that a list so far can ever hold: floor(α(ℓ+1)).

    BH over M rows rejects K ≤ M of them, so its limit αK(ℓ+1)/M is never larger. A row with a
    larger rank never joins the list, whatever arrives later.
    """
    return rank_limit(level, 1, n_calibration)


def list_by_ranks(batches: Sequence[Batch], level: Fraction) -> list[int]:
    """Run BH over all rows of all batches, which one kept score has ranked.

    Returns the largest rank that is listed of every batch; 0 for none.

    Proof: Theorem 13 (docs/theory.md#thm-list).
    """
    m = sum(batch.n_tests for batch in batches)
    _, limits = descend([batch.histogram for batch in batches], level / m)
    return list(limits)


def evidence_limit(batch: Batch, level: Fraction, most: Fraction) -> int:
    """Return the rank L at which the evidence of a batch stops; 0 if no row reaches it.

    L = max(1, floor(β(ℓ+1) · min(k/m, most))) for the largest k such that k rows have a rank of
    at most L, with β and `most` fixed in advance. Each of these rows has the e-value (ℓ+1)/L.

    Proof: Lemma 10 (docs/theory.md#lem-batch-evidence).
    """
    histogram, k, last = batch.histogram, batch.n_tests, -1
    while k != last:
        share = min(Fraction(k, batch.n_tests), most)
        last, limit = k, max(1, rank_limit(level * share, 1, batch.n_calibration))
        k = histogram.at_most(limit)
    return limit if k else 0


class Evidence(NamedTuple):
    """Rows of one batch that have the same e-value."""

    limit: int  # their largest rank
    n_rows: int  # rows with this e-value or a larger one
    value: Fraction


def evidence_of(batch: Batch, level: Fraction, most: Fraction) -> list[Evidence]:
    """Return the e-values of a batch above zero, the largest first; see :func:`evidence_limit`.

    With strata they were made with the batch.

    Proof: Lemma 10 (docs/theory.md#lem-batch-evidence), Lemma 12
    (docs/theory.md#lem-block-evidence).
    """
    if batch.values:
        ordered = np.sort(batch.ranks)
        counts = np.searchsorted(ordered, np.arange(len(batch.values)) + 1, side="right").tolist()
        return [Evidence(i + 1, counts[i], e) for i, e in enumerate(batch.values) if e]
    limit = evidence_limit(batch, level, most)
    if not limit:
        return []
    value = Fraction(batch.n_calibration + 1, limit)
    return [Evidence(limit, batch.histogram.at_most(limit), value)]


def list_by_evidence(batches: Sequence[Batch], level: Fraction) -> list[int]:
    """Run e-BH over all rows of all batches, each of them ranked by a score of its own.

    Returns the largest rank that is listed of every batch; 0 for none.

    Proof: Theorem 14 (docs/theory.md#thm-list-evidence).
    """
    by_batch = [evidence_of(batch, LIST_SHARE * level, LIST_MOST) for batch in batches]
    values, counts = [Fraction(0)], [sum(batch.n_tests for batch in batches)]
    for own in by_batch:
        values += [one.value for one in own]
        counts += np.diff([0, *(one.n_rows for one in own)]).tolist()
    counts[0] -= sum(counts[1:])
    accepted = iter(accepted_values(values, counts, level)[1:])
    return [max([0, *(one.limit for one in own if next(accepted))]) for own in by_batch]


def rejections_reach(k: int, n_tests: int, n_rejected: int, m: int) -> bool:
    """Tell whether the rows that a network rejected in a batch have E ≥ M/(αk).

    E = m_t/(βR_t) with β = α/2, so that the level cancels; m_t and R_t are of the batch, and M are
    the tests of all batches, over all agents.

    Proof: Theorem 14 (docs/theory.md#thm-list-evidence).
    """
    return k > 0 and n_rejected > 0 and n_tests * k >= NETWORK_SHARE * n_rejected * m


@lru_cache
def level_share(t: int, n_batches: int) -> Fraction:
    """Return γ_t, the share of the level that batch t of T final batches gets: (1/t)/(1+…+1/T).

    Proof: Theorem 15 (docs/theory.md#thm-final).
    """
    if t > n_batches:
        return Fraction(0)
    return Fraction(1, t) / sum(Fraction(1, s) for s in range(1, n_batches + 1))


def final_by_ranks(batch: Batch, n_before: int, level: Fraction, t: int, n_batches: int) -> int:
    """Decide a batch for good, one kept score: p ≤ αγ_t(R_before + R)/m, with the largest such R.

    The batch has all its ranks: a limit may be above α(ℓ+1). It is number t of
    `n_batches`, from 1. Returns the largest rank that is rejected; 0 for none.

    Proof: Theorem 15 (docs/theory.md#thm-final).
    """
    histogram, k, last = batch.histogram, batch.n_tests, -1
    slope = level * level_share(t, n_batches) / batch.n_tests
    while k != last:
        last, limit = k, rank_limit(slope, n_before + k, batch.n_calibration)
        k = histogram.at_most(limit)
    return limit if k else 0


def final_by_evidence(batch: Batch, n_before: int, level: Fraction, t: int, n_batches: int) -> int:
    """Decide a batch for good by its evidence: E ≥ m/(αγ_t(R_before + R)) for its R rows with E.

    Proof: Theorem 15 (docs/theory.md#thm-final).
    """
    own = level * level_share(t, n_batches)
    for one in reversed(evidence_of(batch, *final_share(level, t, n_batches))):
        if own * (n_before + one.n_rows) * one.value >= batch.n_tests:
            return one.limit
    return 0


def final_share(level: Fraction, t: int, n_batches: int) -> tuple[Fraction, Fraction]:
    """Return at which level the evidence of final batch t stops, and at which share of its rows.

    Proof: Theorem 15 (docs/theory.md#thm-final).
    """
    own = level * level_share(t, n_batches)
    return own * max(Fraction(1), Fraction(t, 2)), FINAL_MOST

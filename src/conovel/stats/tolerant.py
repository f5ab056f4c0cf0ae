"""Counts of which some may be lies: claims as functions of k, and the total that is relied on.

If at most f of K agents lie, the K - f smallest counts add up to no more than the counts of the
agents that do not lie. So k* = max{k : s_f(k) >= k}, with s_f(k) the sum of the K - f smallest
counts N_j(k), is at most the number of rows that honest agents reject (Theorem 17 of
docs/theory.md). Claims that are told as a whole are told on a grid of k: all numbers up to 8,192,
and 4,096 for each factor of two above. So a claim is short, whatever the number of tests.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from conovel.stats.resolution import first_k, rank_limit
from conovel.stats.stepup import RankHistogram, least_total

GRID_BITS = 13  # of a value of k; a k is above the next smaller one by less than 1/4,096 of it


def on_grid(k: int) -> int:
    """Return the largest value of the grid that is at most k."""
    shift = max(k.bit_length() - GRID_BITS, 0)
    return k >> shift << shift


def _from_grid(k: int) -> int:
    """Return the smallest value of the grid that is at least k."""
    below = on_grid(k)
    return below if below == k else below + (1 << (k.bit_length() - GRID_BITS))


@dataclass(frozen=True)
class CountSteps:
    """The count of an agent as a function of k: `tests` more rows from each of the `steps` on."""

    steps: tuple[int, ...]
    tests: tuple[int, ...]

    @cached_property
    def _totals(self) -> list[int]:
        return [0, *accumulate(self.tests)]

    def at(self, k: int) -> int:
        """Return the count N(k)."""
        return self._totals[bisect_right(self.steps, k)]


def count_steps(histogram: RankHistogram, slope: Fraction, n_tests: int) -> CountSteps:
    """Return the counts of an agent for all k up to the number of tests of all agents.

    Ranks above the limit of k = m cannot be rejected and are not counted. The values of k are on
    the grid; a rank between two of them joins at the larger one.

    Proof: Theorem 17 (docs/theory.md#thm-liars).
    """
    most = rank_limit(slope, on_grid(n_tests), histogram.n_calibration)
    tests_by_k: dict[int, int] = {}
    for rank, n in histogram.pairs(most):
        k = _from_grid(first_k(slope, rank, histogram.n_calibration))
        tests_by_k[k] = tests_by_k.get(k, 0) + n
    return CountSteps(tuple(tests_by_k), tuple(tests_by_k.values()))


def largest_k(claims: Sequence[CountSteps], n_tests: int, liars: int) -> int:
    """Return k* = max{k : s_f(k) >= k} over k on the grid, up to the number of tests.

    s_f is nondecreasing, as every claim is. So k falls from the number of tests to the largest
    such k.

    Proof: Theorem 17 (docs/theory.md#thm-liars).
    """
    k = on_grid(n_tests)
    while (total := least_total([claim.at(k) for claim in claims], liars)) < k:
        k = on_grid(total)
    return k


def rises_at(k: int, slope: Fraction, n_calibration: int) -> bool:
    """Tell whether the count of an agent can rise at a k: it is on the grid, and a rank joins."""
    if k < 1 or on_grid(k) != k:
        return False
    return rank_limit(slope, k, n_calibration) > rank_limit(slope, on_grid(k - 1), n_calibration)

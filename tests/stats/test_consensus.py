"""The rule of `consensus`: every order of small cases in fractions, and what breaks the bound.

A null row has a type: an agent with whose calibration rows it is exchangeable. So which rows of a
type are calibration rows and which are tests is uniformly random. The score, the regions and the
levels of groups do not depend on it.
"""

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from conovel.errors import InputError, SampleError
from conovel.stats import consensus
from conovel.stats.consensus import (
    Calibration,
    Group,
    conforming_limit,
    count_above,
    decide_groups,
    grouped_types,
    shared_level,
)

N_CELLS = 5
LEVELS = [Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10)]


class Case:
    """Rows of several types and novelties, each in some cell and near some type."""

    def __init__(self, rng, n_groups=None):
        n_types = int(rng.integers(1, 4))
        self.sizes = [
            (int(rng.integers(1, 5)), int(rng.integers(0, 3))) for _ in range(n_types)
        ]  # calibration rows, null tests
        n_novel = int(rng.integers(0, 4))
        starts = np.cumsum([0, *map(sum, self.sizes), n_novel]).tolist()
        self.rows = [range(a, b) for a, b in itertools.pairwise(starts)]
        self.cells = rng.integers(0, N_CELLS, size=starts[-1]).tolist()
        for row in self.rows[-1]:
            self.cells[row] = max(self.cells[row], int(rng.integers(0, N_CELLS)))
        self.near = rng.integers(0, n_types, size=starts[-1]).tolist()
        self.floor = int(rng.integers(1, N_CELLS))
        n_groups = n_groups or int(rng.integers(1, n_types + 1))
        of = [k % n_groups for k in range(n_types)]
        self.members = [[k for k in range(n_types) if of[k] == g] for g in sorted(set(of))]
        self.level = LEVELS[rng.integers(len(LEVELS))]
        weights = rng.integers(1, 5, size=len(self.members)).tolist()
        self.levels = [self.level * Fraction(w, sum(weights)) for w in weights]

    def orders(self) -> Iterator[tuple]:
        """Every division of each type's rows into calibration rows and tests."""
        return itertools.product(
            *(
                itertools.combinations(rows, n_test)
                for rows, (_, n_test) in zip(self.rows, self.sizes, strict=False)
            )
        )

    def counts(self, rows):
        return tuple([self.cells[row] for row in rows].count(cell) for cell in range(N_CELLS))

    def in_region(self, rows, group):
        return sum(self.cells[r] < self.floor and self.near[r] in group for r in rows)

    def proportion(self, null_tests):
        """The false discovery proportion of one order."""
        false = [row for tests in null_tests for row in tests]
        tests = [*false, *self.rows[-1]]
        groups = []
        for level, group in zip(self.levels, self.members, strict=True):
            known = [[r for r in self.rows[k] if r not in null_tests[k]] for k in group]
            types = tuple(Calibration(self.counts(k), self.in_region(k, group)) for k in known)
            groups.append(Group(level, self.in_region(tests, group), types))
        cut = decide_groups(self.counts(tests), groups, self.floor).cell
        n_false, n_rejected = (sum(self.cells[r] >= cut for r in some) for some in (false, tests))
        return Fraction(n_false, max(n_rejected, 1))

    def ratio(self):
        """The exact false discovery rate over all orders, over the level."""
        found = [self.proportion(order) for order in self.orders()]
        return sum(found, Fraction(0)) / len(found) / self.level


def ratios(seed, number, **options):
    rng = np.random.default_rng(seed)
    return [Case(rng, **options).ratio() for _ in range(number)]


def test_small_cases_keep_the_bound_for_every_order():
    found = ratios(0, 400)
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 20  # the test sees rejections


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_small_cases_keep_the_bound_for_every_order(seed):
    assert max(ratios(seed, 1500)) <= 1


def test_the_bound_is_attained():
    """One type, seven calibration rows, one null test, and nothing else.

    The test is rejected if it is on top, where (1 + 0) · (1 + 0) ≤ α · 1 · 7, and the bound
    α E[v/N] is α times the chance that it is in the region.
    """

    def rate(n_rows, level):
        rejected = decide_groups(
            (0, 1), [Group(level, 0, (Calibration((n_rows, 0), n_rows),))], 1
        ).n_rejected
        return Fraction(rejected, n_rows + 1)

    assert rate(7, Fraction(1, 7)) == Fraction(1, 8) == Fraction(1, 7) * Fraction(7, 8)
    assert rate(7, Fraction(1, 8)) == 0


def test_a_region_without_the_leading_one_breaks_the_bound(monkeypatch):
    kept = consensus.decide_groups

    def greedy(tests, groups, floor):
        fewer = [Group(g.level, g.n_region - 1, g.types) for g in groups]
        return kept(tests, fewer, floor)

    monkeypatch.setitem(globals(), "decide_groups", greedy)
    assert max(ratios(0, 400)) > 1


def fdr_of_eight_types(level):
    """Eight groups of one type: 17 calibration rows, one null test, one of these rows on top.

    Given how many of the rows on top are tests, everything is fixed.
    """
    top = Calibration((17, 0), 17), 0  # its only test is on top
    low = Calibration((16, 1), 16), 1  # its only test is in its region
    rate = Fraction(0)
    for n in range(9):
        of = [top] * n + [low] * (8 - n)
        groups = [Group(level, n_region, (one,)) for one, n_region in of]
        found = decide_groups((8 - n, n), groups, 1)
        share = math.comb(8, n) * Fraction(1, 18) ** n * Fraction(17, 18) ** (8 - n)
        rate += share * (found.n_rejected > 0)  # all that is rejected is null
    return rate


def test_groups_have_to_share_the_level():
    alpha = Fraction(1, 4)
    assert fdr_of_eight_types(alpha) > alpha
    assert fdr_of_eight_types(alpha / 8) <= alpha


def test_the_best_of_all_types_breaks_the_bound(monkeypatch):
    """The smallest p-value over types in place of the largest."""
    kept = consensus.decide_groups

    def smallest(tests, groups, floor):
        alone = [
            kept(tests, [Group(g.level, g.n_region, (one,))], floor)
            for g in groups
            for one in g.types
        ]
        return min(alone, key=lambda found: found.cell)

    monkeypatch.setitem(globals(), "decide_groups", smallest)
    assert max(ratios(0, 400, n_groups=1)) > 1


def test_nothing_is_rejected_without_types_or_below_the_floor():
    assert decide_groups((0, 9), [], 0).n_rejected == 0
    sure = Group(Fraction(1, 2), 0, (Calibration((99, 0), 99),))
    assert decide_groups((0, 9), [sure], 1).n_rejected == 9
    assert decide_groups((9, 0), [sure], 1).cell == 2
    assert decide_groups((0, 9), [sure], 2).n_rejected == 0
    empty = Group(Fraction(1, 2), 0, (Calibration((0, 0), 0),))
    assert decide_groups((0, 9), [sure, empty], 1).n_rejected == 0


def test_types_that_are_near_one_another_are_in_one_group():
    assert grouped_types([[9, 1], [0, 8]], [0, 1]) == [[0], [1]]
    assert grouped_types([[4, 1], [0, 8]], [0, 1]) == [[0, 1]]
    # Through a third one; and an agent that told nothing of its normals is near everybody.
    assert grouped_types([[8, 2, 0], [0, 8, 0], [0, 2, 8]], [0, 1, 2]) == [[0, 1, 2]]
    assert grouped_types([[9, 0, 0], [0, 9, 0], [9, 0, 0]], [0, 1, 2]) == [[0, 1, 2]]
    assert grouped_types([[9, 0, 0], [0, 9, 0], [9, 0, 0]], [0, 1]) == [[0], [1]]


def test_levels_of_groups_add_up_to_the_level():
    for tails in ([Fraction(1, 9), Fraction(0), Fraction(3, 7)], [Fraction(0)] * 4):
        found = shared_level(tails, "1/10")
        assert sum(found) == Fraction(1, 10)
        assert min(found) >= Fraction(1, 20) / len(tails)


def test_the_limit_of_conforming_is_where_the_p_value_falls_to_the_level():
    calibration = [10, 6, 3, 0]
    for level in (Fraction(1, 20), Fraction(1, 5), Fraction(1, 2)):
        limit = conforming_limit(calibration, level)
        p_values = [Fraction(1 + sum(calibration[c:]), 20) for c in range(4)]
        assert [p > level for p in p_values] == [c < limit for c in range(4)]
    assert conforming_limit([0, 0], 0.1) == 0
    assert count_above([1, 2, 3]) == [6, 5, 3]


def test_what_cannot_be_counts_is_refused():
    with pytest.raises(InputError, match="whole numbers from 0"):
        decide_groups((2, -1), [], 0)
    with pytest.raises(SampleError, match="same cells"):
        decide_groups((1, 1), [Group(Fraction(1), 0, (Calibration((1,), 1),))], 0)

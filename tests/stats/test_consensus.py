"""The rule of `consensus`: every order of small cases in fractions, and what breaks the bound.

A null row has a type: an agent with whose calibration rows it is exchangeable. So which rows of a
type are calibration rows, which are tests of the first fold and which of the second is uniformly
random. The score of a fold may be any function that sees the rows of the other fold.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from conovel.errors import InputError, SampleError
from conovel.stats import consensus
from conovel.stats.consensus import MIXED, Calibration, Fold, conforming_limit, decide_folds

N_CELLS = 4
LEVELS = [Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10)]


def counts(cells):
    return tuple(cells.count(cell) for cell in range(N_CELLS))


def fold_of(calibration, tests, others):
    types = tuple(Calibration(len(cells), counts(cells)) for cells in calibration)
    return Fold(len(tests), len(others), counts(tests), counts(others), types)


class Case:
    """Rows of several types and novelties, in two folds, with a score that may be anything.

    The score of a fold is a table drawn anew for every set of rows in the other fold.
    """

    def __init__(self, rng, *, one_fold=False):
        n_types = int(rng.integers(1, 4))
        self.sizes = [
            (
                int(rng.integers(1, 4)),
                int(rng.integers(0, 2)),
                0 if one_fold else int(rng.integers(0, 2)),
            )
            for _ in range(n_types)
        ]  # calibration rows, tests of the first fold, tests of the second
        self.novel = (int(rng.integers(0, 3)), 0 if one_fold else int(rng.integers(0, 3)))
        self.level = LEVELS[rng.integers(len(LEVELS))]
        self.seed = int(rng.integers(1 << 30))
        self.tables = {}
        starts = np.cumsum([0, *(sum(size) for size in self.sizes), *self.novel])
        self.rows = [range(a, b) for a, b in itertools.pairwise(starts.tolist())]
        self.n_test = sum(a + b for _, a, b in self.sizes) + sum(self.novel)

    def orders(self) -> Iterator[tuple]:
        """Every division of each type's rows into calibration rows and tests of either fold."""

        def divisions(rows, size):
            for first in itertools.combinations(rows, size[1]):
                rest = [r for r in rows if r not in first]
                for second in itertools.combinations(rest, size[2]):
                    yield tuple(r for r in rest if r not in second), first, second

        each = [
            list(divisions(rows, size)) for rows, size in zip(self.rows, self.sizes, strict=False)
        ]
        return itertools.product(*each)

    def cells(self, fold, learnt_from):
        key = (fold, *sorted(learnt_from))
        if key not in self.tables:
            drawn = np.random.default_rng([self.seed, *key]).integers(0, N_CELLS, size=64)
            self.tables[key] = drawn.tolist()
        return self.tables[key]

    def folds(self, order):
        """The two folds, and the null tests of each with their types."""
        tests = [
            [row for part in order for row in part[1 + f]] + list(self.rows[len(self.sizes) + f])
            for f in (0, 1)
        ]
        found = []
        for f in (0, 1):
            own, other = tests[f], tests[1 - f]
            cells = self.cells(f, other)
            calibration = [[cells[row] for row in part[0]] for part in order]
            found.append(
                (
                    fold_of(calibration, [cells[r] for r in own], [cells[r] for r in other]),
                    [cells[row] for part in order for row in part[1 + f]],
                )
            )
        return found

    def fdr(self):
        """The exact false discovery rate over all orders, over the bound α m0/m."""
        proportions = []
        for order in self.orders():
            folds = self.folds(order)
            found = decide_folds([fold for fold, _ in folds], self.level)
            n_rejected = sum(found.n_rejected)
            n_false = sum(
                sum(cell >= cut for cell in nulls)
                for cut, (_, nulls) in zip(found.cells, folds, strict=True)
            )
            proportions.append(Fraction(n_false, max(n_rejected, 1)))
        n_null = sum(a + b for _, a, b in self.sizes)
        mean = sum(proportions, Fraction(0)) / len(proportions)
        return mean / (self.level * Fraction(n_null, self.n_test)) if n_null else Fraction(0)


def cases(seed, number, **options):
    rng = np.random.default_rng(seed)
    found = (Case(rng, **options) for _ in range(number))
    return [case for case in found if case.n_test]


def ratios(seed, number, **options):
    return [case.fdr() for case in cases(seed, number, **options)]


def test_small_cases_keep_the_bound_for_every_order():
    found = ratios(0, 150)
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 10  # the test sees rejections


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_small_cases_keep_the_bound_for_every_order(seed):
    assert max(ratios(seed, 250)) <= 1
    assert max(ratios(seed, 400, one_fold=True)) <= 1


def test_the_whole_level_is_used_where_one_beta_is_the_level(monkeypatch):
    # Without folds nothing has to be joined: with β = α the rule is BH, and attains its bound.
    monkeypatch.setattr(consensus, "MIXED", ((Fraction(1), Fraction(1)),))
    found = ratios(0, 120, one_fold=True)
    assert max(found) == 1


def test_the_smallest_p_value_over_types_breaks_the_bound(monkeypatch):
    def smallest(fold):
        above = consensus.count_above
        each = [[Fraction(1 + n, t.size + 1) for n in above(t.counts)] for t in fold.types]
        return tuple(map(min, zip(*each, strict=True)))

    monkeypatch.setattr(consensus, "MIXED", ((Fraction(1), Fraction(1)),))
    monkeypatch.setattr(Fold, "p_values", property(smallest))
    assert max(ratios(0, 120, one_fold=True)) >= 2


def test_the_expectation_of_a_null_row_is_exactly_one():
    # Eight novelties are always rejected, so the threshold of a null row exists in every order.
    rng = np.random.default_rng(3)
    rows = rng.permutation(12).tolist()  # ten calibration rows and two null tests, no ties

    def evidence(calibration, tests):
        cells = np.zeros(20, dtype=int)
        np.add.at(cells, tests, 1)
        cells[15] += 8
        known = Calibration(10, tuple(np.bincount(calibration, minlength=20).tolist()))
        fold = Fold(10, 0, tuple(cells.tolist()), (0,) * 20, (known,))
        stop = fold.stop(Fraction(1, 2))
        return sum(Fraction(1) / stop.p_value for cell in tests if cell >= stop.cell)

    orders = list(itertools.combinations(rows, 2))
    total = sum(evidence([r for r in rows if r not in two], list(two)) for two in orders)
    assert total / len(orders) == 2


def test_two_equal_folds_reject_what_both_stop_at():
    known = Calibration(99, (90, 9, 0))
    fold = Fold(20, 20, (15, 2, 3), (15, 2, 3), (known,))
    found = decide_folds([fold, fold], 0.1)
    assert found.cells == (2, 2)
    assert found.n_rejected == (3, 3)


def test_a_fold_with_all_rejections_is_rescued_by_the_smaller_beta(monkeypatch):
    types = (Calibration(1000, (900, 71, 29, 0)),)
    many = Fold(100, 100, (58, 0, 2, 40), (58, 0, 2, 40), types)
    none = Fold(100, 100, (95, 5, 0, 0), (95, 5, 0, 0), types)
    assert decide_folds([many, none], 0.1).n_rejected == (40, 0)
    monkeypatch.setattr(consensus, "MIXED", (MIXED[0],))
    assert decide_folds([many, none], 0.1).n_rejected == (0, 0)


def test_a_score_that_knows_the_other_fold_by_heart_does_not_fool_the_rule():
    types = (Calibration(1000, (950, 35, 15, 0)),)
    fold = Fold(100, 100, (85, 3, 2, 10), (0, 0, 0, 100), types)
    stop = fold.stop(Fraction(1, 10))
    assert stop.p_value <= Fraction(11, 100) * Fraction(stop.n_rejected, 100)


def test_without_types_nothing_is_rejected():
    fold = Fold(3, 2, (0, 3), (0, 2), ())
    assert decide_folds([fold], 0.1).n_rejected == (0,)


def test_the_limit_of_conforming_is_where_the_p_value_falls_to_the_level():
    calibration = [10, 6, 3, 0]
    for level in (Fraction(1, 20), Fraction(1, 5), Fraction(1, 2)):
        limit = conforming_limit(calibration, level)
        p_values = [Fraction(1 + sum(calibration[c:]), 20) for c in range(4)]
        assert [p > level for p in p_values] == [c < limit for c in range(4)]


def test_what_cannot_be_counts_is_refused():
    with pytest.raises(InputError, match="add up to at most 3"):
        Calibration(3, (2, 2))
    with pytest.raises(SampleError, match="same cells"):
        Fold(2, 0, (1, 1), (0,), ())
    with pytest.raises(SampleError, match="nothing to test"):
        decide_folds([Fold(0, 0, (0,), (0,), ())], 0.1)
    with pytest.raises(InputError, match="list of Fold"):
        decide_folds([], 0.1)

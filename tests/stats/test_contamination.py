"""Novelties among the calibration rows: the FDR of every order of the nulls, in fractions."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from support.exact_fdr import FAR

from conovel.errors import InputError
from conovel.stats.contamination import level_with_novelties
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import fast_lsu

HALF = Fraction(1, 2)


def fdr(n_normal, hidden, n_null, novel, level, dropped=0, ties=1):
    """The FDR with novelties of the scores `hidden` among the calibration rows.

    `dropped`: the calibration rows of the highest scores are removed, and nobody looks at them.
    """
    pool, total = np.arange(n_normal + n_null) // ties, Fraction(0)
    orders = list(itertools.combinations(range(pool.size), n_normal))
    for chosen in orders:
        calibration = np.sort(np.concatenate([pool[list(chosen)], hidden]).astype(float))
        calibration = calibration[: calibration.size - dropped]
        tests = np.concatenate([np.delete(pool, chosen), novel]).astype(float)
        result = fast_lsu([(conformal_ranks(calibration, tests), calibration.size)], level)
        false = int(result.rejected[0][:n_null].sum())
        total += Fraction(false, max(result.n_rejected, 1))
    return total / len(orders)


def test_novelties_that_score_lowest_attain_the_bound():
    level = HALF  # α(ℓ+1)/m = 1/2 · 10/5 is whole
    got = fdr(7, [-1, -2], 4, [FAR], level)
    assert got == level_with_novelties(level, 9, 2) * Fraction(4, 5) == Fraction(1, 2)
    assert got > level * Fraction(4, 5)  # without novelties it is α·m0/m


@pytest.mark.parametrize("ties", [1, 2])
@pytest.mark.parametrize("hidden", [[-1, -1], [1.5, 5.5], [9, FAR], [FAR, FAR], [3, 3]])
@pytest.mark.parametrize("novel", [[FAR], [2.5, 7.5]])
def test_the_bound_holds_whatever_the_hidden_novelties_score(hidden, novel, ties):
    n_tests = 3 + len(novel)
    for level in (Fraction(1, 5), Fraction(1, 3), HALF):
        got = fdr(6, hidden, 3, novel, level, ties=ties)
        assert got <= level_with_novelties(level, 8, 2) * Fraction(3, n_tests)


@pytest.mark.parametrize("hidden", [[9], [FAR], [FAR, FAR, FAR]])
def test_hidden_novelties_that_score_highest_only_lower_the_rate(hidden):
    n, level = 9 - len(hidden), HALF
    got = fdr(n, hidden, 4, [FAR + 1], level)
    assert got < level * Fraction(4, 5)  # α(ℓ+1)/m is whole, so without them it is equal
    assert fdr(9, [], 4, [FAR + 1], level) == level * Fraction(4, 5)


def test_rows_that_are_dropped_without_a_look_break_the_level():
    level = Fraction(1, 4)
    assert fdr(13, [], 2, [], level) <= level
    for dropped in (1, 2, 3):
        assert fdr(13, [], 2, [], level, dropped) > level
    assert fdr(9, [], 4, [FAR], HALF) == HALF * Fraction(4, 5)
    assert fdr(9, [], 4, [FAR], HALF, dropped=2) > HALF


def cleaned_fdr(n_normal, hidden, n_null, budget, level, score):
    """The FDR after a look at the `budget` largest values, and the part of it that is stable.

    Rows are numbers; `score` is told which hidden novelties are left, as a score is by the rows
    of its mixture. A false row is stable if the same rows would be removed with it among the known
    normals.
    """
    pool = np.arange(n_normal + n_null).astype(float)
    orders = list(itertools.combinations(range(pool.size), n_normal))
    whole, stable, bound = Fraction(0), Fraction(0), Fraction(0)
    for chosen in orders:
        normal, tests = pool[list(chosen)], np.delete(pool, chosen)
        left = left_of(normal, hidden, budget)
        calibration = np.array([score(x, left) for x in (*normal, *left)])
        scores = np.array([score(x, left) for x in tests])
        ranks = conformal_ranks(calibration, scores)
        result = fast_lsu([(ranks, calibration.size)], level)
        for i in range(n_null):
            share = Fraction(int(result.rejected[0][i]), max(result.n_rejected, 1))
            others = left_of(np.append(normal, tests[i]), hidden, budget)
            whole += share
            stable += share * (others == left)
            n_left = n_normal + len(others)
            bound += level_with_novelties(level, n_left, len(others)) / n_null
    return [value / len(orders) for value in (whole, stable, bound)]


def left_of(normal, hidden, budget):
    """The hidden novelties that are not among the largest known normals."""
    rows = sorted((*normal, *hidden), reverse=True)
    return [x for x in hidden if x not in rows[:budget]]


def honest(x, left):
    return x


def spying(x, left):
    """Take the novelty that is left for a sign that normal known rows are large."""
    return x if not left else -x if x == int(x) else -FAR


@pytest.mark.parametrize("score", [honest, spying])
@pytest.mark.parametrize("hidden", [[4.5], [2.5, 4.5], [0.5, 6.5]])
@pytest.mark.parametrize(("budget", "n_null"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_the_stable_part_keeps_the_bound_for_every_score(score, hidden, budget, n_null):
    for level in (Fraction(1, 6), Fraction(1, 3), HALF):
        _, stable, bound = cleaned_fdr(5, hidden, n_null, budget, level, score)
        assert stable <= bound


def test_a_score_that_spies_breaks_the_bound_where_rows_are_not_stable():
    level = Fraction(1, 6)  # one null: it is rejected if it has the smallest rank of six
    whole, stable, bound = cleaned_fdr(5, [3.5], 1, 2, level, spying)
    assert whole > bound >= stable
    whole, _, bound = cleaned_fdr(5, [3.5], 1, 2, level, honest)
    assert whole <= bound


def test_nothing_is_unstable_if_all_novelties_are_removed():
    whole, stable, bound = cleaned_fdr(5, [FAR, FAR + 1], 2, 2, HALF, spying)
    assert whole == stable <= bound == HALF


def test_the_level_is_a_fraction_and_at_most_one():
    assert level_with_novelties("1/10", 99, 0) == Fraction(1, 10)
    assert level_with_novelties(0.1, 99, 49) == Fraction(10, 51)
    assert level_with_novelties(0.1, 9, 9) == 1
    assert level_with_novelties(0.5, 9, 9) == 1
    for numbers in ((0.1, 9, 10), (0.1, -1, 0), (0.1, 9, -1), (0.1, 9, 1.0)):
        with pytest.raises(InputError):
            level_with_novelties(*numbers)

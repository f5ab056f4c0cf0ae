"""The rule over strata: every order of the nulls of small sites, in fractions."""

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from conovel.deciding.strata import decide_strata
from conovel.spec.strata import plan_strata
from conovel.spec.training import Numbers
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.stepup import step_up
from conovel.stats.strata import StrataHistogram

LEVELS = [Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10)]


class Stratum(NamedTuple):
    """Cells of the null rows and novelties of one stratum; so many of the nulls calibrate."""

    n_calibration: int
    nulls: tuple[int, ...]
    novel: tuple[int, ...]
    likely: int


def histograms(stratum):
    """Give the histogram of every choice of calibration rows, and the null tests' cells."""
    rows = range(len(stratum.nulls))
    for chosen in itertools.combinations(rows, stratum.n_calibration):
        calibration = np.array([stratum.nulls[i] for i in chosen], dtype=np.int64)
        tests = np.array([stratum.nulls[i] for i in rows if i not in chosen], dtype=np.int64)
        both = np.append(tests, np.array(stratum.novel, dtype=np.int64))
        yield CellHistogram.of(calibration, both, N_CELLS, stratum.likely), tests


def rate(strata, groups, level, rule=None):
    """Return the exact false discovery rate: the mean over all choices of calibration rows."""
    decide = rule or by_strata
    shares = [
        decide(parts, groups, level)
        for parts in itertools.product(*map(list, map(histograms, strata)))
    ]
    return sum(shares) / len(shares)


def by_strata(parts, groups, level):
    outcome = decide_strata(StrataHistogram.together([h for h, _ in parts]), groups, level)
    false = sum(int((t >= cut).sum()) for (_, t), cut in zip(parts, outcome.cuts, strict=True))
    return Fraction(false, max(outcome.n_rejected, 1))


def by_all_rows(parts, groups, level):
    """Plain detection: all calibration rows are compared with all tests."""
    calibration = np.repeat(np.arange(N_CELLS), sum(h.calibration for h, _ in parts))
    tests = np.repeat(np.arange(N_CELLS), sum(h.tests for h, _ in parts))
    ranks = np.array([1 + int((calibration >= cell).sum()) for cell in tests])
    outcome = step_up([(ranks, calibration.size)], level)
    lowest = tests[outcome.rejected[0]].min(initial=N_CELLS)
    false = sum(int((t >= lowest).sum()) for _, t in parts)
    return Fraction(false, max(outcome.n_rejected, 1))


def random_site(rng):
    strata = []
    for _ in range(int(rng.integers(2, 4))):
        size, m0 = int(rng.integers(1, 5)), int(rng.integers(1, 3))
        top = int(rng.integers(3, N_CELLS))
        nulls = tuple(sorted(rng.integers(0, top, size=size + m0).tolist()))
        novel = tuple(rng.integers(0, N_CELLS, size=int(rng.integers(0, 3))).tolist())
        strata.append(Stratum(size, nulls, novel, int(rng.integers(0, N_CELLS))))
    groups = [[0] * len(strata), list(range(len(strata))), [0, 1, 0][: len(strata)]]
    return strata, groups[int(rng.integers(3))], LEVELS[int(rng.integers(4))]


def test_small_sites_keep_the_level_for_every_order():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(24):
        strata, groups, level = random_site(rng)
        ratios.append(rate(strata, groups, level) / level)
    assert max(ratios) <= 1
    assert max(ratios) >= Fraction(3, 4)  # the bound is nearly attained
    assert sum(one > 0 for one in ratios) > 8


def test_strata_by_themselves_at_the_bound():
    # One test, and α(ℓ + 1) is a whole number: the other stratum has no rows to reject
    one = Stratum(3, (10, 20, 30, 40), (), N_CELLS)
    assert rate([one], [0], Fraction(1, 2)) == Fraction(1, 2)


def test_plain_detection_breaks_the_level_where_shares_differ():
    # Rows of the second stratum have high scores: frequent among tests, rare among normals
    strata = [
        Stratum(6, (1, 2, 3, 4, 5, 6, 7), (), N_CELLS),
        Stratum(1, (90, 91, 92, 93), (), N_CELLS),
    ]
    level = Fraction(1, 2)
    assert rate(strata, [0, 1], level, by_all_rows) > level
    assert rate(strata, [0, 1], level) <= level
    assert rate(strata, [0, 0], level) <= level


def test_each_stratum_has_a_floor_of_its_own():
    low, high = (
        CellHistogram.of(np.array(cells), np.array(cells[:4]), N_CELLS, 100)
        for cells in ([1, 2, 3, 4, 5, 6, 7], [101, 102, 103, 104, 105, 106, 107])
    )
    both = StrataHistogram.together([low, high])
    floors = both.floors(Fraction(1, 2))
    assert floors[0] < 8
    assert floors[1] > 100
    above = both.above_floors(floors)
    assert above.calibration[:8].sum() > 0  # a common floor would leave these out
    for one, floor in zip(both.strata, floors, strict=True):
        assert (one.calibration + one.tests)[floor:].sum() <= 4


def test_numbers_of_strata_are_those_of_their_rows():
    parts = [CellHistogram.of(np.array([1, 99]), np.array([5, 98, 99]), N_CELLS, 98)] * 2
    both = StrataHistogram.together(parts)
    assert both.numbers == (3, 2, 3, 3, 2, 3)
    assert (both.size, both.n_calibration, both.n_likely) == (6, 4, 6)


def test_a_plan_follows_from_numbers_and_uses_no_more_rows_than_there_are():
    sizes = [
        Numbers(4200, 120),
        Numbers(1200, 180),
        Numbers(600, 300),
        Numbers(0, 9),
        Numbers(5, 0),
    ]
    for n_agents in (1, 3):
        plan = plan_strata(sizes, Fraction(1, 2), Fraction(1, 10), n_agents=n_agents)
        assert [one.is_tested for one in plan] == [True, True, True, False, False]
        for (n_null, _), one in zip(sizes, plan, strict=True):
            assert one.n_train + one.n_calibration <= n_null
        assert plan[3] == plan[4] == (0, 0, -1)


def test_a_hopeless_stratum_is_left_out_of_a_network_and_apart_at_one_site():
    sizes = [Numbers(1000, 200), Numbers(2, 900)]
    network = plan_strata(sizes, Fraction(1, 2), Fraction(1, 10), n_agents=3)
    assert [one.is_tested for one in network] == [True, False]
    alone = plan_strata(sizes, Fraction(1, 2), Fraction(1, 10))
    assert [one.is_tested for one in alone] == [True, True]
    assert alone[0].group != alone[1].group


def test_a_share_of_the_users_choice_is_kept():
    sizes = [Numbers(100, 50), Numbers(1000, 50)]
    plan = plan_strata(sizes, Fraction(3, 10), Fraction(1, 10), is_fixed=True)
    assert [tuple(one)[:2] for one in plan] == [(30, 70), (300, 700)]


def test_no_more_rows_train_than_allowed():
    sizes = [Numbers(1000, 500), Numbers(1000, 500)]
    plan = plan_strata(sizes, Fraction(1, 2), Fraction(1, 10), most=100)
    assert [one.n_train for one in plan] == [50, 50]

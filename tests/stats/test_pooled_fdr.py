"""False discovery rates of one calibration for a network: every order, and simulation.

The bound of Theorem 10 is α, exactly, for every small network. Rules that the theorem does not
cover must break it in the same enumeration or simulation: no factor 1 - x, floors that see the
calibration rows apart from the tests, and floors that cut through ties.
"""

import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from support.fixed_thresholds import fixed_threshold_evidence, joined
from support.pooled import (
    Agent,
    by_calibration_floor,
    by_cut_through_ties,
    by_floor,
    exact_fdr,
    orders,
    random_network,
)

from conovel.stats.cells import PooledBlock, floor_cell
from conovel.stats.evidence import Evidence, e_bh
from conovel.stats.grouped import PooledGroup, pooled_cut

SHARES = [Fraction(1, 5), Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)]
LEVELS = [Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(9, 10)]
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def cases(seed, number):
    """Small random networks, each with an x and a level."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        yield random_network(rng), SHARES[rng.integers(5)], LEVELS[rng.integers(4)]


def ratios(seed, number):
    """The FDR over the level, for every case."""
    return [exact_fdr(net, level, x) / level for net, x, level in cases(seed, number)]


def several(agents):
    return sum(agent.n_test > 0 for agent in agents) > 1


def roomy_cases(seed, number):
    """Networks with large rooms in which fewer rows matter than there is room for."""
    rng = np.random.default_rng(seed)
    while number:
        agents = random_network(rng)
        x, level = Fraction(int(rng.integers(5, 10)), 10), Fraction(int(rng.integers(1, 15)), 20)
        n_cells = 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))
        group = PooledGroup([next(orders(g, by_floor, x, n_cells))[0] for g in agents], x)
        by_rows = [Fraction(b.n_above, b.n_calibration + 1) for b in group.blocks if b.takes_part]
        used = group.level_used(level)
        if level * (1 - max(by_rows, default=0)) < used < level and group.w <= used * group.most:
            number -= 1
            yield agents, x, level


# Every order of small networks --------------------------------------------------------------


def test_small_networks_keep_the_level_for_every_order():
    found = ratios(0, 700)
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 200  # the test sees rejections
    assert max(found) >= Fraction(3, 4)


def test_networks_keep_the_level_where_fewer_rows_matter_than_there_is_room_for():
    found = [exact_fdr(net, level, x) / level for net, x, level in roomy_cases(0, 200)]
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_many_small_networks_keep_the_level_for_every_order(seed):
    assert max(ratios(seed, 2000)) <= 1
    assert all(exact_fdr(net, level, x) <= level for net, x, level in roomy_cases(seed, 150))


def one_row_each(n_agents, n_calibration):
    """Agents of one null test row, with one row above each floor: the hardest network.

    The highest row of agent j is in cell j + 1. All others are tied in cell 0, below the floor.
    """
    below = (0,) * n_calibration
    return [Agent((*below, cell + 1), n_calibration) for cell in range(n_agents)]


def ruin(n_agents, p):
    """Probability that a walk of steps +1 (p) and -1 reaches 1 within so many steps."""
    return sum(
        Fraction(math.comb(2 * k, k), k + 1) * p ** (k + 1) * (1 - p) ** k
        for k in range((n_agents + 1) // 2)
    )


@pytest.mark.parametrize("n_calibration", [2, 4, 9])
def test_the_bound_is_attained_as_agents_are_added(n_calibration):
    """Proposition 6: with α(1 - x) = x the FDR is the probability of ruin, which tends to α."""
    x = Fraction(1, n_calibration + 1)
    level = x / (1 - x)
    for n_agents in (2, 3, 7):
        fdr = exact_fdr(one_row_each(n_agents, n_calibration), level, x)
        assert fdr == ruin(n_agents, x) < level
    assert 1 - ruin(400, x) / level < Fraction(1, 1000)


def test_one_agent_spends_its_whole_level():
    """α(ℓ+1)/m = 2, and above the floor there are all rows that BH can reject (Theorem 3)."""
    agent, level = [Agent(tuple(range(12)), 9)], Fraction(3, 5)
    assert exact_fdr(agent, level, Fraction(9, 10)) == level
    assert 0 < exact_fdr(agent, level, Fraction(1, 5)) < level


def interleaved(n_calibration):
    """Two agents with one null test row, whose rows take turns on the scale."""
    places = range(2 * n_calibration + 2)
    return [Agent(tuple(places[j::2]), n_calibration) for j in (0, 1)]


def test_few_rows_of_an_agent_can_matter():
    """κ = 20 and h = 3 of ℓ + 1 = 40 rows: nearly the whole level, where 1 - κ/40 is half of it.

    There are two tests, and a = w = 1/40. So w h > 2 a for h = 3, and α = a/(1 - 3/40) = 1/37.
    """
    agents, level, used = interleaved(39), Fraction(1, 37), Fraction(1, 40)
    fdr = exact_fdr(agents, level, HALF)
    assert fdr == exact_fdr(agents, level, HALF, a=used)
    assert Fraction(9, 10) * level < fdr <= level
    assert exact_fdr(agents, level, HALF, a=level / 2) < Fraction(6, 10) * level
    assert exact_fdr(agents, used, HALF) <= used < exact_fdr(agents, used, HALF, a=used)


def test_agents_whose_nulls_come_first_or_last_on_the_scale():
    x, level = Fraction(1, 3), Fraction(1, 2)
    for order in itertools.permutations(range(3)):
        agents, next_cell = [None] * 3, 0
        for j in order:
            size = (5, 8, 2)[j]
            rows = range(next_cell, next_cell + size + 1)
            agents[j], next_cell = Agent(tuple(rows), size), next_cell + size + 1
        assert 0 < exact_fdr(agents, level, x) <= level


# Rules that the theorem does not cover ------------------------------------------------------


def test_no_factor_is_caught_at_three_agents():
    level = x = Fraction(1, 10)
    agents = one_row_each(3, 9)
    assert exact_fdr(agents, level, x) <= level
    assert exact_fdr(agents, level, x, a=level) == Fraction(109, 1000)


def test_no_factor_is_caught_where_fewer_rows_matter_than_there_is_room_for():
    """ℓ = 5 and κ = 5: h = 4, so a = α/3."""
    agents = [Agent((1, 3, 7, 8, 10, 11), 5), Agent((0, 2, 4, 5, 6, 9), 5)]
    level, x = HALF, Fraction(9, 10)
    fdr = exact_fdr(agents, level, x)
    assert fdr == exact_fdr(agents, level, x, a=level / 3) <= level
    assert exact_fdr(agents, level, x, a=level) == Fraction(5, 9)


def test_no_factor_is_caught_with_several_rows_above_each_floor():
    highest = [(1, 3, 6, 11), (0, 2, 7), (4, 5, 8, 10)]  # cells above the floor, from the top
    agents = [Agent((*(0,) * (6 - len(c)), *(12 - s for s in c)), 5) for c in highest]
    level, x = Fraction(1, 2), Fraction(2, 3)
    assert exact_fdr(agents, level, x) <= level < exact_fdr(agents, level, x, a=level)


def test_a_floor_that_sees_calibration_rows_apart_is_caught():
    agents = [Agent((1, 2, 3, 5), 3), Agent((1, 3, 5, 7), 3)]
    level, x = Fraction(1, 3), Fraction(1, 5)
    a = level * (1 - x)
    assert exact_fdr(agents, level, x) <= level
    assert exact_fdr(agents, level, x, keep=by_calibration_floor, a=a) == level * Fraction(21, 16)


def test_a_floor_that_cuts_through_ties_is_caught():
    agents = [Agent((1, 1, 1), 2)] * 3
    level, x = Fraction(1, 2), Fraction(1, 3)
    a = level * (1 - x)
    assert exact_fdr(agents, level, x) == 0
    assert exact_fdr(agents, level, x, keep=by_cut_through_ties, a=a) == 1


INVALID = {
    "no factor 1 - x": (by_floor, lambda level, x: level),
    "floors that see calibration rows": (by_calibration_floor, lambda level, x: level * (1 - x)),
    "floors that cut through ties": (by_cut_through_ties, lambda level, x: level * (1 - x)),
}


@pytest.mark.parametrize(("keep", "used"), INVALID.values(), ids=INVALID.keys())
def test_the_networks_of_the_enumeration_catch_invalid_rules(keep, used):
    """The same networks that hold the theorem break a rule that it does not cover."""
    assert any(
        exact_fdr(net, level, x, keep=keep, a=used(level, x)) > level
        for net, x, level in cases(0, 700)
        if several(net)
    )


# Simulation ---------------------------------------------------------------------------------


class Design(NamedTuple):
    """Sizes, how the agents' rows lie on the scale, novelties above all nulls, x and α."""

    n_calibration: tuple[int, ...]
    n_null: tuple[int, ...]
    layout: str
    x: Fraction
    level: Fraction
    n_novel: int = 0  # per agent, above all nulls


SIZES, NULLS = (2, 2, 2, 5, 5, 5, 8, 8, 8, 11, 11, 11), (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4)
DESIGNS = {
    "tight": Design((2,) * 30, (1,) * 30, "mixed", THIRD, HALF),
    "unequal": Design(SIZES, NULLS, "mixed", THIRD, HALF),
    "unequal, large first": Design(SIZES, NULLS, "last", THIRD, HALF),
    "unequal, large last": Design(SIZES, NULLS, "first", THIRD, HALF),
    "one large agent": Design((2,) * 9 + (89,), (1,) * 9 + (29,), "first", THIRD, HALF),
    "novelties": Design((9,) * 8, (2,) * 8, "mixed", Fraction(2, 5), HALF, n_novel=2),
}


class Layout:
    """The fixed part of a design: cells of all nulls, and which are above their floor."""

    def __init__(self, design):
        self.design = design
        sizes = [size + null for size, null in zip(*design[:2], strict=True)]
        owner = np.repeat(np.arange(len(sizes)), sizes)
        if design.layout == "mixed":
            owner = np.random.default_rng(0).permutation(owner)
        elif design.layout == "first":  # the nulls of the first agent are the highest rows
            owner = owner[::-1]
        self.n_cells = owner.size + 1  # the last cell holds the novelties
        self.cells = [np.flatnonzero(owner == j) for j in range(len(sizes))]
        self.floors = []
        for cells, size in zip(self.cells, design.n_calibration, strict=True):
            mixture = np.bincount(cells, minlength=self.n_cells)
            mixture[-1] += design.n_novel
            self.floors.append(floor_cell(mixture, size, design.x))

    def draw(self, rng, n):
        """Null test rows in each cell and repetition, for every agent: shape (n, cells)."""
        for cells, null in zip(self.cells, self.design.n_null, strict=True):
            is_test = rng.permuted(np.tile(np.arange(cells.size) < null, (n, 1)), axis=1)
            tests = np.zeros((n, self.n_cells), dtype=np.int16)
            tests[:, cells] = is_test
            yield tests

    def shares(self, rng, n, factor=None, keep_floors=True):
        """False discovery proportions of n repetitions, all at once; `factor` instead of 1 - x."""
        design = self.design
        tests = np.zeros((n, self.n_cells), dtype=np.int64)
        known = np.zeros_like(tests)
        for null, cells, floor in zip(self.draw(rng, n), self.cells, self.floors, strict=True):
            lowest = floor if keep_floors else 0
            tests[:, lowest:] += null[:, lowest:]
            above = cells[cells >= lowest]
            known[:, above] += 1 - null[:, above]
        rejected, above = (np.cumsum(part[:, ::-1], axis=1)[:, ::-1] for part in (tests, known))
        n_novel = design.n_novel * len(self.cells)
        w = max(
            Fraction(null + design.n_novel, size + 1)
            for size, null in zip(*design[:2], strict=True)
        )
        a = design.level * (1 - design.x if factor is None else factor)
        price, gain = w.numerator * a.denominator, a.numerator * w.denominator
        allowed = price * (1 + above) <= gain * (rejected + n_novel)
        allowed &= rejected + n_novel > 0
        false = rejected[np.arange(n), allowed.argmax(axis=1)]
        return allowed.any(axis=1) * false / np.maximum(false + n_novel, 1)

    def library_shares(self, rng, n):
        """The same by the library, one repetition after the other."""
        design, novel = self.design, np.zeros(self.n_cells, dtype=np.int64)
        novel[-1] = design.n_novel
        drawn = list(self.draw(rng, n))
        for i in range(n):
            blocks = []
            for tests, cells, floor, size, null in zip(
                drawn, self.cells, self.floors, *design[:2], strict=True
            ):
                counts = tests[i] + novel, np.bincount(cells, minlength=self.n_cells) - tests[i]
                counts[1][-1] = 0
                kept = (np.where(np.arange(self.n_cells) >= floor, c, 0) for c in counts)
                blocks.append(PooledBlock(null + design.n_novel, size, *kept))
            rejected = pooled_cut(blocks, design.level, design.x).n_rejected
            yield Fraction(rejected - design.n_novel * len(blocks), rejected) if rejected else 0


def mean_and_error(shares):
    return shares.mean(), shares.std() / math.sqrt(shares.size)


@pytest.mark.parametrize("name", DESIGNS)
def test_simulated_rates_keep_the_level(name):
    design = DESIGNS[name]
    mean, error = mean_and_error(Layout(design).shares(np.random.default_rng(1), 20_000))
    assert 0 < mean <= design.level + 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", DESIGNS)
def test_long_simulations_keep_the_level(name, seed):
    layout, rng = Layout(DESIGNS[name]), np.random.default_rng(seed)
    shares = np.concatenate([layout.shares(rng, 40_000) for _ in range(10)])
    mean, error = mean_and_error(shares)
    assert 0 < mean <= DESIGNS[name].level + 3 * error


def test_the_tight_design_spends_its_whole_level():
    """From both sides: the FDR is that of Proposition 6, which is almost α = 1/2."""
    expected = float(ruin(30, THIRD))
    assert 0.497 < expected < 0.5
    shares = Layout(DESIGNS["tight"]).shares(np.random.default_rng(2), 40_000)
    mean, error = mean_and_error(shares)
    assert error < 0.003
    assert abs(mean - expected) <= 3 * error


@pytest.mark.parametrize("name", DESIGNS)
def test_the_simulated_rule_is_that_of_the_library(name):
    layout = Layout(DESIGNS[name])
    fast = layout.shares(np.random.default_rng(3), 60)
    slow = [float(share) for share in layout.library_shares(np.random.default_rng(3), 60)]
    assert any(slow)
    np.testing.assert_array_equal(fast, slow)


def test_simulation_catches_a_missing_factor():
    """At level 1/3 with x = 1/3 the rule without the factor has a rate of almost 1/2."""
    design = DESIGNS["tight"]._replace(level=THIRD)
    shares = Layout(design).shares(np.random.default_rng(4), 4_000, factor=1)
    mean, error = mean_and_error(shares)
    assert mean > design.level + 20 * error
    kept, error = mean_and_error(Layout(design).shares(np.random.default_rng(4), 4_000))
    assert kept <= design.level + 3 * error


def test_simulation_catches_missing_floors():
    """Without floors κ_j counts the whole mixture: no x below 1 covers it, whatever is claimed."""
    design = Design((1,) * 30, (1,) * 30, "mixed", Fraction(1, 10), HALF)
    shares = Layout(design).shares(np.random.default_rng(5), 4_000, keep_floors=False)
    mean, error = mean_and_error(shares)
    assert mean > design.level + 20 * error
    kept, error = mean_and_error(Layout(design).shares(np.random.default_rng(5), 4_000))
    assert kept <= design.level + 3 * error


# Theorem 11: fixed thresholds ---------------------------------------------------------------


class Above(NamedTuple):
    """One agent: ℓ, null tests, novelties, and how many nulls and novelties are above."""

    n_calibration: int
    n_null: int
    n_novel: int
    nulls_above: int
    novel_above: int

    def orders(self):
        """Every number of calibration rows above the threshold, with its probability."""
        size, null, above = self.n_calibration, self.n_null, self.nulls_above
        for known in range(max(0, above - null), min(size, above) + 1):
            number = math.comb(size, known) * math.comb(null, above - known)
            block = PooledBlock(
                null + self.n_novel, size, [above - known + self.novel_above], [known]
            )
            yield block, above - known, Fraction(number, math.comb(size + null, above))


def null_evidence(agents, evidence=fixed_threshold_evidence):
    """Expected sum of the nulls' e-values over m; at most 1 for compound e-values."""
    m = sum(agent.n_null + agent.n_novel for agent in agents)
    mean = Fraction(0)
    for combination in itertools.product(*(agent.orders() for agent in agents)):
        false = sum(n for _, n, _ in combination)
        value = evidence([block for block, _, _ in combination])
        mean += math.prod(p for _, _, p in combination) * false * value / m
    return mean


def random_thresholds(rng):
    agents = []
    for _ in range(rng.integers(1, 4)):
        size, null, novel = (int(n) for n in rng.integers([1, 0, 0], [9, 6, 3]))
        above = int(rng.integers(0, size + null + 1))
        agents.append(Above(size, null, novel, above, int(rng.integers(0, novel + 1))))
    return agents


def threshold_cases(number):
    rng = np.random.default_rng(0)
    drawn = (random_thresholds(rng) for _ in range(number))
    return [agents for agents in drawn if sum(g.n_null + g.n_novel for g in agents)]


def without_the_one(blocks):
    """INVALID: D without max_j w_j; one row above the thresholds is enough for any evidence."""
    value = fixed_threshold_evidence(blocks)
    weights = [Fraction(b.n_test, b.n_calibration) for b in blocks if b.takes_part]
    m = sum(b.n_test for b in blocks)
    return m / max(m / value - max(weights), Fraction(1, 100)) if value else value


def test_evidence_above_fixed_thresholds_is_compound():
    found = [null_evidence(agents) for agents in threshold_cases(600)]
    assert Fraction(9, 10) < max(found) <= 1
    assert any(null_evidence(agents, without_the_one) > 1 for agents in threshold_cases(20))


def test_evidence_is_almost_exactly_one_where_all_rows_are_null():
    assert Fraction(999, 1000) < null_evidence([Above(400, 4, 0, 100, 0)] * 3) <= 1


def e_bh_rate(agents, level):
    """FDR of e-BH on the evidence above fixed thresholds, over all orders."""
    fdr = Fraction(0)
    for combination in itertools.product(*(agent.orders() for agent in agents)):
        value = fixed_threshold_evidence([block for block, _, _ in combination])
        parts = []
        for (block, _, _), agent in zip(combination, agents, strict=True):
            n_above = sum(block.test_counts)
            codes = np.arange(agent.n_null + agent.n_novel) < n_above
            parts.append(Evidence((Fraction(0), value), codes.astype(np.int64)))
        rejected = int(e_bh(joined(parts), level).sum())
        false = sum(n for _, n, _ in combination)
        if rejected:
            fdr += math.prod(p for _, _, p in combination) * Fraction(false, rejected)
    return fdr


def test_e_bh_on_this_evidence_keeps_the_level():
    found = [e_bh_rate(agents, HALF) for agents in threshold_cases(150)]
    assert 0 < max(found) <= HALF

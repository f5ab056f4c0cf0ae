"""Novelties among the calibration rows of several agents with one calibration, in fractions."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from support.pooled import Agent, by_floor, random_network

from conovel.stats.cells import PooledBlock
from conovel.stats.grouped import PooledGroup, pooled_cut

HALF = Fraction(1, 2)


def exact_fdr(agents, hidden, level, x):
    """The FDR over all orders, where agent j has calibration rows of scores `hidden[j]` too."""
    n_cells = 1 + max(
        s for a, h in zip(agents, hidden, strict=True) for s in (*a.nulls, *a.novel, *h)
    )
    choices = []
    for agent, more in zip(agents, hidden, strict=True):
        own, rows = Counter(), range(len(agent.nulls))
        for chosen in itertools.combinations(rows, agent.n_calibration):
            known = [*(agent.nulls[i] for i in chosen), *more]
            nulls = [agent.nulls[i] for i in rows if i not in chosen]
            own[by_floor(known, nulls, agent.novel, x, n_cells)] += 1
        choices.append([])
        for kept, number in own.items():
            known, null, novel = (np.bincount(s, minlength=n_cells) for s in kept)
            size = agent.n_calibration + len(more)
            block = PooledBlock(agent.n_test, size, null + novel, known)
            share = Fraction(number, own.total())
            choices[-1].append((block, np.cumsum(null[::-1])[::-1].tolist(), share))
    total = Fraction(0)
    for combination in itertools.product(*choices):
        outcome = pooled_cut([block for block, *_ in combination], level, x)
        if outcome.cell is not None:
            false = sum(from_cell[outcome.cell] for _, from_cell, _ in combination)
            share = math.prod(share for *_, share in combination)
            total += share * Fraction(false, outcome.n_rejected)
    return total


def used_x(agents, hidden, level, x):
    """The x of Theorem 10 that the rule uses, from the mixture."""
    n_cells = 1 + max(
        s for a, h in zip(agents, hidden, strict=True) for s in (*a.nulls, *a.novel, *h)
    )
    blocks = []
    for agent, more in zip(agents, hidden, strict=True):
        known = [*agent.nulls[: agent.n_calibration], *more]
        kept = by_floor(known, agent.nulls[agent.n_calibration :], agent.novel, x, n_cells)
        counts = [np.bincount(s, minlength=n_cells) for s in kept]
        blocks.append(PooledBlock(agent.n_test, len(known), counts[1] + counts[2], counts[0]))
    return blocks, 1 - PooledGroup(blocks, x).level_used(level) / level


def bound(agents, hidden, level, x):
    """Return the bound of Theorem 25(e), and ϱ; None where xϱ is not below 1."""
    blocks, own = used_x(agents, hidden, level, x)
    some = [
        (
            Fraction(b.n_calibration + 1, a.n_calibration + 1),
            Fraction(len(a.nulls) - a.n_calibration, a.n_test),
        )
        for a, b in zip(agents, blocks, strict=True)
        if b.takes_part
    ]
    if not some:
        return Fraction(0), Fraction(1)
    rho, most = max(r for r, _ in some), max(r * share for r, share in some)
    if len(some) == 1:
        return level * most, rho
    return (level * (1 - own) / (1 - own * rho) * most, rho) if own * rho < 1 else (None, rho)


def cases(seed, number, high=False):
    rng = np.random.default_rng(seed)
    while number:
        agents = random_network(rng, most_orders=150)
        top = 1 + max(s for a in agents for s in (*a.nulls, *a.novel))
        low, size = (top, top + 3) if high else (0, top + 2)
        hidden = [tuple(rng.integers(low, size, size=rng.integers(0, 4)).tolist()) for _ in agents]
        level, x = Fraction(int(rng.integers(2, 10)), 10), Fraction(1, int(rng.integers(2, 6)))
        number -= 1
        yield agents, hidden, level, x


def test_small_networks_keep_the_bound_whatever_hidden_novelties_score():
    ratios = []
    for case in cases(0, 250):
        most, _ = bound(*case)
        if most:
            ratios.append(exact_fdr(*case) / most)
    assert max(ratios) <= 1
    assert max(ratios) > Fraction(3, 4)
    assert sum(one > 0 for one in ratios) > 60


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_small_networks_keep_the_bound(seed):
    for case in cases(seed, 700):
        most, _ = bound(*case)
        assert most is None or exact_fdr(*case) <= most
    for case in cases(seed, 300, high=True):
        assert exact_fdr(*case) <= case[2]


def test_hidden_novelties_that_score_high_keep_the_level():
    rates = [(exact_fdr(*case), case[2]) for case in cases(0, 120, high=True)]
    assert all(rate <= level for rate, level in rates)
    assert sum(rate > 0 for rate, _ in rates) > 10


def one_row_each(n_agents, n_normal, n_hidden):
    """One null test at each agent and one normal row above each floor; novelties are below it."""
    agents = [Agent((*(0,) * n_normal, cell + 1), n_normal) for cell in range(n_agents)]
    return agents, [(0,) * n_hidden] * n_agents


def ruin(n_agents, p):
    """Probability that a walk of steps +1 (p) and -1 reaches 1 within so many steps."""
    return sum(
        Fraction(math.comb(2 * k, k), k + 1) * p ** (k + 1) * (1 - p) ** k
        for k in range((n_agents + 1) // 2)
    )


@pytest.mark.parametrize(("n_normal", "n_hidden"), [(4, 2), (3, 3), (9, 1)])
def test_the_bound_is_attained_as_agents_are_added(n_normal, n_hidden):
    x, p = Fraction(1, n_normal + n_hidden + 1), Fraction(1, n_normal + 1)
    level = x / (1 - x)
    for n_agents in (2, 3, 5):
        case = *one_row_each(n_agents, n_normal, n_hidden), level, x
        most, rho = bound(*case)
        assert most == p / (1 - p) > rho * level
        assert exact_fdr(*case) == ruin(n_agents, p) < most
    assert 1 - ruin(400, p) / most < Fraction(1, 1000)
    assert ruin(400, p) > rho * level  # ϱ alone is no bound


def test_the_level_itself_is_no_bound():
    case = *one_row_each(3, 4, 4), Fraction(1, 8), Fraction(1, 9)
    assert exact_fdr(*case) > case[2]
    assert exact_fdr(*case) <= bound(*case)[0]

"""Theorem 18: the joint rule with liars against its definition, and every order of the nulls."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pooled import (
    Agent,
    by_floor,
    kept_without_floor,
    orders,
    random_network,
    reference_left,
)

from conovel.errors import InputError
from conovel.stats.cells import PooledBlock, most_above
from conovel.stats.grouped import PooledGroup, grouped_cut, shares_of

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def cells_by_definition(groups, level, liars):
    """Try every k from the largest; give the cell of each group, None where there is none."""
    shares = shares_of(groups, level)
    most = sum(g.most for g, share in zip(groups, shares, strict=True) if share)

    def used_by(group, share):
        sizes = [(b.n_test, b.n_calibration, b.n_above) for b in group.blocks if b.takes_part]
        if len(sizes) < 2 or not share:
            return level
        return reference_left(sizes, group.w, level, share, group.n_test, most - group.most)

    used = [used_by(g, share) for g, share in zip(groups, shares, strict=True)]

    def cell_of(group, share, level_used, k):
        for t in range(len(group.blocks[0].test_counts)):
            above = sum(sum(b.calibration_counts[t:]) for b in group.blocks)
            if group.w and group.w * (1 + above) <= level_used * min(share * k, group.n_test):
                return t
        return None

    for k in range(sum(sum(b.test_counts) for g in groups for b in g.blocks), -1, -1):
        cells = [cell_of(*one, k) for one in zip(groups, shares, used, strict=True)]
        total, lies = 0, []
        for group, cell in zip(groups, cells, strict=True):
            claimed = [0 if cell is None else sum(b.test_counts[cell:]) for b in group.blocks]
            total += sum(claimed)
            if sum(b.takes_part for b in group.blocks) > 1:
                claimed = [min(b.n_test, b.n_above) for b in group.blocks]
            lies += claimed
        if max(total - sum(sorted(lies, reverse=True)[:liars]), 0) >= k:
            return cells
    raise AssertionError("k = 0 always holds")


@st.composite
def groups_of_blocks(draw):
    n_cells = draw(st.integers(1, 5))
    counts = st.lists(st.integers(0, 4), min_size=n_cells, max_size=n_cells)
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        several = draw(st.booleans())
        blocks = []
        for _ in range(draw(st.integers(2, 3)) if several else 1):
            tests, known = draw(counts), draw(st.lists(st.integers(0, 1), min_size=n_cells))
            known = (known + [0] * n_cells)[:n_cells]
            size = 2 * (sum(tests) + sum(known)) + draw(st.integers(0, 30))
            blocks.append(PooledBlock(sum(tests) + 1, size, tests, known))
        groups.append(PooledGroup(blocks, HALF if several else None))
    return groups


@settings(max_examples=40)
@given(groups_of_blocks(), st.sampled_from([Fraction(1, 10), THIRD, Fraction(9, 10)]), st.data())
def test_the_rule_equals_its_definition(groups, level, data):
    n_agents = sum(len(group.blocks) for group in groups)
    liars = data.draw(st.integers(0, n_agents - 1))
    found = grouped_cut(groups, level, liars)
    for group, outcome, cell in zip(
        groups, found, cells_by_definition(groups, level, liars), strict=True
    ):
        above = 0 if cell is None else sum(sum(b.test_counts[cell:]) for b in group.blocks)
        assert outcome.n_rejected == above
    if liars == 0:
        assert found == grouped_cut(groups, level)


def test_as_many_liars_as_agents_are_refused():
    group = PooledGroup([PooledBlock(1, 9, [1], [0])] * 2, HALF)
    with pytest.raises(InputError, match="liars must be smaller than the number of agents, 2"):
        grouped_cut([group], HALF, 2)


# Every order of small networks --------------------------------------------------------------


def honest_fdr(agents, liars, level, x, tolerated, *, alone=False):
    """FDR over the rows of honest agents; a liar claims all it may, in the highest cell.

    `liars` are (tests, calibration rows). With `alone`, each liar is a group by itself.
    """
    n_cells = 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))
    empty = [0] * (n_cells - 1)
    claims = [
        PooledBlock(m, size, [*empty, m if alone else min(m, most_above(size, x))], [*empty, 0])
        for m, size in liars
    ]
    keep = by_floor if len(agents) > 1 or not alone else kept_without_floor
    fdr = Fraction(0)
    for combination in itertools.product(*(orders(a, keep, x, n_cells) for a in agents)):
        blocks = [b for b, *_ in combination]
        groups = [PooledGroup(blocks + ([] if alone else claims), x)]
        groups += [PooledGroup([claim]) for claim in claims if alone]
        cell = grouped_cut(groups, level, tolerated)[0].cell
        if cell is not None:
            false = sum(from_cell[cell] for _, from_cell, _ in combination)
            rejected = sum(sum(b.test_counts[cell:]) for b in blocks)
            fdr += math.prod(p for *_, p in combination) * Fraction(false, max(rejected, 1))
    return fdr


def cases(seed, number):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        agents = random_network(rng, most_orders=150)
        liars = [(int(rng.integers(1, 6)), int(rng.integers(1, 9)))]
        x = [Fraction(1, 4), THIRD, HALF][rng.integers(3)]
        yield agents, liars, [THIRD, HALF, Fraction(2, 3)][rng.integers(3)], x


def assert_kept(seed, number):
    found, plain = [], []
    for agents, liars, level, x in cases(seed, number):
        for alone in (False, True):
            found.append(honest_fdr(agents, liars, level, x, 1, alone=alone) / level)
            plain.append(honest_fdr(agents, liars, level, x, 0, alone=alone) / level)
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > number / 10  # the test sees rejections
    assert max(plain) > 1  # without tolerance the same liars break the bound


def test_small_networks_keep_the_level_for_every_order():
    assert_kept(0, 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_many_small_networks_keep_the_level_for_every_order(seed):
    assert_kept(seed, 800)


def test_an_honest_agent_and_a_liar_by_itself_spend_the_whole_level():
    """α(ℓ + 1)/m is whole and the liar has a share: as in Theorem 17, BH over honest rows."""
    agents = [Agent(tuple(range(6)), 5)]
    fdr = honest_fdr(agents, [(1, 5)], HALF, None, 1, alone=True)
    assert 0 < fdr <= HALF

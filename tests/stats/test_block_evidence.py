"""The evidence of blocks (Lemma 12): every order of the nulls of small sites, in fractions."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from support.pooled import Agent, by_floor, kept_without_floor, orders, random_network

from conovel.stats.batches import Batch, final_by_evidence, list_by_evidence
from conovel.stats.cells import PooledBlock
from conovel.stats.evidence import e_bh
from conovel.stats.grouped import PooledGroup, grouped_cut

HALF = Fraction(1, 2)


def by_lemma(outcome, group, m, level):
    return outcome.evidence(m, level)


def without_room(outcome, group, m, level):
    """INVALID: as if x were zero."""
    return outcome.evidence(m, level) * level / outcome.level_used


def without_one(outcome, group, m, level):
    """INVALID: C in the place of 1 + C."""
    c = max(outcome.n_calibration_above, 1)
    return outcome.evidence(m, level) * (1 + outcome.n_calibration_above) / c


def by_smallest_weight(outcome, group, m, level):
    """INVALID: the smallest m_j/(ℓ_j + 1) of the group in the place of the largest."""
    w = min(Fraction(b.n_test, b.n_calibration + 1) for b in group.blocks if b.takes_part)
    return outcome.evidence(m, level) * outcome.weight / w


def decided(groups, level, xs, most=None):
    """Decide for every order: its probability, the groups, their outcomes, and false rows."""
    agents = [agent for group in groups for agent in group]
    owners = [g for g, group in enumerate(groups) for _ in group]
    n_cells = 1 + max(s for agent in agents for s in (*agent.nulls, *agent.novel))
    choices = [
        orders(agent, kept_without_floor if xs[g] is None else by_floor, xs[g], n_cells)
        for agent, g in zip(agents, owners, strict=True)
    ]
    for combination in itertools.product(*choices):
        parts = [
            [one for one, o in zip(combination, owners, strict=True) if o == g]
            for g in range(len(groups))
        ]
        made = [PooledGroup([b for b, *_ in own], x) for own, x in zip(parts, xs, strict=True)]
        outcomes = grouped_cut(made, level, most=most)
        false = [
            0 if one.cell is None else sum(from_cell[one.cell] for _, from_cell, _ in own)
            for one, own in zip(outcomes, parts, strict=True)
        ]
        yield math.prod(p for *_, p in combination), made, outcomes, false


def n_tests(groups):
    return sum(agent.n_test for group in groups for agent in group)


def mean_evidence(groups, level, xs, most=None, value=by_lemma):
    """Return the expected sum of the nulls' e-values, divided by the number of tests."""
    m = n_tests(groups)
    return sum(
        probability * n_false * value(outcome, group, m, level)
        for probability, made, outcomes, false in decided(groups, level, xs, most)
        for group, outcome, n_false in zip(made, outcomes, false, strict=True)
        if n_false
    ) / Fraction(m)


def cases(seed, number):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        agents = [one for one in random_network(rng, most_orders=120) if one.n_test]
        x = Fraction(1, int(rng.integers(2, 5)))
        cut = len(agents) - 1 if rng.random() < HALF else 0
        groups = [[one] for one in agents[:cut]] + [agents[cut:]]
        level = Fraction(int(rng.integers(2, 10)), 10)
        yield groups, level, [None] * cut + [x], [None, 1, 2][rng.integers(3)]


def test_small_sites_have_compound_e_values_for_every_order():
    found = [mean_evidence(*case) for case in cases(0, 150)]
    assert max(found) == 1  # in some
    assert sum(one > 0 for one in found) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_small_sites_have_compound_e_values(seed):
    assert max(mean_evidence(*case) for case in cases(seed, 600)) <= 1


def test_one_block_by_itself_attains_the_bound():
    # α(ℓ + 1)/m is a whole number: the evidence is (ℓ + 1)/L, as in Lemma 10
    alone = [[Agent((0, 1, 2, 3), 3)]]
    assert mean_evidence(alone, HALF, [None]) == 1


def one_row_each(n_agents, size):
    """One null test at each agent, and one row above each floor."""
    below = (0,) * size
    return [[Agent((*below, cell + 1), size) for cell in range(n_agents)]]


def test_evidence_of_several_blocks_comes_close_to_the_bound():
    level = HALF / (1 - Fraction(1, 3))
    values = [mean_evidence(one_row_each(n, 2), level, [Fraction(1, 3)]) for n in (2, 3, 5)]
    assert values == [1 - Fraction(1, 3) ** n for n in (2, 3, 5)]


@pytest.mark.parametrize("wrong", [without_room, without_one, by_smallest_weight])
def test_evidence_that_is_too_large_is_caught(wrong):
    hardest = one_row_each(5, 2), Fraction(3, 4), [Fraction(1, 3)]
    found = [mean_evidence(*case, value=wrong) for case in (*cases(0, 150), hardest)]
    assert max(found) > 1


def test_evidence_is_not_smaller_than_that_of_rejections():
    n_seen = 0
    for groups, level, xs, _ in cases(3, 40):
        for _, _, outcomes, _ in decided(groups, level, xs):
            k, m = sum(one.n_rejected for one in outcomes), n_tests(groups)
            values = [one.evidence(m, level) for one in outcomes if one.n_rejected]
            assert all(level * k * value >= m for value in values)
            n_seen += len(values)
    assert n_seen > 100


def test_more_rejections_than_the_limit_do_not_lower_evidence():
    """Twenty novelties above all: without a limit the rule lets many calibration rows in."""
    nulls, novel = tuple(range(60)), tuple(range(60, 80))
    block, *_ = next(orders(Agent(nulls, 59, novel), kept_without_floor, None, 80))
    groups = [PooledGroup([block], None)]
    [free], [limited] = (grouped_cut(groups, HALF, most=most) for most in (None, 4))
    assert limited.evidence(21, HALF) > 3 * free.evidence(21, HALF) > 0
    assert limited.n_rejected >= 20


def test_a_limit_leaves_each_group_what_one_calibration_row_needs():
    """A limit of zero rejections does not forbid the first ones."""
    block, *_ = next(orders(Agent(tuple(range(30)), 29, (40, 41)), kept_without_floor, None, 42))
    groups = [PooledGroup([block], None)]
    [limited], [free] = (grouped_cut(groups, HALF, most=most) for most in (0, None))
    assert 2 <= limited.n_rejected <= free.n_rejected
    assert 1 <= limited.n_calibration_above < free.n_calibration_above


def reference_limit(block, level, most):
    """Lemma 12 for one block by its definition: try every k, from the largest."""
    w = Fraction(block.n_test, block.n_calibration + 1)
    most = max(most, math.ceil(2 * w / level))
    cells = range(len(block.test_counts))
    for k in range(block.n_test, -1, -1):
        right = level * min(k, most)
        fits = (t for t in cells if w * (1 + sum(block.calibration_counts[t:])) <= right)
        n_rejected = sum(block.test_counts[next(fits, len(cells)) :])
        if n_rejected >= k:
            return n_rejected
    raise AssertionError("k = 0 always holds")


def test_the_limit_is_part_of_the_rule():
    rng, n_fewer = np.random.default_rng(1), 0
    for _ in range(200):
        tests, known = rng.integers(0, 5, size=(2, 12))
        block = PooledBlock(int(tests.sum()), int(known.sum()) + 9, tests, known)
        if not block.n_test:
            continue
        most = int(rng.integers(1, 12))
        for level in (HALF, Fraction(9, 10)):
            [found] = grouped_cut([PooledGroup([block], None)], level, most=most)
            assert found.n_rejected == reference_limit(block, level, most)
            n_fewer += 0 < found.n_rejected < most
    assert n_fewer > 5


@pytest.mark.parametrize(("n_before", "limit"), [(1, 0), (2, 1), (7, 1), (8, 2)])
def test_final_decisions_take_the_most_rows_whose_evidence_is_enough(n_before, limit):
    """Ten rows, level 1/2: E >= 20/(n + k) for three rows of 4, or these and one of 5/3."""
    ranks = np.array([1, 1, 1, 2, 3, 3, 3, 3, 3, 3])
    batch = Batch.of(ranks, 9, 2, (Fraction(4), Fraction(5, 3), Fraction(0)))
    assert final_by_evidence(batch, n_before, HALF, 1, 1) == limit


def test_a_list_of_batches_with_e_values_is_e_bh_over_all_rows():
    rng = np.random.default_rng(0)
    for _ in range(60):
        batches, rows = [], []
        for _ in range(int(rng.integers(1, 5))):
            values = sorted({Fraction(int(n), 7) for n in rng.integers(1, 400, size=2)})[::-1]
            values = (*values, Fraction(0))
            ranks = rng.integers(1, len(values) + 1, size=12)
            batches.append(Batch.of(ranks, 99, len(values) - 1, values))
            rows += [values[rank - 1] for rank in ranks]
        for level in (Fraction(1, 10), HALF):
            limits = list_by_evidence(batches, level)
            masks = [batch.mask(limit) for batch, limit in zip(batches, limits, strict=True)]
            assert np.concatenate(masks).tolist() == e_bh(rows, level).tolist()

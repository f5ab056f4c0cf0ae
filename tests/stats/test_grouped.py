"""Groups of agents in one step-up: against the definition, its special cases, and the FDR."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pooled import Agent, exact_group_fdr, random_network, reference_groups, reference_left
from support.strategies import levels

from conovel.errors import InputError, SampleError
from conovel.stats.cells import (
    CellHistogram,
    Member,
    PooledBlock,
    Reach,
    common_weight,
    floor_cell,
    level_left,
)
from conovel.stats.grouped import PooledGroup, grouped_cut, pooled_cut, shares_of
from conovel.stats.ranks import conformal_ranks
from conovel.stats.stepup import step_up

exact_levels = levels.map(lambda level: Fraction(str(level)))
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


@st.composite
def grouped_networks(draw):
    """Groups of (calibration cells, test cells) of agents, with x; ties are common."""
    n_cells = draw(st.integers(2, 8))
    anywhere = st.integers(0, n_cells - 1)
    high = st.integers(n_cells // 2, n_cells - 1)
    groups, n_guesses = [], draw(st.integers(0, 2))
    for _ in range(draw(st.integers(1, 4))):
        x = draw(st.sampled_from([None, HALF, THIRD, Fraction(1, 10)]))
        guesses = st.lists(st.integers(0, 12), min_size=n_guesses, max_size=n_guesses)
        expected = draw(guesses) if n_guesses else None
        agents = []
        for _ in range(1 if x is None else draw(st.integers(1, 3))):
            known = draw(st.lists(anywhere, max_size=4)) + [0] * draw(st.integers(0, 40))
            tests = draw(st.lists(anywhere | high | high, min_size=1, max_size=5))
            agents.append((known, tests))
        groups.append((agents, x, expected))
    return groups, n_cells


def pooled(agents, x, expected, n_cells):
    """The group as a network makes it: floors, then histograms above them."""
    blocks = []
    for known, tests in agents:
        counts = [np.bincount(rows, minlength=n_cells) for rows in (tests, known)]
        floor = 0 if x is None else floor_cell(sum(counts), len(known), x)
        above = (np.where(np.arange(n_cells) >= floor, c, 0) for c in counts)
        blocks.append(PooledBlock(len(tests), len(known), *above))
    return PooledGroup(blocks, x, expected=expected)


def cells_in(counts):
    """One score for each row of a histogram over all agents of a group."""
    return np.repeat(np.arange(len(counts[0])), np.sum(counts, axis=0)).tolist()


@given(grouped_networks(), exact_levels)
def test_the_rule_equals_its_definition(network, level):
    groups = [pooled(*group, network[1]) for group in network[0]]
    shares = shares_of(groups, level)
    most = [g.most if share else 0 for g, share in zip(groups, shares, strict=True)]
    scored = []
    for group, share, own in zip(groups, shares, most, strict=True):
        several = group.room is not None and sum(b.takes_part for b in group.blocks) > 1
        taking = [b for b in group.blocks if b.takes_part or group.room is None]
        w = max((Fraction(b.n_test, b.n_calibration + 1) for b in taking), default=0)
        sizes = [(b.n_test, b.n_calibration, b.n_above) for b in taking]
        bounds = share, group.n_test, sum(most) - own
        a = reference_left(sizes, w, level, *bounds) if several else level
        rows = [
            cells_in([getattr(b, f"{kind}_counts") for b in group.blocks])
            for kind in ("calibration", "test")
        ]
        scored.append((*rows, w, a, share, group.n_test))
    cells, rejected = reference_groups(scored, level)
    found = grouped_cut(groups, level)
    assert [outcome.n_rejected for outcome in found] == rejected
    assert [outcome.level_used for outcome in found] == [a for *_, a, _, _ in scored]
    for outcome, cell, (known, tests, *_) in zip(found, cells, scored, strict=True):
        if outcome.n_rejected:  # the same rows: empty cells may lie between
            assert [s >= outcome.cell for s in tests] == [s >= cell for s in tests]
            assert outcome.n_calibration_above == sum(s >= cell for s in known)
        else:
            assert outcome.cell is None


members = st.builds(
    lambda m, size, above: Member(m, size, min(above, size)),
    st.integers(0, 12),
    st.integers(0, 30),
    st.integers(0, 20),
)


@given(
    st.lists(members, min_size=2, max_size=4),
    st.sampled_from([Fraction(1, 10), THIRD, Fraction(9, 10)]),
    st.sampled_from([Fraction(1), HALF, Fraction(1, 7)]),
    st.integers(0, 20),
    st.fractions(1, 2, max_denominator=3),
)
def test_what_is_left_of_the_level_equals_its_definition(agents, level, share, others, more):
    taking = [agent for agent in agents if agent.takes_part]
    w = more * common_weight(agents)
    reach = Reach(sum(a.n_test for a in agents), sum(a.n_above for a in agents), share, others)
    expected = reference_left(taking, w, level, share, reach.n_test, others)
    assert level_left(agents, w, level, reach) == expected


@given(grouped_networks(), exact_levels)
def test_agents_by_themselves_are_benjamini_hochberg_over_all_p_values(network, level):
    agents = [agent for group, *_ in network[0] for agent in group if agent[0]]
    if not agents:
        return
    groups = [pooled([agent], None, None, network[1]) for agent in agents]
    able = [share > 0 for share in shares_of(groups, level)]
    found = grouped_cut(groups, level)
    # Who can never reject does not count as tested.
    blocks = [
        (conformal_ranks(known, tests), len(known))
        for (known, tests), can in zip(agents, able, strict=True)
        if can
    ]
    expected = iter(step_up(blocks, level).rejected) if blocks else iter(())
    for (_, tests), outcome, can in zip(agents, found, able, strict=True):
        mask = next(expected) if can else np.zeros(len(tests), dtype=bool)
        np.testing.assert_array_equal(outcome.rejects(tests, floor=0), mask)


@given(grouped_networks(), exact_levels)
def test_an_agent_by_itself_sends_only_what_can_matter(network, level):
    """Below the lowest cell with 1 + C <= α(ℓ + 1) no row can be rejected, whatever k is."""
    (agents, _, expected), *others = network[0]
    known, tests = agents[0]
    whole = CellHistogram.of(np.array(known, dtype=int), np.array(tests), network[1])
    floor = whole.floor_alone(level)
    sent = whole.above(floor)
    alone = [
        PooledGroup(
            [PooledBlock(len(tests), len(known), h.tests, h.calibration)], expected=expected
        )
        for h in (whole, sent)
    ]
    rest = [pooled(*other, network[1]) for other in others]
    by_all, by_sent = (grouped_cut([group, *rest], level) for group in alone)
    assert by_all[1:] == by_sent[1:]
    np.testing.assert_array_equal(
        by_all[0].rejects(tests, floor=0), by_sent[0].rejects(tests, floor=floor)
    )


@given(grouped_networks(), exact_levels, st.data())
def test_shares_add_up_and_order_does_not_matter(network, level, data):
    groups = [pooled(*group, network[1]) for group in network[0]]
    shares = shares_of(groups, level)
    assert sum(shares) in (0, 1)
    if len(groups[0].guesses) == 1:
        e = sum(g.guesses[0] for g, share in zip(groups, shares, strict=True) if share)
        most = sum(g.most for g, share in zip(groups, shares, strict=True) if share)
        for group, share in zip(groups, shares, strict=True):
            assert share in (0, Fraction(group.guesses[0], max(e, 1)))
            if share:
                used = group.level_used(level, share, most - group.most)
                assert group.w <= used * min(share * most, group.n_test)
    order = data.draw(st.permutations(range(len(groups))))
    outcomes = grouped_cut(groups, level)
    mixed = grouped_cut([groups[i] for i in order], level)
    assert mixed == tuple(outcomes[i] for i in order)


def test_an_agent_that_can_never_reject_takes_nothing_from_the_others():
    many = PooledGroup([PooledBlock(10, 69, [0, 0, 1, 3], [0, 2, 0, 0])] * 2, "1/10")
    hopeless = PooledGroup([PooledBlock(5000, 9, [0, 0, 1, 5], [0, 0, 0, 0])])
    together, by_itself = grouped_cut([many, hopeless], "1/10")
    assert together.n_rejected == 8
    assert together == pooled_cut(many.blocks, "1/10", "1/10")
    assert by_itself.share == 0
    assert by_itself.cell is None
    assert pooled_cut([*many.blocks, *hopeless.blocks], "1/10", "3/4").n_rejected == 0


def test_shares_follow_what_groups_expect():
    """A group with many tests and few likely novelties leaves the level to the others."""
    small = [PooledBlock(10, 69, [0, 0, 1, 3], [0, 2, 0, 0])] * 2
    large = PooledBlock(400, 99, [0, 0, 0, 9], [0, 1, 0, 0])
    by_tests = grouped_cut([PooledGroup(small, "1/10"), PooledGroup([large])], "1/10")
    assert by_tests[0].share == Fraction(20, 420)
    assert by_tests[0].n_rejected == 0
    unlikely = PooledGroup([large], expected=[36])  # w = 4, and α e = 3.6
    hoped = PooledGroup(small, "1/10", expected=[8])
    found = grouped_cut([hoped, unlikely], "1/10")
    assert [outcome.share for outcome in found] == [1, 0]
    assert found[0].n_rejected == 8
    # Where every group needs more than it expects, numbers of rows alone exclude one.
    assert shares_of([unlikely], Fraction(1, 10)) == (1,)
    both = PooledGroup([large], expected=[36, 56]), PooledGroup(small, "1/10", expected=[8, 8])
    assert shares_of(both, Fraction(1, 10)) == (Fraction(7, 16), Fraction(9, 16))
    likely = PooledGroup([large], expected=[56])
    assert shares_of([hoped, likely], Fraction(1, 10)) == (Fraction(1, 8), Fraction(7, 8))


def test_groups_need_the_same_cells_and_x():
    block = PooledBlock(2, 19, [0, 1], [0, 1])
    with pytest.raises(InputError, match="2 agents needs a room"):
        PooledGroup([block, block])
    with pytest.raises(SampleError, match="same cells"):
        grouped_cut([PooledGroup([block]), PooledGroup([PooledBlock(1, 9, [1], [0])])], 0.1)
    with pytest.raises(InputError, match="as many guesses"):
        grouped_cut([PooledGroup([block]), PooledGroup([block], expected=[1, 2])], 0.1)
    with pytest.raises(InputError, match="at least one group"):
        grouped_cut([], 0.1)
    with pytest.raises(SampleError, match="nothing to test"):
        PooledGroup([PooledBlock(0, 9, [0], [1])])


# Every order --------------------------------------------------------------------------------


def group_cases(seed, number, rooms=(HALF, THIRD, Fraction(1, 4))):
    """Small networks of up to three groups, with x, a level and what they expect."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        agents = [a for a in random_network(rng, most_orders=250) if a.n_test]
        while len(agents) < 2:
            agents = [a for a in random_network(rng, most_orders=250) if a.n_test]
        owner = rng.integers(0, 3, size=len(agents))
        groups = [[a for a, o in zip(agents, owner, strict=True) if o == g] for g in range(3)]
        groups = [group for group in groups if group]
        xs = [
            None if len(group) == 1 and rng.random() < 3 / 4 else rooms[rng.integers(len(rooms))]
            for group in groups
        ]
        n_guesses = int(rng.integers(0, 3))
        expected = [rng.integers(0, 5, n_guesses).tolist() if n_guesses else None for _ in groups]
        yield groups, xs, Fraction(int(rng.integers(2, 10)), 10), expected


def by_group_alone(groups, level):
    """INVALID: each group decides at the whole level, and nothing joins them."""
    return tuple(grouped_cut([group], level)[0] for group in groups)


def test_small_networks_of_groups_keep_the_level_for_every_order():
    found = [
        exact_group_fdr(groups, level, xs, expected=expected) / level
        for groups, xs, level, expected in group_cases(0, 250)
    ]
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 80
    assert max(found) > Fraction(3, 4)


LARGE = Fraction(9, 10), Fraction(3, 4), Fraction(3, 5)  # fewer rows matter than there is room for


def test_small_networks_of_groups_with_large_rooms_keep_the_level():
    found = [
        exact_group_fdr(groups, level, xs, expected=expected) / level
        for groups, xs, level, expected in group_cases(1, 150, LARGE)
    ]
    assert max(found) <= 1
    assert sum(r > 0 for r in found) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11))
def test_many_small_networks_of_groups_keep_the_level(seed):
    cases = itertools.chain(group_cases(seed, 2000), group_cases(seed, 500, LARGE))
    assert all(
        exact_group_fdr(groups, level, xs, expected=expected) <= level
        for groups, xs, level, expected in cases
    )


def test_groups_at_the_whole_level_each_are_caught():
    """Two agents of nulls alone: each rejects with probability α, one of them with more."""
    agent = Agent(tuple(range(4)), 3)  # α(ℓ + 1)/m = 1 with α = 1/4
    level = Fraction(1, 4)
    pair = [[agent], [agent]]
    assert exact_group_fdr(pair, level, [None, None], decide=by_group_alone) == Fraction(7, 16)
    assert exact_group_fdr(pair, level, [None, None]) <= level
    assert any(
        exact_group_fdr(groups, level, xs, decide=by_group_alone) > level
        for groups, xs, level, _ in group_cases(0, 120)
        if len(groups) > 1
    )


def test_agents_by_themselves_spend_the_whole_level():
    """BH over two agents with α(ℓ + 1)/m whole: the FDR is α, all rows null (Theorem 3)."""
    pair = [[Agent((0, 2, 4, 6), 3)], [Agent((1, 3, 5, 7), 3)]]
    assert exact_group_fdr(pair, HALF, [None, None]) == HALF


# Simulation ---------------------------------------------------------------------------------

# Groups of (ℓ, tests) of each agent, with x; all rows null, all scores different. One row of a
# group is rejected where no calibration row is above it: a π/w = 1.
DESIGNS = {
    "a pool and one agent": ([([(3, 1)] * 6, Fraction(1, 4)), ([(17, 3)], None)], HALF),
    "two pools": ([([(3, 1)] * 5, Fraction(1, 4)), ([(3, 1)] * 5, Fraction(1, 4))], 2 * THIRD),
    "three agents": ([([(11, 1)], None), ([(23, 2)], None), ([(35, 3)], None)], HALF),
}


def simulated(groups, level, n, seed, decide=grouped_cut):
    """The share of n repetitions with a rejection: the FDR, as all rows are null."""
    rng = np.random.default_rng(seed)
    n_cells = sum(size + m for agents, _ in groups for size, m in agents)
    places = iter(
        np.split(
            rng.permutation(n_cells),
            np.cumsum([size + m for agents, _ in groups for size, m in agents])[:-1],
        )
    )
    layout = []  # cells of each agent's rows, its floor and its numbers
    for agents, x in groups:
        layout.append([])
        for size, m in agents:
            cells = np.sort(next(places))
            counts = np.bincount(cells, minlength=n_cells)
            layout[-1].append((cells, 0 if x is None else floor_cell(counts, size, x), size, m))
    hits = 0
    for _ in range(n):
        drawn = []
        for rows, (_, x) in zip(layout, groups, strict=True):
            blocks = []
            for cells, floor, size, m in rows:
                tests = np.zeros(n_cells, dtype=np.int64)
                tests[rng.choice(cells, m, replace=False)] = 1
                known = np.zeros(n_cells, dtype=np.int64)
                known[cells] = 1 - tests[cells]
                tests[:floor] = known[:floor] = 0
                blocks.append(PooledBlock(m, size, tests, known))
            drawn.append(PooledGroup(blocks, x))
        hits += any(outcome.n_rejected for outcome in decide(drawn, level))
    return hits / n


def error(level, n):
    return math.sqrt(float(level * (1 - level)) / n)


@pytest.mark.parametrize(
    ("name", "n"),
    [("a pool and one agent", 1000)]
    + [pytest.param(name, 4000, marks=pytest.mark.slow) for name in DESIGNS],
)
def test_simulated_rates_keep_the_level(name, n):
    groups, level = DESIGNS[name]
    rate = simulated(groups, level, n, seed=0)
    assert 0.85 * level < rate <= level + 3 * error(level, n)


def test_simulation_catches_groups_at_the_whole_level():
    groups, level = DESIGNS["three agents"]
    rate = simulated(groups, level, 1000, seed=1, decide=by_group_alone)
    assert rate > level + 10 * error(level, 1000)


def test_one_group_is_the_rule_of_one_calibration():
    block = PooledBlock(10, 69, [0, 0, 1, 3], [0, 2, 0, 0])
    for level, x in itertools.product(("1/10", "1/5", "1/2"), ("1/10", "1/5")):
        assert grouped_cut([PooledGroup([block] * 3, x)], level) == (
            pooled_cut([block] * 3, level, x),
        )


def test_liars_are_subtracted_in_a_group_of_all_agents():
    blocks = [PooledBlock(10, 69, [0, 0, 1, 3], [0, 2, 0, 0])] * 4
    honest, suspicious = (pooled_cut(blocks, "1/10", "1/10", liars=n) for n in (0, 3))
    assert honest.n_rejected > suspicious.n_rejected
    [same] = grouped_cut([PooledGroup(blocks, "1/10")], "1/10", 3)
    assert suspicious == same


def test_an_outcome_without_rejections_answers_for_every_row():
    none = pooled_cut([PooledBlock(5, 9, [0, 1], [0, 0])] * 2, "1/100", "1/10")
    assert none.cell is None
    rejected = none.rejects([0, 1, 1], floor=0)
    assert rejected.dtype == np.bool_
    assert rejected.tolist() == [False] * 3

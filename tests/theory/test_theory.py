"""Claims and figures of docs/theory.md that no other test holds, mostly by exact enumeration."""

import itertools
import math
import re
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from support.exact_fdr import FAR, Site, outcomes
from support.paths import DOCS

from conovel.deciding.asking import CountCheck, Counting, Step, limit_of
from conovel.deciding.cell_groups import Group
from conovel.deciding.cells import decide_groups
from conovel.errors import InputError, SampleError
from conovel.experiments.gaussian import centres, novelty_centre
from conovel.spec.bodies import Ready
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS, PooledBlock
from conovel.stats.null_proportion import Quantile, Storey
from conovel.stats.ranks import conformal_ranks
from conovel.stats.resolution import rank_limit

THEORY = (DOCS / "theory.md").read_text(encoding="utf-8")


def test_every_assumption_is_defined():
    words = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", THEORY, flags=re.DOTALL)
    used = set(re.findall(r"\(([A-Z])\)", words))
    defined = set(re.findall(r"(?:\*\*|Assumption )\(([A-Z])(?:\)| )", words))
    assert used == defined == {"E", "I", "P", "S", "T", "W"}


def descend(blocks, level, m, gone_from):
    """FastLSU in which the agents of `gone_from` count zero from their round on.

    Returns k and the agents that were gone when it stopped.
    """
    k = m
    for turn in itertools.count():
        gone = {j for j, start in gone_from.items() if start <= turn}
        counts = [
            0 if j in gone else int(np.count_nonzero(ranks <= rank_limit(level / m, k, size)))
            for j, (ranks, size) in enumerate(blocks)
        ]
        if sum(counts) == k:
            return k, gone
        k = sum(counts)


def false_share(blocks, sites, level, m, gone=frozenset()):
    """False discovery proportion when the agents in `gone` are set to zero, m as given."""
    k, _ = descend(blocks, level, m, dict.fromkeys(gone, 0))
    false = sum(
        int(np.count_nonzero(ranks[: site.n_null] <= rank_limit(level / m, k, size)))
        for j, ((ranks, size), site) in enumerate(zip(blocks, sites, strict=True))
        if j not in gone
    )
    return Fraction(false, max(k, 1))


def n_tests(*sites):
    return sum(site.n_null + len(site.novel) for site in sites)


# Theorem 8: dropouts -----------------------------------------------------------------------


@given(st.data())
def test_when_an_agent_dropped_out_does_not_matter(data):
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=2, max_size=4))
    blocks = [
        (np.array(data.draw(st.lists(st.integers(1, size + 1), min_size=1, max_size=12))), size)
        for size in sizes
    ]
    gone_from = data.draw(
        st.dictionaries(st.integers(0, len(blocks) - 1), st.integers(0, 4), max_size=len(blocks))
    )
    level, m = Fraction(1, 3), sum(ranks.size for ranks, _ in blocks)
    k, gone = descend(blocks, level, m, gone_from)
    assert descend(blocks, level, m, dict.fromkeys(gone, 0))[0] == k


# α(ℓ+1)/m is 1 at both agents, so that the bound is attained.
STAYS, FICKLE, LEVEL = Site(5, 2), Site(5, 1, (FAR,)), Fraction(2, 3)
BOUND = LEVEL * 3 / 4


def worst_fdr(stays, fickle, *, sees_all=False, left_out=False):
    """FDR when the second agent drops out by the rule that hurts most.

    The rule sees its own ranks, or everybody's. Left out, its rows no longer count in m.
    """
    sites, m = (stays, fickle), n_tests(stays, fickle)
    m_without = n_tests(stays) if left_out else m
    total = Fraction(0)
    for own, p in outcomes(fickle):
        shares = []
        for others, q in outcomes(stays):
            blocks = [(others, stays.n_calibration), (own, fickle.n_calibration)]
            there = false_share(blocks, sites, LEVEL, m)
            gone = false_share(blocks, sites, LEVEL, m_without, gone={1})
            shares.append((q * there, q * gone))
        if sees_all:
            total += p * sum(map(max, shares))
        else:
            total += p * max(map(sum, zip(*shares, strict=True)))
    return total


def test_an_agent_set_to_zero_may_have_looked_at_its_own_ranks():
    assert worst_fdr(STAYS, FICKLE) == BOUND


def test_set_to_zero_after_seeing_the_totals_only_the_union_bound_is_left():
    assert BOUND < worst_fdr(STAYS, FICKLE, sees_all=True) <= 2 * BOUND


def test_an_agent_left_out_must_not_have_looked_at_its_ranks():
    only_nulls = Site(5, 2), Site(5, 2)
    assert worst_fdr(*only_nulls) <= LEVEL < worst_fdr(*only_nulls, left_out=True)


# `joint`: a lost agent would take its calibration rows with it --------------------------------


def joint_fdr(n_agents, level, *, lost_by_own_counts):
    """FDR of `joint` where all rows are null, as the coordinator decides. In fractions.

    Every agent has nine calibration rows, one test and one row above its floor, which is the test
    with probability 1/10. The agents may be lost where it is a calibration row.
    """
    names, cells = [f"{j:02d}" for j in range(n_agents)], np.zeros(N_CELLS, dtype=int)
    ready, x = dict.fromkeys(names, Ready(1, 9, 1)), Fraction(1, 10)
    top = cells.copy()
    top[-1] = 1
    rooms, groups = dict.fromkeys(names, x), [Group(tuple(names), x)]
    fdr = Fraction(0)
    for r in range(n_agents + 1):  # agents whose row above the floor is the test
        tests, others = names[:r], [] if lost_by_own_counts else names[r:]
        blocks = {name: PooledBlock(1, 9, top, cells) for name in tests}
        blocks |= {name: PooledBlock(1, 9, cells, top) for name in others}
        found = decide_groups(groups, blocks, rooms, ready, level) if blocks else ()
        if any(group.outcome.n_rejected for group in found):
            fdr += math.comb(n_agents, r) * x**r * (1 - x) ** (n_agents - r)
    return fdr


def test_agents_lost_by_their_own_counts_break_joint():
    level = Fraction(1, 5)
    assert 0 < joint_fdr(12, level, lost_by_own_counts=False) <= level
    broken = joint_fdr(12, level, lost_by_own_counts=True)
    assert broken == 1 - Fraction(9, 10) ** 12 > Fraction(7, 10)


@pytest.mark.parametrize(
    "settings",
    [
        {"regime": "joint"},
        {"regime": "joint", "counting": "committed"},
        {"regime": "joint", "liars": 1},
        {"regime": "consensus"},
        {"regime": "full", "liars": 1},
    ],
)
def test_so_who_is_lost_ends_the_run_wherever_theorem_8_does_not_hold(settings):
    with pytest.raises(InputError, match="leave on_dropout at 'abort'"):
        RunSpec.of(on_dropout="conservative", **settings)


# Theorem 9: dropouts while the nulls are estimated -------------------------------------------


def count_with_losses(blocks, level, estimator, gone_from):
    """Answer the coordinator's questions, zero for an agent from its round on.

    Returns the slope and the largest rejected rank of each agent; (0, None) without an answer.
    """
    tallies = [CountCheck(str(j), len(ranks), size) for j, (ranks, size) in enumerate(blocks)]
    try:
        counting = Counting(level, tallies, estimator)
        for turn in itertools.count():
            question = counting.question
            if question is None:
                break
            counting.answer(
                [
                    0
                    if gone_from.get(j, turn + 1) <= turn
                    else int(np.count_nonzero(ranks <= limit_of(question, size)))
                    for j, (ranks, size) in enumerate(blocks)
                ]
            )
    except SampleError:  # the quantile estimator has no answer: the run is broken off
        return Fraction(0), None
    last = Step(counting.k, counting.slope)
    gone = gone_from.keys()
    return counting.slope, [
        0 if j in gone else limit_of(last, size) for j, (_, size) in enumerate(blocks)
    ]


@given(
    st.sampled_from([Storey("1/2"), Storey("1/5"), Quantile("1/2"), Quantile("1/5")]), st.data()
)
def test_a_loss_or_a_larger_p_value_never_lowers_the_estimate(estimator, data):
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=2, max_size=4))
    blocks = [
        (np.array(data.draw(st.lists(st.integers(1, size + 1), min_size=1, max_size=12))), size)
        for size in sizes
    ]
    rounds = st.dictionaries(st.integers(0, len(blocks) - 1), st.integers(0, 6), max_size=3)
    gone_from = data.draw(rounds)
    level = Fraction(1, 3)
    slope, _ = count_with_losses(blocks, level, estimator, gone_from)
    assert slope <= count_with_losses(blocks, level, estimator, {})[0]
    j = data.draw(st.integers(0, len(blocks) - 1))
    ranks, size = blocks[j]
    larger = ranks.copy()
    i = data.draw(st.integers(0, ranks.size - 1))
    larger[i] = data.draw(st.integers(int(ranks[i]), size + 1))
    raised = [*blocks[:j], (larger, size), *blocks[j + 1 :]]
    assert count_with_losses(raised, level, estimator, gone_from)[0] <= slope


def worst_adaptive_fdr(sites, level, estimator, *, sees_all=False):
    """FDR when the second of two agents is lost by the rule that hurts most, or stays.

    It may be lost in each of the first rounds of the estimate, or after it.
    """
    stays, fickle = sites
    total = Fraction(0)
    for own, p in outcomes(fickle):
        shares = []
        for others, q in outcomes(stays):
            blocks = [(others, stays.n_calibration), (own, fickle.n_calibration)]
            row = []
            for gone_from in ({}, *({1: turn} for turn in range(5))):
                _, limits = count_with_losses(blocks, level, estimator, gone_from)
                masks = [r <= t for (r, _), t in zip(blocks, limits or (0, 0), strict=True)]
                false = sum(int(m[: s.n_null].sum()) for m, s in zip(masks, sites, strict=True))
                row.append(q * Fraction(false, max(sum(int(m.sum()) for m in masks), 1)))
            shares.append(row)
        if sees_all:
            total += p * sum(map(max, shares))
        else:
            total += p * max(map(sum, zip(*shares, strict=True)))
    return total


ADAPTIVE = [
    (Site(5, 2), Site(5, 1, (FAR,))),
    (Site(5, 2), Site(5, 2)),
    (Site(6, 2, (FAR,)), Site(3, 1, (FAR, FAR))),
]


@pytest.mark.parametrize("sites", ADAPTIVE)
@pytest.mark.parametrize("level", ["1/3", pytest.param("2/3", marks=pytest.mark.slow), "9/10"])
@pytest.mark.parametrize("at", ["1/5", "1/2"])
def test_storey_holds_whenever_an_agent_is_lost(sites, level, at):
    level = Fraction(level)
    m = n_tests(*sites)
    assert worst_adaptive_fdr(sites, level, Storey(at)) <= level
    harmonic = sum(Fraction(1, k) for k in range(1, m + 1))
    assert worst_adaptive_fdr(sites, level, Storey(at), sees_all=True) <= level * harmonic


# Lemma 8: running again ------------------------------------------------------------------------


@pytest.mark.parametrize(("second_seed", "factor"), [("the same", 1), ("another", 2)])
def test_a_second_attempt_with_another_seed_doubles_the_rate(second_seed, factor):
    n_calibration, level = 9, Fraction(1, 10)
    limit = rank_limit(level, 1, n_calibration)  # one test row, m = 1
    rate = Fraction(0)
    for place in range(n_calibration + 1):  # of the null test row among all rows
        first = np.arange(n_calibration + 1.0)
        attempts = first, first if second_seed == "the same" else -first
        # An attempt that rejects nothing is broken off by whoever is displeased with it.
        rejected = any(
            conformal_ranks(np.delete(scores, place), scores[[place]])[0] <= limit
            for scores in attempts
        )
        rate += Fraction(int(rejected), n_calibration + 1)
    assert rate == factor * level


def test_independence_of_the_data_alone_is_not_enough_to_run_again():
    """Lemma 8(c): one null test, one calibration row, and a seed that turns the order around.

    Which attempt is published says nothing about the rows, and all about rows and seed together.
    """
    level, rate, published_first = Fraction(1, 2), Fraction(0), {}
    for test, seed in itertools.product((0.0, 1.0), (1, -1)):  # the test row is smaller or larger
        scores = np.array([1.0 - test, test])
        ranks = [
            conformal_ranks(turn * scores[:1], turn * scores[1:])[0] for turn in (seed, -seed)
        ]
        rejected = [int(rank <= rank_limit(level, 1, 1)) for rank in ranks]
        first = bool(rejected[0])  # an attempt that rejects nothing is broken off
        published_first.setdefault(test, []).append(first)
        rate += Fraction(rejected[0] if first else rejected[1], 4)
    assert [sum(one) for one in published_first.values()] == [1, 1]  # whatever the rows are
    assert rate == 1 > level


# Proposition 4: hostile counts ---------------------------------------------------------------


def test_a_hostile_count_breaks_the_honest_rate_but_not_the_claimed_one():
    honest, level, claim = Site(9, 4), Fraction(1, 2), 6
    m = honest.n_null + claim
    claimed = share = Fraction(0)
    liar = (np.ones(claim, dtype=int), 999)  # all its rows, whatever k
    for ranks, p in outcomes(honest):
        false = descend([(ranks, honest.n_calibration), liar], level, m, {})[0] - claim
        claimed += p * Fraction(false, false + claim)
        share += p * (false > 0)
    assert claimed <= level * honest.n_null / m
    assert share > level


# Section 4: ties destroy PRDS ----------------------------------------------------------------


def test_ties_destroy_prds():
    last = {Fraction(2, 3): [], Fraction(1): []}
    for scores in set(itertools.permutations("bbaa")):
        numbers = [float(score == "b") for score in scores]
        ranks = conformal_ranks(numbers[:2], numbers[2:])
        if ranks[0] > 1:
            last[Fraction(int(ranks[0]), 3)].append(ranks[1] == 3)
    assert np.mean(last[Fraction(2, 3)]) == 1
    assert np.mean(last[Fraction(1)]) == pytest.approx(1 / 3)


# Sections 11 and 12: figures -------------------------------------------------------------------


def table_after(heading):
    """Rows of the first table after a heading of the page, as lists of cells."""
    tail = THEORY[THEORY.index(heading) :]
    lines = re.search(r"(?:^\|.*\n)+", tail, re.M)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def limits(delta, share=0.09, novel=0.1):
    """Powers of Proposition 5: one p-value threshold, and one likelihood-ratio threshold."""
    normal = NormalDist()
    d = np.linalg.norm(novelty_centre() - centres(delta), axis=1)

    def by_pvalue(log_t):
        cut = -normal.inv_cdf(np.exp(log_t))
        return np.exp(log_t), np.mean([normal.cdf(x - cut) for x in d])

    def by_ratio(log_ratio):
        cuts = log_ratio / d + d / 2
        return np.mean([normal.cdf(-c) for c in cuts]), np.mean(
            [normal.cdf(x - c) for x, c in zip(d, cuts, strict=True)]
        )

    def solve(rates, low, high):
        def excess(at):
            size, power = rates(at)
            false = (1 - novel) * size
            return false / (false + novel * power) - share

        return rates(brentq(excess, low, high))[1]

    return d, solve(by_pvalue, -20, -0.5), solve(by_ratio, -20, 30)


def test_the_table_of_limits():
    rows = table_after("## 11.")
    assert [float(row[0]) for row in rows] == [0, 0.5, 1, 2, 3, 4]
    for delta, distances, one, any_ranking, _ in rows:
        d, by_pvalue, by_ratio = limits(float(delta))
        assert distances == f"{d[0]:.3f}, {d[1]:.3f}"
        assert (one, any_ranking) == (f"{by_pvalue:.4f}", f"{by_ratio:.4f}")


def test_the_published_communication_follows_the_formula():
    bits = np.array([64, 6, 4, 2, 1])
    rows = [[float(cell) for cell in row[1:]] for row in table_after("## 12.")]
    for published, formula, per in zip(rows[::2], rows[1::2], (23.77, 236.2), strict=True):
        assert formula == pytest.approx(per * (bits + 2.33), rel=1e-3)
        assert published == pytest.approx(formula, rel=6e-3)

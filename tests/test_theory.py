"""Claims and figures of docs/theory.md that no other test holds, mostly by exact enumeration."""

import itertools
import re
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from test_exact_fdr import FAR, Site, outcomes

from conovel.experiments.gaussian import centres, novelty_centre
from conovel.ranks import conformal_ranks
from conovel.stepup import rank_limit

THEORY = (Path(__file__).parents[1] / "docs" / "theory.md").read_text(encoding="utf-8")


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

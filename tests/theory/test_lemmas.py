"""Lemmas of docs/theory.md that are about probability alone, by exact enumeration."""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.stats.ranks import conformal_ranks


def urn(n):
    """Every draw of n balls from Pólya's urn, which is exchangeable and not independent."""
    law = {(): Fraction(1)}
    for drawn in range(n):
        law = {
            (*past, colour): chance * Fraction(1 + past.count(colour), 2 + drawn)
            for past, chance in law.items()
            for colour in (0, 1)
        }
    return law


def test_given_the_multiset_every_order_is_equally_likely():
    """Lemma 1, for one agent with five rows."""
    by_multiset = defaultdict(list)
    for rows, chance in urn(5).items():
        by_multiset[tuple(sorted(rows))].append(chance)
    for chances in by_multiset.values():
        assert len(set(chances)) == 1


@st.composite
def super_uniform(draw):
    """A law on {1/n, ..., 1} with Pr(p <= u) <= u, as chances in units of 1/n."""
    n = draw(st.integers(1, 8))
    chances, moved = [], 0
    for _ in range(n - 1):  # a unit of chance may move to a larger value, never to a smaller one
        stays = draw(st.integers(0, 1 + moved))
        chances.append(stays)
        moved += 1 - stays
    return [*chances, 1 + moved]


@given(super_uniform(), st.data())
def test_the_step_up_lemma(chances, data):
    """Lemma 3: E[1{p <= c R(p)}/R(p)] <= c for every nonincreasing R."""
    n = len(chances)
    numbers = data.draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    c = data.draw(st.fractions(0, 1, max_denominator=12))
    r = sorted(numbers, reverse=True)
    values = [Fraction(i + 1, n) for i in range(n)]
    taken = [i for i in range(n) if r[i] and values[i] <= c * r[i]]
    assert sum(Fraction(chances[i], n * r[i]) for i in taken) <= c


def test_the_step_up_lemma_needs_a_count_that_does_not_rise():
    values, r, c = [Fraction(1, 2), Fraction(1)], [1, 2], Fraction(1, 2)
    taken = [i for i in range(2) if values[i] <= c * r[i]]
    assert sum(Fraction(1, 2 * r[i]) for i in taken) > c


def p_values(n_calibration, n_test):
    """The ranks of null tests without ties, each order equally likely."""
    law = Counter()
    for order in itertools.permutations(range(n_calibration + n_test)):
        ranks = conformal_ranks(order[:n_calibration], order[n_calibration:])
        law[tuple(ranks.tolist())] += 1
    return law


def rises(law, coordinate, is_in):
    """Whether Pr(P in D | P_i = x) is nondecreasing in x."""
    inside, every = Counter(), Counter()
    for vector, weight in law.items():
        every[vector[coordinate]] += weight
        inside[vector[coordinate]] += weight * is_in(vector)
    shares = [Fraction(inside[x], every[x]) for x in sorted(every)]
    return shares == sorted(shares)


def increasing_sets(law):
    """Every increasing set that two of its least elements generate."""
    for least in itertools.combinations_with_replacement(law, 2):
        yield lambda v, least=least: any(
            all(a >= b for a, b in zip(v, one, strict=True)) for one in least
        )


@pytest.mark.parametrize("sites", [[(3, 2)], [(1, 2), (2, 1)], [(2, 2), (1, 1)]])
def test_ranks_without_ties_are_positively_dependent_also_of_several_agents(sites):
    """Proposition 1 for each agent, and Lemma 5 for several."""
    law = Counter()
    for parts in itertools.product(*(p_values(*site).items() for site in sites)):
        weight = 1
        for _, times in parts:
            weight *= times
        law[tuple(itertools.chain(*(ranks for ranks, _ in parts)))] += weight
    n = sum(m for _, m in sites)
    assert all(rises(law, i, is_in) for i in range(n) for is_in in increasing_sets(law))


def test_negative_dependence_is_noticed():
    law = Counter({(1, 2): 1, (2, 1): 1})
    assert not all(rises(law, 0, is_in) for is_in in increasing_sets(law))

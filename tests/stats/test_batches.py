"""Batches over time: each rule against its definition, and its bound for every order of nulls."""

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exact_fdr import FAR, Site, outcomes

from conovel.stats.batches import (
    Batch,
    evidence_limit,
    final_by_evidence,
    final_by_ranks,
    largest_listed_rank,
    level_share,
    list_by_evidence,
    list_by_ranks,
)
from conovel.stats.evidence import e_bh
from conovel.stats.stepup import benjamini_hochberg

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


@st.composite
def several_batches(draw, one_size=True):
    """Ranks of up to four batches, many of them small, and a level."""
    sizes = draw(st.lists(st.integers(9, 400), min_size=4, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = []
    n_batches = draw(st.integers(1, 4))
    for size in [sizes[0]] * n_batches if one_size else sizes[:n_batches]:
        m = draw(st.integers(1, 12))
        small = rng.integers(1, max(2, size // 20), size=m)
        ranks = np.where(rng.random(m) < 0.6, small, rng.integers(1, size + 2, size=m))
        found.append((ranks, size))
    return found, Fraction(draw(st.integers(1, 19)), 20)


def held(batches, level):
    return [Batch.of(r, size, largest_listed_rank(level, size)) for r, size in batches]


def masks(batches, limits):
    return np.concatenate([b.mask(limit) for b, limit in zip(batches, limits, strict=True)])


@given(several_batches())
def test_the_list_so_far_is_bh_on_all_rows(drawn):
    batches, level = drawn
    some = held(batches, level)  # the ranks that are not held never matter
    ranks, size = np.concatenate([r for r, _ in batches]), batches[0][1]
    expected = benjamini_hochberg(ranks, size, level)
    assert np.array_equal(masks(some, list_by_ranks(some, level)), expected)


@given(several_batches(one_size=False))
def test_the_list_by_evidence_is_e_bh_on_all_rows(drawn):
    batches, level = drawn
    e_values = []
    for ranks, size in batches:
        limit = evidence_by_definition(ranks, size, level / 2, Fraction(1, 20))
        e_values += [Fraction(size + 1, limit) * int(r <= limit) for r in ranks.tolist()]
    some = held(batches, level)
    assert np.array_equal(masks(some, list_by_evidence(some, level)), e_bh(e_values, level))


def evidence_by_definition(ranks, size, level, most):
    """Return f(k) for the largest k that has as many ranks."""
    m = len(ranks)
    for k in range(m, -1, -1):
        limit = max(1, int(level * (size + 1) * min(Fraction(k, m), most)))
        if np.count_nonzero(ranks <= limit) >= k:
            return limit
    raise AssertionError


@given(several_batches(), st.integers(0, 40))
def test_final_decisions_follow_from_their_definition(drawn, before):
    batches, level = drawn
    for t, (ranks, size) in enumerate(batches, 1):
        share, m = level_share(t, 6), len(ranks)
        batch = Batch.of(ranks, size, size + 1)

        def limit_of(k, slope=level * share / m, size=size, before=before):
            return int(slope * (before + k) * (size + 1))

        k = max(k for k in range(m + 1) if np.count_nonzero(ranks <= limit_of(k)) >= k)
        expected = ranks <= limit_of(k) if k else np.zeros(m, dtype=bool)
        assert np.array_equal(batch.mask(final_by_ranks(batch, before, level, t, 6)), expected)
        beta = level * share * max(Fraction(1), Fraction(t, 2))
        limit = evidence_by_definition(ranks, size, beta, Fraction(1, 10))
        n_rejected = before + np.count_nonzero(ranks <= limit)
        flagged = Fraction(size + 1, limit) * level * share * n_rejected >= m
        flagged = flagged and (ranks <= limit).any()
        assert final_by_evidence(batch, before, level, t, 6) == (limit if flagged else 0)
        before += int(expected.sum())


@pytest.mark.parametrize("n_batches", [1, 2, 7, 30])
def test_shares_of_the_level_add_up_to_one(n_batches):
    shares = [level_share(t, n_batches) for t in range(1, n_batches + 3)]
    assert sum(shares) == 1
    assert shares[n_batches:] == [0, 0]


SITES = [
    Site(9, 3),
    Site(9, 3, (FAR,)),
    Site(8, 4, (FAR, 5.5)),
    Site(9, 3, (FAR, 1.5), ties=2),
    Site(6, 4, (), ties=3),
]


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("level", [Fraction(2, 5), Fraction(9, 10)])
@pytest.mark.parametrize("most", [Fraction(1), Fraction(1, 3)])
def test_evidence_of_a_null_is_at_most_one_on_average(site, level, most):
    size, total = site.n_calibration, Fraction(0)  # over the nulls, which are alike
    for ranks, chance in outcomes(site):
        limit = evidence_limit(Batch.of(ranks, size, size + 1), level, most)
        if limit:
            n_null = np.count_nonzero(ranks[: site.n_null] <= limit)
            total += chance * Fraction(size + 1, limit) * int(n_null)
    assert 0 < total <= site.n_null


def test_the_largest_rejected_rank_is_no_valid_divisor():
    site, level, mean = Site(9, 1), Fraction(1, 2), Fraction(0)
    for ranks, chance in outcomes(site):
        limit = evidence_limit(Batch.of(ranks, 9, 10), level, Fraction(1))
        mean += chance * Fraction(10, int(ranks[0])) if ranks[0] <= limit else 0
    assert mean > 2


def two_batches(site):
    """Yield the ranks in two batches and which rows are null, over all ways to deal the nulls."""
    n_null, n_novel = site.n_null, len(site.novel)
    null = np.arange(n_null + n_novel) < n_null
    deals = list(combinations(range(n_null), n_null // 2))
    for (ranks, chance), deal in product(outcomes(site), deals):
        first = np.zeros(null.size, dtype=bool)
        first[[*deal, *range(n_null, n_null + n_novel // 2)]] = True
        yield [(ranks[part], null[part]) for part in (first, ~first)], chance / len(deals)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("by_evidence", [False, True])
def test_final_decisions_bound_the_worst_time(site, by_evidence, monkeypatch):
    # Small sites have few ranks: with this share the evidence stops at several of them.
    monkeypatch.setattr("conovel.stats.batches.FINAL_MOST", Fraction(1))
    level, size = Fraction(4, 5), site.n_calibration
    decide = final_by_evidence if by_evidence else final_by_ranks
    worst, bound = Fraction(0), Fraction(0)
    for batches, chance in two_batches(site):
        found, false, highest, bound = 0, 0, Fraction(0), Fraction(0)
        for t, (ranks, null) in enumerate(batches, 1):
            share = level_share(t, 2)
            batch = Batch.of(ranks, size, size + 1)
            mask = batch.mask(decide(batch, found, level, t, 2))
            found, false = found + int(mask.sum()), false + int(mask[null].sum())
            highest = max(highest, Fraction(false, max(found, 1)))
            bound += level * share * (1 if by_evidence else Fraction(int(null.sum()), ranks.size))
        worst += chance * highest
    assert worst <= bound


def test_a_novelty_that_reacts_to_the_first_list_breaks_the_bound():
    level, size, n_null = Fraction(1, 2), 9, 4
    chosen, always = {}, Fraction(0)
    for ranks, chance in outcomes(Site(size, n_null)):
        n_listed = int(benjamini_hochberg(ranks, size, level).sum())
        shares = []
        for novel in (1, size + 1):  # above all nulls, or below
            listed = benjamini_hochberg(np.append(ranks, novel), size, level)
            shares.append(chance * Fraction(int(listed[:n_null].sum()), max(int(listed.sum()), 1)))
        always += shares[0]
        before = chosen.get(n_listed, (0, 0))
        chosen[n_listed] = tuple(a + b for a, b in zip(before, shares, strict=True))
    assert always == level * Fraction(4, 5)
    assert sum(map(max, chosen.values())) == Fraction(4427, 8580)


def test_a_batch_without_small_ranks_is_decided_by_every_rule():
    empty = Batch.of(np.array([90, 95]), 99, 10)
    level = Fraction(1, 10)
    assert list_by_ranks([empty], level) == list_by_evidence([empty], level) == [0]
    for decide, before in product((final_by_ranks, final_by_evidence), (0, 5)):
        assert decide(empty, before, level, 1, 3) == 0

"""Lists over batches whose rows are compared within strata: every order, in fractions."""

import itertools
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from conovel.deciding.strata import decide_strata
from conovel.spec.strata import plan_batch
from conovel.spec.training import Numbers
from conovel.stats.batches import (
    LIST_MOST,
    LIST_SHARE,
    Batch,
    final_by_evidence,
    final_share,
    list_by_evidence,
    list_by_ranks,
)
from conovel.stats.cells import N_CELLS, CellHistogram
from conovel.stats.strata import StrataHistogram

LEVEL = Fraction(4, 5)


class Rows(NamedTuple):
    """Cells of the null rows of a stratum: calibration rows and one null of each batch."""

    n_calibration: int
    nulls: tuple[int, ...]
    novel: tuple[tuple[int, ...], ...]  # of each batch


def orders(rows):
    """Give the calibration rows and the null of each batch, for every order of the nulls."""
    n_batches = len(rows.nulls) - rows.n_calibration
    for chosen in itertools.permutations(range(len(rows.nulls)), n_batches):
        known = [cell for i, cell in enumerate(rows.nulls) if i not in chosen]
        yield np.array(known, np.int64), [rows.nulls[i] for i in chosen]


def with_evidence(known, tests, level, most):
    """The batch of a ledger: places of e-values, as a run with strata makes them."""
    parts = [
        CellHistogram.of(c, t, N_CELLS, N_CELLS - 9) for c, t in zip(known, tests, strict=True)
    ]
    sizes = [Numbers(c.size, t.size) for c, t in zip(known, tests, strict=True)]
    groups = [one.group for one in plan_batch(sizes, [0] * len(sizes), LEVEL)]
    outcome = decide_strata(StrataHistogram.together(parts), groups, level, most)
    values = (*sorted({e for e in outcome.evidence if e}, reverse=True), Fraction(0))
    ranks = [
        np.where(t >= cut, values.index(e) + 1, len(values))
        for t, cut, e in zip(tests, outcome.cuts, outcome.evidence, strict=True)
    ]
    ranks = np.concatenate(ranks)
    return Batch.of(ranks, 9, len(values) - 1, values)


def by_strata(known, batches):
    made = [with_evidence(known, tests, LIST_SHARE * LEVEL, LIST_MOST) for tests in batches]
    return [b.mask(limit) for b, limit in zip(made, list_by_evidence(made, LEVEL), strict=True)]


def final(known, batches):
    masks, n_before = [], 0
    for t, tests in enumerate(batches, 1):
        batch = with_evidence(known, tests, *final_share(LEVEL, t, len(batches)))
        masks.append(batch.mask(final_by_evidence(batch, n_before, LEVEL, t, len(batches))))
        n_before += int(masks[-1].sum())
    return masks


def by_all_rows(known, batches):
    """INVALID where shares differ: one calibration sample for all strata, as without strata."""
    every = np.sort(np.concatenate(known))
    ranks = [
        np.array([1 + int((every >= cell).sum()) for cell in np.concatenate(tests)])
        for tests in batches
    ]
    made = [Batch.of(one, every.size, every.size + 1) for one in ranks]
    return [b.mask(limit) for b, limit in zip(made, list_by_ranks(made, LEVEL), strict=True)]


def list_fdr(strata, decide):
    """Return the exact FDR of the list after all batches."""
    total, number = Fraction(0), 0
    n_batches = len(strata[0].novel)
    for combination in itertools.product(*map(list, map(orders, strata))):
        known = [own for own, _ in combination]
        batches = [
            [
                np.array([nulls[t], *rows.novel[t]], np.int64)
                for (_, nulls), rows in zip(combination, strata, strict=True)
            ]
            for t in range(n_batches)
        ]
        masks = decide(known, batches)
        is_null = [np.concatenate([np.arange(x.size) == 0 for x in tests]) for tests in batches]
        listed = sum(int(mask.sum()) for mask in masks)
        false = sum(int((mask & null).sum()) for mask, null in zip(masks, is_null, strict=True))
        total, number = total + Fraction(false, max(listed, 1)), number + 1
    return total / number


def random_strata(rng):
    made = []
    for size in (4, int(rng.integers(1, 4))):
        nulls = tuple(rng.permutation(N_CELLS)[: size + 2].tolist())
        novel = tuple(
            tuple(rng.integers(60, N_CELLS, size=rng.integers(0, 3)).tolist()) for _ in range(2)
        )
        made.append(Rows(size, nulls, novel))
    return made


THIN = Rows(1, (10, 50, 90), ((), ()))  # it can flag nothing, and leaves the level to the other
INTERLEAVED = [Rows(4, (0, 20, 40, 60, 80, 100), ((), ())), THIN]
WITH_NOVELTIES = [Rows(4, (0, 20, 40, 60, 80, 100), ((120,), ())), THIN]


@pytest.mark.parametrize("strata", [INTERLEAVED, WITH_NOVELTIES])
@pytest.mark.parametrize("decide", [by_strata, final])
def test_lists_keep_the_level_for_every_order(strata, decide):
    assert 0 < list_fdr(strata, decide) <= LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("decide", [by_strata, final])
def test_lists_of_many_sites_keep_the_level_for_every_order(decide):
    rng = np.random.default_rng(0)
    rates = [list_fdr(random_strata(rng), decide) for _ in range(20)]
    assert max(rates) <= LEVEL
    assert sum(one > 0 for one in rates) > 3


def test_one_calibration_sample_for_all_strata_breaks_the_level_where_shares_differ():
    # Rows of the second stratum have high scores: half of the tests, one in four known normals
    strata = [
        Rows(3, (1, 2, 3, 4, 5), ((), ())),
        Rows(1, (90, 91, 92), ((), ())),
    ]
    assert list_fdr(strata, by_all_rows) > LEVEL
    assert list_fdr(strata, by_strata) <= LEVEL
    assert list_fdr(strata, final) <= LEVEL

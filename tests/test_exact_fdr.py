"""False discovery rates without simulation: every order of the nulls, each equally likely.

Calibration rows and null test rows of a site are exchangeable, so which of them holds which
score is a uniformly random choice. For small sites all choices can be listed, and the FDR
is a fraction: no standard errors, and the proven bounds must hold, not nearly but always.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest

from conovel.errors import SampleError
from conovel.pi0 import Storey
from conovel.ranks import conformal_ranks
from conovel.stepup import fast_lsu

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


class Site(NamedTuple):
    """Calibration rows, null tests, scores of the novelties, and ties among the nulls."""

    n_calibration: int
    n_null: int
    novel: tuple[float, ...] = ()
    ties: int = 1  # how many nulls share one score


def outcomes(site, strict=False):
    """Every distinct vector of ranks of a site (nulls first), with its probability."""
    pool = np.arange(site.n_calibration + site.n_null) // site.ties
    found = Counter()
    for chosen in itertools.combinations(range(pool.size), site.n_calibration):
        calibration = pool[list(chosen)]
        tests = np.concatenate([np.delete(pool, chosen), site.novel])
        if strict:  # ties broken in favour of the test: what sort-order ranks amount to
            ranks = 1 + np.count_nonzero(calibration[:, None] > tests, axis=0)
        else:
            ranks = conformal_ranks(calibration.astype(float), tests)
        found[tuple(int(r) for r in ranks)] += 1
    total = found.total()
    return [(np.array(ranks), Fraction(n, total)) for ranks, n in found.items()]


def exact_fdr(sites, level, pi0=None, strict=False):
    """Expected share of nulls among the rejections, summed over all orders at all sites."""
    fdr = Fraction(0)
    for combination in itertools.product(*(outcomes(site, strict) for site in sites)):
        blocks = [(r, s.n_calibration) for (r, _), s in zip(combination, sites, strict=True)]
        try:
            result = fast_lsu(blocks, level, pi0=pi0)
        except SampleError:  # Quantile saw only ones: nothing is rejected
            continue
        false = sum(
            int(mask[: site.n_null].sum())
            for mask, site in zip(result.rejected, sites, strict=True)
        )
        fdr += math.prod(p for _, p in combination) * Fraction(false, max(result.n_rejected, 1))
    return fdr


FAR = 99.0
# Designs in which α(ℓ+1)/m is an integer at every site, so that the bound is attained.
TIGHT = {
    "one site": ([Site(9, 4, (FAR,))], Fraction(1, 2)),
    "novelties among the nulls": ([Site(15, 3, (2.5, 6.5, FAR, FAR, FAR))], Fraction(1, 2)),
    "only nulls": ([Site(9, 5)], Fraction(1, 2)),
    "two sites": ([Site(8, 2, (FAR,)), Site(8, 2, (1.5,))], Fraction(2, 3)),
    "two sites of different ℓ": ([Site(9, 3, (FAR,)), Site(19, 1)], Fraction(1, 2)),
    "three sites": ([Site(8, 2), Site(8, 1, (FAR,)), Site(17, 1, (FAR,))], Fraction(2, 3)),
}


def bound(sites, level):
    """The bound α·m0/m on the FDR of BH."""
    m0 = sum(site.n_null for site in sites)
    m = m0 + sum(len(site.novel) for site in sites)
    assert all((level * (site.n_calibration + 1) / m).denominator == 1 for site in sites)
    return level * m0 / m


@pytest.mark.parametrize(("sites", "level"), TIGHT.values(), ids=TIGHT.keys())
def test_bh_spends_exactly_its_level(sites, level):
    assert exact_fdr(sites, level) == bound(sites, level)


@pytest.mark.parametrize("ties", [2, 3, 4, 20])
@pytest.mark.parametrize(("sites", "level"), TIGHT.values(), ids=TIGHT.keys())
def test_ties_only_lower_the_fdr(sites, level, ties):
    tied = [site._replace(ties=ties) for site in sites]
    assert exact_fdr(tied, level) <= bound(sites, level)


def test_ties_broken_for_the_test_point_break_the_bound():
    sites = [Site(9, 4, (FAR,), ties=20)]
    assert exact_fdr(sites, Fraction(1, 2), strict=True) == Fraction(4, 5)
    assert exact_fdr(sites, Fraction(1, 2)) == 0


@pytest.mark.parametrize("level", ["0.05", "0.2", "1/3", "0.5", "0.75", "0.9"])
@pytest.mark.parametrize("at", ["0.2", "0.5", "0.6"])
@pytest.mark.parametrize("ties", [1, 3])
@pytest.mark.parametrize(
    "sites",
    [
        [Site(9, 3, (FAR,) * 4)],
        [Site(6, 4, (2.5, FAR, FAR))],
        [Site(3, 2, (FAR,) * 2), Site(3, 2, (FAR,) * 3)],
        [Site(2, 3, (FAR,)), Site(6, 2, (FAR,) * 3)],
        [Site(3, 1, (FAR,)), Site(5, 2), Site(2, 1, (FAR,) * 4)],
    ],
    ids=["one", "one, mixed", "two", "two of different ℓ", "three of different ℓ"],
)
def test_storey_stays_below_its_level(sites, level, at, ties):
    tied = [site._replace(ties=ties) for site in sites]
    assert exact_fdr(tied, level, pi0=Storey(at)) <= Fraction(level)


@pytest.mark.parametrize("level", ["0.1", "1/3", "0.5", "0.9"])
@pytest.mark.parametrize("at", ["0.3", "0.5"])
@pytest.mark.parametrize("site", [Site(9, 3, (FAR,) * 4), Site(7, 4, (2.5, FAR, FAR))])
def test_quantile_stays_below_its_level_at_one_site(site, level, at):
    assert exact_fdr([site], level, pi0=f"quantile:{at}") <= Fraction(level)

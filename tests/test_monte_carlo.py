"""Simulated false discovery rates: below α·π0 within three standard errors, ties or not.

The designs make α(ℓ+1)/m an integer at every site. The bound is then attained by scores
without ties, so that even a slightly liberal procedure stands out; procedures broken on
purpose are held to the same assertion, and must fail it.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import norm

from conovel.pi0 import Storey
from conovel.ranks import conformal_ranks
from conovel.stepup import benjamini_hochberg, fast_lsu, reject

QUICK, LONG = 2_000, 40_000
repetitions = pytest.mark.parametrize(
    "n", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"]
)


class Site(NamedTuple):
    """Calibration rows, null tests and novelties."""

    n_calibration: int
    n_null: int
    n_novel: int


class Design(NamedTuple):
    """Sites and a level; novelties lie `shift` standard deviations above the nulls."""

    sites: tuple[Site, ...]
    level: Fraction
    shift: float = 3.0

    @property
    def m(self):
        return sum(site.n_null + site.n_novel for site in self.sites)

    @property
    def pi0(self):
        return Fraction(sum(site.n_null for site in self.sites), self.m)

    @property
    def attained(self):
        return all(
            (self.level * (site.n_calibration + 1) / self.m).denominator == 1
            for site in self.sites
        )


KINDS = {
    "continuous": lambda z: z,
    "11 levels": lambda z: np.round(norm.cdf(z), 1),
    "binary": lambda z: (z > 1.0).astype(float),
    "binary, rare": lambda z: (z > 2.3).astype(float),
}
kinds = pytest.mark.parametrize("kind", KINDS)

ONE = Design((Site(199, 16, 4),), Fraction(1, 10))
SEVERAL = Design((Site(99, 9, 1), Site(199, 6, 4), Site(299, 9, 1)), Fraction(3, 10))
# Few nulls, so that knowing their number matters.
ONE_RICH = Design((Site(199, 10, 30),), Fraction(1, 10))
SEVERAL_RICH = Design((Site(49, 4, 12), Site(99, 3, 13), Site(399, 5, 3)), Fraction(1, 10))


# Decisions: from a list of (calibration scores, test scores) per site to a mask per site.


def exact(design, blocks, pi0=None):
    ranks = [
        (conformal_ranks(calibration, tests), calibration.size) for calibration, tests in blocks
    ]
    return fast_lsu(ranks, design.level, pi0=pi0).rejected


def straight_from_scores(design, blocks):
    ((calibration, tests),) = blocks
    return (reject(calibration, tests, design.level),)


def storey(design, blocks):
    return exact(design, blocks, pi0=Storey("1/2"))


def liberal(design, blocks):
    """BH at 1.3 times the level."""
    return exact(design._replace(level=design.level * Fraction(13, 10)), blocks)


def overconfident(design, blocks):
    """Adaptive BH that takes the nulls for three quarters of what they are."""
    return exact(design._replace(level=design.level / design.pi0 * Fraction(4, 3)), blocks)


def sort_order(design, blocks):
    """Ranks read off one sort of tests and calibration together: ties fall as they stand."""
    ranks = []
    for calibration, tests in blocks:
        order = np.argsort(-np.concatenate([tests, calibration]), kind="stable")
        rank = 1 + np.cumsum(order >= tests.size)
        position = np.empty_like(order)
        position[order] = np.arange(order.size)
        ranks.append((rank[position[: tests.size]], calibration.size))
    return fast_lsu(ranks, design.level).rejected


def simulate(design, decide, n, kind="continuous", seed=20240731):
    """False discovery proportion and number of rejections in each of n repetitions."""
    rng = np.random.default_rng(seed)
    score = KINDS[kind]
    drawn = []
    for site in design.sites:
        tests = rng.standard_normal((n, site.n_null + site.n_novel))
        tests[:, site.n_null :] += design.shift
        drawn.append((score(rng.standard_normal((n, site.n_calibration))), score(tests)))
    rejected, false = np.zeros(n), np.zeros(n)
    for i in range(n):
        masks = decide(design, [(calibration[i], tests[i]) for calibration, tests in drawn])
        rejected[i] = sum(mask.sum() for mask in masks)
        false[i] = sum(
            mask[: site.n_null].sum() for mask, site in zip(masks, design.sites, strict=True)
        )
    return false / np.maximum(rejected, 1), rejected


def standard_error(samples):
    return samples.std(ddof=1) / np.sqrt(samples.size)


def assert_fdr_at_most(samples, bound):
    """Fail when the mean exceeds the bound by more than three standard errors."""
    mean, error = samples.mean(), standard_error(samples)
    assert mean - 3 * error <= bound, f"FDR {mean:.4f} ± {error:.4f} above {float(bound):.4f}"


@kinds
@repetitions
@pytest.mark.parametrize("decide", [exact, straight_from_scores])
def test_one_site(decide, kind, n):
    fdp, rejected = simulate(ONE, decide, n, kind)
    assert_fdr_at_most(fdp, ONE.level * ONE.pi0)
    if kind == "continuous":
        assert ONE.attained
        assert_fdr_at_most(-fdp, -ONE.level * ONE.pi0)
        assert rejected.mean() > 2


@kinds
@repetitions
def test_several_sites_that_exchange_counts(kind, n):
    fdp, rejected = simulate(SEVERAL, exact, n, kind)
    assert_fdr_at_most(fdp, SEVERAL.level * SEVERAL.pi0)
    if kind == "continuous":
        assert SEVERAL.attained
        assert_fdr_at_most(-fdp, -SEVERAL.level * SEVERAL.pi0)
        assert rejected.mean() > 4


@kinds
@repetitions
@pytest.mark.parametrize("design", [ONE_RICH, SEVERAL_RICH], ids=["one site", "several sites"])
def test_storey_keeps_the_level_and_finds_more(design, kind, n):
    fdp, adaptive = simulate(design, storey, n, kind)
    assert_fdr_at_most(fdp, design.level)
    if kind == "continuous":
        _, plain = simulate(design, exact, n, kind)
        assert adaptive.mean() > plain.mean() + 3 * standard_error(adaptive - plain)
        # More than BH may spend, and therefore not for free.
        assert fdp.mean() - 3 * standard_error(fdp) > design.level * design.pi0


# The tests tested: what is broken must be caught by the same assertion.


@pytest.mark.parametrize("kind", ["11 levels", "binary", "binary, rare"])
@pytest.mark.parametrize("design", [ONE, SEVERAL], ids=["one site", "several sites"])
def test_ties_broken_by_sort_order_are_caught(design, kind):
    fdp, _ = simulate(design, sort_order, QUICK, kind)
    with pytest.raises(AssertionError, match="above"):
        assert_fdr_at_most(fdp, design.level * design.pi0)


def test_sort_order_is_harmless_only_without_ties():
    fdp, _ = simulate(ONE, sort_order, QUICK)
    assert_fdr_at_most(fdp, ONE.level * ONE.pi0)


@pytest.mark.parametrize("design", [ONE, SEVERAL], ids=["one site", "several sites"])
def test_a_level_thirty_per_cent_too_high_is_caught(design):
    fdp, _ = simulate(design, liberal, QUICK)
    with pytest.raises(AssertionError, match="above"):
        assert_fdr_at_most(fdp, design.level * design.pi0)


@pytest.mark.parametrize("design", [ONE_RICH, SEVERAL_RICH], ids=["one site", "several sites"])
def test_an_estimate_of_the_nulls_that_is_too_low_is_caught(design):
    fdp, _ = simulate(design, overconfident, QUICK)
    with pytest.raises(AssertionError, match="above"):
        assert_fdr_at_most(fdp, design.level)


def test_the_sort_order_procedure_is_bh_when_nothing_is_tied():
    rng = np.random.default_rng(0)
    calibration, tests = rng.standard_normal(199), rng.standard_normal(50) + 2
    (got,) = sort_order(ONE, [(calibration, tests)])
    ranks = conformal_ranks(calibration, tests)
    np.testing.assert_array_equal(got, benjamini_hochberg(ranks, 199, ONE.level))
    assert got.any()

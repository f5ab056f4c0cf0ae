"""False discovery rates without simulation: every order of the nulls, each equally likely.

Calibration rows and null test rows of a site are exchangeable, so which of them holds which
score is a uniformly random choice. For small sites all choices can be listed, and the FDR
is a fraction: no standard errors, and the proven bounds must hold, not nearly but always.
"""

import itertools
import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from support.exact_fdr import FAR, Site, outcomes
from support.fake_link import Link, sites_for
from support.roles import NAMES, Sample, in_network, mixtures

import conovel as cn
from conovel.deciding.ways import ways_of
from conovel.errors import SampleError
from conovel.scorers.automatic import Automatic
from conovel.scorers.base import Mixture
from conovel.spec.regimes import REGIMES, Regime
from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import as_level
from conovel.stats.null_proportion import NullProportion, Storey
from conovel.stats.stepup import fast_lsu

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")


def exact_fdr(sites, level, pi0=None, strict=False):
    """Expected share of nulls among the rejections, summed over all orders at all sites."""
    return exact_means(sites, level, pi0, strict)[0]


def exact_means(sites, level, pi0=None, strict=False):
    """The FDR, and the expected number of rejections."""
    fdr = found = Fraction(0)
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
        weight = math.prod(p for _, p in combination)
        fdr += weight * Fraction(false, max(result.n_rejected, 1))
        found += weight * result.n_rejected
    return fdr, found


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


@pytest.mark.parametrize(
    "level",
    [
        "0.05",
        "1/3",
        "0.9",
        *(pytest.param(level, marks=pytest.mark.slow) for level in ("0.2", "0.5", "0.75")),
    ],
)
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


def test_storey_finds_more_than_bh_where_nulls_are_few():
    sites = [Site(9, 2, (FAR,) * 6), Site(5, 1, (FAR, 2.5))]
    plain, adaptive = (exact_means(sites, Fraction(1, 2), pi0)[1] for pi0 in (None, "storey"))
    assert adaptive > plain


# The tests tested: what is broken must break the same bounds.


@pytest.mark.parametrize("name", ["one site", "novelties among the nulls", "two sites"])
def test_a_level_that_is_too_high_is_caught(name):
    sites, level = TIGHT[name]
    assert exact_fdr(sites, level * Fraction(13, 10)) > bound(sites, level)


class Hopeful(NullProportion):
    """Takes the nulls for half of what Storey's estimator says."""

    proven_for_several = True

    def null_count(self, below, n_calibration, m):
        return Storey(self.at).null_count(below, n_calibration, m) / 2


def test_an_estimate_of_the_nulls_that_is_too_low_is_caught():
    sites, level = [Site(9, 4)], Fraction(1, 3)
    assert exact_fdr(sites, level, pi0=Storey()) <= level < exact_fdr(sites, level, pi0=Hopeful())


# Networks --------------------------------------------------------------------------------------

# Regimes that decide by cells have their own: test_pooled_fdr, test_grouped, test_consensus.
BY_RANKS = [
    name
    for name, regime in REGIMES.items()
    if name != "pooled" and not ways_of(regime).deciding.by_cells
]


def protocol_fdr(sites, level, regime):
    """Run the protocol for every order at all sites.

    Returns the FDR over all agents, and of each agent by itself.
    """
    union, own = Fraction(0), [Fraction(0)] * len(sites)
    for combination in itertools.product(*map(outcomes, sites)):
        weight = math.prod(p for _, p in combination)
        blocks = [(r, s.n_calibration) for (r, _), s in zip(combination, sites, strict=True)]
        masks = Link(sites_for(blocks, regime), regime=regime, level=level).run().masks()
        rejected = [int(mask.sum()) for mask in masks.values()]
        false = [int(m[: s.n_null].sum()) for m, s in zip(masks.values(), sites, strict=True)]
        union += weight * Fraction(sum(false), max(sum(rejected), 1))
        for j, (v, r) in enumerate(zip(false, rejected, strict=True)):
            own[j] += weight * Fraction(v, max(r, 1))
    return union, own


# By regime, as α(ℓ+1)/m must be an integer for all rows together, or α/K·(ℓ+1)/m for each agent.
TOGETHER = {
    "two": ([Site(5, 1, (FAR,)), Site(11, 2)], Fraction(2, 3)),
    "three": ([Site(5, 1), Site(5, 1, (2.5,)), Site(11, 1)], Fraction(2, 3)),
}
APART = {
    "two": ([Site(5, 1, (FAR,)), Site(8, 2, (3.5,))], Fraction(2, 3)),
    "three": ([Site(7, 1, (FAR,)), Site(15, 1, (2.5,)), Site(3, 1)], Fraction(3, 4)),
}


def holds(regime, sites, level, ties):
    """Compare with the bounds: equal without ties, at most with them."""
    tied = [site._replace(ties=ties) for site in sites]
    union, own = protocol_fdr(tied, level, regime)
    if ways_of(REGIMES[regime]).deciding.shares_counts:
        limit = bound(sites, level)
        return union == limit if ties == 1 else union <= limit
    limits = [bound([site], level / len(sites)) for site in sites]
    each = own == limits if ties == 1 else all(map(Fraction.__le__, own, limits))
    return each and union <= sum(limits)


QUICK = ("full", "conservative")  # to the coordinator the others are like one of these


@pytest.mark.parametrize("ties", [1, 2, 20])
@pytest.mark.parametrize("size", TOGETHER)
@pytest.mark.parametrize(
    "regime",
    [r if r in QUICK else pytest.param(r, marks=pytest.mark.slow) for r in BY_RANKS],
)
def test_every_regime_spends_exactly_its_level(regime, size, ties):
    design = TOGETHER if ways_of(REGIMES[regime]).deciding.shares_counts else APART
    assert holds(regime, *design[size], ties)


@pytest.mark.parametrize("regime", ["isolated", "full"])
def test_a_regime_that_takes_too_high_a_level_is_caught(regime, monkeypatch):
    design = TOGETHER if ways_of(REGIMES[regime]).deciding.shares_counts else APART

    def too_high(cls, *, level, **others):
        return cls(level=as_level(level) * Fraction(13, 10), **others)

    honest = Regime.test_level
    monkeypatch.setattr(Regime, "test_level", lambda *asked: honest(*asked) * Fraction(13, 10))
    monkeypatch.setattr(RunSpec, "of", classmethod(too_high))
    assert not holds(regime, *design["two"], ties=1)


# Whole runs: rows, models and composites, for every order of the nulls --------------------------


class Spent(NamedTuple):
    """What a network spends over every order of the nulls, and what it may spend."""

    union: Fraction
    own: list[Fraction]
    n_null: list[int]  # of the rows that each agent tests
    n_tested: list[int]


def whole_runs(samples, n_null, scorer, **options):
    """Run `cn.Network` for every order of each agent's nulls, its first `n_null` test rows."""
    run = in_network(**options)
    blocks = mixtures(run, samples, options["regime"] == "split")
    seen = run(samples, scorer, blocks)
    X_null, X_test = (np.concatenate(rows) for rows in zip(*samples, strict=True))
    is_null = np.concatenate([np.arange(len(s.X_test)) < n_null for s in samples])
    tested = [b for b in blocks if np.isfinite(seen.test_scores[b.tests]).all()]
    orders = []
    for calibration, all_tests in tested:
        tests = all_tests[is_null[all_tests]]
        scores = np.concatenate([seen.null_scores[calibration], seen.test_scores[tests]])
        assert np.unique(scores).size == scores.size  # no ties: the bound is attained
        rows = np.concatenate([X_null[calibration], X_test[tests]])
        orders.append(
            [
                (calibration, tests, np.delete(rows, chosen, axis=0), rows[list(chosen)])
                for chosen in itertools.combinations(range(len(rows)), tests.size)
            ]
        )
    union, own = Fraction(0), [Fraction(0)] * len(samples)
    n = math.prod(map(len, orders))
    for arrangement in itertools.product(*orders):
        null, test = X_null.copy(), X_test.copy()
        for calibration, tests, that_calibrate, that_are_tested in arrangement:
            null[calibration], test[tests] = that_calibrate, that_are_tested
        result = cn.Network(as_agents(samples, null, test), scorer=scorer, **options).run()
        false = [int(site.rejected[:n_null].sum()) for site in result.values()]
        found = [int(site.rejected.sum()) for site in result.values()]
        union += Fraction(sum(false), max(sum(found), 1)) / n
        own = [o + Fraction(v, max(r, 1)) / n for o, v, r in zip(own, false, found, strict=True)]
    nulls = [int(is_null[b.tests].sum()) for b in tested]
    return Spent(union, own, nulls, [b.tests.size for b in tested])


def as_agents(samples, null, test):
    stops = [np.cumsum([len(rows) for rows in part])[:-1] for part in zip(*samples, strict=True)]
    parts = np.split(null, stops[0]), np.split(test, stops[1])
    return [cn.Agent(name, *pair) for name, *pair in zip(NAMES, *parts, strict=False)]


def small_agents(n_known, n_test, n_null):
    rng = np.random.default_rng(3)
    samples = [Sample(rng.normal(size=(n, 2)), rng.normal(size=(n_test, 2))) for n in n_known]
    for sample in samples:
        sample.X_test[n_null:] += 2
    return samples


HALF = {"train_fraction": Fraction(1, 2), "level": Fraction(2, 3)}


# Half of the known normals calibrate: α(ℓ+1)/m is 1 at the first agent and 2 at the second.
@pytest.mark.parametrize(
    ("regime", "composite", "bits", "scorer"),
    [
        ("full", "mean", 4, "logistic"),
        pytest.param("counts", "mean", 4, "logistic", marks=pytest.mark.slow),
        pytest.param("full", "auto", "compact", "logistic", marks=pytest.mark.slow),
        pytest.param("full", "max", 1, "mlp", marks=pytest.mark.slow),
        pytest.param("full", "auto", "compact", Automatic(n_folds=2), marks=pytest.mark.slow),
    ],
)
def test_a_whole_network_spends_exactly_its_level(regime, composite, bits, scorer):
    samples = small_agents([10, 22], n_test=2, n_null=1)
    options = {"regime": regime, "composite": composite, "bits": bits, **HALF}
    spent = whole_runs(samples, 1, scorer, **options)
    assert (spent.n_null, spent.n_tested) == ([1, 1], [2, 2])
    assert spent.union == HALF["level"] / 2


@pytest.mark.slow
def test_whole_blocks_spend_exactly_their_level():
    """In `split` an agent tests one of its two blocks, here against 5 calibration rows."""
    samples = small_agents([20, 20], n_test=4, n_null=2)
    options = {"regime": "split", "composite": "max", "bits": None, **HALF}
    spent = whole_runs(samples, 2, "logistic", **options)
    assert spent.n_tested == [2, 2]
    assert spent.union == HALF["level"] * Fraction(sum(spent.n_null), 4) > 0


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["isolated", "conservative"])
def test_whole_agents_that_decide_alone_spend_exactly_their_share(regime):
    samples = small_agents([10, 22], n_test=2, n_null=1)
    options = {"regime": regime, "composite": "mean", "bits": 4, **HALF}
    spent = whole_runs(samples, 1, "logistic", **options)
    share = HALF["level"] / 2 / 2
    assert spent.own == [share, share]
    assert spent.union <= 2 * share


def test_a_score_that_depends_on_roles_does_not_spend_its_level(monkeypatch):
    """What tests/theory/test_roles.py sees in the scores is seen in the rate, too."""
    fair = Mixture.score
    monkeypatch.setattr(
        Mixture, "score", lambda mixture, model: raise_last(fair(mixture, model), 2)
    )
    samples = small_agents([10, 22], n_test=2, n_null=1)
    options = {"regime": "counts", "composite": "mean", "bits": 4, **HALF}
    assert whole_runs(samples, 1, "logistic", **options).union > HALF["level"] / 2


def raise_last(scores, n):
    """Add to what stands last in a mixture: test rows."""
    scores[-n:] += 0.2
    return scores

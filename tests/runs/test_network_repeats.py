"""A network with `repeats`: B whole runs, one decision by counts, and its audit."""

import copy
import json
from fractions import Fraction

import numpy as np
import pytest
from support.evidence import rejection_evidence
from support.forgeries import assert_every_forgery_is_found

import conovel as cn
from conovel.errors import InputError, SiteVanishedError
from conovel.federation.terms import Terms
from conovel.protocol.replay import verify
from conovel.report import network_content
from conovel.runs import agents as agents_of_a_network
from conovel.runs import repeats
from conovel.spec.run_spec import RunSpec, repeated_specs
from conovel.stats.evidence import Evidence, averaged, closed_e_bh
from conovel.stats.resolution import rank_limit

REGIMES = ["full", "joint", "consensus", "counts", "isolated", "conservative", "pooled"]
REGIMES += ["together"]
pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def agents(**more):
    rng = np.random.default_rng(3)
    made = []
    for name in ("north", "south", "west"):
        X_test = rng.normal(size=(24, 2))
        X_test[:8] += 5
        made.append(cn.Agent(name, rng.normal(size=(400, 2)), X_test, **more))
    return made


def network(members=None, **options):
    settings = {"scorer": "logistic", "level": 0.4, "bits": 4, "composite": "mean", "repeats": 3}
    return cn.Network(members or agents(), **settings | options)


def rejected(run):
    return np.concatenate([site.rejected for site in run.values()])


def by_limits(sites, level):
    """The evidence (ℓ+1)/L about the rows of some sites that one run decided about together."""
    m, k = sum(map(len, (s.rejected for s in sites))), sum(s.n_rejected for s in sites)
    values = [Fraction(0)]
    for site in sites:
        limit = rank_limit(level / m, k, site.n_calibration)
        values.append(Fraction(site.n_calibration + 1, max(limit, 1)))
    codes = [site.rejected * (j + 1) for j, site in enumerate(sites)]
    return Evidence(tuple(values), np.concatenate(codes))


def test_one_run_is_what_it_was():
    once, default = network(repeats=1).run(), network(repeats=1, random_state=0).run()
    assert once.runs == ()
    assert once.evidence_rounds == ()
    assert once.transcripts == (once.transcript,)
    assert once.to_dict() == default.to_dict()


@pytest.mark.parametrize("regime", REGIMES)
def test_the_decision_is_e_bh_on_runs_that_can_be_made_one_by_one(regime):
    run = network(regime=regime, random_state=4).run()
    specs = repeated_specs(run.spec)
    alone = [
        network(regime=regime, level=one.level, random_state=one.seed, repeats=1).run(check=False)
        for one in specs
    ]
    assert [one.to_dict() for one in run.runs] == [one.to_dict() for one in alone]
    if regime in ("isolated", "conservative"):
        assert run.evidence_rounds == ()
        for name, site in run.items():
            parts = [by_limits([one[name]], Fraction(2, 25)) for one in alone]
            assert np.array_equal(site.rejected, closed_e_bh(averaged(parts), "2/15"))
            assert site.repeated.evidence.to_list() == averaged(parts).to_list()
    elif regime in ("counts", "full"):
        evidence = averaged([by_limits([*one.values()], Fraction(4, 25)) for one in alone])
        assert np.array_equal(rejected(run), cn.e_bh(evidence, "2/5"))
        assert [
            e for site in run.values() for e in site.repeated.evidence.to_list()
        ] == evidence.to_list()
        assert run.evidence_rounds[-1].total == run.n_rejected
    else:
        evidence = averaged([rejection_evidence(rejected(one), "4/25") for one in alone])
        assert np.array_equal(rejected(run), cn.e_bh(evidence, "2/5"))
        assert run.evidence_rounds[-1].total == run.n_rejected
    assert run.n_rejected > 0
    assert run.n_bytes == sum(one.n_bytes for one in alone)
    times = np.sum([rejected(one) for one in alone], axis=0)
    assert np.array_equal(np.concatenate([s.times_flagged for s in run.values()]), times)


@pytest.mark.parametrize(
    "regime",
    [r if r in ("joint", "full") else pytest.param(r, marks=pytest.mark.slow) for r in REGIMES],
)
def test_every_published_value_is_checked_or_named(regime):
    run = network(regime=regime, repeats=2).run()
    assert_every_forgery_is_found(json.loads(json.dumps(network_content(run))))


def test_a_run_that_is_exchanged_or_left_out_is_found():
    run = json.loads(json.dumps(network().run().to_dict()))
    assert verify(run) == []
    swapped, short, other = copy.deepcopy(run), copy.deepcopy(run), copy.deepcopy(run)
    swapped["runs"].reverse()
    del short["runs"][0]
    other["runs"][1] = json.loads(json.dumps(network(repeats=1, random_state=9).run().to_dict()))
    for forged in (swapped, short, other):
        assert verify(forged)
    alone = copy.deepcopy(run["runs"][0])
    assert verify(alone) == []
    alone["transcript"]["spec"]["repeats"] = 3
    assert "this is one run, and its settings have repeats=3" in verify(alone)
    nested = copy.deepcopy(run)
    nested["runs"][0] = run
    assert verify(nested)


def test_an_agent_with_a_seed_of_its_own_splits_differently_in_every_run():
    run = network(agents(seed=7), random_state=1).run()
    other = network(agents(seed=7), random_state=2).run()
    scores = [one["north"].scores for one in run.runs]
    assert not np.array_equal(scores[0], scores[1])
    for one, same in zip(run.runs, other.runs, strict=True):
        assert np.array_equal(one["north"].scores, same["north"].scores)


@pytest.mark.parametrize("phase", ["hello", "models", "counts"])
def test_a_lost_agent_breaks_all_off(phase):
    with pytest.raises(SiteVanishedError, match="west"):
        network().run(dropouts={"west": phase})


def test_rows_are_read_once_for_all_runs(monkeypatch):
    read, pairs = agents_of_a_network.read_with_known, []

    def count(*samples, **options):
        pairs.append(samples)
        return read(*samples, **options)

    monkeypatch.setattr(agents_of_a_network, "read_with_known", count)
    network().run()
    assert len(pairs) == 3


def test_a_loss_in_a_later_run_breaks_all_off(monkeypatch):
    run, made = repeats.run_network, []

    def run_and_lose(spec, members, vanishing, tell):
        made.append(spec)
        return run(spec, members, {"west": "models"} if len(made) == 2 else vanishing, tell)

    monkeypatch.setattr(repeats, "run_network", run_and_lose)
    with pytest.raises(SiteVanishedError, match="west vanished in run 2 of 3"):
        network().run()
    assert len(made) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pi0": "quantile"}, "use pi0='storey'"),
        ({"pi0": "storey", "regime": "joint"}, "not proven for the regime 'joint'"),
        ({"regime": "split"}, "use the regime 'full'"),
        ({"on_dropout": "conservative"}, "leave on_dropout at 'abort'"),
        ({"repeats": 0}, "repeats must be a whole number from 1 to 100"),
    ],
)
def test_what_is_not_proven_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        network(**options).run()


@pytest.mark.parametrize(("pi0", "regime"), [("storey", "full"), ("quantile", "isolated")])
def test_a_proven_estimate_is_allowed(pi0, regime):
    run = network(pi0=pi0, regime=regime).run()
    assert verify(json.loads(json.dumps(run.to_dict()))) == []


def test_a_run_between_organisations_refuses_it_by_name():
    with pytest.raises(InputError, match="repeats=5 is for a network in one process"):
        Terms(("north", "south"), RunSpec.of(repeats=5))

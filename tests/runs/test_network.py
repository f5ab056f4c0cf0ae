"""The network in one process: regimes, composites, dropouts, transcripts."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

import conovel as cn
from conovel.errors import (
    ColumnError,
    InputError,
    ModelRefusedError,
    ResolutionWarning,
    SampleError,
    SiteVanishedError,
)
from conovel.experiments.gaussian import gaussian_design
from conovel.protocol.replay import verify
from conovel.runs.agents import as_agents, read_agents
from conovel.runs.network_run import run_network
from conovel.site.site import Site
from conovel.spec.regimes import REGIMES, block_sizes
from conovel.spec.run_spec import agent_seeds
from conovel.spec.settings import COMPOSITES
from conovel.spec.training import ANY_SHARE, train_share

FAST = ExtraTreesClassifier(20, max_depth=4)
LINEAR = LogisticRegression()
DEPLOYABLE = [name for name, regime in REGIMES.items() if not regime.refusal("deployment")]


def agents(seed=0, n_agents=3, n_null=900, n_test=300, delta=1.0, **more):
    drawn = gaussian_design(delta, seed, n_agents=n_agents, n_null=n_null, n_test=n_test)
    return [cn.Agent(f"site-{j:03d}", a.X_null, a.X_test, **more) for j, a in enumerate(drawn)]


def concatenated(run, name):
    return np.concatenate([getattr(site, name) for site in run.values()])


@pytest.mark.parametrize("regime", ["counts", "full"])
@pytest.mark.parametrize("pi0", [None, "storey"])
def test_decisions_are_those_of_centralized_bh_on_all_ranks(regime, pi0):
    run = cn.Network(agents(n_null=1900), regime=regime, scorer=FAST, bits=4, pi0=pi0).run()
    sizes = np.concatenate([np.full(s.ranks.size, s.n_calibration) for s in run.values()])
    expected = cn.benjamini_hochberg(concatenated(run, "ranks"), sizes, 0.1, pi0=pi0)
    assert np.array_equal(concatenated(run, "rejected"), expected)
    assert run.n_rejected == expected.sum() > 0


@pytest.mark.parametrize("regime", REGIMES)
def test_every_regime_fills_one_entry_per_row_and_can_be_verified(regime, tmp_path):
    run = cn.Network(
        agents(n_null=1200), regime=regime, composite="max", bits=4, scorer=FAST
    ).run()
    for site in run.values():
        assert len(site.rejected) == len(site.ranks) == len(site.scores) == 100
        assert np.array_equal(site.ranks == 0, ~site.tested)
        assert np.array_equal(np.isnan(site.p_values), ~site.tested)
        assert not site.rejected[~site.tested].any()
        assert site.tested.all() == (regime != "split")
    if regime == "pooled":
        assert not run.transcript.entries
    run.save(tmp_path / "run.json")
    assert verify(json.loads((tmp_path / "run.json").read_text())) == []


@pytest.mark.parametrize("regime", ["isolated", "conservative"])
def test_regimes_without_counts_run_bh_at_a_fraction_of_the_level(regime):
    run = cn.Network(agents(), regime=regime, scorer=LINEAR, bits=2).run()
    assert run.rounds == 0
    for site in run.values():
        expected = cn.benjamini_hochberg(site.ranks, site.n_calibration, "1/30")
        assert np.array_equal(site.rejected, expected)


def test_isolated_agents_send_nothing_but_greetings():
    run = cn.Network(agents(), regime="isolated", scorer=LINEAR).run()
    assert {e.kind for e in run.transcript.entries} == {"HELLO", "ROSTER", "READY", "OUTCOME"}


def test_split_sends_each_peer_its_own_model_and_tests_one_block():
    run = cn.Network(
        agents(n_null=901, n_test=302),
        regime="split",
        composite="max",
        bits=4,
        scorer=FAST,
        train_fraction=0.4,
    ).run()
    for index, site in enumerate(run.values()):
        assert site.tested.sum() == block_sizes(site.tested.size, 3)[index]
    models = [e for e in run.transcript.entries if e.kind == "MODEL"]
    assert len(models) == 6
    assert len({e.n_bytes for e in models if e.sender == "site-000"}) == 2


def test_the_same_seed_gives_the_same_transcript_and_decisions_byte_for_byte():
    few = agents(n_null=450, n_test=150)
    first, again, other = (
        cn.Network(few, composite="stacked", scorer=FAST, random_state=seed).run()
        for seed in (3, 3, 4)
    )
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert first.transcript.run_id != other.transcript.run_id


def test_an_agent_may_have_a_seed_of_its_own():
    members = agents(n_null=450, n_test=150)
    seeds = agent_seeds(3, 3)
    run = cn.Network(members, scorer=FAST, random_state=3).run()
    given = [replace(agent, seed=seed) for agent, seed in zip(members, seeds, strict=True)]
    same = cn.Network(given, scorer=FAST, random_state=4).run()
    assert np.array_equal(concatenated(same, "scores"), concatenated(run, "scores"))
    given[1] = replace(given[1], seed=seeds[1] ^ 1)
    other = cn.Network(given, regime="counts", scorer=FAST, random_state=3).run()
    alone = cn.Network(members, regime="counts", scorer=FAST, random_state=3).run()
    changed = [name for name in run if not np.array_equal(other[name].scores, alone[name].scores)]
    assert changed == ["site-001"]
    with pytest.raises(InputError, match="agent site-001: seed must be a whole number from 0"):
        cn.Network([members[0], replace(members[1], seed=-1)], scorer=FAST).run()


def test_the_order_in_which_agents_are_listed_does_not_matter():
    few = agents(n_null=450, n_test=150)
    straight, reversed_ = (cn.Network(members, scorer=FAST).run() for members in (few, few[::-1]))
    assert json.dumps(straight.to_dict()) == json.dumps(reversed_.to_dict())


@pytest.mark.parametrize(
    ("composite", "bits"),
    [
        *((composite, "compact") for composite in COMPOSITES),
        ("auto", 1),
        *(
            pytest.param(composite, 1, marks=pytest.mark.slow)
            for composite in COMPOSITES
            if composite != "auto"
        ),
    ],
)
def test_permuting_an_agents_test_rows_permutes_its_scores_and_changes_nobody_else(
    composite, bits
):
    members = agents(n_null=450, n_test=150)
    order = np.random.default_rng(0).permutation(50)
    moved = [
        cn.Agent(a.name, a.X_null, a.X_test[order] if a.name == "site-001" else a.X_test)
        for a in members
    ]
    first, second = (
        cn.Network(m, composite=composite, bits=bits, scorer=FAST).run() for m in (members, moved)
    )
    assert second["site-001"].scores.tobytes() == first["site-001"].scores[order].tobytes()
    for name in ("site-000", "site-002"):
        assert second[name].scores.tobytes() == first[name].scores.tobytes()


def test_agents_may_differ_in_rows_scorers_and_precision():
    drawn = [
        gaussian_design(1, seed, n_agents=2, n_null=n, n_test=m)[0]
        for seed, n, m in [(0, 400, 90), (1, 700, 30), (2, 300, 160), (3, 500, 80)]
    ]
    makers = [
        (FAST, None),
        (LINEAR, 3),
        (KNeighborsClassifier(5), "compact"),
        (cn.OneClass(cn_isolation(), "normal"), "compact"),
    ]
    members = [
        cn.Agent(name, a.X_null, a.X_test, scorer=scorer, bits=bits)
        for name, a, (scorer, bits) in zip("abcd", drawn, makers, strict=True)
    ]
    for composite in COMPOSITES:
        run = cn.Network(members, composite=composite, train_fraction=0.5).run()
        assert verify(run.to_dict()) == []
        assert [run[name].n_calibration for name in "abcd"] == [100, 175, 75, 125]


def cn_isolation():
    from sklearn.ensemble import IsolationForest

    return IsolationForest(n_estimators=20)


def test_a_scorer_without_probabilities_can_take_part():
    run = cn.Network(agents(), composite="mean", scorer=LinearSVC(), bits="compact").run()
    scores = concatenated(run, "scores")
    assert ((scores >= 0) & (scores <= 1)).all()


def test_several_candidates_are_chosen_from_at_each_agent():
    run = cn.Network(agents(), scorer=[FAST, LINEAR], bits=4).run()
    assert verify(run.to_dict()) == []


def test_frames_ids_and_results_in_kind():
    frames = [
        cn.Agent(
            a.name,
            pd.DataFrame(a.X_null).add_prefix("x"),
            pd.DataFrame(a.X_test, index=[f"{a.name}/{i}" for i in range(100)]).add_prefix("x"),
            ids=np.arange(100),
        )
        for a in agents()
    ]
    frame = cn.Network(frames, scorer=FAST).run()["site-002"].to_frame()
    assert list(frame.columns) == ["id", "score", "rank", "p_value", "tested", "rejected"]
    assert frame.index[5] == "site-002/5"


@pytest.mark.parametrize("phase", ["hello", "models"])
def test_an_agent_that_vanishes_before_the_counts_is_left_out(phase):
    network = cn.Network(agents(), regime="full", scorer=LINEAR, bits=4)
    run = network.run(dropouts={"site-001": phase})
    assert run.lost == ("site-001",)
    assert "Left out before the counts: site-001" in str(run.guarantee)
    assert run["site-001"].n_rejected == 0
    assert run.transcript.n_tests == 200
    rest = [run["site-000"], run["site-002"]]
    outcome = cn.fast_lsu([(s.ranks, s.n_calibration) for s in rest], 0.1)
    assert outcome.n_rejected == run.n_rejected
    assert verify(run.to_dict()) == []


def test_an_agent_that_vanishes_during_the_counts_ends_the_run_or_counts_as_zero():
    network = cn.Network(agents(), regime="counts", scorer=LINEAR)
    with pytest.raises(SiteVanishedError, match="site-001 vanished during the counts"):
        network.run(dropouts={"site-001": "counts"})
    network = cn.Network(agents(), regime="counts", scorer=LINEAR, on_dropout="conservative")
    run = network.run(dropouts={"site-001": "counts"})
    rest = [run["site-000"], run["site-002"]]
    blocks = [(s.ranks, s.n_calibration) for s in rest]
    # Its hundred rows count as tested, with p-value 1.
    expected = cn.fast_lsu([*blocks, (np.full(100, 151), 150)], 0.1)
    assert run.n_rejected == expected.n_rejected
    assert "Lost during the counts: site-001" in str(run.guarantee)
    assert verify(run.to_dict()) == []


def test_a_run_that_was_broken_off_and_repeated_gives_every_byte_of_one_that_was_not():
    network = cn.Network(agents(), scorer=LINEAR, bits=4)
    with pytest.raises(SiteVanishedError):
        network.run(dropouts={"site-001": "counts"})
    undisturbed = cn.Network(agents(), scorer=LINEAR, bits=4).run()
    assert json.dumps(network.run().to_dict()) == json.dumps(undisturbed.to_dict())


def test_unequal_agents_split_by_their_own_numbers():
    """Each takes the tests of all to be as many as its own, times the number of agents."""
    rng = np.random.default_rng(0)
    sizes = {"a": (300, 20), "b": (900, 200), "c": (2000, 60)}
    members = [
        cn.Agent(name, rng.normal(size=(n, 2)), rng.normal(size=(m, 2)))
        for name, (n, m) in sizes.items()
    ]
    for regime, n_together in (("counts", 3), ("isolated", 1)):
        level = REGIMES[regime].test_level("1/10", 3)
        run = cn.Network(members, regime=regime, scorer=LINEAR).run()
        for name, (n, m) in sizes.items():
            share = train_share(n, n_together * m, level, ANY_SHARE)
            assert run[name].n_calibration == n - int(share * n)


def test_dropouts_must_be_agents():
    with pytest.raises(InputError, match="no agent called nobody"):
        cn.Network(agents(), regime="counts", scorer=LINEAR).run(dropouts={"nobody": "hello"})


def test_a_hostile_model_is_refused_by_name_and_nothing_is_decided(monkeypatch):
    honest = Site.models

    def hostile(site, index, names, weight):
        blobs = honest(site, index, names, weight)
        return {peer: blob[:-1] for peer, blob in blobs.items()} if index == 1 else blobs

    monkeypatch.setattr(Site, "models", hostile)
    with pytest.raises(ModelRefusedError, match="the model of site-001 was refused"):
        cn.Network(agents(), scorer=LINEAR, bits=4).run()


def test_the_settings_name_the_seed_that_was_drawn():
    for random_state in (None, np.random.RandomState(5), np.random.default_rng(5)):
        network = cn.Network(agents(), regime="counts", scorer=LINEAR, random_state=random_state)
        drawn = network.run()
        seed = drawn.spec.seed
        again = cn.Network(agents(), regime="counts", scorer=LINEAR, random_state=seed).run()
        assert again.to_dict() == drawn.to_dict()
        assert network.run().spec.seed != seed


def test_options_are_kept_as_given_and_only_by_name():
    given = {"regime": "fuller", "level": 7, "pi0": "x", "random_state": "y", "on_dropout": "z"}
    network = cn.Network("nobody", **given)
    assert {name: getattr(network, name) for name in given} == given
    assert network.agents == "nobody"
    with pytest.raises(TypeError, match="positional"):
        cn.Network(agents(), "full")


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: cn.Network(agents()[:1]).run(), InputError, "2 to 200 agents"),
        (lambda: cn.Network(agents() + agents()).run(), InputError, "different names"),
        (lambda: cn.Network(agents(), regime="fuller").run(), InputError, "regime must be one of"),
        (
            lambda: cn.Network(agents(), composite="sum").run(),
            InputError,
            "composite must be one of",
        ),
        (lambda: cn.Network(agents(), bits=17).run(), InputError, "16"),
        (lambda: cn.Network(agents(), bits="tiny").run(), InputError, "'compact', not 'tiny'"),
        (lambda: cn.Network(agents(), on_dropout="panic").run(), InputError, "on_dropout"),
        (
            lambda: cn.Network([*agents(), cn.Agent("x", np.eye(9), -np.eye(9))]).run(),
            ColumnError,
            "agents site-000 and x do not have the same columns",
        ),
        (
            lambda: cn.Network(
                [*agents(), cn.Agent("x", np.full((9, 20), np.nan), -np.ones((9, 20)))]
            ).run(),
            ColumnError,
            "agent x: X_null: entirely missing",
        ),
        (
            lambda: cn.Network(agents(n_test=6), regime="split", scorer=LINEAR, bits=4).run(),
            SampleError,
            "agent site-000: 2 test rows cannot be split among the agents",
        ),
        (
            lambda: cn.Network([cn.Agent("a", np.eye(20), -np.eye(20), ids=[1]), *agents()]).run(),
            SampleError,
            "ids has shape",
        ),
    ],
)
def test_what_cannot_work_says_so_and_names_the_agent(make, error, words):
    with pytest.raises(error) as raised:
        make()
    assert re.search(words, str(raised.value))


def test_too_few_calibration_rows_in_the_whole_network_warn():
    with pytest.warns(ResolutionWarning, match="At least 29 calibration rows"):
        cn.Network(agents(n_null=60), regime="isolated", scorer=LINEAR).run()


@pytest.mark.parametrize("regime", ["joint", "pooled"])
def test_a_run_is_a_function_of_its_settings_and_of_rows_that_are_read(regime):
    network = cn.Network(agents(), regime=regime, scorer=LINEAR)
    spec = network.spec()
    members = read_agents(spec, as_agents(network.agents), LINEAR)
    again = [run_network(spec, members).to_dict() for _ in range(2)]
    expected = network.run(check=False)
    assert again == [expected.to_dict()] * 2
    promise = expected.guarantee
    assert promise.statement.startswith("FDR over all tested rows of all agents at most 1/10")
    assert all(needed in str(promise) for needed in promise.assumptions)


def test_parts_of_a_result_are_those_of_its_mode():
    runs = {name: cn.Network(agents(), regime=name, scorer=LINEAR).run() for name in REGIMES}
    parts = {name: set(next(iter(run.values())).parts) for name, run in runs.items()}
    assert parts.pop("consensus") == {"cells", "consensus"}
    assert parts.pop("joint") == parts.pop("together") == {"cells"}
    assert parts.pop("pooled") == {"uncertified"}
    assert set(map(len, parts.values())) == {0}


def test_two_hundred_agents():
    run = cn.Network(
        agents(n_agents=200, n_null=200 * 24, n_test=600), regime="counts", scorer=LINEAR
    ).run()
    assert len(run) == 200
    assert verify(run.to_dict()) == []


def test_full_finds_more_than_counts_and_conservative_where_agents_are_alike():
    found = {}
    for regime in ("counts", "conservative", "full"):
        hits = []
        for seed in range(3):
            drawn = gaussian_design(0, seed, n_null=1200, n_test=600)
            members = [cn.Agent(n, a.X_null, a.X_test) for n, a in zip("abc", drawn, strict=True)]
            scorer = ExtraTreesClassifier(50, max_depth=6, min_samples_leaf=2)
            run = cn.Network(
                members, regime=regime, composite="mean", scorer=scorer, random_state=seed
            ).run()
            hits += [run[n].rejected[a.is_novel] for n, a in zip("abc", drawn, strict=True)]
        found[regime] = np.concatenate(hits).mean()
    assert found["full"] > max(found["counts"], found["conservative"])

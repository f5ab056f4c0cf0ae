"""Small surrogates: what they depend on, how large they are, what a budget does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from support.scorers import fit_scorer

import conovel as cn
from conovel.errors import InputError
from conovel.experiments.gaussian import gaussian_design
from conovel.models import wire
from conovel.scorers.base import Mixture, TrainingSet
from conovel.site.sent.compact import DEFAULT, PROFILES, encode_compact, fit_compact
from conovel.site.sent.surrogate import make_surrogate

TREES = ExtraTreesClassifier(30, max_depth=12, min_samples_leaf=5, random_state=0)
LINEAR = LinearDiscriminantAnalysis()  # smooth, and with no flat form of its own


def block(seed, n_train=166, n_cal=167, n_test=111):
    """One block of the paper's design under `split`: 333 nulls, half of them to train."""
    agent = gaussian_design(2.0, seed)[seed % 3]
    nulls = agent.X_null[: n_train + n_cal]
    tests = agent.X_test[:: len(agent.X_test) // n_test][:n_test]
    return nulls[:n_train], np.concatenate([nulls[n_train:], tests])


def prepared(seed=0, scorer=LINEAR, **sizes):
    train, rows = block(seed, **sizes)
    mixture = Mixture.of(rows)
    return fit_scorer(scorer, train, mixture), TrainingSet(train, mixture)


@pytest.mark.parametrize("budget", [None, 120])
@given(st.randoms(use_true_random=False))
@settings(max_examples=2)
def test_the_order_of_the_mixture_changes_no_byte(budget, random):
    train, rows = block(0, 30, 30, 30)
    rows = np.concatenate([rows, rows[:5]])  # equal rows too
    order = list(range(len(rows)))
    random.shuffle(order)
    messages = []
    for mixture in (Mixture.of(rows), Mixture.of(rows[order])):
        local = fit_scorer(TREES, train, mixture)
        messages.append(encode_compact(local, TrainingSet(train, mixture), 3, budget=budget))
    assert messages[0] == messages[1]


def test_the_seed_decides_and_nothing_else():
    first, again, other = (encode_compact(*prepared(), seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("seed", range(3))
def test_the_default_is_at_most_500_bytes_on_the_papers_blocks_and_unsplit(seed):
    for sizes in ({}, {"n_train": 500, "n_cal": 500, "n_test": 333}):
        assert len(encode_compact(*prepared(seed, TREES, **sizes), seed)) <= 500


@pytest.mark.parametrize("seed", range(3))
def test_profiles_are_in_the_order_of_their_sizes(seed):
    sizes = [len(wire.encode(fit_compact(*prepared(seed, TREES), seed, p))) for p in PROFILES]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(PROFILES)


def test_a_budget_takes_the_first_profile_that_fits():
    given = prepared()
    messages = [wire.encode(fit_compact(*given, 0, profile)) for profile in PROFILES]
    for message in messages:
        assert encode_compact(*given, 0, budget=len(message)) == message
    assert encode_compact(*given, 0, budget=10**6) == messages[0]
    smaller = encode_compact(*given, 0, budget=len(messages[0]) - 1)
    assert smaller == messages[1]
    with pytest.raises(InputError, match=f"budget of 40 bytes.* has {len(messages[-1])}$"):
        encode_compact(*given, 0, budget=40)


def test_without_a_budget_the_default_is_sent():
    given = prepared()
    schema = b"abcd"
    message = encode_compact(*given, 0, schema=schema)
    assert message == wire.encode(fit_compact(*given, 0, DEFAULT), schema=schema)
    assert cn.decode(message).n_trees == DEFAULT.n_trees


@pytest.mark.parametrize(
    "scorer",
    [
        TREES,
        LINEAR,
        RandomForestClassifier(20, random_state=0),
        KNeighborsClassifier(15),
        LinearSVC(),
        cn.OneClass(IsolationForest(random_state=0), "normal"),
    ],
    ids=lambda scorer: type(scorer).__name__,
)
def test_whatever_model_it_imitates_it_tells_fresh_novelties_apart(scorer):
    local, training = prepared(1, scorer, n_train=500, n_cal=500, n_test=333)
    small = cn.decode(encode_compact(local, training, 0))
    fresh = gaussian_design(2.0, 99)[1]
    assert roc_auc_score(fresh.is_novel, small.score(fresh.X_test)) > 0.8


def test_its_scores_spread_as_far_as_those_of_the_model():
    local, training = prepared()
    small = fit_compact(local, training, 0, replace(DEFAULT, leaf_bits=12))
    rows, _ = training.labelled()
    spreads = [np.log(p / (1 - p)).std() for p in (small.score(rows), local.score(rows))]
    assert 0.9 < spreads[0] / spreads[1] < 1.1


def test_a_model_that_says_nothing_gives_a_surrogate_that_says_nothing():
    local, training = prepared()
    silent = replace(local, read=lambda X: np.full(len(X), 0.25))
    small = cn.decode(encode_compact(silent, training, 0))
    assert np.unique(small.score(training.mixture.distinct)).round(6).tolist() == [0.25]


@pytest.mark.parametrize(
    "scorer", [LogisticRegression(), cn.Refined(LogisticRegression(), n_folds=2, n_refits=1)]
)
def test_a_logistic_regression_is_sent_itself_where_the_budget_allows(scorer):
    local, training = prepared(0, scorer)
    message = encode_compact(local, training, 0)
    rows = training.mixture.distinct
    exact = local.estimator.predict_proba(rows)[:, 1]
    assert len(message) < 90
    assert np.abs(cn.decode(message).score(rows) - exact).max() < 0.01
    with pytest.raises(InputError, match="no model fits a budget of 9 bytes"):
        encode_compact(local, training, 0, budget=9)


def test_a_blend_is_imitated_not_represented_by_one_member():
    local, training = prepared(0, cn.Automatic().candidates()["blend"])
    assert cn.decode(encode_compact(local, training, 0)).n_trees == DEFAULT.n_trees


def test_scores_survive_the_wire_to_the_last_bit():
    given = prepared()
    for profile in PROFILES:
        small = fit_compact(*given, 0, profile)
        back = cn.decode(wire.encode(small))
        assert np.array_equal(back.score(given[1].null_train), small.score(given[1].null_train))


def test_columns_of_any_scale_keep_their_say():
    local, training = prepared()
    train, mixture = training.null_train, training.mixture
    scale = 10.0 ** np.linspace(-12, 12, train.shape[1])
    wide = Mixture(mixture.distinct * scale, mixture.position)
    scaled = replace(local, read=lambda X: local.read(X / scale))
    small = fit_compact(scaled, TrainingSet(train * scale, wide), 0)
    plain = fit_compact(local, training, 0)
    scores = [small.score(wide.distinct), plain.score(mixture.distinct)]
    assert np.corrcoef(*scores)[0, 1] > 0.7
    assert len(wire.encode(small)) < len(wire.encode(plain)) + 60


def test_a_network_keeps_to_its_budget_and_an_agent_to_its_own(monkeypatch):
    sent = []

    def spy(bits, *given, **more):
        sent.append((bits, len(make_surrogate(bits, *given, **more))))
        return make_surrogate(bits, *given, **more)

    monkeypatch.setattr("conovel.site.site.make_surrogate", spy)
    drawn = gaussian_design(1.0, 0, n_null=900, n_test=300)
    agents = [cn.Agent(f"site-{j}", a.X_null, a.X_test) for j, a in enumerate(drawn)]
    agents[0] = replace(agents[0], bits="compact:300")
    run = cn.Network(agents, bits="compact:100", scorer=LINEAR).run()
    assert run.spec.bits == "compact:100"
    assert [bits for bits, _ in sent] == ["compact:300", "compact:100", "compact:100"]
    assert 100 < sent[0][1] <= 300
    assert max(size for _, size in sent[1:]) <= 100
    with pytest.raises(InputError, match="agent site-0: no model fits a budget of 9 bytes"):
        cn.Network([replace(agents[0], bits="compact:9"), *agents[1:]], scorer=LINEAR).run()

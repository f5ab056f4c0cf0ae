"""From a fitted model to bytes and back, for every family that can be sent."""

import re

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import conovel as cn
from conovel.errors import InputError, ModelError
from conovel.scoring import Mixture, fit_scorer
from conovel.surrogate import as_bits, make_surrogate

TREES = [
    RandomForestClassifier(5, random_state=0),
    ExtraTreesClassifier(5, max_depth=4, random_state=0),
    DecisionTreeClassifier(max_depth=4, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=6, random_state=0),
    make_pipeline(StandardScaler(), RandomForestClassifier(5, max_depth=3, random_state=0)),
]
SMOOTH = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression()),
    MLPClassifier((4,), max_iter=20, random_state=0),
]


def name(model):
    steps = getattr(model, "steps", [("", model)])
    return "+".join(type(step).__name__ for _, step in steps)


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).normal(size=(300, 4))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", TREES + SMOOTH, ids=name)
def test_float64_scores_like_the_model_and_bits_come_closer(model, rows):
    X, y = rows
    wanted = model.fit(X, y).predict_proba(X)[:, 1]
    exact = cn.decode(cn.encode(model)).score(X)
    if any(model is tree for tree in TREES):
        assert np.array_equal(exact, wanted)
    else:
        np.testing.assert_allclose(exact, wanted, rtol=1e-12)
    blobs = {bits: cn.encode(model, bits=bits) for bits in (2, 4, 12)}
    errors = [np.abs(cn.decode(blob).score(X) - wanted).mean() for blob in blobs.values()]
    assert errors[2] < 0.01
    assert errors[2] < min(errors[:2])
    sizes = [*map(len, blobs.values()), len(cn.encode(model))]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("bits", [None, 1, 16, np.int64(4), "compact", "compact:28"])
def test_precisions_that_exist(bits):
    assert as_bits(bits) == bits


@pytest.mark.parametrize(
    "bits",
    [0, 17, -1, 4.0, True, "4", "", "tiny", "Compact", b"compact", "compact:", "compact:0"],
)
def test_precisions_that_do_not(bits):
    with pytest.raises(InputError, match="bits must be"):
        as_bits(bits)


@pytest.mark.parametrize("budget", ["-9", "3.5", " 300", "300:4", "²", "few"])
def test_budgets_that_are_no_number_of_bytes(budget):
    with pytest.raises(InputError, match=f"not 'compact:{re.escape(budget)}'"):
        as_bits(f"compact:{budget}")


def test_a_network_says_at_once_that_bits_are_wrong(rows):
    X, _ = rows
    with pytest.raises(InputError, match="not 'compact:few'"):
        cn.Network([cn.Agent("a", X, X), cn.Agent("b", X, X)], bits="compact:few")


def test_what_is_sent_follows_from_bits(rows):
    X, _ = rows
    mixture = Mixture.of(X[100:])
    local = fit_scorer(TREES[0], X[:100], mixture)
    for bits in (None, 3):
        sent = make_surrogate(bits, local, X[:100], mixture, 0)
        assert sent == cn.encode(local.estimator, bits=bits)
    compact = make_surrogate("compact", local, X[:100], mixture, 0, b"abcd")
    assert cn.wire.decode(compact, schema=b"abcd").link == "logistic"
    assert len(make_surrogate("compact:100", local, X[:100], mixture, 0)) <= 100


def test_a_model_without_a_flat_form_can_only_be_sent_compact(rows):
    X, _ = rows
    mixture = Mixture.of(X[100:])
    local = fit_scorer(GaussianNB(), X[:100], mixture)
    with pytest.raises(ModelError, match="GaussianNB has no flat form"):
        make_surrogate(4, local, X[:100], mixture, 0)
    assert cn.decode(make_surrogate("compact", local, X[:100], mixture, 0)).n_features == 4


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize(
    "model",
    [RandomForestClassifier(3, max_depth=2, random_state=0), LogisticRegression()],
    ids=["forest", "linear"],
)
def test_every_decoded_surrogate_describes_itself(model, bits):
    X = np.random.default_rng(0).normal(size=(60, 3))
    blob = cn.encode(model.fit(X, X[:, 0] > 0), bits=bits)
    facts = cn.decode(blob).describe()
    assert facts["bytes"]["header"] + facts["bytes"]["payload"] == len(blob)

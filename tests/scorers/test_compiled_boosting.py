"""Boosting on bins: loops and numpy give the same bits, and scikit-learn nearly the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

import conovel as cn
from conovel.models.arrays import logistic
from conovel.models.quantized.forest import uniform
from conovel.scorers import compiled_boosting
from conovel.scorers.bins import Bins
from conovel.scorers.compiled_boosting import CompiledBoosting

ARRAYS = ("feature", "threshold", "left", "value", "roots")


def rows(seed, n=300, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 1).astype(int)


def assert_equal(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one.forest, name), getattr(other.forest, name))
    assert one.forest.base == other.forest.base
    np.testing.assert_array_equal(one.raw, other.raw)
    np.testing.assert_array_equal(one.stages, other.stages)


scorers = st.builds(
    CompiledBoosting,
    n_trees=st.integers(1, 8),
    max_leaves=st.integers(1, 7),
    learning_rate=st.sampled_from([0.1, 1.0]),
    min_rows_per_leaf=st.integers(1, 9),
    l2=st.sampled_from([0.0, 1.0]),
    class_weight=st.sampled_from([None, "balanced"]),
    most_bins=st.sampled_from([4, 255]),
    patience=st.integers(1, 3),
)


@settings(max_examples=60, deadline=None)
@given(
    scorer=scorers,
    seed=st.integers(0, 10**6),
    n=st.sampled_from([1, 2, 9, 60, 300]),
    d=st.integers(1, 6),
    kind=st.sampled_from(["normal", "ties", "heavy", "constant"]),
    weighted=st.booleans(),
    watched=st.booleans(),
)
def test_loops_and_numpy_give_the_same_bits(scorer, seed, n, d, kind, weighted, watched):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X = {"ties": X.round(), "heavy": np.exp(5 * X), "constant": np.ones((n, d))}.get(kind, X)
    y = (rng.random(n) < 0.4).astype(int)
    weights = rng.random(n) * (rng.random(n) < 0.7) + (np.arange(n) == 0) if weighted else None
    watch = (rng.random(n) < 0.5) | (np.arange(n) == 0) if watched else None
    bins = scorer.bin(X)
    compiled = scorer.boost(bins, y, weights, watch, stages=True)
    np.testing.assert_array_equal(compiled.forest.score(X), logistic(compiled.raw))
    np.testing.assert_array_equal(compiled.first(1).score(X), logistic(compiled.stages[0]))
    np.testing.assert_array_equal(compiled.stages[-1], compiled.raw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_boosting, "available", lambda: False)
        assert_equal(compiled, scorer.boost(bins, y, weights, watch, stages=True))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), leaves=st.integers(2, 8), least=st.integers(3, 20))
def test_it_grows_the_trees_of_scikit_learn(seed, leaves, least):
    """On up to 255 distinct values the bins are the same; what differs is rounding."""
    X, y = rows(seed, n=200)
    mine = CompiledBoosting(5, leaves, min_rows_per_leaf=least, l2=0.5, most_bins=255)
    model = HistGradientBoostingClassifier(
        max_iter=5,
        max_leaf_nodes=leaves,
        min_samples_leaf=least,
        l2_regularization=0.5,
        early_stopping=False,
    ).fit(X, y)
    raw = mine.boost(mine.bin(X), y).raw
    theirs = model.decision_function(X)
    # Where two splits gain the same up to rounding, the trees may differ.
    close = np.isclose(raw, theirs, rtol=0, atol=1e-4).all()
    losses = [np.logaddexp(0, np.where(y, -f, f)).mean() for f in (raw, theirs)]
    assert close or losses[0] == pytest.approx(losses[1], rel=0.02)


def test_weights_are_copies():
    X, y = rows(1)
    copies = np.random.default_rng(0).integers(0, 3, 300)
    bins = Bins.of(X)
    scorer = CompiledBoosting(8, min_rows_per_leaf=1)
    weighted = scorer.boost(bins, y, copies.astype(float)).forest.score(X)
    repeated = Bins(bins.edges, np.repeat(bins.columns, copies, axis=1), bins.places)
    plain = scorer.boost(repeated, np.repeat(y, copies)).forest.score(X)
    np.testing.assert_allclose(weighted, plain, atol=1e-5)


def test_power_is_that_of_scikit_learn():
    X, y = rows(2, n=1500, d=10)
    fresh, truth = rows(3, n=5000, d=10)
    mine = CompiledBoosting(40)
    model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8, early_stopping=False)
    ours = roc_auc_score(truth, mine.boost(mine.bin(X), y).forest.score(fresh))
    theirs = roc_auc_score(truth, model.fit(X, y).predict_proba(fresh)[:, 1])
    assert ours == pytest.approx(theirs, abs=0.01)


def test_rows_of_weight_zero_are_scored_and_change_nothing():
    X, y = rows(4)
    hidden = np.arange(300) % 3 == 0
    scorer = CompiledBoosting(10)
    bins = scorer.bin(X)
    weights = np.where(hidden, 0.0, 1.0)
    first, second = scorer.boost_each(bins, [y, np.where(hidden, 1 - y, y)], [weights, weights])
    assert_equal(first, second)
    assert np.mean((first.raw[hidden] > 0) == y[hidden]) > 0.7


def test_the_order_of_rows_does_not_matter():
    X, y = rows(5)
    order = np.random.default_rng(0).permutation(300)
    scorer = CompiledBoosting(10)
    straight, mixed = (scorer.boost(scorer.bin(X[o]), y[o]) for o in (np.arange(300), order))
    np.testing.assert_array_equal(straight.raw[order], mixed.raw)
    np.testing.assert_array_equal(straight.forest.threshold, mixed.forest.threshold)


def test_watched_rows_stop_it_at_the_least_error():
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(300, 5)), rng.integers(0, 2, 300)  # nothing to learn
    watch = np.arange(300) % 2 == 0
    weights = np.where(watch, 0.0, 1.0)
    scorer = CompiledBoosting(100, learning_rate=0.5, patience=3)
    bins = scorer.bin(X)
    stopped = scorer.boost(bins, y, weights, watch)
    whole = scorer.boost(bins, y, weights, stages=True)
    errors = ((logistic(whole.stages[:, watch]) - y[watch]) ** 2).sum(axis=1)
    kept = stopped.forest.n_trees
    assert kept < 20
    assert errors[kept - 1] == errors[: kept + 3].min()
    np.testing.assert_array_equal(stopped.raw, whole.stages[kept - 1])


def test_one_class_scores_that_class():
    X, _ = rows(7)
    scorer = CompiledBoosting(3)
    assert scorer.boost(scorer.bin(X), np.ones(300, int)).forest.score(X).min() > 0.99


def test_it_detects_and_can_be_quantized():
    X, _ = rows(8, n=400)
    X[360:] += 2
    det = cn.AdaDetect(CompiledBoosting(20), random_state=3, train_fraction=0.5)
    shuffled = np.random.default_rng(0).permutation(160)
    straight = det.detect(X[:240], X[240:])
    mixed = det.detect(X[:240], X[240:][shuffled])
    np.testing.assert_array_equal(straight.scores[shuffled], mixed.scores)
    scorer = CompiledBoosting(20)
    forest = scorer.boost(scorer.bin(X), (X[:, 0] > 0).astype(int)).forest
    assert np.corrcoef(uniform(forest, 8).score(X), forest.score(X))[0, 1] > 0.99


def test_bad_arguments_are_named():
    X, y = rows(0)
    bins = Bins.of(X)
    with pytest.raises(cn.errors.InputError, match="300 labels"):
        CompiledBoosting().boost(bins, y + 1)
    with pytest.raises(cn.errors.InputError, match="watch"):
        CompiledBoosting().boost(bins, y, watch=np.zeros(300, bool))
    with pytest.raises(cn.errors.InputError, match="learning_rate"):
        CompiledBoosting(learning_rate=0.0).boost(bins, y)
    with pytest.raises(cn.errors.InputError, match="max_leaves"):
        CompiledBoosting(max_leaves=0).boost(bins, y)

"""Forests on bins: exact sums in any order; without draws, scikit-learn's trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import conovel as cn
from conovel.models.quantized.forest import uniform
from conovel.scorers import binned_forest
from conovel.scorers.binned_forest import BinnedForest, Bins, RandomisedTrees, as_integers
from conovel.scorers.from_sklearn import to_flat

ARRAYS = ("feature", "threshold", "left", "value", "roots")


def rows(seed, n=300, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 1).astype(int)


def assert_equal(one, other):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one.forest, name), getattr(other.forest, name))
    np.testing.assert_array_equal(one.votes, other.votes)
    np.testing.assert_array_equal(one.times, other.times)


def columns_of(rng, n, d, kind):
    X = rng.normal(size=(n, d))
    if kind == "ties":
        X = X.round()
    elif kind == "heavy":
        X = np.exp(5 * X)
    elif kind == "constant":
        X[:, 0] = 1.0
    return X


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), depth=st.sampled_from([1, 2, 4, None]), least=st.integers(1, 9))
def test_without_chance_it_is_the_tree_of_scikit_learn(seed, depth, least):
    """On up to 255 distinct values a bin holds one, and the partition of the rows is the same."""
    X, y = rows(seed, n=120)
    weights = np.random.default_rng(seed).integers(1, 4, 120) / 2
    forest = BinnedForest(1, depth, 5, least, bootstrap=False, random_state=0)
    mine = forest.grow(Bins.of(X), y, weights).forest
    model = DecisionTreeClassifier(max_depth=depth, min_samples_leaf=least, random_state=0)
    theirs = to_flat(model.fit(X, y, weights))
    if np.array_equal(mine.feature, theirs.feature):
        np.testing.assert_allclose(mine.score(X), theirs.score(X), rtol=0, atol=1e-9)
    else:  # where splits tie, any of them will do
        brier = [np.average((tree.score(X) - y) ** 2, weights=weights) for tree in (mine, theirs)]
        assert brier[0] == pytest.approx(brier[1], rel=0.05, abs=1e-9)


@pytest.mark.parametrize("splitter", ["best", "random"])
@pytest.mark.parametrize("least", [1, 5])
def test_with_chance_it_is_alike(splitter, least):
    """Sizes and out-of-sample errors of many trees agree within their spread."""
    X, y = rows(2, n=600)
    fresh, truth = rows(3, n=2000)
    forest = BinnedForest(200, 12, 2, least, splitter=splitter, random_state=0)
    kind = ExtraTreesClassifier if splitter == "random" else RandomForestClassifier
    model = kind(200, max_depth=12, min_samples_leaf=least, max_features=2, random_state=0)
    mine, theirs = forest.grow(Bins.of(X), y).forest, to_flat(model.fit(X, y))
    assert len(mine.feature) == pytest.approx(len(theirs.feature), rel=0.04)
    errors = [np.mean((grown.score(fresh) - truth) ** 2) for grown in (mine, theirs)]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)


def test_votes_out_of_bag_predict():
    X, y = rows(4, n=800)
    grown = BinnedForest(100, random_state=1).grow(Bins.of(X), y)
    model = RandomForestClassifier(100, random_state=1, oob_score=True).fit(X, y)
    assert grown.times.mean() == pytest.approx(100 * np.exp(-1), rel=0.02)
    mine = np.mean((grown.unseen_scores > 0.5) == y)
    assert mine == pytest.approx(model.oob_score_, abs=0.03)


def test_rows_of_weight_zero_are_scored_by_all_trees_and_change_none():
    X, y = rows(5)
    weights = np.where(np.arange(300) % 3 == 0, 0.0, 1.0)
    for splitter in ("best", "random"):
        forest = BinnedForest(20, splitter=splitter, random_state=0)
        bins = Bins.of(X)
        grown = forest.grow(bins, y, weights)
        hidden = weights == 0
        np.testing.assert_array_equal(grown.unseen_scores[hidden], grown.forest.score(X)[hidden])
        flipped = np.where(hidden, 1 - y, y)
        assert_equal(grown, forest.grow(bins, flipped, weights))
    assert np.isnan(grown.unseen_scores[~hidden]).all()  # extra-trees draw no rows


@pytest.mark.parametrize("splitter", ["best", "random"])
def test_the_scale_of_weights_does_not_matter(splitter):
    X, y = rows(6)
    weights = np.random.default_rng(0).integers(1, 50, 300).astype(float)
    forest, bins = BinnedForest(9, splitter=splitter, random_state=0), Bins.of(X)
    assert_equal(*(forest.grow(bins, y, scaled) for scaled in (weights, weights / 64)))


def test_without_draws_the_order_of_rows_does_not_matter():
    X, y = rows(7)
    order = np.random.default_rng(0).permutation(300)
    forest = BinnedForest(9, splitter="random", random_state=0)
    straight, mixed = (forest.grow(Bins.of(X[o]), y[o]) for o in (np.arange(300), order))
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(straight.forest, name), getattr(mixed.forest, name))


def test_nodes_beyond_the_space_are_kept(monkeypatch):
    X, y = rows(8)
    forest = BinnedForest(12, random_state=0)
    bins = Bins.of(X)
    whole = forest.grow(bins, y)
    monkeypatch.setattr(binned_forest, "_SPACE", 1)
    assert_equal(whole, forest.grow(bins, y))


def test_one_class_is_one_leaf():
    X, _ = rows(9)
    grown = BinnedForest(3).grow(Bins.of(X), np.ones(300, int))
    np.testing.assert_array_equal(grown.forest.score(X), np.ones(300))


def test_it_can_be_detected_with_and_quantized():
    X, _ = rows(10, n=400)
    X[360:] += 2
    det = cn.AdaDetect(RandomisedTrees(20), random_state=3, train_fraction=0.5)
    shuffled = np.random.default_rng(0).permutation(160)
    straight = det.detect(X[:240], X[240:])
    mixed = det.detect(X[:240], X[240:][shuffled])
    np.testing.assert_array_equal(straight.scores[shuffled], mixed.scores)
    grower = BinnedForest(20, min_rows_per_leaf=3, splitter="random", random_state=0)
    forest = grower.grow(Bins.of(X), (X[:, 0] > 0).astype(int)).forest
    assert np.corrcoef(uniform(forest, 8).score(X), forest.score(X))[0, 1] > 0.99


def test_bad_arguments_are_named():
    X, y = rows(0)
    bins = Bins.of(X)
    with pytest.raises(cn.errors.InputError, match="300 labels"):
        BinnedForest().grow(bins, y[:5])
    with pytest.raises(cn.errors.InputError, match="weights must be 300"):
        BinnedForest().grow(bins, y, -np.ones(300))
    with pytest.raises(cn.errors.InputError, match="weights are all 0"):
        BinnedForest().grow(bins, y, np.zeros(300))
    with pytest.raises(cn.errors.InputError, match="min_rows_per_leaf"):
        BinnedForest(min_rows_per_leaf=0).grow(bins, y)
    with pytest.raises(cn.errors.InputError, match="splitter"):
        BinnedForest(splitter="worst").grow(bins, y)


# bins


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 900),
    most=st.sampled_from([2, 16, 255]),
    kind=st.sampled_from(["normal", "ties", "heavy", "constant"]),
)
def test_bins_follow_the_rows_as_a_multiset(seed, n, most, kind):
    rng = np.random.default_rng(seed)
    X = columns_of(rng, n, 2, kind)
    order = rng.permutation(n)
    bins, mixed = Bins.of(X, most), Bins.of(X[order], most)
    np.testing.assert_array_equal(bins.columns[:, order], mixed.columns)
    np.testing.assert_array_equal(bins.places, mixed.places)
    for f in range(2):
        np.testing.assert_array_equal(bins.edges[f], mixed.edges[f])
        assert len(bins.edges[f]) < most
        assert (np.diff(bins.edges[f]) > 0).all()
        assert set(bins.columns[f]) == set(range(len(bins.edges[f]) + 1))  # no bin is empty
        if len(np.unique(X[:, f])) <= most:
            assert len(bins.edges[f]) + 1 == len(np.unique(X[:, f]))


def test_tails_have_bins_of_a_few_rows_and_a_frequent_value_one_of_its_own():
    X = np.random.default_rng(0).normal(size=(5000, 1))
    X[:2800] = 0.0
    sizes = np.bincount(Bins.of(X).columns[0])
    assert sizes[:3].max() <= 3
    assert sizes[-3:].max() <= 3
    assert np.count_nonzero(sizes >= 2800) == 1
    assert 150 < sizes.size <= 255


def test_whole_weights_stay_exact():
    weights = np.array([1.0, 3.0, 0.0, 2.5])
    whole = as_integers(weights, 4)
    np.testing.assert_array_equal(whole / whole[0], weights)
    assert whole.sum() < 2**31
    assert as_integers(np.array([1e-300, 1.0]), 2)[0] == 1

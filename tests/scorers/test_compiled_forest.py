"""The compiled forest: scikit-learn's trees where nothing is drawn, alike where something is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import conovel as cn
from conovel.scorers.compiled_forest import CompiledForest
from conovel.scorers.from_sklearn import to_flat


def rows(seed, n=300, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=n) > 1).astype(int)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 4), grid=st.booleans())
def test_without_chance_it_is_the_tree_of_scikit_learn(seed, depth, grid):
    X, y = rows(seed)
    if grid:
        X = X.round(1)  # many equal values
    mine = CompiledForest(1, depth, max_features=5, bootstrap=False).grow(X, y)
    theirs = to_flat(DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, y))
    # Where splits tie, any of them will do: then the trees differ, but not what they gain.
    if np.array_equal(mine.feature, theirs.feature):
        np.testing.assert_array_equal(mine.threshold, theirs.threshold)
        np.testing.assert_array_equal(mine.left, theirs.left)
        np.testing.assert_allclose(mine.value, theirs.value, rtol=1e-15)
    else:
        brier = [np.mean((tree.score(X) - y) ** 2) for tree in (mine, theirs)]
        assert brier[0] == pytest.approx(brier[1], rel=0.02)


def test_an_unlimited_tree_knows_its_rows():
    X, y = rows(1)
    np.testing.assert_array_equal(
        CompiledForest(1, None, 5, bootstrap=False).grow(X, y).score(X), y
    )


@pytest.mark.parametrize("depth", [3, None])
def test_with_chance_it_is_alike(depth):
    """Sizes and out-of-sample errors of many trees agree within their spread."""
    X, y = rows(2, n=400)
    fresh, truth = rows(3, n=2000)
    mine = CompiledForest(200, depth, random_state=0).grow(X, y)
    theirs = to_flat(RandomForestClassifier(200, max_depth=depth, random_state=0).fit(X, y))
    assert len(mine.feature) == pytest.approx(len(theirs.feature), rel=0.03)
    errors = [np.mean((forest.score(fresh) - truth) ** 2) for forest in (mine, theirs)]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)


def test_noise_draws_every_feature_alike():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 10)), rng.integers(2, size=200)
    forest = CompiledForest(2000, 1, max_features=1, random_state=1).grow(X, y)
    counts = np.bincount(forest.feature[forest.feature >= 0], minlength=10)
    assert counts.sum() == 2000
    assert np.all(abs(counts - 200) < 5 * 200**0.5)


def test_the_seed_decides():
    X, y = rows(4)
    first, again, other = (
        CompiledForest(10, random_state=seed).grow(X, y).score(X) for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_rows_in_any_order_give_the_same_decisions():
    X, _ = rows(5, n=400)
    X[360:] += 2
    shuffled = np.random.default_rng(0).permutation(160)
    det = cn.AdaDetect(CompiledForest(20, 4), random_state=3, train_fraction=0.5)
    straight = det.detect(X[:240], X[240:])
    mixed = det.detect(X[:240], X[240:][shuffled])
    np.testing.assert_array_equal(straight.scores[shuffled], mixed.scores)


def test_threads_do_not_matter():
    X, y = rows(6)
    one, many = (CompiledForest(9, 6, random_state=0, n_jobs=n).grow(X, y) for n in (1, 3))
    assert one.n_trees == many.n_trees == 9
    for name in ("feature", "threshold", "left", "value", "roots"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    assert len(np.unique(one.threshold[one.roots])) > 1  # each tree has its own chance


@pytest.mark.parametrize("depth", [4, None])
def test_trees_with_chances_of_their_own_are_alike(depth):
    X, y = rows(2, n=400)
    fresh, truth = rows(3, n=2000)
    forests = (CompiledForest(200, depth, random_state=0, n_jobs=n) for n in (None, 2))
    grown = [forest.grow(X, y) for forest in forests]
    assert len(grown[0].feature) == pytest.approx(len(grown[1].feature), rel=0.03)
    errors = [np.mean((forest.score(fresh) - truth) ** 2) for forest in grown]
    assert errors[0] == pytest.approx(errors[1], rel=0.05)

"""What is computed here in a fraction of scikit-learn's time has its bits, or those of a loop."""

from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.ensemble import ExtraTreesRegressor

from conovel.models.forest import Forest
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.binned_forest import Bins, RandomisedTrees
from conovel.scorers.blend import Discriminant, shrunk_covariance
from conovel.scorers.cross_fit import CrossFitter, ShrunkenLogistic, fit_weighted
from conovel.site.sent.compact import find_bounds, grow_imitation

TREES = RandomisedTrees(5, random_state=0)


@pytest.mark.parametrize("d", [1, 2, 20, 70])
@pytest.mark.parametrize("n", [2, 5, 60, 400])
def test_a_shrunk_covariance(n, d):
    rng = np.random.default_rng([n, d])
    rows = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    rows -= rows.mean(axis=0)
    expected, _ = ledoit_wolf(rows, assume_centered=True)
    assert np.array_equal(shrunk_covariance(rows), expected)


def test_constant_rows_have_no_covariance():
    assert not shrunk_covariance(np.zeros((9, 3))).any()


@pytest.mark.parametrize("learner", [Discriminant(), ShrunkenLogistic()])
def test_folds_scored_together_score_as_one_by_one(learner):
    rng = np.random.default_rng(1)
    null, mixed = rng.normal(size=(90, 6)), rng.normal(0.5, 2, size=(80, 6))
    fitter = CrossFitter.of(TrainingSet(null, Mixture.of(mixed)), 4)
    weights = np.where(np.arange(170) < 90, 1.0, rng.random(170))
    fitted = fitter.cross_fit(learner, weights)
    together = fitter.scores(fitted)
    assert len(fitted.models) == 16
    for fold, model in enumerate(fitted.models):
        members = fitter.folds % 16 == fold
        assert np.array_equal(together[members], model.score(fitter.rows[members]))
        for row in np.flatnonzero(members)[:2]:  # alone, too
            assert together[row] == model.score(fitter.rows[[row]])[0]


@pytest.mark.parametrize("learner", [Discriminant(), ShrunkenLogistic(0.1), TREES])
def test_a_copy_of_a_plain_learner_is_a_clone(learner):
    assert copy(learner).get_params() == clone(learner).get_params()
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(80, 3)), np.arange(80) % 2
    for weights in (np.ones(80), rng.random(80) + 0.1):
        fitted = fit_weighted(learner, X, y, weights)
        direct = clone(learner).fit(X, y, weights)
        assert np.array_equal(fitted.predict_proba(X), direct.predict_proba(X))
    assert not hasattr(learner, "classes_")  # what is fitted is the copy


@pytest.mark.parametrize("seed", [0, 5])
def test_small_trees_are_those_of_the_forest(seed):
    rng = np.random.default_rng(seed)
    rows, target = rng.normal(size=(150, 7)), rng.normal(size=150)
    trees = ExtraTreesRegressor(100, max_leaf_nodes=20, max_features="sqrt", random_state=seed)
    trees.fit(rows, target)
    grown = grow_imitation(rows, target, seed)
    stretch = target.std() / trees.predict(rows).std()
    raw = target.mean() + stretch * (trees.predict(rows) - target.mean())
    assert grown.score(rows) == pytest.approx(1 / (1 + np.exp(-raw)))
    splits = sorted(t for one in trees.estimators_ for t in one.tree_.threshold if t != -2)
    assert np.allclose(np.sort(grown.threshold[grown.feature >= 0]), splits)
    bounded = grow_imitation(rows, target, seed, find_bounds(rows))
    assert bounded.n_trees == 100


@pytest.mark.parametrize("n", [1, 2, 40, 255])
def test_bins_of_few_rows_are_their_distinct_values(n):
    rng = np.random.default_rng(n)
    rows = np.column_stack([rng.normal(size=n), rng.integers(0, 9, n), np.zeros(n)])
    bins = Bins.of(rows)
    for values, edges, codes, places in zip(
        rows.T, bins.edges, bins.columns, bins.places, strict=True
    ):
        distinct = np.unique(values)
        assert np.array_equal(distinct[codes], values)
        assert np.array_equal(places[: distinct.size], distinct)
        assert not places[distinct.size :].any()
        assert np.array_equal(edges, distinct[:-1] / 2 + distinct[1:] / 2)


def test_edges_far_apart_close_together_and_none_are_searched_right():
    listed = [-1.7e308, 0.1, 1.7e308], [0.0, 5e-324], [], range(40), [7.0]
    edges = [np.array(one, dtype=np.float64) for one in listed]
    columns = np.concatenate([np.full(one.size, f) for f, one in enumerate(edges)]).astype(int)
    n = columns.size
    feature, threshold = np.full(3 * n, -1), np.zeros(3 * n)
    feature[::3], threshold[::3] = columns, np.concatenate(edges)
    left = np.arange(3 * n)
    left[::3] += 1
    value = np.zeros(3 * n)
    value[2::3] = 1.0  # of a row that goes right
    forest = Forest(feature, threshold, left, value, np.arange(0, 3 * n, 3), 5, single=False)
    rows = np.random.default_rng(0).choice(np.concatenate(edges), size=(200, 5))
    right = sum((rows[:, [f]] > one).sum(axis=1) for f, one in enumerate(edges))
    assert np.array_equal(forest.score(rows), right / n)

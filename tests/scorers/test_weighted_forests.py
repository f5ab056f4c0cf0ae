"""Forests that learn from likely novelties, and what finds these."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from conovel.scorers.automatic import normality
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.cross_fit import ShrunkenLogistic
from conovel.scorers.weighted_forests import (
    WeightedForests,
    average,
    distances,
    mahalanobis,
    middle_and_scale,
    neighbour_distance,
    over_equal_rows,
)


def skewed(seed, n_null=300, n_mixture=300, n_novel=30, d=5):
    rng = np.random.default_rng(seed)
    null, mixture = (np.exp(rng.normal(size=(n, d))).round(2) for n in (n_null, n_mixture))
    mixture[:n_novel] = rng.uniform(0.2, 0.3, size=(n_novel, d)).round(2)
    return null, mixture


def test_permuting_the_mixture_permutes_the_scores_bit_for_bit():
    null, rows = skewed(0)
    rows = np.concatenate([rows, rows[:9], null[:9]])  # equal rows, also of null_train
    order = np.random.default_rng(1).permutation(len(rows))
    scores = []
    for some in (rows, rows[order]):
        mixture = Mixture.of(some)
        fitted = WeightedForests(20, random_state=3).fit(TrainingSet(null, mixture))
        scores.append(mixture.score(fitted))
    assert scores[0][order].tobytes() == scores[1].tobytes()


def test_likely_novelties_weigh_more():
    null, rows = skewed(1)
    mixture = Mixture.of(rows)
    fitted = WeightedForests(50, random_state=0).fit(TrainingSet(null, mixture))
    weights = fitted.weights
    assert weights.min() == pytest.approx(0.1)
    is_novel = (mixture.rows <= 0.3).all(axis=1)
    assert weights[is_novel].mean() > weights[~is_novel].mean() + 0.25


def test_what_finds_nothing_does_not_dilute():
    found = np.array([0.9, 0.8, 0.0])
    assert np.array_equal(average(found, np.zeros(3)), found)
    assert np.array_equal(average(np.zeros(3), np.zeros(3)), np.zeros(3))
    other = np.array([0.0, 0.0, 0.1])
    assert average(found, other)[0] == pytest.approx(0.9 * 1.7 / 1.8)


def test_equal_rows_share_the_mean_of_their_scores():
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [-0.0, 1.0], [0.0, 1.0]])
    assert over_equal_rows(np.array([1.0, 5.0, 2.0, 0.0, 1.0]), rows).tolist() == [
        1.5,
        5.0,
        1.5,
        0.5,
        0.5,
    ]


def test_a_normal_is_measured_without_itself():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 25))
    n_train = 150
    # Known normals and new ones have the same distribution, though the first set the shape.
    square = mahalanobis(rows, n_train)
    assert abs(np.median(square[:n_train]) / np.median(square[n_train:]) - 1) < 0.15
    near = neighbour_distance(rows, n_train)
    assert near[:n_train].min() > 0
    assert abs(np.median(near[:n_train]) / np.median(near[n_train:]) - 1) < 0.05
    assert not list(distances(rows, 2))


def test_the_scale_of_a_column_of_zeros_is_that_of_its_other_values():
    rows = np.array([[0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [2.0, 7.0], [6.0, 7.0]])
    middle, scale = middle_and_scale(rows)
    assert middle.tolist() == [0.0, 7.0]
    assert scale.tolist() == [4.0, 1.0]


@pytest.mark.parametrize("n", [30, 100, 1000])
def test_gaussian_columns_are_seldom_taken_for_others(n):
    rng = np.random.default_rng(0)
    shapes = [normality(rng.normal(size=(n, 20)) * 1e200) for _ in range(200)]
    assert np.mean([shape.is_plausible for shape in shapes]) > 0.985
    assert {shape.n_allowed for shape in shapes} == {5}
    assert not normality(rng.exponential(size=(n, 20))).is_plausible


def test_columns_that_do_not_vary_are_not_counted():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(50, 3)), np.full(50, 2.0)])
    assert normality(rows).n_columns == 3
    assert normality(np.ones((5, 2))) == (0, 0, 0, 0)


@pytest.mark.parametrize("standardise", [True, False])
def test_the_shrunken_logistic_regression_is_scikit_learns(standardise):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)) * [1, 5, 0.2], np.arange(400) >= 350
    X[y] += 1
    weights = rng.uniform(0.1, 1, size=400)
    ours = ShrunkenLogistic(0.5, standardise=standardise).fit(X, y, weights)
    columns = (X - X.mean(axis=0)) / X.std(axis=0) if standardise else X
    theirs = LogisticRegression(C=0.5, tol=1e-9, max_iter=1000).fit(columns, y, weights)
    expected = theirs.predict_proba(columns)
    assert np.allclose(ours.predict_proba(X), expected, atol=1e-4)

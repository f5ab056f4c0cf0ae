"""Logistic regressions of several folds: scikit-learn's minimum, sums in a fixed order."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.scorers import cross_fit
from conovel.scorers.cross_fit import fit_folds


def rows(seed, n=200, d=4, shift=1.0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, d)) * np.arange(1, d + 1) + 5, np.arange(n) % 2
    X[y == 1, 0] += shift
    return X, y


def one_out(folds, n_folds):
    return (folds != np.arange(n_folds)[:, None]).astype(float)


@pytest.mark.parametrize("C", [0.03, 1.0, 100.0])
@pytest.mark.parametrize("shift", [0.5, 20.0])  # the second can be separated
@pytest.mark.parametrize("d", [1, 4, 60])
def test_every_fit_is_the_minimum_of_scikit_learn(C, shift, d):
    X, y = rows(0, 150, d, shift)
    weights = one_out(np.arange(150) // 2 % 3, 3) * np.random.default_rng(1).random(150)
    fits = fit_folds(X, y, weights, C)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    for model, weight in zip(fits, weights, strict=True):
        exact = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=1000)
        exact.fit(z, y, weight)
        # The slope of the mean loss is at most 1e-6, and the ridge bends it by 1 / (n C).
        off = max(1e-5, 1e-6 * weight.sum() * C)
        np.testing.assert_allclose(model.coef, exact.coef_[0], atol=off)
        assert model.intercept == pytest.approx(exact.intercept_[0], abs=off)


def test_each_fit_may_have_its_own_target():
    X, y = rows(2)
    both = fit_folds(X, np.stack([y, 1 - y]), np.ones((2, 200)), 1.0)
    np.testing.assert_allclose(both[0].coef, -both[1].coef, atol=1e-5)


def test_rows_of_weight_zero_change_only_the_standardisation():
    X, y = rows(3)
    weights = one_out(np.arange(200) // 2 % 4, 4)
    flipped = np.where(weights == 0, 1 - y, np.broadcast_to(y, weights.shape))
    mine, other = fit_folds(X, y, weights), fit_folds(X, flipped, weights)
    for one, same in zip(mine, other, strict=True):
        np.testing.assert_allclose(one.coef, same.coef, atol=1e-4)
        assert one.intercept == pytest.approx(same.intercept, abs=1e-4)


def test_a_constant_column_says_nothing():
    X, y = rows(4)
    X[:, 2] = 0.1
    (model,) = fit_folds(X, y, np.ones((1, 200)))
    assert model.coef[2] == 0
    assert model.scale[2] == 1


def test_very_large_columns_are_standardised():
    X, y = rows(5)
    (small,) = fit_folds(X, y, np.ones((1, 200)))
    (large,) = fit_folds(X * 2.0**600, y, np.ones((1, 200)))
    np.testing.assert_array_equal(small.coef, large.coef)
    np.testing.assert_array_equal(small.score(X), large.score(X * 2.0**600))


@pytest.mark.parametrize("columns", [1, 2, 3, 9, 31])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1000, 9001])
def test_rows_are_added_one_after_the_other(columns, n):
    matrix = np.random.default_rng(n).normal(size=(n, columns))
    total = np.zeros(columns)
    for row in matrix:
        total += row
    np.testing.assert_array_equal(cross_fit._sum_of_rows(matrix), total)


def test_bad_arguments_are_named():
    X, y = rows(6)
    with pytest.raises(cn.errors.InputError, match="fit 1 has rows of one class"):
        fit_folds(X, y, np.stack([np.ones(200), y]))
    with pytest.raises(cn.errors.InputError, match="a column for each of 200 rows"):
        fit_folds(X, y, np.ones((1, 5)))
    with pytest.raises(cn.errors.InputError, match="C must be"):
        fit_folds(X, y, np.ones((1, 200)), C=0.0)

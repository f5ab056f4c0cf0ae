"""The discriminant: one covariance, two means, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.blend import Discriminant
from conovel.scorers.cross_fit import CrossFitter

WEIGHTS = np.random.default_rng(9).integers(1, 4, size=220)


def two_classes(seed=0, n_normal=200, n_novel=20, d=5, shift=1.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_normal + n_novel, d)) @ rng.normal(size=(d, d))
    y = np.arange(len(X)) >= n_normal
    X[y] += shift
    return X, y.astype(int)


def test_the_direction_solves_fishers_equation():
    X, y = two_classes()
    normal = X[y == 0]
    scale = normal.std(axis=0)
    covariance = ledoit_wolf(normal / scale)[0] * np.outer(scale, scale)
    shift = X[y == 1].mean(axis=0) - normal.mean(axis=0)
    model = Discriminant().fit(X, y)
    assert model.coef_ == pytest.approx(np.linalg.solve(covariance, shift))
    halfway = (X[y == 1].mean(axis=0) + normal.mean(axis=0)) / 2
    assert model.predict_proba(halfway[np.newaxis]) == pytest.approx(0.5)


def test_weights_count_like_copies_of_novelties():
    X, y = two_classes()
    weights = np.where(y == 1, WEIGHTS, 1)
    copies = np.repeat(np.arange(len(X)), weights)
    weighted = Discriminant().fit(X, y, sample_weight=weights.astype(float))
    assert weighted.coef_ == pytest.approx(Discriminant().fit(X[copies], y[copies]).coef_)
    assert weighted.coef_ != pytest.approx(Discriminant().fit(X, y).coef_)


@settings(max_examples=30)
@given(units=st.lists(st.sampled_from([1e-6, 0.01, 1.0, 300.0, 1e7]), min_size=5, max_size=5))
def test_units_and_origins_of_the_columns_do_not_matter(units):
    X, y = two_classes()
    moved = (X + 3) * units
    mine, theirs = (Discriminant().fit(Z, y).predict_proba(Z) for Z in (X, moved))
    assert theirs == pytest.approx(mine, abs=1e-6)


def test_a_constant_column_says_nothing():
    X, y = two_classes()
    wide = np.column_stack([X, np.full(len(X), 7.0)])
    model = Discriminant().fit(wide, y)
    assert model.coef_[-1] == 0
    assert np.isfinite(model.predict_proba(wide)).all()
    wide[:, -1] = np.where(y == 1, 8.0, 7.0)  # constant for normals, and there is no scale for it
    assert Discriminant().fit(wide, y).coef_[-1] == 0


def test_two_normals_have_no_covariance_to_invert_and_do_no_harm():
    X, y = two_classes(n_normal=2, n_novel=1)
    model = Discriminant().fit(X, y)
    assert np.abs(model.coef_).max() < 1e3
    assert np.isfinite(model.predict_proba(X)).all()


def test_a_row_is_scored_alike_in_any_company():
    X, y = two_classes(d=19)
    model = Discriminant().fit(X, y)
    alone = [model.predict_proba(X[i : i + 1])[0, 1] for i in range(len(X))]
    assert np.array_equal(alone, model.predict_proba(X)[:, 1])


def test_it_finds_the_direction_of_few_novelties_better_than_logistic_regression():
    def error(model, seed):
        X, y = two_classes(seed, n_normal=500, n_novel=20, d=10, shift=0)
        X = np.random.default_rng(seed).normal(size=X.shape)
        X[y == 1, 0] += 4
        coef = model.fit(X, y).coef_.ravel()
        return 1 - coef[0] / np.linalg.norm(coef)

    plain = LogisticRegression(C=1e6, max_iter=1000)
    errors = [[error(model, seed) for seed in range(20)] for model in (Discriminant(), plain)]
    assert 2 * np.mean(errors[0]) < np.mean(errors[1])


@pytest.mark.parametrize(
    ("learner", "n_models"),
    [
        (LogisticRegression(), 12),
        (make_pipeline(StandardScaler(), LogisticRegression()), 12),
        (Discriminant(), 12),
        (ExtraTreesClassifier(3), 3),
    ],
)
def test_linear_models_are_fitted_in_finer_folds(learner, n_models):
    X, y = two_classes()
    fitter = CrossFitter.of(TrainingSet(X[y == 0], Mixture.of(X[y == 1])), n_folds=3)
    found = fitter.cross_fit(learner, np.ones(len(X)))
    assert len(found.models) == n_models
    assert np.array_equal(fitter.scores(found), found.score(fitter.rows))

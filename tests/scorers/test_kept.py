"""Scores as numbers: what is put together again scores with the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from sklearn.neural_network import MLPClassifier

import conovel as cn
from conovel.errors import ModelError
from conovel.scorers.argument import as_candidates
from conovel.scorers.automatic import mahalanobis_distance
from conovel.scorers.base import Mixture
from conovel.scorers.estimators import as_scorer
from conovel.scorers.kept import Part, from_part, to_part

WIDTH = 4


def training(shape="normal", n=120):
    rng = np.random.default_rng(3)
    null, mixed = getattr(rng, shape)(size=(n, WIDTH)), getattr(rng, shape)(size=(n, WIDTH))
    mixed[:20] += 3
    return cn.TrainingSet(null, Mixture.of(mixed)), np.concatenate([mixed * 1.1, null + 0.3])


TREES = ExtraTreesClassifier(8, max_depth=4)
SCORERS = [
    ("normal", TREES),
    ("normal", GradientBoostingClassifier(n_estimators=5)),
    ("normal", "logistic"),
    ("normal", cn.Refined(TREES, LogisticRegression(), n_folds=2)),
    ("normal", None),
    ("exponential", None),
    ("normal", MLPClassifier((3,), max_iter=20)),
    ("normal", mahalanobis_distance()),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("shape", "scorer"), SCORERS)
def test_a_score_keeps_every_bit_in_any_batch(shape, scorer):
    rows_of, X = training(shape)
    fitted = as_candidates(scorer, 1)[0].fit(rows_of)
    again = from_part(to_part(fitted), WIDTH, fitted.name)
    scores = again.score(X)
    assert np.array_equal(scores, fitted.score(X))
    one_by_one = [again.score(X[i : i + 1])[0] for i in range(0, len(X), 7)]
    assert np.array_equal(one_by_one, scores[::7])
    assert (again.name, again.scale) == (fitted.name, fitted.scale)


@pytest.mark.parametrize("max_features", [1.0, 0.5])
def test_an_isolation_forest_orders_rows_alike(max_features):
    rows_of, X = training()
    model = IsolationForest(n_estimators=30, max_features=max_features, random_state=0)
    fitted = cn.OneClass(model, higher="normal").fit(rows_of)
    kept = from_part(to_part(fitted), WIDTH, "").score(X)
    order = np.argsort(kept)
    assert (np.diff(fitted.score(X)[order]) >= -1e-12).all()


def test_what_has_no_numbers_is_none():
    rows_of, _ = training()
    for scorer in (
        as_scorer(KNeighborsClassifier()),
        cn.OneClass(LocalOutlierFactor(novelty=True), higher="normal"),
    ):
        assert to_part(scorer.fit(rows_of)) is None


def damaged():
    forest = to_part(as_scorer(TREES).fit(training(n=40)[0]))
    linear = to_part(as_candidates("logistic", 0)[0].fit(training(n=40)[0]))
    arrays, few = forest.arrays, {"coef": np.ones(3)}
    yield replace(forest, kind="pickle"), "no model of the kind 'pickle'"
    yield replace(forest, scale="metres"), "no scores have the scale"
    yield replace(forest, arrays={}), "not whole"
    yield replace(forest, parts=(linear,)), "has no parts"
    yield replace(forest, settings={**forest.settings, "base": "1"}), "settings of a forest"
    yield replace(forest, arrays={**arrays, "left": arrays["left"] * 0}), "."
    yield replace(forest, arrays={**arrays, "feature": arrays["feature"] + 9}), "."
    yield replace(linear, arrays=few), "rows of 3 columns"
    yield replace(linear, settings={}), "not whole"
    yield Part("folds", "ordinal"), "a model for each fold"
    yield Part("blend", "ordinal", {"n_folds": 2}, {}, (linear,)), "a model for each fold"
    yield Part("blend", "ordinal", {"n_folds": 1}, {"scale": np.ones(1)}, (linear, linear)), "."
    yield Part("distance", "ordinal", {}, {"centre": np.ones(WIDTH)}), "not whole"
    wrong = {"centre": np.ones(WIDTH), "whitening": np.full((WIDTH, WIDTH), np.nan)}
    yield Part("distance", "ordinal", {}, wrong), "finite numbers"
    yield Part("discriminant", "ordinal", {}, {"coef": np.ones(4), "middle": np.ones(3)}), "shape"


@pytest.mark.parametrize(("part", "message"), list(damaged()))
def test_damaged_parts_are_named(part, message):
    with pytest.raises(ModelError, match=message):
        from_part(part, WIDTH, "kept")


def test_a_kept_score_cannot_be_fitted_again():
    rows_of, _ = training(n=40)
    kept = from_part(to_part(as_candidates("logistic", 0)[0].fit(rows_of)), WIDTH, "logistic")
    assert kept.scorer.with_seed(3) is kept.scorer
    with pytest.raises(cn.errors.ScorerError, match="cannot be fitted again"):
        kept.scorer.fit(rows_of)

"""Refining: folds by content, weights from H alone, and the same guarantee."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from support.scorers import fit_scorer, samples, spying

import conovel as cn
from conovel.errors import ScorerError
from conovel.scorers.base import Mixture, content_folds
from conovel.scorers.blend import Refined
from conovel.scorers.cross_fit import fit_weighted

TREES = ExtraTreesClassifier(50, max_depth=6, min_samples_leaf=2, random_state=0)
LINEAR = make_pipeline(StandardScaler(), LogisticRegression(C=0.03))


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=40))
def test_equal_rows_share_their_fold_wherever_they_stand(rows):
    rows = np.array(rows, dtype=float)
    folds = content_folds(rows, 5)
    assert set(folds) <= set(range(5))
    for row, fold in zip(rows, folds, strict=True):
        assert (folds[(rows == row).all(axis=1)] == fold).all()
    assert np.array_equal(content_folds(rows[::-1], 5), folds[::-1])


def test_folds_are_of_similar_size_also_for_coarse_rows():
    grid = np.stack(np.meshgrid(np.arange(50.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    assert np.bincount(content_folds(grid, 5), minlength=5).min() > 340  # of 400 expected


def test_no_row_is_scored_by_a_model_that_saw_it():
    Spy, seen = spying()
    X_null, X_test = samples(0)
    mixture = Mixture.of(X_test)
    mixture.score(fit_scorer(Refined(Spy()), X_null, mixture))
    assert seen
    assert not any(seen)


def test_refining_finds_more_than_the_first_fit():
    found = {"plain": 0, "refined": 0}
    for seed in range(2):
        X_null, X_test = samples(seed)
        for name, scorer in (("plain", TREES), ("refined", Refined(TREES, LINEAR))):
            rejected = cn.AdaDetect(scorer, random_state=seed).detect(X_null, X_test).rejected
            found[name] += rejected[270:].sum()
    assert found["refined"] > found["plain"] + 4


def test_weights_single_out_the_novel_rows():
    X_null, X_test = samples(1, shift=2.0)
    mixture = Mixture.of(X_test)
    weights = fit_scorer(Refined(TREES, LINEAR), X_null, mixture).weights
    by_row = weights[np.argsort(np.argsort(mixture.position, kind="stable"))]
    assert by_row[270:].sum() > 20
    assert by_row[:270].sum() < 10


def test_without_anything_to_find_the_first_fit_stands():
    X_null, X_test = samples(2, n_null=60, n_test=40, n_novel=0)
    mixture = Mixture.of(X_test)
    fitted = fit_scorer(Refined(LogisticRegression(), n_refits=2), X_null, mixture)
    assert np.isfinite(mixture.score(fitted)).all()


@pytest.mark.parametrize("n_test", [1, 2, 3])
def test_a_handful_of_rows_is_enough_to_run(n_test):
    X_null, X_test = samples(3, n_null=12, n_test=n_test, n_novel=0)
    mixture = Mixture.of(X_test)
    assert mixture.score(fit_scorer(Refined(TREES, LINEAR), X_null, mixture)).shape == (n_test,)


def test_classifiers_without_sample_weights_are_fitted_without():
    X, y, w = np.eye(4), np.array([0, 0, 1, 1]), np.array([1, 1, 0.5, 0.5])
    assert fit_weighted(KNeighborsClassifier(1), X, y, w).predict(X).tolist() == [0, 0, 1, 1]
    with pytest.raises(ScorerError, match="LinearSVC has no predict_proba"):
        fit_scorer(Refined(LinearSVC()), X, Mixture.of(X))


def test_a_refined_model_can_be_sent_to_peers():
    rows = {name: samples(seed, 400, 150, shift=2.0) for seed, name in enumerate("ab")}
    agents = [cn.Agent(name, *both) for name, both in rows.items()]
    scorer = Refined(TREES, LINEAR, n_folds=3, n_refits=1)
    run = cn.Network(agents, bits="compact", scorer=scorer).run()
    assert run.n_rejected > 20

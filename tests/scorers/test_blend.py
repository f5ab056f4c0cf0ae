"""Blending: refined together, weighed out of fold, started again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from support.scorers import fit_scorer, samples, spying

import conovel as cn
from conovel.errors import InputError, ScorerError
from conovel.scorers.automatic import mahalanobis_distance
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.blend import Blend, MahalanobisDistance, Refined
from conovel.scorers.cross_fit import CrossFit, CrossFitter

TREES = ExtraTreesClassifier(20, max_depth=5, min_samples_leaf=2, random_state=0)
LINEAR = LogisticRegression(C=0.03)
SEARCH = Blend([TREES, mahalanobis_distance()], [LINEAR, TREES], (2, 1), n_folds=3)
SECOND = Blend(SEARCH, [LINEAR, TREES], n_folds=3)


def on_all_sides(seed, n_null=600, n_test=240, n_novel=30):
    X_null, X_test = samples(seed, n_null, n_test, n_novel, shift=0.0)
    X_test[n_test - n_novel :] *= 3
    return X_null, X_test


@pytest.mark.parametrize(("rows", "seed"), [(samples, 0), (on_all_sides, 2)])
def test_a_blend_finds_about_what_its_best_member_finds(rows, seed):
    X_null, X_test = rows(seed)
    found = {
        name: int(
            cn.AdaDetect(scorer, train_fraction="9/20", random_state=0)
            .detect(X_null, X_test)
            .rejected[-30:]
            .sum()
        )
        for name, scorer in {
            "blend": SEARCH,
            "linear": Refined([TREES, mahalanobis_distance()], LINEAR),
            "trees": Refined([TREES, mahalanobis_distance()], TREES),
        }.items()
    }
    assert found["blend"] >= max(found.values()) - 3
    assert found["blend"] > 15


@pytest.mark.parametrize("scorer", [SEARCH, SECOND])
def test_a_row_is_scored_alike_in_any_company(scorer):
    X_null, X_test = samples(0, n_null=200, n_test=80)
    mixture = Mixture.of(X_test)
    fitted = fit_scorer(scorer, X_null, mixture)
    alone = np.concatenate([fitted.score(X_test[i : i + 1]) for i in range(len(X_test))])
    assert np.array_equal(alone, fitted.score(X_test))
    assert np.array_equal(alone, mixture.score(fitted))


def test_nothing_is_scored_by_a_model_that_saw_it():
    Spy, seen = spying()
    X_null, X_test = samples(0)
    mixture = Mixture.of(X_test)
    mixture.score(fit_scorer(Blend(Spy(), [Spy(C=0.1)], n_folds=3), X_null, mixture))
    assert seen
    assert not any(seen)


def test_what_candidates_have_in_common_is_fitted_once():
    fits = []

    class Counted(ExtraTreesClassifier):
        def fit(self, X, y, sample_weight=None):
            fits.append(self.n_estimators)
            return super().fit(X, y, sample_weight)

    first = Counted(3, random_state=0)
    member = Counted(5, random_state=0)
    search = Blend([first, mahalanobis_distance()], [LINEAR, member], n_folds=3)
    X_null, X_test = samples(0)
    scorers = [
        Refined(search, LINEAR, n_folds=3, n_refits=1),
        Blend(search, [LINEAR, member], n_folds=3),
        Refined(search, member, n_folds=3, n_refits=1),
    ]
    fitter = CrossFitter.of(TrainingSet(X_null, Mixture.of(X_test)), scorers[0].n_folds)
    for scorer in scorers:
        scorer.cross_fit(fitter)
    assert fits.count(3) == 3  # folds of the first
    assert fits.count(5) == 6  # folds of the member in the search, and of the member after it


def test_without_anything_to_find_or_to_fold_it_still_scores():
    X_null, X_test = samples(0, n_null=40, n_test=3, n_novel=0)
    for rows in (X_test, X_test[:1]):
        mixture = Mixture.of(rows)
        fitted = fit_scorer(SECOND, X_null, mixture)
        assert np.isfinite(mixture.score(fitted)).all()


def test_a_lead_makes_the_first_member_count_for_more():
    X_null, X_test = samples(0, shift=0.8)
    mixture = Mixture.of(X_test)

    def scores(scorer):
        return mixture.score(fit_scorer(scorer, X_null, mixture))

    alone = scores(Refined(TREES, LINEAR, n_refits=1))

    def agreement(lead):
        return spearmanr(scores(Blend(TREES, [LINEAR, TREES], lead=lead)), alone).statistic

    leads = [agreement(lead) for lead in (0.05, 1.0, 20.0)]
    assert leads == sorted(leads)
    assert leads[-1] > 0.98 > leads[0] + 0.1


@pytest.mark.parametrize("lead", [0, -1.0, float("nan")])
def test_a_lead_must_be_positive(lead):
    X_null, X_test = samples(0)
    with pytest.raises(InputError, match="lead"):
        fit_scorer(Blend(TREES, [LINEAR], lead=lead), X_null, Mixture.of(X_test))


def test_a_blend_is_imitated_for_peers_since_no_part_of_it_scores():
    X_null, X_test = samples(0)
    mixture = Mixture.of(X_test)
    assert fit_scorer(SEARCH, X_null, mixture).estimator is None
    assert fit_scorer(Refined(SEARCH, LINEAR), X_null, mixture).flat is not None


def test_members_without_probabilities_are_refused():
    X_null, X_test = samples(0)
    with pytest.raises(ScorerError, match="predict_proba"):
        cn.AdaDetect(Blend(TREES, [cn.OneClass(MahalanobisDistance(), "novel")])).detect(
            X_null, X_test
        )


@given(st.integers(2, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_ellipse_does_not_mind_units_of_the_columns_turned_together(n, d, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(5, d))
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    plain = MahalanobisDistance().fit(X).score_samples(Y)
    turned = MahalanobisDistance().fit(X @ turn * 7 + 3).score_samples(Y @ turn * 7 + 3)
    assert np.allclose(plain, turned, atol=1e-6)


def test_the_ellipse_is_the_logarithm_of_the_mahalanobis_distance():
    from sklearn.covariance import LedoitWolf

    X, Y = samples(0)
    expected = np.log(LedoitWolf().fit(X).mahalanobis(Y))
    assert np.allclose(MahalanobisDistance().fit(X).score_samples(Y), expected)
    constant = np.column_stack([X, np.ones(len(X))])
    far = np.column_stack([Y, np.full(len(Y), 9.0)])
    assert np.isfinite(MahalanobisDistance().fit(constant).score_samples(far)).all()
    assert np.isfinite(
        MahalanobisDistance().fit(np.ones((3, 2))).score_samples(np.ones((2, 2)))
    ).all()


def test_one_learner_stands_for_a_cross_fit_unless_it_is_blended():
    X_null, X_test = samples(0)
    fitter = CrossFitter.of(TrainingSet(X_null, Mixture.of(X_test)), 3)
    assert isinstance(SEARCH.cross_fit(fitter), CrossFit)
    assert not SEARCH.cross_fit(fitter).is_one_learner
    assert Refined(TREES, n_folds=3).cross_fit(fitter).is_one_learner

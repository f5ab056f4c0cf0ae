"""Scoring: a score may not know which mixture rows are calibration rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, OneClassSVM
from support.scorers import fit_scorer

from conovel.errors import InputError, ScorerError
from conovel.scorers.argument import scorer_by_name
from conovel.scorers.automatic import Automatic, mahalanobis_distance
from conovel.scorers.base import Mixture, TrainingSet
from conovel.scorers.blend import Blend, Refined
from conovel.scorers.estimators import OneClass, as_scorer, with_seed
from conovel.scorers.selection import select_scorer

TREES = ExtraTreesClassifier(10, max_depth=3, random_state=0)
BLEND = Blend([TREES, mahalanobis_distance()], [LogisticRegression(), TREES], n_folds=3)
SCORERS = {
    "forest with bootstrap": RandomForestClassifier(10, random_state=0),
    "extra trees": ExtraTreesClassifier(10, random_state=0),
    "extra trees with bootstrap": ExtraTreesClassifier(10, bootstrap=True, random_state=0),
    "gradient boosting": GradientBoostingClassifier(
        n_estimators=10, subsample=0.5, random_state=0
    ),
    "hist boosting": HistGradientBoostingClassifier(
        max_iter=10, early_stopping=True, min_samples_leaf=5, random_state=0
    ),
    "logistic": LogisticRegression(),
    "mlp": MLPClassifier((4,), max_iter=20, random_state=0),
    "pipeline": make_pipeline(StandardScaler(), MLPClassifier((3,), max_iter=9, random_state=0)),
    "linear svm": LinearSVC(random_state=0),
    "neighbours": KNeighborsClassifier(3),
    "automatic": Automatic(n_folds=2, random_state=0),
    "refined trees": Refined(TREES, n_folds=3),
    "refined linear": Refined(
        RandomForestClassifier(10, max_depth=3, random_state=0), LogisticRegression(), n_folds=3
    ),
    "blend": BLEND,
    "blend of a blend": Blend(BLEND, [LogisticRegression(), TREES], n_folds=3),
    "isolation forest": OneClass(IsolationForest(n_estimators=10, random_state=0), "normal"),
}


def sample(seed, coarse):
    rng = np.random.default_rng(seed)
    train, mixture = rng.normal(size=(40, 3)), rng.normal(size=(37, 3))
    mixture[:6] += 2
    if coarse:  # duplicates of whole rows, inside the mixture and with null_train
        train, mixture = train.round(), mixture.round()
    return train, mixture


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("coarse", [False, True], ids=["continuous", "duplicates"])
@pytest.mark.parametrize("name", SCORERS)
def test_permuting_the_mixture_permutes_the_scores_bit_for_bit(name, coarse, few_trees):
    train, rows = sample(3, coarse)

    def scores(order):
        mixture = Mixture.of(rows[order])
        return mixture.score(fit_scorer(SCORERS[name], train, mixture))

    straight = scores(np.arange(len(rows)))
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))
        assert scores(order).tobytes() == straight[order].tobytes()


def test_the_permutation_test_would_catch_a_forest_fitted_in_arrival_order():
    train, rows = sample(3, coarse=False)
    labels = np.repeat([0, 1], [len(train), len(rows)])

    def scores(order):
        model = RandomForestClassifier(10, random_state=0)
        model.fit(np.vstack([train, rows[order]]), labels)
        return model.predict_proba(rows[order])[:, 1]

    order = np.random.default_rng(0).permutation(len(rows))
    assert not np.array_equal(scores(order), scores(np.arange(len(rows)))[order])


@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_a_mixture_is_a_multiset(rows, random):
    rows = np.array(rows, dtype=float)
    mixture = Mixture.of(rows)
    assert np.array_equal(mixture.distinct[mixture.position], rows)
    assert np.array_equal(mixture.rows, rows[np.lexsort(rows.T[::-1])])
    order = list(range(len(rows)))
    random.shuffle(order)
    assert Mixture.of(rows[order]).rows.tobytes() == mixture.rows.tobytes()


@pytest.mark.parametrize(
    "scorer",
    [
        OneClass(IsolationForest(random_state=0), higher="normal"),
        OneClass(make_pipeline(StandardScaler(), OneClassSVM()), higher="normal"),
        OneClass(OneClassSVM(), higher="normal", method="score_samples"),
        RandomForestClassifier(random_state=0),
        SVC(),
    ],
)
def test_higher_means_more_novel(scorer):
    rng = np.random.default_rng(0)
    train = rng.normal(size=(200, 2))
    rows = np.vstack([rng.normal(size=(100, 2)), rng.normal(5, 0.5, size=(20, 2))])
    mixture = Mixture.of(rows)
    scores = mixture.score(fit_scorer(scorer, train, mixture))
    assert np.median(scores[100:]) > np.quantile(scores[:100], 0.9)


class PyodStyle:
    """A detector that scores novel rows higher and is no scikit-learn estimator."""

    def fit(self, X):
        self.centre_ = X.mean(axis=0)
        return self

    def decision_function(self, X):
        return np.linalg.norm(X - self.centre_, axis=1)


def test_a_detector_in_pyods_manner_works_with_its_polarity_declared():
    train, rows = sample(0, coarse=False)
    mixture = Mixture.of(rows)
    scores = mixture.score(fit_scorer(OneClass(PyodStyle(), higher="novel"), train, mixture))
    assert scores[:6].mean() > scores[6:].mean()
    with pytest.raises(ScorerError, match="which way its score points"):
        fit_scorer(PyodStyle(), train, mixture)


@pytest.mark.parametrize(
    ("scorer", "words"),
    [
        (IsolationForest(), "OneClass\\(model, higher='normal'\\)"),
        (make_pipeline(StandardScaler(), IsolationForest()), "StandardScaler \\+ IsolationForest"),
        (OneClass(IsolationForest(), higher="up"), "'normal' or 'novel', not 'up'"),
        (OneClass(object(), higher="novel"), "no fit method"),
        (StandardScaler(), "not a scikit-learn classifier"),
    ],
)
def test_scorers_of_unknown_polarity_are_refused(scorer, words):
    train, rows = sample(0, coarse=False)
    with pytest.raises(ScorerError, match=words):
        fit_scorer(scorer, train, Mixture.of(rows))


class Broken(RandomForestClassifier):
    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


def test_nan_scores_are_an_error_not_the_smallest_p_value():
    train, rows = sample(0, coarse=False)
    mixture = Mixture.of(rows)
    with pytest.raises(ScorerError, match="NaN"):
        mixture.score(fit_scorer(Broken(2), train, mixture))


def test_selection_finds_the_scorer_that_sees_the_novelties_and_is_invariant():
    rng = np.random.default_rng(1)
    train = rng.normal(size=(600, 2))
    rows = np.vstack([rng.normal(size=(300, 2)), rng.normal(4, 0.3, size=(60, 2))])
    blind = make_pipeline(StandardScaler(with_std=False), KNeighborsClassifier(1))
    trees = ExtraTreesClassifier(50, max_depth=4, random_state=0)
    candidates = [as_scorer(scorer) for scorer in (blind, trees)]
    chosen = select_scorer(candidates, TrainingSet(train, Mixture.of(rows)))
    assert chosen.winner == "ExtraTreesClassifier"
    assert chosen.values[1] > 5 > chosen.values[0]
    again = TrainingSet(train, Mixture.of(rows[rng.permutation(360)]))
    permuted = select_scorer(candidates, again)
    assert permuted == chosen


def test_selection_needs_nulls_to_hold_out():
    with pytest.raises(InputError, match="at least 2 training nulls"):
        select_scorer([], TrainingSet(np.zeros((1, 2)), Mixture.of(np.eye(2))))


def test_open_random_states_are_fixed_and_closed_ones_kept():
    pipe = make_pipeline(StandardScaler(), MLPClassifier())
    assert with_seed(pipe, 7).get_params()["mlpclassifier__random_state"] == 7
    assert pipe.get_params()["mlpclassifier__random_state"] is None
    assert with_seed(RandomForestClassifier(random_state=3), 7).random_state == 3
    assert with_seed(OneClass(IsolationForest(), "normal"), 7).model.random_state == 7


def test_names_of_scorers():
    assert isinstance(scorer_by_name("automatic"), Automatic)
    with pytest.raises(ScorerError, match="choose from automatic, extra-trees"):
        scorer_by_name("resnet")


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_a_row_has_one_score_wherever_it_stands(seed):
    train, rows = sample(seed, coarse=True)
    mixture = Mixture.of(np.vstack([rows, rows[:5]]))
    scores = mixture.score(fit_scorer(LogisticRegression(), train, mixture))
    assert scores[:5].tobytes() == scores[-5:].tobytes()

"""AdaDetect: the contract, scikit-learn's manners, and the guarantee in numbers."""

import json
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import conovel as cn
from conovel.errors import ColumnError, InputError, LevelError, ResolutionWarning, SampleError
from conovel.scorers.argument import as_candidates
from conovel.site.blocks import split_null
from conovel.spec.run_spec import detector_seeds
from conovel.stats.levels import as_seed

FAST = ExtraTreesClassifier(20, max_depth=4)


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X_null = rng.normal(size=(600, 3))
    X_test = np.vstack([rng.normal(size=(90, 3)), rng.normal(4, 1, size=(10, 3))])
    return X_null, X_test


def test_the_result_is_the_exact_statistics_of_its_scores(samples):
    result = cn.AdaDetect(FAST, train_fraction=0.5).detect(*samples)
    ranks = cn.conformal_ranks(result.calibration_scores, result.scores)
    assert np.array_equal(result.ranks, ranks)
    assert np.array_equal(result.rejected, cn.benjamini_hochberg(ranks, 300, 0.1))
    assert np.array_equal(result.p_values, ranks / 301)
    assert np.array_equal(result.adjusted <= 0.1, result.rejected)
    assert result.n_rejected == result.rejected.sum() > 0
    assert (result.n_train, result.n_calibration, result.level) == (300, 300, Fraction(1, 10))


def test_same_seed_same_bytes_other_seed_other_split(samples):
    first, again = (cn.AdaDetect(FAST, random_state=5).detect(*samples) for _ in range(2))
    assert first.scores.tobytes() == again.scores.tobytes()
    other = cn.AdaDetect(FAST, random_state=6).detect(*samples)
    assert first.scores.tobytes() != other.scores.tobytes()
    assert detector_seeds(None) != detector_seeds(None)


def test_permuting_the_test_rows_permutes_everything(samples):
    X_null, X_test = samples
    order = np.random.default_rng(1).permutation(len(X_test))
    straight = cn.AdaDetect(FAST).detect(X_null, X_test)
    permuted = cn.AdaDetect(FAST).detect(X_null, X_test[order])
    assert permuted.scores.tobytes() == straight.scores[order].tobytes()
    assert np.array_equal(permuted.rejected, straight.rejected[order])


def test_frames_come_back_in_kind(samples):
    X_null, X_test = (pd.DataFrame(X, columns=list("abc")) for X in samples)
    X_test.index = [f"txn-{i}" for i in range(100)]
    frame = cn.AdaDetect(FAST).detect(X_null, X_test[["c", "a", "b"]]).to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.index) == list(X_test.index)
    names = ["score", "rank", "p_value", "adjusted_p_value", "rejected"]
    assert list(frame.columns) == names

    result = cn.AdaDetect(FAST).detect(
        pl.from_pandas(X_null), pl.from_pandas(X_test), ids=list(X_test.index)
    )
    polars = result.to_frame()
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == ["id", *names]
    assert polars["id"].to_list() == list(X_test.index)
    assert np.array_equal(polars["score"].to_numpy(), frame["score"].to_numpy())
    assert isinstance(cn.AdaDetect(FAST).detect(*samples).to_frame(), pd.DataFrame)


def test_scikit_learns_manners(samples):
    X_null, X_test = samples
    detector = cn.AdaDetect(FAST, level="1/20", random_state=3)
    assert clone(detector).get_params()["level"] == "1/20"
    assert detector.set_params(level=0.1, scorer__max_depth=3).scorer.max_depth == 3
    labels = clone(detector).fit(X_null).predict(X_test)
    assert set(labels) <= {-1, 1}
    assert np.array_equal(labels == -1, detector.detect(X_null, X_test).rejected)
    piped = make_pipeline(StandardScaler(), detector).fit(X_null)
    assert (piped.predict(X_test)[90:] == -1).mean() > 0.8
    FAST.set_params(max_depth=4)


def test_each_detection_draws_a_seed_from_a_generator(samples):
    for make in (np.random.RandomState, np.random.default_rng):
        detector, generator = cn.AdaDetect(FAST, random_state=make(5)), make(5)
        for _ in range(2):
            seed = as_seed(generator)
            drawn = detector.detect(*samples)
            given = cn.AdaDetect(FAST, random_state=seed).detect(*samples)
            assert drawn.scores.tobytes() == given.scores.tobytes()
    sequence = np.random.SeedSequence(5)
    assert as_seed(sequence) == as_seed(sequence)
    assert as_seed(None) != as_seed(None)
    assert 0 <= as_seed(None) < 2**32


def test_all_fits_of_a_scorer_have_the_one_seed_drawn_from_its_generator():
    (scorer,) = as_candidates(cn.Automatic(random_state=np.random.RandomState(5)), seed=0)
    assert scorer.random_state == as_seed(np.random.RandomState(5))
    (scorer,) = as_candidates(cn.Automatic(), seed=9)
    assert scorer.random_state == 9


def test_fit_keeps_no_frame_and_follows_scikit_learns_rule_for_names(samples):
    X_null, X_test = (pd.DataFrame(X, columns=list("abc")) for X in samples)
    detector = cn.AdaDetect(FAST).fit(X_null)
    assert list(detector.feature_names_in_) == ["a", "b", "c"]
    assert detector.n_features_in_ == 3
    loaded = pickle.loads(pickle.dumps(detector))
    assert np.array_equal(loaded.predict(X_test[["c", "a", "b"]]), detector.predict(X_test))
    detector.fit(X_null.to_numpy())
    assert not hasattr(detector, "feature_names_in_")
    detector.fit(X_null.set_axis([0, 1, 2], axis=1))
    assert not hasattr(detector, "feature_names_in_")


def test_predict_is_about_rows_that_are_no_known_normals(samples):
    detector = cn.AdaDetect(FAST)
    assert not hasattr(detector, "fit_predict")
    with pytest.raises(AttributeError, match=r"fit\(X_null\)\.predict\(X_test\)"):
        detector.fit_predict(samples[0])
    with pytest.raises(ColumnError, match="X has 2 features, but AdaDetect is expecting 3"):
        detector.fit(samples[0]).predict(samples[1][:, :2])


# Checks of scikit-learn that contradict what AdaDetect is for, and why.
CONTRADICTIONS = {
    "check_outliers_train": (
        "It tests the known normals themselves and asks for novelties among them; the guarantee"
        " forbids to find any. And there is no score of a row apart from its batch, so"
        " decision_function and score_samples are missing."
    ),
    "check_methods_subset_invariance": (
        "predict is one test of the whole batch: the level is shared among its rows and the"
        " score learns from them, so a row alone may get another answer."
    ),
}


@pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")  # tiny and repeated samples
def test_scikit_learns_own_checks():
    detector = cn.AdaDetect("logistic")
    results = check_estimator(
        detector, expected_failed_checks=CONTRADICTIONS, on_skip=None, on_fail=None
    )
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    # A check that has come to pass needs no excuse any more.
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(CONTRADICTIONS)
    assert sum(r["status"] == "passed" for r in results) >= 40


def test_several_scorers_are_chosen_from(samples):
    result = cn.AdaDetect([FAST, "logistic"]).detect(*samples)
    chosen = result.selection
    assert chosen.names == ("ExtraTreesClassifier", "StandardScaler + LogisticRegression")
    assert result.scorer == chosen.names[chosen.chosen]


def test_pi0_is_used_and_said(samples):
    plain = cn.AdaDetect(FAST).detect(*samples)
    adaptive = cn.AdaDetect(FAST, train_fraction=0.5, pi0="storey").detect(*samples)
    assert plain.stepup.pi0 is None
    assert 0.5 < adaptive.stepup.pi0 < 1.2
    assert "times the share of normal rows" in str(plain.guarantee)
    assert "one site and for several" in str(adaptive.guarantee)
    quantile = cn.AdaDetect(FAST, pi0="quantile").detect(*samples)
    assert "not proven for several" in str(quantile.guarantee)


def test_the_summary_is_json(samples):
    summary = json.loads(json.dumps(cn.AdaDetect(FAST).detect(*samples).summary()))
    assert summary["n_test"] == 100
    assert summary["level"] == "1/10"


@pytest.mark.parametrize("name", ["level", "train_fraction"])
@pytest.mark.parametrize("bad", [1, -0.1, 2, float("nan"), "x", "."])
def test_levels_outside_the_open_interval(samples, name, bad):
    with pytest.raises(LevelError, match=name):
        cn.AdaDetect(FAST, **{name: bad}).detect(*samples)


def test_a_level_is_above_zero(samples):
    with pytest.raises(LevelError, match="level"):
        cn.AdaDetect(FAST, level=0).detect(*samples)


def test_bad_arguments(samples):
    X_null, X_test = samples
    with pytest.raises(SampleError, match="X_null has 1 row"):
        cn.AdaDetect(FAST).detect(X_null[:1], X_test)
    with pytest.raises(SampleError, match="ids has shape \\(3,\\), but there are 100"):
        cn.AdaDetect(FAST).detect(X_null, X_test, ids=[1, 2, 3])
    with pytest.raises(InputError, match="empty list"):
        cn.AdaDetect([]).detect(X_null, X_test)


def test_too_few_calibration_rows_warn_before_the_work(samples):
    X_null, X_test = samples

    class Untouchable(LogisticRegression):
        def fit(self, X, y):
            raise AssertionError("fitted after all")

    with (
        pytest.warns(ResolutionWarning, match="At least 9 calibration rows are needed"),
        pytest.raises(AssertionError, match="fitted after all"),
    ):
        cn.AdaDetect(Untouchable()).detect(X_null[:16], X_test)


def test_the_split_is_disjoint_and_complete():
    train, calibration = split_null(101, 0.6, seed=1)
    assert len(train) == 60
    assert sorted([*train, *calibration]) == list(range(101))
    assert [part.size for part in split_null(2, 0.99, seed=1)] == [1, 1]

"""AdaDetect: the contract, scikit-learn's manners, and the guarantee in numbers."""

import json
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

import conovel as cn
from conovel.errors import InputError, LevelError, ResolutionWarning, SampleError
from conovel.site.splitting import split_null
from conovel.spec.seeds import detector_seeds

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
@pytest.mark.parametrize("bad", [0, 1, -0.1, 2, float("nan"), "x"])
def test_levels_outside_the_open_interval(samples, name, bad):
    with pytest.raises(LevelError, match=name):
        cn.AdaDetect(FAST, **{name: bad}).detect(*samples)


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

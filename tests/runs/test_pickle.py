"""Results, detectors and runs go through pickle, joblib and processes, and still answer."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import joblib
import numpy as np
import pandas as pd
import pytest

import conovel as cn

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.ConovelWarning")


def rows(seed, n, n_novel=0):
    X = np.random.default_rng(seed).normal(size=(n, 3))
    X[:n_novel] += 5
    return pd.DataFrame(X, columns=list("abc"))


def detected(**settings):
    return cn.AdaDetect(**settings).detect(rows(1, 300), rows(2, 80, 12))


def network(regime):
    agents = [cn.Agent(f"a{j}", rows(j, 200), rows(10 + j, 60, 8)) for j in range(3)]
    return cn.Network(agents, regime=regime, scorer="logistic").run()


RESULTS = {
    "default": detected,
    "named scorers": lambda: detected(scorer=["logistic", "isolation-forest"]),
    "repeats": lambda: detected(repeats=3, scorer="logistic"),
    "all rows": lambda: detected(train_fraction=0),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_one_site(name, tmp_path):
    result = RESULTS[name]()
    joblib.dump(result, tmp_path / "result")
    for again in (pickle.loads(pickle.dumps(result)), joblib.load(tmp_path / "result")):
        pd.testing.assert_frame_equal(again.to_frame(), result.to_frame())
        pd.testing.assert_frame_equal(again.explain(), result.explain())
        assert again.summary() == result.summary()


@pytest.mark.parametrize("regime", ["together", "joint", "counts", "isolated", "full"])
def test_a_run_of_a_network(regime):
    run = network(regime)
    again = pickle.loads(pickle.dumps(run))
    assert again.to_dict() == run.to_dict()
    pd.testing.assert_frame_equal(again["a1"].explain(), run["a1"].explain())


def test_a_kept_detector():
    kept = cn.AdaDetect(scorer="logistic").keep(rows(1, 300), rows(2, 80, 12), explain=True)
    again = pickle.loads(pickle.dumps(kept))
    expected = kept.detect(rows(3, 80, 12)).to_frame()
    pd.testing.assert_frame_equal(again.detect(rows(3, 80, 12)).to_frame(), expected)


def test_detections_run_in_other_processes():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        elsewhere = pool.submit(detected, scorer="logistic").result()
    pd.testing.assert_frame_equal(elsewhere.to_frame(), detected(scorer="logistic").to_frame())

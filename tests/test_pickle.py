"""What a user holds goes through pickle, joblib and other processes, and says the same there."""

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import joblib
import pytest
from sklearn.ensemble import IsolationForest
from support.scorers import samples

import conovel as cn
from conovel import errors
from conovel.errors import ConovelError, ConovelWarning
from conovel.experiments.gaussian import gaussian_design
from conovel.rows.storage import write_table
from conovel.runs.file_detection import detect_files
from conovel.spec.settings import COMPOSITES

ROWS = samples(1, n_null=200, n_test=80, n_novel=20, shift=4.0, d=3)
LEVEL = 0.25
SITES = gaussian_design(delta=2.0, n_agents=2, random_state=0)


def in_memory(thing, folder):
    return pickle.loads(pickle.dumps(thing))


def by_joblib(thing, folder):
    joblib.dump(thing, folder / "thing.joblib")
    return joblib.load(folder / "thing.joblib")


def through(thing, folder):
    """Through both, one after the other."""
    return by_joblib(in_memory(thing, folder), folder)


def assert_same_result(got, result):
    assert got.to_frame().equals(result.to_frame())
    if result.explainer is not None:
        # The score is there, too: it explains alike.
        assert got.explain().equals(result.explain())


@pytest.mark.parametrize(
    "scorer",
    [
        None,
        "logistic",
        "boosting",
        "refined-linear",
        cn.OneClass(IsolationForest(n_estimators=20, random_state=0), higher="normal"),
    ],
)
def test_the_result_of_a_detector(scorer, tmp_path, few_trees):
    detector = cn.AdaDetect(scorer, level=LEVEL)
    result = through(detector, tmp_path).detect(*ROWS)
    assert result.n_rejected
    got = through(result, tmp_path)
    assert_same_result(got, result)
    assert got.summary() == result.summary()


def test_the_result_of_repeats_and_of_a_ledger(tmp_path):
    detector = cn.AdaDetect("logistic", level=LEVEL, repeats=3)
    result = detector.detect(*ROWS)
    assert_same_result(through(result, tmp_path), result)
    ledger = cn.Ledger(level=LEVEL)
    result = cn.AdaDetect("logistic", level=LEVEL).detect(*ROWS, ledger=ledger, name="monday")
    got = through(result, tmp_path)
    assert got.ledger.summary() == result.ledger.summary()
    assert through(ledger, tmp_path).listed() == ledger.listed()


def test_a_kept_detector_and_its_result(tmp_path, few_trees):
    kept = cn.AdaDetect(level=LEVEL).keep(ROWS[0], ROWS[1] + 0.01, explain=True)
    result = kept.detect(ROWS[1])
    got = through(kept, tmp_path)
    assert got.digest == kept.digest
    assert_same_result(got.detect(ROWS[1]), result)
    assert_same_result(through(result, tmp_path), result)


def test_the_result_on_files(tmp_path):
    for name, rows in zip(("null", "test"), ROWS, strict=True):
        write_table(tmp_path / f"{name}.parquet", {f"x{j}": x for j, x in enumerate(rows.T)})
    paths = [tmp_path / f"{name}.parquet" for name in ("null", "test", "out")]
    result = detect_files(cn.AdaDetect("logistic", level=LEVEL), *paths)
    assert through(result, tmp_path).summary() == result.summary()


REGIMES = ("isolated", "counts", "split", "conservative", "full", "joint", "consensus", "pooled")
REGIMES += ("together",)


def runs():
    for regime in REGIMES:
        marks = () if regime in ("joint", "consensus") else pytest.mark.slow
        yield pytest.param({"regime": regime, "scorer": "logistic"}, id=regime, marks=marks)
    for composite in COMPOSITES:
        options = {"regime": "full", "scorer": "logistic", "composite": composite}
        marks = () if composite in ("auto", "max") else pytest.mark.slow
        yield pytest.param(options, id=composite, marks=marks)
    yield pytest.param({"regime": "full", "scorer": "logistic", "repeats": 2}, id="repeats")
    yield pytest.param({}, id="defaults")


@pytest.mark.parametrize("options", [*runs()])
def test_the_run_of_a_network(options, tmp_path, few_trees):
    agents = [cn.Agent(f"site {i}", s.X_null, s.X_test) for i, s in enumerate(SITES)]
    run = cn.Network(through(agents, tmp_path), level=LEVEL, **options).run()
    got = through(run, tmp_path)
    assert list(got) == list(run)
    assert got.to_frame().equals(run.to_frame())
    assert got.to_dict() == run.to_dict()
    assert through(run.transcript, tmp_path).to_dict() == run.transcript.to_dict()
    for name in run:
        assert_same_result(got[name], run[name])


def flagged(result):
    return result.explain(top=1)["row"].tolist()


def detected(seed):
    return cn.AdaDetect("isolation-forest", level=LEVEL, random_state=seed).detect(*ROWS)


def raise_missing():
    raise errors.MissingExtraError("numba", "fast")


def test_results_and_errors_go_to_other_processes_and_come_back():
    result = detected(0)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(flagged, result).result() == flagged(result)
        assert_same_result(pool.submit(detected, 0).result(), result)
        failing = pool.submit(raise_missing)
        with pytest.raises(errors.MissingExtraError, match=r"pip install 'conovel\[fast\]'"):
            failing.result()


MADE = {
    name: thing
    for name, thing in vars(errors).items()
    if isinstance(thing, type) and issubclass(thing, ConovelError | ConovelWarning)
}


@pytest.mark.parametrize("name", MADE)
def test_errors_and_warnings_can_be_copied(name):
    kind = MADE[name]
    error = kind("numba", "fast") if name == "MissingExtraError" else kind("column 'a' is odd")
    if hasattr(error, "culprit"):
        error = kind("a message", "north")
    for got in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(got) is kind
        assert str(got) == str(error)
        assert vars(got) == vars(error)

"""Detection on files that are read in pieces gives the same bytes as detection in memory."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier
from support.files import N_TEST, cut, in_memory, in_pieces, make_files, trees

import conovel as cn
from conovel.report import of_detection, of_files
from conovel.scorers.blend import shrunken_logistic
from conovel.site.engines import LocalEngine

THREADED = ExtraTreesClassifier(40, max_depth=6, n_jobs=2)  # whose trees add up in any order


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(("piece", "threads"), [(37, 1), (64, 3), (10_000, 2)])
def test_any_piece_and_any_number_of_threads_gives_the_bytes_of_memory(
    tmp_path, monkeypatch, ending, piece, threads
):
    files = make_files(tmp_path, ending)
    cut(monkeypatch, piece)
    expected, out = tmp_path / f"memory.{ending}", tmp_path / f"pieces.{ending}"
    result = in_memory(trees(pi0="storey"), expected)
    streamed = in_pieces(trees(pi0="storey"), files, out, engine=LocalEngine(threads))
    assert out.read_bytes() == expected.read_bytes()
    assert streamed.summary() == result.summary()
    assert of_files(streamed) == of_detection(result)
    assert 0 < result.n_rejected < N_TEST
    assert result.n_train == 300


@pytest.mark.parametrize(
    "scorer",
    [
        shrunken_logistic(),
        "mlp",
        "isolation-forest",
        "boosting",
        "compiled-forest",
        THREADED,
        None,
    ],
    ids=["linear", "mlp", "one-class", "boosting", "compiled", "threads", "automatic"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_kind_of_scorer_scores_alike_in_pieces(files, monkeypatch, scorer, few_trees):
    cut(monkeypatch, 128)
    detector = cn.AdaDetect(scorer, max_train_rows=300)
    in_memory(detector, files / "memory.parquet")
    in_pieces(detector, files, files / "pieces.parquet")
    assert (files / "pieces.parquet").read_bytes() == (files / "memory.parquet").read_bytes()


class Centred(ClassifierMixin, BaseEstimator):
    """A classifier whose probabilities depend on the rows around a row."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        p = 1 / (1 + np.exp(-(X - X.mean(axis=0)).sum(axis=1)))
        return np.column_stack([1 - p, p])


def test_a_scorer_that_looks_at_neighbours_gets_all_rows_in_one_call(files):
    """A round is as large as a piece, here larger than the mixture: what is done in memory."""
    detector = cn.AdaDetect(Centred())
    in_memory(detector, files / "memory.parquet")
    in_pieces(detector, files, files / "pieces.parquet")
    assert (files / "pieces.parquet").read_bytes() == (files / "memory.parquet").read_bytes()


def test_rounds_go_on_where_they_were_broken_off(files, monkeypatch):
    """Also rounds, not only pieces; and equal rows, which lie in many pieces, have one score."""
    cut(monkeypatch, 128)
    calls, score = [], Centred.predict_proba

    def break_off(model, X):
        calls.append(len(X))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score(model, X)

    detector, out = cn.AdaDetect(Centred(), max_train_rows=300), files / "out.parquet"
    monkeypatch.setattr(Centred, "predict_proba", break_off)
    with pytest.raises(KeyboardInterrupt):
        in_pieces(detector, files, out)
    in_pieces(detector, files, out)
    again = len(calls) - 5
    got = out.read_bytes()
    calls[:] = [0] * 5
    in_pieces(detector, files, out)
    assert out.read_bytes() == got
    assert again < len(calls) - 5
    scores = pq.read_table(out)["score"].to_numpy()
    assert np.unique(scores[200:260]).size == 1

"""Results, runs and models in a notebook: short, and never with rows."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import conovel as cn
from conovel.scorers.base import Mixture

SECRET = 8191.25  # a value that only rows have


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X_null, X_test = rng.normal(size=(400, 3)), rng.normal(size=(100, 3))
    X_test[90:] += 6
    X_test[99, 0] = SECRET
    return X_null, X_test


@pytest.fixture(scope="module")
def result(rows):
    return cn.AdaDetect("logistic").detect(*rows, ids=[f"<b>{i}" for i in range(100)])


@pytest.fixture(scope="module")
def run(rows):
    agents = [cn.Agent("north", *rows), cn.Agent("<i>south", *rows, ids=range(100))]
    return cn.Network(agents, scorer="logistic", composite="mean", regime="full").run()


def test_all_show_themselves_in_a_line_without_rows(rows, result, run):
    model = result.explainer.model
    training = cn.TrainingSet(rows[0], Mixture.of(rows[1]))
    agent = cn.Agent("north", *rows)
    shown = [result, run, run["north"], model, model.flat, training, training.mixture, agent]
    shown += [cn.Network([agent]), result.stepup]
    for one in shown:
        text = repr(one)
        assert len(text) < 250
        assert "array" not in text
        assert str(SECRET) not in text
        assert "\n" not in text
        assert text.startswith(f"<{type(one).__name__}")
    assert "10 of 100 rows flagged" in repr(result) or "of 100 rows" in repr(result)


def test_html_is_escaped_and_holds_no_rows(result, run):
    for one in (result, run, run["<i>south"], result.explainer.model):
        html = one._repr_html_()
        assert html.startswith("<table>")
        assert str(SECRET) not in html
        assert "<i>" not in html
        assert "<b>" not in html


def test_a_detector_and_a_decoded_model_show_themselves():
    assert "AdaDetect" in cn.AdaDetect("logistic")._repr_html_()
    model = LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])
    assert repr(cn.decode(cn.encode(model))) == "<Linear: features 4>"


def test_plots_are_matplotlib_axes(result, run):
    mpl.use("agg")
    for one in (result, run, run["north"]):
        ax = one.plot()
        assert isinstance(ax, mpl.axes.Axes)
        assert one.plot(ax) is ax
        mpl.pyplot.close(ax.figure)


def test_pages_are_written(result, run, tmp_path):
    for one in (result, run):
        path = one.report(tmp_path / "page.html")
        text = path.read_text(encoding="utf-8")
        assert "Why these rows?" in text
        assert "What is guaranteed" in text


def test_a_run_is_one_frame_of_all_agents(run):
    frame = run.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame)[:3] == ["agent", "row", "id"]
    assert frame["rejected"].sum() == run.n_rejected
    assert frame.groupby("agent")["rejected"].sum()["north"] == run["north"].n_rejected
    south = frame[frame["agent"] == "<i>south"]
    assert list(south["id"]) == [str(i) for i in range(100)]
    assert set(frame[frame["agent"] == "north"]["id"]) == {""}

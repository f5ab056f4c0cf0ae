"""cn.evaluate: how rows are dealt, what is counted, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import conovel as cn

RNG = np.random.default_rng(9)


@pytest.fixture(scope="module")
def rows():
    frame = pd.DataFrame(RNG.normal(size=(800, 2)), columns=["a", "b"])
    novel = np.arange(800) % 10 == 3
    frame.loc[novel, ["a", "b"]] += 4
    return frame.assign(kind=np.where(novel, "attack", "Benign"), time=np.arange(800) / 7)


@pytest.mark.parametrize("make", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_at_random(rows, make):
    found = cn.evaluate(make(rows.drop(columns="time")), "kind", trials=4, scorer="logistic")
    assert found.normal == "Benign"
    assert len(found.trials) == 4
    assert {trial.n_test for trial in found.trials} == {240}
    for trial in found.trials:
        assert trial.n_flagged == trial.n_found + trial.n_false
        assert trial.n_null + trial.n_test + (80 - trial.n_novel) == 800
    assert found.power > 0.9
    assert found.fdp == np.mean([trial.fdp for trial in found.trials])
    assert found.warnings == ()


def test_by_order_known_normals_come_before_the_tests(rows):
    drifting = rows.assign(a=rows.a + rows.time / 20).sample(frac=1, random_state=0)
    found = cn.evaluate(drifting, "kind", order="time", scorer="logistic")
    assert found.by_order
    assert [(t.n_null, t.n_test, t.n_novel) for t in found.trials] == [(504, 240, 24)]
    assert "drift" in found.n_warned
    assert found.headline.startswith("The known normals are not like today's rows")
    batches = cn.evaluate(drifting, "kind", order="time", trials=3, scorer="logistic")
    assert [t.n_null for t in batches.trials] == [504, 576, 648]
    values = cn.evaluate(
        drifting.drop(columns=["time", "kind"]).to_numpy(),
        (drifting.kind == "attack").to_numpy(),
        order=drifting.time.to_numpy(),
        scorer="logistic",
    )
    assert values.trials[0][:5] == found.trials[0][:5]


def test_the_first_of_more_trials_are_the_same(rows):
    X = rows.drop(columns="time")
    few, more = (cn.evaluate(X, "kind", trials=n, scorer="logistic") for n in (1, 2))
    assert few.trials[0][:5] == more.trials[0][:5]


@pytest.mark.parametrize(
    ("change", "label", "settings", "words"),
    [
        ({}, "none", {}, "no column 'none'"),
        ({"kind": "one"}, "kind", {}, "a single value"),
        ({"kind": np.tile(["x", "y"], 400)}, "kind", {}, "which is normal"),
        ({"kind": np.tile([0.0, np.nan], 400)}, "kind", {}, "missing in 400 rows"),
        ({}, "kind", {"normal": "ok"}, "no row has the label 'ok'"),
        ({"id": range(800)}, "kind", {}, "'id' looks like an id"),
        ({"text": [f"t{i}" for i in range(800)]}, "kind", {}, "'text' looks like an id"),
        ({"code": np.arange(800) % 10 == 3}, "kind", {}, "'code' looks like a further label"),
        ({}, "kind", {"trials": 0.5}, "trials must"),
        ({}, "kind", {"trials": 0}, "trials must"),
        ({"a, b": range(800)}, "kind", {}, """--exclude '"a, b"'"""),
        ({}, "kind", {"order": [1, 2]}, "one value for each row"),
        ({}, "kind", {"test_share": 2}, "test_share must"),
    ],
)
def test_bad_input(rows, change, label, settings, words):
    with pytest.raises(cn.InputError, match=words):
        cn.evaluate(rows.assign(**change), label, **{"scorer": "logistic"} | settings)


def test_what_looks_like_a_label_can_be_kept(rows):
    kept = rows.assign(code=(np.arange(800) % 10 == 3).astype(int))
    settings = {"trials": 1, "scorer": "logistic"}
    found = cn.evaluate(kept, "kind", keep=["code"], **settings)
    assert "one_value" in found.n_warned
    counts = rows.assign(errors=np.where(np.arange(800) % 10 == 3, RNG.poisson(2, 800), 0))
    assert cn.evaluate(counts, "kind", **settings).trials  # counts of errors are features


@pytest.fixture(scope="module")
def weak():
    """Rows in which known novelties help."""
    rng = np.random.default_rng(3)
    novel = np.arange(1200) % 5 == 0
    return rng.normal(size=(1200, 6)) + 1.2 * novel[:, None], novel


def test_known_novelties_are_never_tested_and_trials_are_the_same(weak):
    X, novel = weak
    found = cn.evaluate(X, novel, trials=2, scorer="logistic", known_share="1/2")
    assert list(found.by_known) == [0, 5, 20, 100]
    assert found.by_known[0] == found.trials
    sizes = {tuple(t[:3] for t in trials) for trials in found.by_known.values()}
    assert len(sizes) == 1
    assert all(t.n_test == 360 and t.n_novel <= 120 for t in found.trials)
    assert [t.n_null for t in found.trials] == [
        960 - (360 - t.n_novel) for t in found.trials
    ]  # all normal rows that are not tested
    assert found.with_known(100).power > found.power
    plain = found.to_dict()["by_known"]
    assert [one["n_known"] for one in plain] == [0, 5, 20, 100]
    assert plain[-1]["power"] == found.with_known(100).power
    labels = [text.get_text() for text in found.plot().get_xticklabels()]
    assert labels == ["0", "5", "20", "100"]


def test_known_novelties_by_order_come_first(weak):
    X, novel = weak
    found = cn.evaluate(X, novel, order="file", trials=2, scorer="logistic", known_share=0.1)
    assert list(found.by_known) == [0, 5, 16]  # of 168 novelties before the tests
    without = cn.evaluate(X, novel, order="file", trials=2, scorer="logistic")
    assert without.trials == found.trials
    assert not without.by_known
    with pytest.raises(cn.InputError, match="known_share"):
        without.plot()


def test_known_rows_from_elsewhere(weak):
    X, novel = weak
    far = cn.evaluate(X, novel, trials=1, scorer="logistic", X_known=X[novel][:50])
    assert "known_among_tests" in far.n_warned


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"known_share": 0.001}, "raise known_share"),
        ({"known_share": 2}, "known_share"),
        ({"known_share": 0.5, "X_known": np.ones((1, 6))}, "leave out X_known"),
    ],
)
def test_known_shares_that_are_refused(weak, settings, words):
    with pytest.raises(cn.InputError, match=words):
        cn.evaluate(*weak, trials=1, **settings)

"""cn.check: a rehearsal with a valid p-value, in file order or by a column."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestClassifier

import conovel as cn

mpl.use("agg")
RNG = np.random.default_rng(6)


def rows_with_drift(n=400):
    rows = pd.DataFrame(RNG.normal(size=(n, 3)), columns=["a", "b", "c"])
    rows.loc[rows.index >= 3 * n // 4, "b"] += 2
    return rows.assign(time=pd.date_range("2026-01-01", periods=n, freq="h"))


def test_drift_by_time_is_found_in_shuffled_rows():
    rows = rows_with_drift()
    shuffled = rows.sample(frac=1, random_state=0)
    found = cn.check(shuffled, order="time", scorer="logistic")
    assert not found.exchangeable
    assert found.p_value == 0.001
    assert [one.column for one in found.columns] == ["b"]
    assert abs(found.columns[0].since - 300) <= 20
    assert "Column 'b' changes" in str(found)
    assert found.n_latest == 80
    given = cn.check(shuffled.drop(columns="time"), shuffled["time"], scorer="logistic")
    assert given.p_value == found.p_value
    assert given.since == found.since
    assert cn.check(shuffled.drop(columns="time"), scorer="logistic").exchangeable


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, lambda rows: rows.to_numpy()])
def test_arrays_and_frames_alike(make):
    rows = rows_with_drift().drop(columns="time")
    found = cn.check(make(rows), scorer="logistic")
    assert found.columns[0].since == cn.check(rows, scorer="logistic").columns[0].since


def test_the_rehearsal_sees_what_no_column_shows():
    rows = RNG.normal(size=(800, 2))
    rows[600:, 1] = rows[600:, 0] + 0.1 * rows[600:, 1]  # each column by itself stays the same
    found = cn.check(rows, scorer=RandomForestClassifier(30, min_samples_leaf=5))
    assert found.p_columns > 0.01
    assert found.p_rehearsal == 1 / 2000
    assert not found.exchangeable
    assert found.columns == ()


def test_the_p_value_of_the_rehearsal_is_valid():
    p_values = [
        cn.check(RNG.normal(size=(60, 2)), scorer="logistic", random_state=seed).p_rehearsal
        for seed in range(60)
    ]
    for t in (0.1, 0.5):
        assert np.mean(np.array(p_values) <= t) <= t + 3 * (t * (1 - t) / 60) ** 0.5


def test_a_row_number_is_named_and_left_out():
    rows = pd.DataFrame(RNG.normal(size=(200, 2)), columns=["a", "b"]).assign(row=range(200))
    found = cn.check(rows, scorer="logistic")
    assert [one.kind for one in found.warnings] == ["id"]
    assert found.exchangeable


def test_the_picture_and_the_record():
    found = cn.check(rows_with_drift(), order="time", scorer="logistic")
    axes = found.plot()
    assert next(line.get_label() for line in axes.get_lines()) == "b"
    plain = found.to_dict()
    assert plain["columns"][0]["column"] == "b"
    assert len(plain["columns"][0]["trace"]) == 20


@pytest.mark.parametrize(
    ("rows", "order", "words"),
    [
        (np.zeros((10, 2)), None, "at least 40"),
        (np.arange(100).reshape(50, 2), None, "no column to check"),
        (RNG.normal(size=(50, 2)), "time", "no column 'time'"),
        (RNG.normal(size=(50, 2)), [1, 2], "order has shape"),
        (RNG.normal(size=(50, 2)), np.array([{}] * 50), "no date like"),
        (RNG.normal(size=(50, 2)), [f"{i}.11.2026" for i in range(50)], "no date like"),
        (RNG.normal(size=(50, 2)), [np.nan] * 50, "missing"),
    ],
)
def test_bad_input(rows, order, words):
    with pytest.raises(cn.InputError, match=words):
        cn.check(rows, order, scorer="logistic")

"""Rows: every complaint names the column or the count, and says what to do."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from conovel.errors import ColumnError, DataWarning, SampleError
from conovel.rows.pairs import read_pair
from conovel.rows.samples import read_rows

GOOD = pd.DataFrame({"amount": [1.0, 2.0, 3.0], "hour": [3, 4, 5]})


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_every_kind_give_the_same_matrix(make):
    rows = read_rows(make({"amount": [1.0, 2.0], "new": [True, False]}), "X")
    assert rows.columns == ("amount", "new")
    assert rows.values.tolist() == [[1.0, 1.0], [2.0, 0.0]]


def test_columns_are_matched_by_name_not_by_place():
    null, test = read_pair(GOOD, GOOD.iloc[:, ::-1] + 10.0)
    assert null.columns == test.columns
    assert test.values[0].tolist() == [11.0, 13.0]


def test_negative_zero_becomes_zero_so_that_equal_rows_have_equal_bytes():
    assert read_rows([[-0.0, 1.0]], "X").values.tobytes() == np.array([0.0, 1.0]).tobytes()


@pytest.mark.parametrize(
    ("sample", "error", "words"),
    [
        (np.zeros(3), SampleError, "reshape(-1, 1)"),
        (np.zeros((2, 2, 2)), SampleError, "(rows, columns)"),
        (np.zeros((0, 2)), SampleError, "no rows"),
        (np.zeros((2, 0)), SampleError, "no columns"),
        (sparse.eye(3).tocsr(), SampleError, "toarray()"),
        (np.array([["a", "b"]]), ColumnError, "encode them as numbers"),
        (np.array([[1, "b"]], dtype=object), ColumnError, "encode them as numbers"),
        (np.array([[1.0, np.nan]]), ColumnError, "column 1 has 1 (first in row 0)"),
        (GOOD.assign(hour=[1, None, None]), ColumnError, "column 'hour' has 2 (first in row 1)"),
        (GOOD.assign(amount=list("abc")), ColumnError, "'amount' (String)"),
        (
            GOOD.assign(when=pd.Timestamp("2026-01-01")),
            ColumnError,
            "not numeric: 'when' (Datetime",
        ),
    ],
)
def test_unusable_samples_are_named(sample, error, words):
    with pytest.raises(error) as raised:
        read_rows(sample, "X_test")
    assert words in str(raised.value)
    assert "X_test" in str(raised.value)


def test_a_nullable_integer_column_with_missing_values_is_named():
    frame = pl.DataFrame({"hour": [1, None, 3]})
    with pytest.raises(ColumnError, match="column 'hour' has 1 \\(first in row 1\\)"):
        read_rows(frame, "X")


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (GOOD.drop(columns="hour"), "lacks 'hour'"),
        (GOOD.assign(iban=1), "also has 'iban'"),
        (np.zeros((2, 3)), "X_null has 2 columns and X_test 3"),
    ],
)
def test_columns_must_agree(test, words):
    with pytest.raises(ColumnError, match=words):
        read_pair(GOOD, test)


def test_constant_columns_warn_and_all_constant_is_an_error():
    with pytest.warns(DataWarning, match="column 'hour' never changes"):
        read_pair(GOOD.assign(hour=1), (GOOD + 0.5).assign(hour=1))
    with pytest.raises(ColumnError, match="every column is constant"):
        read_pair(np.ones((3, 2)), np.ones((2, 2)))


def test_test_rows_among_the_nulls_warn_with_their_number():
    rng = np.random.default_rng(0)
    null = rng.normal(size=(50, 2))
    test = np.vstack([rng.normal(size=(8, 2)), null[:3]])
    with pytest.warns(DataWarning, match="3 of 11 test rows also stand in X_null"):
        read_pair(null, test)


def test_coarse_data_that_repeats_by_nature_does_not_warn():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_pair(rng.integers(0, 3, size=(400, 2)), rng.integers(0, 3, size=(50, 2)))

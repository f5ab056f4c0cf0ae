"""Which stratum a row belongs to, by columns of any kind."""

import numpy as np
import pandas as pd
import pytest

from conovel.errors import ColumnError, InputError
from conovel.rows.pairs import read_pair
from conovel.rows.strata import NO_STRATUM, as_strata, find_strata


def frames(**columns):
    null, test = ({name: values[i] for name, values in columns.items()} for i in (0, 1))
    rng = np.random.default_rng(0)
    frames = []
    for one in (null, test):
        n = len(next(iter(one.values())))
        frames.append(pd.DataFrame({**one, "x": rng.normal(size=n)}))
    return frames


def strata_of(null, test, *columns, schema=None):
    return find_strata(*read_pair(null, test, schema), columns)


def test_texts_and_missing_values_are_strata():
    null, test = frames(branch=(["b", "a", None] * 20, ["a", "c", None, "a"] * 10))
    strata = strata_of(null, test, "branch")
    assert set(strata.labels) == {"a", "b", "c", "(missing)"}
    for frame, codes in ((null, strata.null), (test, strata.test)):
        spelled = frame["branch"].fillna("(missing)").tolist()
        assert [strata.labels[code] for code in codes] == spelled
    sizes = dict(zip(strata.labels, strata.sizes(), strict=True))
    assert sizes == {"a": (20, 20), "b": (20, 0), "c": (0, 10), "(missing)": (20, 10)}


def test_several_columns_make_one_stratum_of_each_combination():
    null, test = frames(a=([0, 1] * 30, [1, 1] * 10), b=([5, 5, 6] * 20, [5, 6] * 10))
    strata = strata_of(null, test, "a", "b")
    assert strata.labels == ("0, 5", "0, 6", "1, 5", "1, 6")
    assert [strata.labels[code] for code in strata.test[:2]] == ["1, 5", "1, 6"]


def test_columns_of_an_array_have_numbers():
    rows = np.column_stack([np.arange(30) % 3, np.random.default_rng(0).normal(size=30)])
    strata = strata_of(rows[:20], rows[20:], "0")
    assert strata.labels == ("0", "1", "2")
    assert np.array_equal(strata.of_rows(rows), rows[:, 0])


def test_the_order_of_rows_does_not_matter():
    null, test = frames(branch=(["b", "a", "c"] * 20, ["a", "c"] * 10))
    first, second = strata_of(null, test, "branch"), strata_of(null[::-1], test[::-1], "branch")
    assert first.labels == second.labels
    assert np.array_equal(first.null[::-1], second.null)


def test_rare_levels_are_no_stratum():
    null, test = frames(branch=(["b", "a"] * 30, ["a"] * 38 + ["once", "twice"]))
    strata = strata_of(null, test, "branch")
    assert set(strata.labels) == {"a", "b"}
    assert strata.test[-2:].tolist() == [NO_STRATUM, NO_STRATUM]


def test_a_continuous_column_is_named_with_the_fix():
    null, test = frames(a=([0] * 200, [0, 1] * 20))
    with pytest.raises(ColumnError, match=r"'x' has more than 100 different values: choose"):
        strata_of(null, test, "x")


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"branch": "ignore"}, "no column 'branch'"),
        ({"branch": {"kind": "category", "buckets": 4}}, "buckets"),
        ({"branch": {"kind": "number", "low": 0.0, "high": 9.0}}, "bounds"),
    ],
)
def test_columns_whose_values_are_put_together_are_refused(kinds, words):
    null, test = frames(branch=([1, 2] * 30, [1, 2] * 10))
    with pytest.raises(ColumnError, match=words):
        strata_of(null, test, "branch", schema=kinds)


def test_a_date_is_refused():
    null, test = frames(when=(["2026-01-01", "2026-01-02"] * 30, ["2026-01-01"] * 20))
    with pytest.raises(ColumnError, match="month"):
        strata_of(null, test, "when", schema={"when": "date"})


@pytest.mark.parametrize("wrong", [[], 1.5, [None], ["a", "a"], {"a": 1}, [True], ""])
def test_what_names_no_columns_is_refused(wrong):
    with pytest.raises(InputError, match="strata"):
        as_strata(wrong)

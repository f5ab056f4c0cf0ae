"""Exchanged roles with columns of every kind: an encoding may not know which rows calibrate."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.roles import (
    assert_roles_do_not_matter,
    in_detector,
    in_files,
    in_network,
    numbered,
    of_tables,
)

import conovel as cn
from conovel.rows import profiles as inference

SIZES = (60, 24)
LEVEL = "1/5"


def holes(values, rng, share=0.2):
    return values.mask(rng.random(len(values)) < share)


def rows_with(kind, n=400, seed=0):
    """Draw a table with one column of a kind beside a number."""
    rng = np.random.default_rng(seed)
    texts = pd.Series(
        rng.choice(["L", "M", "H", "rare", "very rare"], n, p=[0.5, 0.3, 0.17, 0.02, 0.01])
    )
    numbers = pd.Series(rng.normal(size=n).round(1))
    moments = pd.Series(
        pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, n), "s")
    )
    column = {
        "missing numbers": lambda: holes(numbers, rng),
        "float32": lambda: holes(numbers.astype("float32"), rng),
        "booleans": lambda: holes(pd.Series(rng.random(n) < 0.4).astype("boolean"), rng),
        "categories": lambda: texts.astype("category"),
        "texts": lambda: holes(texts, rng),
        "many levels": lambda: pd.Series([f"c{i}" for i in rng.poisson(8, n)]),
        "buckets": lambda: pd.Series([f"c{i}" for i in rng.integers(0, 300, n)]),
        "numbers as texts": lambda: holes(numbers, rng).map(
            lambda x: "?" if np.isnan(x) else str(x)
        ),
        "dates": lambda: holes(moments, rng),
        "decimals": lambda: holes(numbers, rng).astype(object),
    }[kind]()
    return pd.DataFrame({"x": rng.normal(size=n).round(1), "c": column})


def as_read_again(frame):
    """Give a sample the types that pandas takes its own texts for."""
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)))


COLUMN_KINDS = [
    "missing numbers",
    "float32",
    "booleans",
    "categories",
    "texts",
    "many levels",
    "numbers as texts",
    "dates",
    "decimals",
]
FORMS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "read again": as_read_again,
}


@pytest.mark.parametrize(
    ("kind", "form"),
    [(kind, form) for kind in COLUMN_KINDS for form in ("pandas", "read again")]
    + [("texts", "polars"), ("dates", "polars"), ("booleans", "arrow"), ("float32", "arrow")],
)
def test_roles_in_a_detector(kind, form):
    schema = {"c": "date"} if kind == "dates" else None
    run = of_tables(in_detector(level=LEVEL, schema=schema), rows_with(kind), FORMS[form])
    assert_roles_do_not_matter(run, numbered(SIZES), "logistic")


@pytest.mark.parametrize("kind", ["missing numbers", "texts", "dates"])
def test_roles_in_files(tmp_path, kind):
    schema = {"c": "date"} if kind == "dates" else None
    run = in_files(tmp_path, level=LEVEL, schema=schema)
    run = of_tables(run, rows_with(kind), FORMS["arrow"])
    assert_roles_do_not_matter(run, numbered(SIZES), "logistic")


@pytest.mark.parametrize("kind", ["missing numbers", "texts", "many levels", "dates"])
def test_roles_in_a_network(kind):
    rows = rows_with(kind)
    # The agents have the first 174 rows.
    schema = cn.infer_schema(rows[200:], kinds={"c": "date"} if kind == "dates" else None)
    run = of_tables(in_network(regime="joint", level=LEVEL, schema=schema), rows)
    assert_roles_do_not_matter(run, numbered(SIZES, (64, 26)), "logistic")


def test_roles_where_the_values_are_too_many_to_keep(monkeypatch):
    monkeypatch.setattr(inference, "MOST_KEPT", 16)
    for kind, schema in (("buckets", {"c": "category"}), ("missing numbers", None)):
        run = of_tables(in_detector(level=LEVEL, schema=schema), rows_with(kind))
        assert_roles_do_not_matter(run, numbered(SIZES), "logistic")


def test_a_schema_that_looks_at_one_sample_is_caught(monkeypatch):
    """Take the neutral value from the known normals alone."""
    seen = []
    monkeypatch.setattr(inference.Profile, "median", lambda self: seen[-1])
    rows = rows_with("missing numbers")

    def of_nulls(frame):
        if len(frame) == SIZES[0]:
            seen.append(float(frame["c"].mean()))
        return frame

    run = of_tables(in_detector(level=LEVEL), rows, of_nulls)
    with pytest.raises(AssertionError, match="have other scores"):
        assert_roles_do_not_matter(run, numbered(SIZES), "logistic")

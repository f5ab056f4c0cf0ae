"""A column without any value, where the schema says that values may be missing."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.roles import assert_roles_do_not_matter, in_detector, in_network, numbered, of_tables

import conovel as cn
from conovel.errors import ColumnError, DataWarning

SCHEMA = cn.Schema.from_dict(
    {
        "x": "number",
        "dose": {"kind": "number", "missing": True, "fill": 0.0},
        "ward": {"kind": "category", "missing": True, "levels": ["a", "b"]},
        "when": {"kind": "date", "missing": True},
        "on": {"kind": "boolean", "missing": True},
    }
)
MAY_MISS = ["dose", "ward", "when", "on"]
FORMS = {
    "pandas": lambda f: f,
    "polars": pl.from_pandas,
    "arrow": lambda f: pa.Table.from_pandas(f, preserve_index=False),
}


def draw(n, gone="", seed=0):
    rng = np.random.default_rng([seed, n])
    frame = pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "dose": rng.normal(size=n),
            "ward": rng.choice(["a", "b"], n),
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 10**6, n), "s"),
            "on": rng.random(n) < 0.5,
        }
    )
    return frame.assign(**{gone: None}) if gone else frame


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gone", MAY_MISS)
def test_a_batch_without_values_is_tested_and_named(gone, form):
    detector = cn.AdaDetect("logistic", schema=SCHEMA)
    for null, test, kind in (
        (gone, "", "missing"),
        ("", gone, "missing"),
        (gone, gone, "constant"),
    ):
        found = detector.detect(FORMS[form](draw(200, null)), FORMS[form](draw(60, test)))
        [finding] = [one for one in found.warnings if one.columns == (gone,)]
        assert finding.kind == kind
        assert f"column {gone!r} has no value in" in finding.message
        assert finding.breaks_promise == (kind == "missing")


def test_without_a_schema_a_sample_that_lacks_it_is_refused_and_two_are_not():
    null, test = draw(200, "dose").drop(columns="when"), draw(60).drop(columns="when")
    with pytest.raises(ColumnError, match="X_null: entirely missing, in all 200 rows"):
        cn.AdaDetect("logistic").detect(null, test)
    with pytest.raises(ColumnError, match="X_test: entirely missing, in all 200 rows"):
        cn.AdaDetect("logistic").detect(test, null)
    with pytest.warns(DataWarning, match="'dose' has no value in any row and is left out"):
        found = cn.AdaDetect("logistic").detect(null, test.assign(dose=None))
    without = [rows.drop(columns="dose") for rows in (null, test)]
    alone = cn.AdaDetect("logistic").detect(*without)
    assert found.scores.tobytes() == alone.scores.tobytes()
    strict = cn.Schema.from_dict(SCHEMA.to_dict() | {"dose": "number"})
    with pytest.raises(ColumnError, match="'dose' has 60 missing values"):
        cn.AdaDetect("logistic", schema=strict).detect(draw(200), draw(60, "dose"))


@pytest.mark.parametrize("n_present", [2, 100])
def test_few_values_may_all_be_in_one_sample(n_present):
    null, test = draw(200).drop(columns="when"), draw(20, "dose").drop(columns="when")
    null.loc[n_present:, "dose"] = None
    if n_present == 100:  # by chance once in a thousand draws: a mistake
        with pytest.raises(ColumnError, match="X_test: entirely missing"):
            cn.AdaDetect("logistic").detect(null, test)
        return
    found = cn.AdaDetect("logistic").detect(null, test)
    assert not [one for one in found.warnings if one.columns == ("dose",)]


def test_an_array_without_values_in_a_column():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    rows[:, 1] = np.nan
    schema = cn.Schema.from_dict({"0": "number", "1": SCHEMA["dose"].to_dict(), "2": "number"})
    found = cn.AdaDetect("logistic", schema=schema).detect(rows[:150], rows[150:])
    assert [one.columns for one in found.warnings if one.kind == "constant"] == [("1",)]


@pytest.mark.parametrize("regime", ["joint", "full", "consensus"])
def test_one_agent_of_a_network_lacks_a_column(regime):
    agents = [
        cn.Agent(name, draw(200, gone), draw(60, gone))
        for name, gone in zip("ab", ["dose", ""], strict=True)
    ]
    run = cn.Network(agents, regime=regime, scorer="logistic", schema=SCHEMA).run()
    found = [one for one in run.warnings if one.columns == ("dose",)]
    assert [(one.agent, one.kind) for one in found] == [("a", "constant")]


def test_a_kept_detector_names_it_in_a_batch():
    kept = cn.AdaDetect("logistic", schema=SCHEMA).keep(draw(200), draw(150, seed=1))
    found = kept.detect(draw(60, "dose"))
    assert [one.columns for one in found.warnings if one.kind == "missing"] == [("dose",)]
    assert not [one for one in kept.detect(draw(60)).warnings if one.kind == "missing"]


def test_roles_do_not_matter_where_a_column_is_missing():
    rows = draw(200, "dose")
    run = of_tables(in_detector(level="1/5", schema=SCHEMA), rows)
    assert_roles_do_not_matter(run, numbered((60, 24)), "logistic")
    run = of_tables(in_network(regime="joint", level="1/5", schema=SCHEMA), rows)
    assert_roles_do_not_matter(run, numbered((60, 24), (64, 26)), "logistic")

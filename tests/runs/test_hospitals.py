"""Agents of which some do not have a column, or have no value of it: four hospitals."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from support.commands import invoke
from support.hospitals import draw_hospitals, write_hospitals
from support.roles import assert_roles_do_not_matter, in_network, numbered, of_tables

import conovel as cn
from conovel.errors import ColumnError
from conovel.runs.agents import with_one_schema
from conovel.spec.regimes import REGIMES

EMPTY = {"switzerland": "ca", "va": "ca"}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def as_agents(drawn):
    return [cn.Agent(name, *pair) for name, pair in drawn.items()]


def without_empty(drawn):
    """Drop the columns that have no value at a hospital, there."""
    return {
        name: tuple(rows.drop(columns=EMPTY.get(name, [])) for rows in pair)
        for name, pair in drawn.items()
    }


@pytest.mark.parametrize("regime", REGIMES)
def test_a_column_that_is_empty_or_not_there_is_missing_in_every_regime(regime):
    drawn = draw_hospitals()
    runs = [
        cn.Network(as_agents(rows), regime=regime, scorer="logistic").run()
        if regime not in ("together", "consensus")
        else cn.Network(as_agents(rows), regime=regime).run()
        for rows in (drawn, without_empty(drawn))
    ]
    for run in runs:
        named = [(one.agent, one.columns) for one in run.warnings if "no value" in one.message]
        assert named == [(name, (column,)) for name, column in EMPTY.items()]
        assert run.spec.schema["ca"].missing
        assert not run.spec.schema["age"].missing
    for name in drawn:
        one, other = (run[name].scores for run in runs)
        assert one.tobytes() == other.tobytes()


def test_one_command_reads_all_files_and_reports_by_hospital(
    tmp_path, capsys, monkeypatch, few_trees
):
    out = tmp_path / "run.json"
    files = write_hospitals(tmp_path)
    ran = invoke(capsys, monkeypatch, "simulate", *files, "--out", out)
    assert ran.code == 0
    said = " ".join(ran.out.replace("|", " ").split())
    assert "va: column 'ca' has no value in either sample" in said
    run = json.loads(out.read_text())
    assert run["decisions"].keys() == draw_hospitals().keys()
    assert run["transcript"]["spec"]["regime"] == "together"
    assert invoke(capsys, monkeypatch, "verify", out).code == 0
    assert invoke(capsys, monkeypatch, "report", out).code == 0
    page = (tmp_path / "run.html").read_text()
    assert all(name in page for name in draw_hospitals())


def test_reasons_do_not_name_a_column_without_values():
    run = cn.Network(as_agents(draw_hospitals())).run()
    named = {name: set(run[name].explain()["column"]) for name in EMPTY}
    assert all(named.values())
    assert not any(column in named[name] for name, column in EMPTY.items())


def schema_of(drawn):
    return with_one_schema(as_agents(drawn), None)[1]


def test_the_schema_follows_from_all_rows_as_one_multiset():
    """No exchange of rows changes it, within an agent or between agents."""
    drawn = {
        name: tuple(rows.assign(ward=np.where(rows["age"] > 50, "a", "b")) for rows in pair)
        for name, pair in draw_hospitals().items()
    }
    before = schema_of(drawn)
    rng = np.random.default_rng(0)
    sizes = [len(rows) for pair in drawn.values() for rows in pair]
    rows = pd.concat([rows for pair in drawn.values() for rows in pair], ignore_index=True)
    for _ in range(5):
        parts = np.split(rng.permutation(len(rows)), np.cumsum(sizes)[:-1])
        dealt = {
            name: tuple(rows.iloc[parts[2 * i + role]] for role in (0, 1))
            for i, name in enumerate(drawn)
        }
        assert schema_of(dealt) == before
    fewer = {name: (null[:-30], test) for name, (null, test) in drawn.items()}
    assert schema_of(fewer) != before  # other rows, another schema: the assertion can fail


@pytest.mark.parametrize("regime", ["joint", "full"])
def test_roles_do_not_matter_where_one_agent_has_no_values(regime):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "x": rng.normal(size=174),
            "dose": rng.normal(size=174),
            "ward": rng.choice(["a", "b"], 174),
        }
    )
    rows.loc[:83, "dose"] = None  # all rows of the first agent
    rows.loc[rng.random(174) < 0.2, "ward"] = None
    run = of_tables(in_network(regime=regime, level="1/5"), rows)
    assert_roles_do_not_matter(run, numbered((60, 24), (64, 26)), "logistic")


def test_roles_do_not_matter_where_one_sample_has_no_values():
    """The finding says that the samples differ; the score still does not know the roles."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(size=174), "dose": rng.normal(size=174)})
    rows.loc[:59, "dose"] = None  # the known normals of the first agent
    schema = cn.Schema.from_dict({"x": "number", "dose": {"kind": "number", "missing": True}})
    run = of_tables(in_network(regime="joint", level="1/5", schema=schema), rows)
    assert_roles_do_not_matter(run, numbered((60, 24), (64, 26)), "logistic")


def test_what_cannot_be_meant_is_refused():
    drawn = draw_hospitals()
    null, test = drawn["va"]
    wrong = {
        "the column 'Age': give it one name": (
            null.rename(columns={"age": "Age"}),
            test.rename(columns={"age": "Age"}),
        ),
        "no column in common": tuple(rows.add_suffix("_") for rows in (null, test)),
        "agent va: X_test also has 'ca'": (null.drop(columns="ca"), test),
        "agent va: X_test: entirely missing": (null, test.assign(age=np.nan)),
    }
    for words, pair in wrong.items():
        with pytest.raises(ColumnError, match=words):
            cn.Network(as_agents(drawn | {"va": pair}), scorer="logistic").run()


def test_kinds_of_some_columns_and_dates():
    rng = np.random.default_rng(0)
    when = pd.date_range("2026-01-05", periods=200, freq="h")
    frame = pd.DataFrame(
        {"x": rng.normal(size=200), "when": when, "code": rng.integers(0, 3, 200)}
    )
    agents = [cn.Agent(name, frame[:150], frame[150:]) for name in "ab"]
    run = cn.Network(agents, scorer="logistic", schema={"code": "category"}).run()
    kinds = {column.name: column.kind for column in run.spec.schema}
    assert kinds == {"x": "number", "code": "category", "when": "ignore"}
    run = cn.Network(agents, scorer="logistic", schema={"when": "date"}).run()
    assert run.spec.schema["when"].kind == "date"
    whole = {"x": "number", "when": "ignore", "code": "number"}
    assert cn.Network(agents, scorer="logistic", schema=whole).run().spec.schema.names == (*whole,)

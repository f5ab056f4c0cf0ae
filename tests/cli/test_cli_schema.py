"""`conovel schema`, and what --schema does with other options, in memory and in pieces."""

import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pyarrow.parquet as pa_parquet
import pytest
from support.commands import invoke
from typer.main import get_command

import conovel as cn
from conovel.cli import app
from conovel.cli.tables import FileOptions

RNG = np.random.default_rng(0)
MEMORY = pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])


def draw(n, novel=0):
    frame = pd.DataFrame(
        {
            "x": RNG.normal(size=n).round(6),
            "y": RNG.normal(size=n).round(6),
            "site": RNG.choice(["007", "012", "Ulm"], n),
            "id": [f"r{i}" for i in RNG.permutation(10**6)[:n]],
        }
    )
    frame.loc[frame.index[::9], "y"] = np.nan
    frame.loc[frame.index[n - novel :], "x"] += 6
    return frame


NULL, TEST, OTHER = draw(300), draw(80, 10), draw(200)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, frame in (("null", NULL), ("test", TEST), ("other", OTHER)):
        frame.to_csv(f"{name}.csv", index=False)
        frame.to_parquet(f"{name}.parquet")

    def command(*arguments):
        return invoke(capsys, monkeypatch, *arguments)

    def make(*sources, exclude="id"):
        written = command("schema", *sources, "--exclude", exclude)
        assert written.code == 0, written.err
        (tmp_path / "schema.toml").write_text(written.out, encoding="utf-8")
        return cn.Schema.from_toml(written.out)

    def detect(*options, kind="csv"):
        files = ["--null", f"null.{kind}", "--test", f"test.{kind}", "--out", "out.parquet"]
        settings = ["--scorer", "logistic", "--level", "0.2", "--schema", "schema.toml"]
        return command("detect", *files, *settings, *options)

    command.make, command.detect = make, detect
    return command


@MEMORY
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("role", ["null", "test"])
def test_a_schema_of_one_role_is_refused_in_every_format(run, role, kind, memory):
    assert run.make(f"{role}.csv").made_from.how == "one table"
    refused = run.detect(*memory, kind=kind)
    assert refused.code == 2
    assert "false discovery rate is not controlled" in refused.err
    assert "conovel schema --null FILE --test FILE" in refused.err


@MEMORY
def test_leaving_out_a_column_does_not_hide_it(run, memory):
    run.make("null.csv")
    for options in (["--exclude", "y"], ["--columns", "x,site"]):
        refused = run.detect(*memory, *options)
        assert (refused.code, "not controlled" in refused.err) == (2, True)


@MEMORY
@pytest.mark.parametrize("sources", [["--null=null.csv", "--test=test.csv"], ["other.csv"]])
def test_both_samples_or_another_table_are_taken(run, sources, memory):
    schema = run.make(*sources)
    assert schema.names[-1] == "id"
    assert "id" not in schema.made_from.columns
    taken = run.detect(*memory)
    assert (taken.code, taken.err) == (0, "")


@pytest.mark.parametrize(
    "sources",
    [[], ["--null=null.csv"], ["--test=test.csv"], ["other.csv", "--null=null.csv"]],
)
def test_one_sample_makes_no_schema(run, sources):
    refused = run("schema", *sources)
    assert refused.code == 2
    assert "both --null and --test, or one table that is neither of them" in refused.err


def test_commands_that_refuse_it(run):
    run.make("null.csv")
    agents = [f"--agent={name}=null.csv,test.csv" for name in ("north", "south")]
    for command in (
        ["simulate", *agents, "--scorer", "logistic", "--regime", "counts"],
        ["fit", "--null", "null.csv", "--unlabelled", "test.csv", "--out", "d.conovel"],
    ):
        refused = run(*command, "--schema", "schema.toml")
        assert (refused.code, "not controlled" in refused.err) == (2, True)


@MEMORY
@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--exclude", "y"], ["x", "site"]),
        (["--columns", "x,y"], ["x", "y"]),
        (["--columns", "x,y", "--exclude", "y"], ["x"]),
    ],
)
def test_columns_and_exclude_hold_with_a_schema(run, options, left, memory):
    schema = run.make("--null=null.csv", "--test=test.csv")
    done = run.detect(*memory, *options)
    assert (done.code, done.err) == (0, "")
    said = {name: what if name in left else "ignore" for name, what in schema.to_dict().items()}
    detector = cn.AdaDetect("logistic", level="0.2", schema=cn.Schema.from_dict(said))
    expected = detector.detect(NULL, TEST)
    found = pa_parquet.read_table("out.parquet")["score"].to_numpy()
    assert found.tobytes() == expected.scores.tobytes()
    whole = cn.AdaDetect("logistic", level="0.2", schema=schema).detect(NULL, TEST)
    assert found.tobytes() != whole.scores.tobytes()


@MEMORY
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--columns", "x,z"], "the schema does not use the column 'z'"),
        (["--columns", "id"], "the schema does not use the column 'id'"),
        (["--exclude", "x,y,site"], "no column of the schema is left"),
    ],
)
def test_columns_that_the_schema_cannot_give(run, options, words, memory):
    run.make("other.csv")
    refused = run.detect(*memory, *options)
    assert (refused.code, words in refused.err) == (2, True)


@pytest.mark.parametrize("options", [["--exclude", "y"], ["--columns", "x,site"]])
def test_a_network_of_files_leaves_columns_out(run, options):
    run.make("other.csv")
    command = ["simulate", "--scorer", "logistic", "--regime", "counts", "--json"]
    agents = ["--agent=north=null.csv,test.csv", "--agent=south=null.parquet,test.parquet"]
    done = run(*command, *agents, "--schema", "schema.toml", *options)
    assert done.code == 0
    kept = json.loads(done.out)[0]["transcript"]["spec"]["schema"]["digests"]
    ignored = cn.Column("y", "ignore").digest
    assert kept["y"] == ignored


GONE = {
    "y": {"kind": "number", "missing": True, "fill": 0.0},
    "site": {"kind": "category", "missing": True, "levels": ["007", "012"]},
}


@MEMORY
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["y", "site"])
@pytest.mark.parametrize("where", [("null",), ("test",), ("null", "test")])
def test_a_column_without_values_is_filled(run, tmp_path, name, kind, where, memory):
    schema = cn.Schema.from_dict({"x": "number", **GONE, "id": "ignore"})
    (tmp_path / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    for sample, frame in (("null", NULL), ("test", TEST)):
        changed = frame.assign(**{name: None}) if sample in where else frame
        changed.to_csv(f"{sample}.csv", index=False)
        changed.to_parquet(f"{sample}.parquet")
    done = run.detect(*memory, "--json", kind=kind)
    assert done.code == 0, done.err
    found = [one for one in json.loads(done.out)["warnings"] if name in one["columns"]]
    assert [one["kind"] for one in found][:1] == ["constant" if len(where) == 2 else "missing"]
    assert f"column '{name}' has no value in" in found[0]["message"]
    schema = cn.Schema.from_dict(schema.to_dict() | {name: "number"})
    (tmp_path / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    assert run.detect(*memory, kind=kind).code == 2  # it says nothing about missing values


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("detect", set()),
        ("fit", set()),
        ("watch", set()),
        ("privacy", set()),
        ("simulate", {"kind"}),
        ("check", {"id_column"}),
        ("evaluate", {"id_column"}),
        ("schema", {"id_column", "schema"}),
    ],
)
def test_commands_that_read_tables_have_the_same_options(command, without):
    shared = {field.name for field in fields(FileOptions)}
    found = {param.name for param in get_command(app).commands[command].params}
    assert shared - found == without
    assert "options" not in found

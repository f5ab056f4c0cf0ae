"""The command on files that are read in pieces."""

import json

import pytest
from support.files import make_files
from typer.testing import CliRunner

from conovel.cli import app
from conovel.errors import InputError


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path)


def command(files, out, *more):
    options = ["--null", files / "null", "--test", files / "test", "--id", "name"]
    chosen = ["--scorer", "random-forest", "--out", out, "--json", *more]
    return CliRunner().invoke(app, ["detect", *map(str, [*options, *chosen])])


def test_the_command_gives_the_same_files_with_a_budget(files):
    for name, more in (("a", []), ("b", ["--memory", "800MB"])):
        done = command(files, files / f"{name}.parquet", *more)
        assert done.exit_code == 0, done.output
    assert (files / "a.parquet").read_bytes() == (files / "b.parquet").read_bytes()
    results = [json.loads((files / f"{name}.parquet.json").read_text()) for name in "ab"]
    assert [result.pop("table") for result in results] == ["a.parquet", "b.parquet"]
    made = [result.pop("made") for result in results]
    assert made[0]["columns"] == made[1]["columns"]
    assert results[0] == results[1]


def test_large_files_are_read_in_pieces_without_being_asked(files, monkeypatch):
    from conovel.cli import detect

    monkeypatch.setattr("conovel.rows.storage._LARGE", 100)
    monkeypatch.setattr(detect, "_in_memory", None)
    assert command(files, files / "out.parquet").exit_code == 0
    assert (files / "out.parquet").exists()


@pytest.mark.parametrize(
    "more", [["--engine", "dask"], ["--engine", "spark"], ["--scheduler", "tcp://here:1"]]
)
def test_engine_and_scheduler_belong_together(files, more):
    done = command(files, files / "out.parquet", *more)
    assert isinstance(done.exception, InputError)
    assert "--scheduler" in str(done.exception)


def test_a_budget_needs_an_output(files):
    inputs = ["--null", str(files / "null"), "--test", str(files / "test")]
    done = CliRunner().invoke(app, ["detect", *inputs, "--memory", "1GB"])
    assert isinstance(done.exception, InputError)
    assert "--out" in str(done.exception)

"""Every form in which a table may come, and in which decisions may go."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.commands import invoke
from support.excel import write_excel
from support.paths import ROOT

import conovel as cn
from conovel.errors import FileError, SampleError

HERE = {
    "env": {**os.environ, "PYTHONPATH": str(ROOT / "src")},
    "capture_output": True,
}
RNG = np.random.default_rng(0)
NAMES = ["a", "b", "kind"]


def rows(n, n_novel=0):
    values = RNG.normal(size=(n, 2)).round(4)
    values[:n_novel] += 6
    kinds = RNG.choice(["p", "q"], n)
    return pd.DataFrame({"a": values[:, 0], "b": values[:, 1], "kind": kinds})


NULL, TEST = rows(200), rows(50, 10)


def spaced(frame, header):
    return frame.to_string(index=False, header=header) + "\n"


def plain(sign, header):
    return lambda frame: frame.to_csv(index=False, header=header, sep=sign)


# What a form is called -> ending, how it is written, and the options that it needs.
FORMS = {
    "csv": (".csv", plain(",", True), []),
    "data without a header": (".data", plain(",", False), ["--no-header"]),
    "data with names": (".data", plain(",", False), ["--no-header", "--columns", "a,b,kind"]),
    "txt with bars": (".txt", plain("|", True), []),
    "txt with tabs": (".txt", plain("\t", True), []),
    "txt with spaces": (".txt", plain(" ", True), []),
    "txt in columns": (".txt", lambda frame: spaced(frame, True), []),
    "aligned, no header": (".txt", lambda frame: spaced(frame, False), ["--no-header"]),
    "JSON lines": (".jsonl", lambda frame: frame.to_json(orient="records", lines=True), []),
    "ndjson": (".ndjson", lambda frame: frame.to_json(orient="records", lines=True), []),
}


@pytest.fixture
def conovel(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: invoke(capsys, monkeypatch, *arguments)


@pytest.fixture
def flagged(conovel):
    """Detect in two files, and give which rows were flagged."""

    def detect(null, test, *more):
        command = ["detect", "--null", null, "--test", test, "--scorer", "logistic"]
        run = conovel(*command, "--out", "out.parquet", *more)
        assert run.code == 0, run.err
        return pd.read_parquet("out.parquet")["rejected"].tolist()

    return detect


@pytest.fixture(scope="module")
def expected():
    return cn.AdaDetect("logistic").detect(NULL, TEST).rejected.tolist()


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_decisions(form, memory, flagged, expected):
    ending, write, options = FORMS[form]
    for name, frame in (("null", NULL), ("test", TEST)):
        with open(f"{name}{ending}", "w") as file:
            file.write(write(frame))
    assert sum(expected) >= 10
    assert flagged(f"null{ending}", f"test{ending}", *options, *memory) == expected


def test_a_compressed_text_and_an_excel_sheet(flagged, expected, tmp_path):
    NULL.to_csv("null.csv", index=False)
    with gzip.open("test.txt.gz", "wt") as file:
        file.write(spaced(TEST, header=True))
    assert flagged("null.csv", "test.txt.gz") == expected
    write_excel(TEST, tmp_path / "test.xlsx")
    assert flagged("null.csv", "test.xlsx") == expected


def test_standard_input(conovel, expected):
    NULL.to_csv("null.csv", index=False)
    content = TEST.to_csv(index=False).encode()
    command = [sys.executable, "-m", "conovel", "detect", "--null", "null.csv", "--test", "-"]
    for packed in (content, gzip.compress(content)):
        more = ["--scorer", "logistic", "--out", "out.csv"]
        done = subprocess.run([*command, *more], input=packed, check=False, **HERE)
        assert done.returncode == 0, done.stderr
        assert pd.read_csv("out.csv")["rejected"].tolist() == expected
        summary = json.loads(Path("out.csv.json").read_text())
        assert (summary["test"], set(summary["read_as"])) == ("-", {"null.csv", "-"})
    twice = [*command[:4], "--null", "-", "--test", "-"]
    refused = subprocess.run(twice, input=content, check=False, **HERE)
    assert (refused.returncode, b"read once" in refused.stderr) == (2, True)


def test_an_address_that_cannot_be_read_is_named_as_it_was_given(conovel):
    NULL.to_csv("null.csv", index=False)
    run = conovel("detect", "--null", "null.csv", "--test", "gopher://host/today.csv")
    assert run.code == 2
    assert "gopher://host/today.csv cannot be read: tables are read from https, s3" in run.err


def test_a_url_of_a_file(flagged, expected, tmp_path):
    NULL.to_csv("null.csv", index=False)
    TEST.to_csv("test.csv", index=False)
    assert flagged("null.csv", (tmp_path / "test.csv").as_uri()) == expected


def test_a_first_line_of_values_suggests_no_header(conovel):
    for name, frame in (("null", NULL), ("test", TEST)):
        frame.to_csv(f"{name}.data", index=False, header=False)
        frame[["a", "b"]].to_csv(f"{name}.csv", index=False, header=False)
    for ending in ("data", "csv"):
        run = conovel("detect", "--null", f"null.{ending}", "--test", f"test.{ending}")
        assert (run.code, "--no-header" in run.err) == (2, True)


def test_names_for_another_number_of_columns_are_refused(conovel):
    NULL.to_csv("null.data", index=False, header=False)
    run = conovel(
        "detect", "--null", "null.data", "--test", "null.data", "--no-header", "--columns", "a,b"
    )
    assert "null.data has 3 values in its first line, and --columns names 2" in run.err


def test_lines_are_those_of_an_editor_without_a_header(conovel):
    with open("null.data", "w") as file:
        file.write("1,2\n\n3,4\n5,6,7\n")
    run = conovel("detect", "--null", "null.data", "--test", "null.data", "--no-header")
    assert "null.data, line 4: 3 values where" in run.err


def test_other_commands_read_tables_without_a_header(conovel):
    labelled = pd.concat([NULL.assign(y=0), TEST[:10].assign(y=1)])
    labelled.to_csv("past.data", index=False, header=False)
    named = ["--no-header", "--columns", "a,b,kind,y", "--scorer", "logistic"]
    run = conovel("evaluate", "--data", "past.data", "--label", "y", "--trials", 1, *named)
    assert run.code == 0, run.err
    assert conovel("check", "past.data", "--exclude", "y", *named).code in (0, 3)
    written = conovel("schema", "past.data", *named[:3])
    assert '[columns."kind"]' in written.out


def test_a_readme_beside_tables_is_no_table(flagged, expected, tmp_path):
    for name, frame in (("null", NULL), ("test", TEST)):
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "rows.csv", index=False)
        (tmp_path / name / "README.txt").write_text("What these rows are\n")
    assert flagged("null", "test") == expected


@pytest.mark.parametrize("ending", ["jsonl", "xlsx", "csv", "parquet"])
@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
def test_every_form_of_decisions_can_be_verified(ending, memory, conovel, expected):
    NULL.to_csv("null.csv", index=False)
    TEST.to_csv("test.csv", index=False)
    command = ["detect", "--null", "null.csv", "--test", "test.csv", "--scorer", "logistic"]
    run = conovel(*command, *memory, "--keep-columns", "--out", f"out.{ending}")
    assert run.code == 0, run.err
    verified = conovel("verify", f"out.{ending}.json")
    assert (verified.code, "follow from the ranks" in verified.out) == (0, True)
    assert cn.read(f"out.{ending}")["rejected"].to_pylist() == expected


@pytest.mark.parametrize("options", [["--exclude", "kind"], ["--columns", "a,b"]], ids=" ".join)
def test_a_schema_goes_with_columns_that_are_left_out(options, conovel, flagged):
    NULL.to_csv("null.csv", index=False)
    TEST.assign(note="x").to_csv("test.csv", index=False)
    made = conovel("schema", "--null", "null.csv", "--test", "test.csv", "--exclude", "note")
    with open("schema.toml", "w") as file:
        file.write(made.out)
    without = cn.AdaDetect("logistic").detect(NULL[["a", "b"]], TEST[["a", "b"]])
    schema = ["--schema", "schema.toml", *options, "--exclude", "note"]
    assert flagged("null.csv", "test.csv", *schema) == without.rejected.tolist()


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize("huge", ["1e300", "-inf", "1" + "0" * 400])
def test_a_huge_value_is_moved_to_a_bound_and_its_line_is_named(huge, memory, conovel):
    NULL.to_csv("null.csv", index=False)
    lines = TEST.to_csv(index=False).splitlines()
    lines[20] = f"{huge},0.1,p"
    with open("test.csv", "w") as file:
        file.write("\n".join(lines))
    command = ["detect", "--null", "null.csv", "--test", "test.csv", "--scorer", "extra-trees"]
    run = conovel(*command, *memory, "--out", "out.csv")
    assert run.code == 0, run.err
    (finding,) = json.loads(Path("out.csv.json").read_text())["warnings"]
    assert finding["kind"] == "clipped"
    assert (
        "1 value beyond 3.4e+38 in the test rows (first in line 21 of test.csv)"
        in (finding["message"])
    )


def test_the_bound_is_the_same_in_both_samples():
    """The same cell gives the same score wherever it stands: no bound follows from one sample."""
    null, test = (frame[["a", "b"]].to_numpy(copy=True) for frame in (NULL, TEST))
    null[0], test[0] = [np.inf, 0.5], [1e300, 0.5]
    result = cn.AdaDetect("isolation-forest", train_fraction=0).detect(null, test)
    swapped = null.copy(), test.copy()
    swapped[0][0], swapped[1][0] = test[0], null[0]
    again = cn.AdaDetect("isolation-forest", train_fraction=0).detect(*swapped)
    assert np.array_equal(result.scores, again.scores)
    kinds = [finding.kind for finding in result.warnings]
    assert kinds.count("clipped") == 2


def test_lazy_frames_and_files_in_python(expected, tmp_path):
    lazy = [pl.from_pandas(frame).lazy() for frame in (NULL, TEST)]
    result = cn.AdaDetect("logistic").detect(*lazy)
    assert result.rejected.tolist() == expected
    assert isinstance(result.to_frame(), pl.DataFrame)
    assert cn.infer_schema(*lazy).names == tuple(NAMES)
    path = tmp_path / "null.data"
    NULL.to_csv(path, index=False, header=False)
    table = cn.read(path, header=False, columns=NAMES, na=["-999"])
    assert cn.AdaDetect("logistic").detect(table, TEST).rejected.tolist() == expected
    assert cn.read(path, header=False, exclude=["x3"]).column_names == ["x1", "x2"]
    with pytest.raises(SampleError, match=r"for a file give conovel.read\('null.csv'\)"):
        cn.AdaDetect().detect("null.csv", TEST)
    with pytest.raises(FileError, match="does not exist"):
        cn.read(tmp_path / "nothing.csv")

"""Tables as people have them: every kind of trouble, with its message, exit code and result."""

import gzip
import json
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pa_parquet
import pytest
from support.commands import invoke
from support.excel import write_excel

import conovel as cn
from conovel.rows.datafiles import DataFile
from conovel.rows.pieces import FileSource
from conovel.rows.storage import beside, read_table

N_NULL, N_TEST, N_NOVEL = 400, 60, 12
RNG = np.random.default_rng(0)


def draw(n, novel=0):
    frame = pd.DataFrame(
        {
            "weight, net": RNG.normal(size=n).round(6),
            "Größe": RNG.choice(["L", "M", "H"], n, p=[0.6, 0.3, 0.1]),
            "rpm": RNG.poisson(20, n).astype(float),
        }
    )
    frame.loc[frame.index[::9], "rpm"] = np.nan
    if novel:
        last = frame.index[-novel:]
        frame.loc[last, "weight, net"] += 6
        frame.loc[last, "Größe"] = "H"
    return frame


NULL, TEST = draw(N_NULL), draw(N_TEST, N_NOVEL)


def csv(frame, path, encoding="utf-8", **options):
    text = frame.to_csv(index=False, **{"na_rep": "?"} | options)
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


WRITERS = {
    "plain": ("csv", csv),
    "semicolons": ("csv", lambda f, p: csv(f, p, sep=";", decimal=",")),
    "tabs": ("tsv", lambda f, p: csv(f, p, sep="\t", na_rep="NA")),
    "bars": ("csv", lambda f, p: csv(f, p, sep="|", na_rep="")),
    "mark": ("csv", lambda f, p: csv(f, p, encoding="utf-8-sig")),
    "old letters": ("csv", lambda f, p: csv(f, p, encoding="cp1252", sep=";", decimal=",")),
    "two bytes": ("csv", lambda f, p: csv(f, p, encoding="utf-16")),
    "compressed": ("csv.gz", csv),
    "parquet": ("parquet", lambda f, p: f.to_parquet(p)),
    "categories": ("parquet", lambda f, p: f.astype({"Größe": "category"}).to_parquet(p)),
    "feather": ("feather", pa.feather.write_feather),
    "excel": ("xlsx", write_excel),
}


@pytest.fixture(scope="module")
def expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cn.AdaDetect("logistic", level="0.2").detect(NULL, TEST)


@pytest.fixture
def detect(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, out="out.parquet", null="null", test="test"):
        files = ["--null", null, "--test", test, "--out", out]
        return invoke(
            capsys,
            monkeypatch,
            "detect",
            *files,
            "--level",
            "0.2",
            "--scorer",
            "logistic",
            *arguments,
        )

    return run


def write(folder, name, null=NULL, test=TEST):
    ending, writer = WRITERS[name]
    for sample, frame in (("null", null), ("test", test)):
        writer(frame, folder / f"{sample}.{ending}")
    return {"null": f"null.{ending}", "test": f"test.{ending}"}


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_gives_the_same_decisions_in_memory_and_in_pieces(
    detect, tmp_path, expected, name
):
    files = write(tmp_path, name)
    whole = detect(**files)
    assert (whole.code, whole.err) == (0, "")
    assert expected.n_rejected >= N_NOVEL - 2
    found = pa_parquet.read_table(tmp_path / "out.parquet")
    assert found["score"].to_numpy().tobytes() == expected.scores.tobytes()
    assert (found["rejected"].to_numpy() == expected.rejected).all()
    pieces = detect("--memory", "1GB", out="pieces.parquet", **files)
    assert (pieces.code, pieces.err) == (0, "")
    assert (tmp_path / "pieces.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()


def test_what_was_found_out_is_said(detect, tmp_path):
    files = write(tmp_path, "old letters")
    run = detect(**files)
    said = "CSV, separator semicolon, decimal comma, cp1252"
    assert said in " ".join(run.out.split())
    kept = json.loads(beside(tmp_path / "out.parquet").read_text())
    assert kept["read_as"] == dict.fromkeys(files.values(), said)
    options = ["--separator", "semicolon", "--decimal", ",", "--encoding", "cp1252"]
    assert detect(*options, out="said.parquet", **files).code == 0
    assert (tmp_path / "said.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()


def test_a_folder_may_hold_other_files(detect, tmp_path, expected):
    for name, frame in (("null", NULL), ("test", TEST)):
        folder = tmp_path / name
        folder.mkdir()
        for i, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
            csv(frame.iloc[part], folder / f"{i}.csv.gz")
        (folder / "README.md").write_text("what this is")
        (folder / "_SUCCESS").write_text("")
        (folder / ".0.csv").write_text("not to be read")
    assert detect().code == 0
    found = pa_parquet.read_table(tmp_path / "out.parquet")
    assert found["score"].to_numpy().tobytes() == expected.scores.tobytes()


TROUBLES = {
    "an id": (
        lambda f: f.assign(who=[f"u{i}-{len(f)}" for i in range(len(f))]),
        "'who' has 460 different texts in 460 rows",
        ["--exclude", "who"],
    ),
    "a name with a comma": (
        lambda f: f.assign(**{"who, when": [f"u{i}-{len(f)}" for i in range(len(f))]}),
        "--exclude '\"who, when\"'",
        ["--exclude", '"who, when"'],
    ),
    "a text with line breaks": (
        lambda f: f.assign(note=[f"line 1 of {i},\nline 2;\r\n{len(f)}" for i in range(len(f))]),
        "'note' has 460 different texts in 460 rows",
        ["--exclude", "note"],
    ),
    "a text among numbers": (
        lambda f: f.assign(t=[f"{x + len(f)}" for x in range(len(f) - 1)] + ["broken"]),
        "'t' holds numbers, but also 'broken': mark these as missing (--na 'broken')",
        ["--exclude", "t"],
    ),
}


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize(("change", "words", "fix"), TROUBLES.values(), ids=TROUBLES)
def test_a_column_that_is_no_feature_is_refused_and_the_advice_helps(
    detect, tmp_path, expected, change, words, fix, memory
):
    files = write(tmp_path, "plain", change(NULL), change(TEST))
    refused = detect(*memory, **files)
    assert refused.code == 2
    assert words in refused.err
    assert len(refused.err.strip().splitlines()) == 1
    assert not (tmp_path / "out.parquet").exists()
    assert detect(*fix, *memory, **files).code == 0
    found = pa_parquet.read_table(tmp_path / "out.parquet")
    assert found["score"].to_numpy().tobytes() == expected.scores.tobytes()


LEFT_OUT = {
    "a date": (
        lambda f: f.assign(when=pd.date_range("2026-01-05", periods=len(f), freq="h").astype(str)),
        "'when' holds dates and is left out",
    ),
    "a date in other letters": (
        lambda f: f.assign(
            when=[f"{1 + i % 28:02}.03.2026 10:{i % 60:02}" for i in range(len(f))]
        ),
        "'when' looks like dates and is left out",
    ),
    "an empty column": (lambda f: f.assign(note=np.nan), "'note' has no value in any row"),
}


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize(("change", "words"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_dates_and_empty_columns_are_left_out_with_a_note(
    detect, tmp_path, expected, change, words, memory
):
    run = detect(*memory, **write(tmp_path, "plain", change(NULL), change(TEST)))
    assert run.code == 0
    assert words in " ".join(run.err.split())
    found = pa_parquet.read_table(tmp_path / "out.parquet")
    assert found["score"].to_numpy().tobytes() == expected.scores.tobytes()


def test_dates_give_parts_if_asked(detect, tmp_path):
    change = LEFT_OUT["a date"][0]
    files = write(tmp_path, "semicolons", change(NULL), change(TEST))
    assert detect("--kind", "when=date", **files).code == 0
    assert detect("--kind", "when=date", "--memory", "1GB", out="p.parquet", **files).code == 0
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()


def test_line_breaks_in_quotes_are_part_of_a_value(tmp_path, monkeypatch):
    rows = 40_000  # of several lines each: many blocks of the reader end within quotes
    text = np.where(np.arange(rows) % 3 == 0, 'high\n\nand "new"', "low\r\n")
    frame = pd.DataFrame({"at, mm": np.arange(rows) / 8, "what": text, "n": np.arange(rows) % 7})
    for sep in ",;":
        path = tmp_path / f"{ord(sep)}.csv"
        frame.to_csv(path, index=False, sep=sep)
        file = DataFile(path)
        assert (file.dialect.separator, path.stat().st_size > 2**20 // 2) == (sep, True)
        whole = read_table(path)
        assert whole["what"].to_pylist() == text.tolist()
        source = FileSource(path, types=whole.schema)
        parts = pa.concat_tables([part.table for part in source.features_in(1000)])
        assert parts.equals(whole)


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
def test_a_few_texts_among_few_numbers_are_named(detect, tmp_path, memory):
    ages = np.array(["k.A.", *map(str, range(20, 45))])
    aged = [frame.assign(age=ages[np.arange(len(frame)) % 26]) for frame in (NULL, TEST)]
    files = write(tmp_path, "plain", *aged)
    run = detect(*memory, **files)
    assert run.code == 0
    assert "null.csv and test.csv: 'age' holds numbers, but also 'k.A.', so that" in run.err
    for fix in (["--na", "k.A."], ["--kind", "age=category"]):
        assert (detect(*memory, *fix, **files).code, detect(*memory, *fix, **files).err) == (0, "")


LINES = ["a,b,c", "1,2,x", "", '3,4,"x', 'y"', "5,6,x", "7,8,y"]


@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("1,2,x,4", "test.csv, line 8: 4 values where the header has 3: '1,2,x,4'"),
        ("1", "test.csv, line 8: 1 value where the header has 3"),
    ],
)
def test_lines_are_those_of_an_editor(detect, tmp_path, more, words, memory):
    (tmp_path / "null.csv").write_text("\n".join(LINES * 5).replace("\na,b,c", ""))
    (tmp_path / "test.csv").write_text("\n".join([*LINES, more]))
    run = detect(*memory, null="null.csv", test="test.csv")
    assert (run.code, len(run.err.strip().splitlines())) == (2, 1)
    assert words in run.err


def test_lines_far_down_in_a_file(detect, tmp_path):
    rows = ["a,b", *(f"{i % 7}.0000000,{i % 5}" for i in range(90_000)), "", "1,oops"]
    (tmp_path / "null.csv").write_text("\n".join(rows))
    run = detect(null="null.csv", test="null.csv")
    assert "null.csv, line 90003: 'oops' in column 'b' is not a number" in run.err
    (tmp_path / "null.csv").write_bytes("\n".join([*rows[:-1], "1,2\xff"]).encode("latin-1"))
    run = detect("--kind", "b=category", null="null.csv", test="null.csv")
    assert "line 90003: a text in column 'b' is not utf-8: give the --encoding" in run.err


@pytest.mark.parametrize("name", ["plain", "parquet"])
def test_own_marks_of_missing_values(detect, tmp_path, expected, name):
    null, test = (frame.assign(rpm=frame["rpm"].fillna(-999)) for frame in (NULL, TEST))
    files = write(tmp_path, name, null, test)
    assert detect("--na", "-999", **files).code == 0
    found = pa_parquet.read_table(tmp_path / "out.parquet")
    assert found["score"].to_numpy().tobytes() == expected.scores.tobytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--exclude", "nothing"], "there is no column 'nothing' to exclude"),
        (["--kind", "rpm"], "write NAME=KIND"),
        (["--kind", "rpm=speed"], "kind must be one of number"),
        (["--kind", "nothing=number"], "has no column 'nothing'"),
        (["--kind", "Größe=number"], "in column 'Größe' is no number"),
        (["--separator", "::"], "the separator must be one character"),
        (["--decimal", "x"], "the decimal sign must be '.' or ','"),
        (["--encoding", "latin-99"], "no character encoding is called 'latin-99'"),
        (["--schema", "no.toml"], "no.toml cannot be read"),
    ],
)
def test_options_that_cannot_be_followed(detect, tmp_path, options, words):
    run = detect(*options, **write(tmp_path, "plain"))
    assert run.code == 2
    assert words in run.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("1,2\n3,4\n", "holds numbers: write a line with the names"),
        ("a,a\n3,4\n", "more than one column called 'a'"),
        ("a,b\n1,2\n3\n", "null.csv, line 3: 1 value where the header has 2: '3'"),
        ("", "cannot be read"),
        ("a,b\n", "has no rows"),
    ],
)
def test_files_that_are_no_tables(detect, tmp_path, content, words):
    (tmp_path / "null.csv").write_text(content)
    run = detect(null="null.csv", test="null.csv")
    assert run.code == 2
    assert words in run.err


def test_excel_needs_an_extra(detect, tmp_path, monkeypatch):
    files = write(tmp_path, "excel")
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    run = detect(**files)
    assert (run.code, "pip install 'conovel[excel]'" in run.err) == (2, True)


def both(files):
    """Name both samples, as `conovel schema` takes them."""
    return [f"--{role}={path}" for role, path in files.items()]


def test_a_schema_is_written_edited_and_read(detect, tmp_path, capsys, monkeypatch, expected):
    files = write(tmp_path, "semicolons")
    written = invoke(capsys, monkeypatch, "schema", *both(files))
    assert written.code == 0
    (tmp_path / "schema.toml").write_text(written.out, encoding="utf-8")
    run = detect("--schema", "schema.toml", **files)
    assert (run.code, run.err) == (0, "")
    in_pieces = detect("--schema", "schema.toml", "--memory", "1GB", out="p.parquet", **files)
    assert in_pieces.code == 0
    assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()
    edited = written.out.replace('kind = "number"', 'kind = "ignore"', 1)
    (tmp_path / "schema.toml").write_text(edited, encoding="utf-8")
    assert detect("--schema", "schema.toml", **files).code == 0
    other = pa_parquet.read_table(tmp_path / "out.parquet")["score"].to_numpy()
    assert not np.array_equal(other, expected.scores)


def test_a_column_that_the_schema_does_not_name_is_named(detect, tmp_path, capsys, monkeypatch):
    files = write(tmp_path, "plain")
    written = invoke(capsys, monkeypatch, "schema", *both(files))
    (tmp_path / "schema.toml").write_text(written.out, encoding="utf-8")
    write(tmp_path, "plain", NULL, TEST.assign(label=1))
    run = detect("--schema", "schema.toml", **files)
    assert (run.code, "also has 'label', which the schema does not name" in run.err) == (2, True)
    assert detect("--schema", "schema.toml", "--exclude", "label", **files).code == 0


def test_a_network_of_files_needs_no_schema_or_has_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = write(tmp_path, "semicolons")
    agents = [f"--agent={name}={files['null']},{files['test']}" for name in ("north", "south")]
    command = ["simulate", *agents, "--scorer", "logistic", "--regime", "counts", "--json"]
    refused = invoke(capsys, monkeypatch, *command, "--ledger", "ledger")
    assert refused.code == 2
    assert "agent north: X_null: not numeric: 'Größe'" in refused.err
    assert "--schema with what `conovel schema` wrote" in refused.err
    alone = invoke(capsys, monkeypatch, *command)
    assert alone.code == 0
    written = invoke(capsys, monkeypatch, "schema", *both(files))
    (tmp_path / "schema.toml").write_text(written.out, encoding="utf-8")
    run = invoke(capsys, monkeypatch, *command, "--schema", "schema.toml")
    assert run.code == 0
    ran = json.loads(run.out)[0]
    assert ran["transcript"]["spec"]["schema"]["digests"].keys() == set(NULL)
    # Both agents have the same rows, so that all of them say what those of one say.
    assert json.loads(alone.out)[0]["decisions"] == ran["decisions"]

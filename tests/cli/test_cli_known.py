"""--known: known novelties in files, in memory and in pieces, at one site and in a network."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import conovel as cn
from conovel.errors import FileError
from conovel.rows.dialects import AS_FOUND, ReadingOptions
from conovel.rows.known_files import KnownFile, read_samples_of_files
from conovel.runs.file_detection import detect_files
from conovel.site.engines import MemoryPlan

N_NULL, N_TEST, N_NOVEL, N_KNOWN = 400, 160, 40, 20


def frame(n, seed, novel=False):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.normal(size=(n, 2)) + 3 * novel, columns=["a", "b"])
    hours = pd.to_timedelta(rng.integers(0, 900, n), unit="h")
    return rows.assign(when=pd.Timestamp("2026-01-01") + hours, size=rng.choice(["S", "L"], n))


@pytest.fixture(params=["csv", "parquet"])
def files(tmp_path, request):
    null = frame(N_NULL, 0)
    test = pd.concat([frame(N_TEST - N_NOVEL, 1), frame(N_NOVEL, 2, True)], ignore_index=True)
    known_rows = frame(N_KNOWN, 3, True).assign(
        txn=range(N_KNOWN), fraud=1, kind="mule", note="new"
    )
    test.insert(0, "txn", range(N_TEST))
    for name, rows in {"null": null, "test": test, "known": known_rows}.items():
        path = tmp_path / f"{name}.{request.param}"
        rows.to_csv(path, index=False) if request.param == "csv" else rows.to_parquet(path)
    return tmp_path, request.param


def command(conovel, files, *more, known_rows="known"):
    folder, ending = files
    paths = [f"{name}.{ending}" for name in ("null", "test", known_rows)]
    options = zip(("--null", "--test", "--known"), paths, strict=True)
    given = [word for option in options for word in option]
    usual = ["--id", "txn", "--kind", "when=date", "--scorer", "logistic"]
    return conovel("detect", *given, *usual, *more, cwd=folder)


EXCLUDE = ("--exclude", "fraud,note")


def test_pieces_decide_as_memory_does(conovel, files):
    folder, ending = files
    summaries = []
    for name, more in (("whole", []), ("pieces", ["--memory", "800MB"])):
        done = command(conovel, files, *EXCLUDE, "--out", f"{name}.parquet", "--json", *more)
        assert done.returncode == 0, done.stderr
        summaries.append(json.loads(done.stdout))
    whole, pieces = (pq.read_table(folder / f"{name}.parquet") for name in ("whole", "pieces"))
    assert whole.equals(pieces)
    assert summaries[0] == summaries[1]
    about = summaries[0]["known"]
    assert (about["path"], about["n_rows"]) == (f"known.{ending}", N_KNOWN)
    assert about["choice"]["chosen"] == "with known novelties"
    assert f"known.{ending}" in summaries[0]["read_as"]


def test_the_table_names_them(conovel, files):
    done = command(conovel, files, *EXCLUDE)
    assert "known novelties  20" in done.stdout
    assert "likeness with 20 known novelties" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "also has 'fraud', 'note', which the known normals lack"),
        ((*EXCLUDE, "--kind-column", "kinds"), "has no column 'kinds'"),
        ((*EXCLUDE, "--kind-column", "a"), "the column 'a' is a feature"),
    ],
)
@pytest.mark.parametrize("memory", [(), ("--memory", "1GB", "--out", "x.csv")])
def test_errors_name_the_file(conovel, files, more, words, memory):
    done = command(conovel, files, *more, *memory)
    assert done.returncode == 2
    assert words in done.stderr
    assert f"known.{files[1]}" in done.stderr


def write_known(files, **columns):
    folder, ending = files
    rows = frame(N_KNOWN, 3, True).assign(**columns)
    rows = rows.drop(columns=[name for name, values in columns.items() if values is None])
    path = folder / f"odd.{ending}"
    rows.to_csv(path, index=False) if ending == "csv" else rows.to_parquet(path)


@pytest.mark.parametrize("memory", [(), ("--memory", "1GB", "--out", "x.csv")])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"b": None}, "has no column 'b'"),
        ({"a": [np.nan, *[1.0] * (N_KNOWN - 1)]}, "missing"),
    ],
)
def test_bad_rows_are_named(conovel, files, columns, words, memory):
    write_known(files, **columns)
    done = command(conovel, files, *memory, known_rows="odd")
    assert done.returncode == 2
    assert words in done.stderr
    assert f"odd.{files[1]}" in done.stderr
    assert "X_known" not in done.stderr


def test_other_refusals(conovel, files):
    folder, ending = files
    done = command(conovel, files, "--detector", "known.csv")
    assert done.returncode == 2
    assert (
        "--kind-column names a column of --known"
        in conovel(
            *(
                "detect",
                "--null",
                f"null.{ending}",
                "--test",
                f"test.{ending}",
                "--kind-column",
                "k",
            ),
            cwd=folder,
        ).stderr
    )
    assert command(conovel, files, known_rows="gone").returncode == 2


def test_kinds(files):
    folder, ending = files
    paths = [folder / f"{name}.{ending}" for name in ("null", "test", "known")]
    for column, exclude, kinds in (
        (None, ("fraud", "note"), ("mule",) * N_KNOWN),
        ("note", ("fraud", "kind"), ("new",) * N_KNOWN),
        ("fraud", ("fraud", "note", "kind"), ("1",) * N_KNOWN),
        (None, ("fraud", "note", "kind"), None),
    ):
        known_rows = KnownFile(paths[2], column)
        reading = ReadingOptions(exclude=exclude)
        *_, table = read_samples_of_files(*paths[:2], None, "txn", reading, known_rows)
        held = tuple(table["kind"].to_pylist()) if "kind" in table.column_names else None
        assert held == kinds


def test_the_work_depends_on_known_rows(files, monkeypatch):
    """A run that was broken off goes on with the same known rows only."""
    folder, ending = files
    detector = cn.AdaDetect("logistic", schema={"when": "date"})
    monkeypatch.setattr(MemoryPlan, "of", classmethod(lambda cls, *_: cls(50, 16)))
    paths = [folder / f"{name}.{ending}" for name in ("null", "test")]
    keys = []

    def broken_off(*_, **__):
        raise KeyboardInterrupt

    for known_rows in (None, "known", "odd"):
        write_known(files, a=np.arange(N_KNOWN) / 7)
        given = None if known_rows is None else KnownFile(folder / f"{known_rows}.{ending}")
        reading = ReadingOptions(exclude=("fraud", "note")) if known_rows == "known" else AS_FOUND
        with monkeypatch.context() as patch:
            patch.setattr("conovel.runs.file_detection.step_up_counts", broken_off)
            with pytest.raises(KeyboardInterrupt):
                detect_files(
                    *(detector, *paths, folder / "out.csv"),
                    id_column="txn",
                    reading=reading,
                    known_file=given,
                )
        manifest = json.loads((folder / ".out.csv.work" / "manifest.json").read_text())
        keys.append(manifest["key"])
    assert len(set(keys)) == 3


def test_a_pipeline_reads_known_frames_in_pieces(files):
    """A level that only known rows have is a level in files, too."""
    folder, ending = files
    write_known(files, size=["XL"] * N_KNOWN)
    one_hot = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["size"]), remainder="passthrough"
    )
    detector = cn.AdaDetect(make_pipeline(one_hot, LogisticRegression(max_iter=500)))
    paths = [folder / f"{name}.{ending}" for name in ("null", "test", "odd")]
    reading = ReadingOptions(exclude=("when",))
    known_rows = KnownFile(paths[2])
    normals, tests, table = read_samples_of_files(*paths[:2], None, "txn", reading, known_rows)
    whole = detector.detect(normals.features, tests.features, table)
    detect_files(
        detector,
        *paths[:2],
        folder / "o.parquet",
        id_column="txn",
        reading=reading,
        known_file=known_rows,
    )
    assert np.array_equal(pq.read_table(folder / "o.parquet")["score"].to_numpy(), whole.scores)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"gone\.csv does not exist"):
        KnownFile(tmp_path / "gone.csv").read(None)


# Networks ---------------------------------------------------------------------------------------


def write_agents(folder):
    for j, name in enumerate("ns"):
        rng = np.random.default_rng(j)
        null, test, known_rows = (rng.normal(size=(n, 3)) for n in (300, 120, 20))
        test[-36:] += 3
        for what, rows in {"null": null, "test": test, "known": known_rows + 3}.items():
            pd.DataFrame(rows, columns=["a", "b", "c"]).assign(
                **({"class": "mule"} if what == "known" else {})
            ).to_csv(folder / f"{name}-{what}.csv", index=False)


def test_simulate(conovel, tmp_path):
    write_agents(tmp_path)
    agents = ["--agent", "n=n-null.csv,n-test.csv,n-known.csv"]
    agents += ["--agent", "s=s-null.csv,s-test.csv"]
    usual = ["simulate", *agents, "--regime", "counts", "--scorer", "logistic"]
    done = conovel(*usual, "--kind-column", "class", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [run] = json.loads(done.stdout)
    chosen = {name: "known" in one["choices"] for name, one in run["decisions"].items()}
    assert chosen == {"n": True, "s": False}
    assert "n-known.csv also has 'class'" in conovel(*usual, cwd=tmp_path).stderr
    for text in ("n=a.csv,b.csv,c.csv,d.csv", "n=a.csv,,c.csv"):
        done = conovel("simulate", "--agent", text, cwd=tmp_path)
        assert "NAME=NULL,TEST,KNOWN" in done.stderr
    done = conovel("simulate", *agents[2:], "--kind-column", "class", cwd=tmp_path)
    assert "no --agent has any" in done.stderr


def test_evaluate(conovel, tmp_path):
    rng = np.random.default_rng(0)
    novel = np.arange(900) % 6 == 0
    rows = pd.DataFrame(rng.normal(size=(900, 3)) + 2 * novel[:, None], columns=["a", "b", "c"])
    rows.assign(fraud=novel.astype(int)).to_csv(tmp_path / "past.csv", index=False)
    rows[novel].assign(kind="x").to_csv(tmp_path / "known.csv", index=False)
    usual = ["evaluate", "--data", "past.csv", "--label", "fraud", "--trials", 2]
    usual += ["--scorer", "logistic"]
    share = ["--known-share", "0.2", "--plot", "worth.svg", "--out", "e.json"]
    done = conovel(*usual, *share, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "what known novelties are worth" in done.stdout
    assert (tmp_path / "worth.svg").read_text().startswith("<?xml")
    written = json.loads((tmp_path / "e.json").read_text())
    assert [one["n_known"] for one in written["by_known"]] == [0, 5, 20, 30]
    assert conovel("report", "e.json", cwd=tmp_path).returncode == 0
    assert "What known novelties are worth" in (tmp_path / "e.html").read_text()
    done = conovel(*usual, "--known", "known.csv", cwd=tmp_path)
    assert "known_among_tests: found in 2 of 2 trials" in done.stdout
    assert "give --known-share" in conovel(*usual, "--plot", "x.svg", cwd=tmp_path).stderr
    both = conovel(*usual, "--known", "known.csv", "--known-share", "0.2", cwd=tmp_path)
    assert "leave out X_known" in both.stderr

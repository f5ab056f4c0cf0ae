"""One numeric type for a column, in all samples and files that are compared."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest

import conovel as cn
from conovel.errors import ColumnError, DataWarning
from conovel.experiments.gaussian import Labelled
from conovel.experiments.tasks import Cell, Trial
from conovel.rows.pairs import read_pair
from conovel.rows.pieces import FileSource
from conovel.rows.storage import read_pair_of_files
from conovel.runs.file_detection import detect_files
from conovel.site.open_files import open_files_site
from conovel.site.output import DecisionFile
from conovel.site.work import SiteWork
from conovel.spec.run_spec import RunSpec

# Values of few digits repeat, and the same rows in both samples show whether they are read alike.
pytestmark = pytest.mark.filterwarnings("ignore:.*also stand in X_null")
LEVEL = 0.2
N_NULL, N_TEST, WIDTH = 400, 100, 3


def one_decimal(seed, n_null=N_NULL, n_test=N_TEST):
    """Rows that are all null, with so few digits that equal values are frequent."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, WIDTH)).round(1) for n in (n_null, n_test)]


def detector():
    return cn.AdaDetect("logistic", level=LEVEL)


def same(first, second):
    return np.array_equal(first.scores, second.scores) and np.array_equal(
        first.rejected, second.rejected
    )


def silently(work):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return work()


# The guarantee


def tenths(seed):
    """One column of .1, .2, ..., .9, all null: nearly every score is a tie."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 10, size=(n, 1)) / 10 for n in (N_NULL, N_TEST)]


@pytest.mark.parametrize("narrow", ["float32", "float16"])
@pytest.mark.parametrize("which", [0, 1], ids=["null", "test"])
def test_different_widths_decide_as_the_narrower_one(narrow, which):
    n_false, trials = 0, 20
    for seed in range(trials):
        rows = tenths(seed)
        mixed = list(rows)
        mixed[which] = rows[which].astype(narrow)
        with pytest.warns(DataWarning, match=f"column 0 \\({narrow} and float64\\): known"):
            found = detector().detect(*mixed)
        assert same(found, detector().detect(*(x.astype(narrow) for x in rows)))
        n_false += found.n_rejected > 0
    # All rows are null, so the FDR is the chance of any rejection. It was 1 with narrow nulls.
    assert n_false / trials <= LEVEL


def test_rows_that_are_kept_by_fit_are_brought_to_one_type_too():
    null, test = one_decimal(0)
    model = detector().fit(null.astype(np.float32))
    with pytest.warns(DataWarning, match="float32 and float64"):
        found = model.predict(test)
    expected = silently(lambda: detector().detect(null.astype("f4"), test.astype("f4")))
    assert np.array_equal(found == -1, expected.rejected)
    kept = detector().fit(null)
    silently(lambda: kept.predict(test.astype(np.float32)))
    assert np.array_equal(kept.null_.values, null)  # for the next batch, which may be wider


def test_each_agent_of_a_network_is_brought_to_one_type_by_itself():
    pairs = {name: one_decimal(seed) for seed, name in enumerate("ab")}
    mixed = [
        cn.Agent("a", pairs["a"][0].astype("f4"), pairs["a"][1]),
        cn.Agent("b", *pairs["b"]),
    ]
    alike = [
        cn.Agent("a", *(x.astype("f4") for x in pairs["a"])),
        cn.Agent("b", *pairs["b"]),
    ]
    ask = {"scorer": "logistic", "composite": "mean", "level": LEVEL}
    with pytest.warns(DataWarning, match="float32 and float64"):
        found = cn.Network(mixed, **ask).run()
    expected = silently(lambda: cn.Network(alike, **ask).run())
    for name in "ab":
        assert same(found[name], expected[name])
    assert found.transcript.to_dict() == expected.transcript.to_dict()


def test_pooled_rows_have_one_type_over_all_agents():
    """Else the pool's known normals could be mostly in one width, its test rows in the other."""
    pairs = [one_decimal(0, n_null=500, n_test=20), one_decimal(1, n_null=20, n_test=200)]
    narrow = [tuple(x.astype("f4") for x in pair) for pair in pairs]
    ask = {"scorer": "logistic", "regime": "pooled", "level": LEVEL}

    def run(*pairs):
        agents = [cn.Agent(name, *pair) for name, pair in zip("ab", pairs, strict=True)]
        return cn.Network(agents, **ask).run()

    with pytest.warns(DataWarning, match="float32 and float64"):
        found = run(narrow[0], pairs[1])
    expected = silently(lambda: run(*narrow))
    assert all(same(found[name], expected[name]) for name in "ab")


@pytest.mark.parametrize("regime", ["counts", "pooled"])
def test_experiments_read_rows_in_the_same_way(regime):
    def decide(*rows):
        agents = [Labelled(*pair, np.zeros(N_TEST, dtype=bool)) for pair in rows]
        return Trial(agents, "logistic", level=LEVEL).decide(Cell(regime))

    pairs = [one_decimal(seed) for seed in range(2)]
    narrow = [tuple(x.astype("f4") for x in pair) for pair in pairs]
    mixed = silently(lambda: decide((narrow[0][0], pairs[0][1]), narrow[1]))
    alike = silently(lambda: decide(*narrow))
    for found, expected in zip(mixed.ranks, alike.ranks, strict=True):
        assert np.array_equal(found, expected)


# Kinds of numbers

TENTHS = [0.1, 0.7, 1.3, 2.9]
SINGLE = np.array(TENTHS, dtype="f4").astype("f8").tolist()


def frame(make, column):
    return make({"a": column, "b": [1.0, 2.0, 3.0, 4.0]})


@pytest.mark.parametrize(
    "narrow",
    [
        pd.DataFrame({"a": np.array(TENTHS, dtype="f4"), "b": [5.0, 6.0, 7.0, 8.0]}),
        pd.DataFrame({"a": pd.array(TENTHS, dtype="Float32"), "b": [5, 6, 7, 8]}),
        pd.DataFrame({"a": pd.array(TENTHS, dtype="float[pyarrow]"), "b": [True, False] * 2}),
        pl.DataFrame({"a": pl.Series(TENTHS, dtype=pl.Float32), "b": [5, 6, 7, 8]}),
        pa.table({"a": pa.array(TENTHS, pa.float32()), "b": [5, 6, 7, 8]}),
    ],
    ids=["pandas", "nullable", "pandas-arrow", "polars", "pyarrow"],
)
@pytest.mark.parametrize(
    "wide",
    [
        frame(pd.DataFrame, TENTHS),
        frame(pl.DataFrame, TENTHS),
        frame(pa.table, TENTHS),
        frame(pa.table, pa.array(list(map(Decimal, map(str, TENTHS))))),
        frame(pl.DataFrame, pl.Series(list(map(Decimal, map(str, TENTHS))))),
        frame(pd.DataFrame, pd.array(TENTHS, dtype="Float64")),
    ],
    ids=["pandas", "polars", "pyarrow", "decimal", "polars-decimal", "nullable"],
)
def test_frames_are_brought_to_one_type_column_by_column(narrow, wide):
    with pytest.warns(DataWarning, match=r"column 'a' \((decimal|float32) and float\d\d\):"):
        null, test = read_pair(narrow, wide)
    assert null.values[:, 0].tolist() == test.values[:, 0].tolist() == SINGLE
    assert test.values[:, 1].tolist() == [1, 2, 3, 4]  # not narrow in either


def test_objects_have_the_type_of_their_narrowest_number():
    wide = np.array([[0.1, 1], [0.7, 2]], dtype=object)
    narrow = np.array([[np.float32(0.1), 1], [np.float32(1.3), 5]], dtype=object)
    with pytest.warns(DataWarning, match=r"column 0 \(float32 and float64\):"):
        null, test = read_pair(narrow, wide)
    assert test.values[:, 0].tolist() == SINGLE[:2]
    within = np.array([[np.float32(0.1), 1], [0.7, 5]], dtype=object)
    with pytest.warns(DataWarning, match=r"column 0 \(float32 and float64\):"):
        null, _ = read_pair(within, np.array([[3, 4]], dtype=np.int8))
    assert null.values[:, 0].tolist() == SINGLE[:2]


@pytest.mark.parametrize(
    ("exact", "narrow", "expected"),
    [
        (np.int64(2**24 + 1), "float32", 2**24),
        (np.uint32(2**24 + 1), "float32", 2**24),
        (np.int64(2**11 + 1), "float16", 2**11),
        (np.int64(2**53 + 1), "float32", 2**53),
    ],
)
def test_integers_beside_a_narrower_float_are_rounded_to_it(exact, narrow, expected):
    null = np.array([[exact], [1]], dtype=exact.dtype)
    with pytest.warns(DataWarning, match=f"{narrow} and |and {exact.dtype.name}"):
        found, _ = read_pair(null, np.array([[1], [2]], dtype=narrow))
    assert found.values.tolist() == [[expected], [1]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("int16", "float32"),
        ("uint16", "float32"),
        ("bool", "float16"),
        ("int64", "float64"),
        ("int64", "int32"),
        ("uint64", "int64"),
        ("bool", "int8"),
        ("float32", "float32"),
    ],
)
def test_types_that_lose_nothing_beside_each_other_do_not_warn(first, second):
    rows = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    null, test = read_pair(rows.astype(first), rows.astype(second))  # warnings are errors here
    assert np.array_equal(null.values, test.values)
    assert null.kinds == test.kinds


@pytest.mark.parametrize("make", [pa.table, pd.DataFrame, pl.DataFrame])
def test_integers_beyond_float64_are_rounded_alike_in_both_samples(make):
    large = [2**53 + 1, 2**60 + 3, 5]
    null, test = read_pair(make({"a": large}), np.array(large, dtype="f8").reshape(-1, 1))
    assert np.array_equal(null.values, test.values)
    assert null.values[0, 0] == 2**53


def test_values_beyond_the_narrower_type_are_named():
    null, test = np.array([[70000.0], [1.0]]), np.array([[1.0], [2.0]], dtype=np.float16)
    with pytest.warns(DataWarning), pytest.raises(ColumnError, match="beyond float16"):
        read_pair(null, test)


# Files


def write(path, rows, kind="float64", names=None, ids=None):
    """Write rows in some type; CSV where the ending says so."""
    names = names or [f"x{i}" for i in range(rows.shape[1])]
    kinds = [kind] * len(names) if isinstance(kind, str) else kind
    table = pa.table({n: c.astype(k) for n, c, k in zip(names, rows.T, kinds, strict=True)})
    if ids is not None:
        table = table.append_column("name", pa.array(ids))
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        table.to_pandas().to_csv(path, index=False)
    else:
        pa_parquet.write_table(table, path)


def write_all(folder, kinds, ending="parquet"):
    """Write both samples, two files each, in the four types given."""
    for name, rows, own in zip(
        ("null", "test"), one_decimal(3), (kinds[:2], kinds[2:]), strict=True
    ):
        for i, (part, kind) in enumerate(zip(np.array_split(rows, 2), own, strict=True)):
            ids = np.arange(len(part)) + 1000 * i if name == "test" else None
            write(folder / name / f"{i}.{ending}", part, kind, ids=ids)
    return folder


@pytest.mark.parametrize("n_wide", [1, 2, 3])
@pytest.mark.parametrize("wide_first", [True, False])
def test_all_files_of_both_samples_are_read_in_the_narrowest_type(
    tmp_path, conovel, n_wide, wide_first
):
    kinds = ["float64"] * n_wide + ["float32"] * (4 - n_wide)
    mixed = write_all(tmp_path / "mixed", kinds if wide_first else kinds[::-1])
    alike = write_all(tmp_path / "alike", ["float32"] * 4)
    for folder in (mixed, alike):
        for out, more in (("memory", []), ("pieces", ["--memory", "1GB"])):
            run = conovel(
                *("detect", "--null", "null", "--test", "test", "--id", "name"),
                *("--scorer", "logistic", "--level", "0.2", "--out", f"{out}.parquet", *more),
                cwd=folder,
            )
            assert run.returncode == 0, run.stderr
            told = "warning: column 'x0' (float32 and float64), column 'x1'" in run.stderr
            assert told == (folder == mixed), run.stderr
    written = {f.read_bytes() for at in (mixed, alike) for f in at.glob("*.parquet")}
    assert len(written) == 1


@pytest.fixture(autouse=True)
def make_folders(tmp_path):
    for name in ("mixed", "alike"):
        (tmp_path / name).mkdir()


def site(folder):
    from conovel.scorers.argument import as_candidates

    spec = RunSpec.of(regime="counts", level=LEVEL, seed=3)
    work = SiteWork(spec, tuple(as_candidates("logistic", 3)), n_agents=2)
    return open_files_site(folder / "null", folder / "test", work, folder / "w", id_column="name")


def test_a_site_with_files_takes_the_narrowest_type_too(tmp_path):
    mixed = write_all(tmp_path / "mixed", ["float32", "float64", "float64", "float64"])
    alike = write_all(tmp_path / "alike", ["float32"] * 4)
    with pytest.warns(DataWarning, match=r"column 'x0' \(float32 and float64\)"):
        found = site(mixed)
    expected = site(alike)
    for s in (found, expected):
        s.ranks({})
        DecisionFile(s, 5).write(s.store.work.folder.parent / "out.parquet")
    assert (mixed / "out.parquet").read_bytes() == (alike / "out.parquet").read_bytes()


def both_ways(folder, columns=None):
    """Read a folder's test rows in memory and in pieces, which must agree; give them."""
    null, test = read_pair_of_files(folder / "null", folder / "test", columns, None)
    values = read_pair(null.features, test.features)[1].values
    source = FileSource(folder / "test", types=test.features.schema)
    assert np.array_equal(np.concatenate([p.rows() for p in source.pieces(3)]), values)
    return values


def test_numbers_of_csv_files_need_not_look_alike(tmp_path):
    """Whole numbers in one file, fractions in another, none in a third; columns in any order."""
    (tmp_path / "null").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "null" / "a.csv").write_text("x,y\n1,2\n3,4\n5,7\n")
    for name, text in {"a": "x,y\n1,2\n3,4\n", "b": "y,x\n2.5,1.5\n", "c": "x,y\n"}.items():
        (tmp_path / "test" / f"{name}.csv").write_text(text)
    assert both_ways(tmp_path).tolist() == [[1, 2], [3, 4], [1.5, 2.5]]


def test_a_csv_file_may_begin_with_whole_numbers(tmp_path):
    """pyarrow would take the type from the first block of a file."""
    (tmp_path / "null").mkdir()
    (tmp_path / "test").mkdir()
    long = "1,2\n" * 300_000 + "1.5,2.5\n"
    for name, text in {"null": "x,y\n1,2\n3,4\n", "test": "x,y\n" + long}.items():
        (tmp_path / name / "a.csv").write_text(text)
    _, test = read_pair_of_files(tmp_path / "null", tmp_path / "test", None, None)
    assert test.features["x"][-1].as_py() == 1.5
    pieces = list(FileSource(tmp_path / "test", types=test.features.schema).pieces(1 << 16))
    assert pieces[-1].rows()[-1].tolist() == [1.5, 2.5]


def test_columns_of_parquet_files_are_found_by_name(tmp_path):
    rows = np.arange(12.0).reshape(4, 3)
    write(tmp_path / "null" / "0.parquet", rows + 0.5)
    write(tmp_path / "test" / "0.parquet", rows)
    write(tmp_path / "test" / "1.parquet", rows[:, ::-1], names=["x2", "x1", "x0"])
    assert both_ways(tmp_path).tolist() == np.vstack([rows, rows]).tolist()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]], ids=["memory", "pieces"])
@pytest.mark.parametrize("sample", ["null", "test"])
def test_a_column_that_one_file_lacks_is_named(tmp_path, conovel, ending, memory, sample):
    rows = np.arange(12.0).reshape(4, 3)
    for name in ("null", "test"):
        write(tmp_path / name / f"0.{ending}", rows)
    write(tmp_path / sample / f"1.{ending}", rows[:, :2])
    run = conovel(
        *("detect", "--null", "null", "--test", "test", "--out", "out.parquet", *memory),
        cwd=tmp_path,
    )
    assert run.returncode == 2
    assert f"{sample}/1.{ending} has no column 'x2': there are 'x0', 'x1'" in run.stderr


def test_names_of_rows_may_be_numbers_in_one_file_and_texts_in_another(tmp_path):
    rows = one_decimal(0)
    write(tmp_path / "null" / "0.csv", rows[0])
    for i, ids in enumerate(([7, 8] * 25, ["007", "b"] * 25)):
        write(tmp_path / "test" / f"{i}.csv", rows[1][i * 50 : i * 50 + 50], ids=ids)
    _, test = read_pair_of_files(tmp_path / "null", tmp_path / "test", None, "name")
    assert list(test.ids[[0, 1, 50, 51]]) == ["7", "8", "007", "b"]
    out = tmp_path / "out.parquet"
    detect_files(detector(), tmp_path / "null", tmp_path / "test", out, id_column="name")
    assert pa_parquet.read_table(out)["id"].to_pylist() == test.ids.tolist()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_other_kinds_of_numbers_in_files(tmp_path, ending):
    rows = np.arange(12).reshape(4, 3) % 5
    write(tmp_path / "null" / f"0.{ending}", rows, ["int64", "int8", "bool"])
    write(tmp_path / "test" / f"0.{ending}", rows[::-1], ["int32", "float64", "bool"])
    write(tmp_path / "test" / f"1.{ending}", rows, ["bool", "uint8", "int64"])
    expected = np.vstack([rows[::-1], rows]).astype(float)
    expected[:4, 2], expected[4:, 0] = expected[:4, 2] > 0, expected[4:, 0] > 0
    assert both_ways(tmp_path).tolist() == expected.tolist()


def test_a_changed_type_of_the_other_sample_begins_anew(tmp_path):
    """The rows of one sample depend on the types of the other."""
    folder = write_all(tmp_path / "mixed", ["float64"] * 4)
    types = pa.schema([(f"x{i}", pa.float64()) for i in range(WIDTH)])
    narrow = pa.schema([(f"x{i}", pa.float32()) for i in range(WIDTH)])
    assert len({FileSource(folder / "test", types=t).digest() for t in (types, narrow)}) == 2


@pytest.mark.slow
def test_the_false_discovery_rate_with_different_widths():
    """The setting in which it was 1: one-decimal values, all null, level .2, logistic."""
    trials, n_false = 300, 0
    for seed in range(trials):
        null, test = tenths(seed)
        with pytest.warns(DataWarning, match="float32 and float64"):
            n_false += detector().detect(null.astype(np.float32), test).n_rejected > 0
    assert n_false / trials <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / trials) ** 0.5

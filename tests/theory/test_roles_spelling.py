"""Exchanged roles where a column has other types in the two samples: one value has one code.

`python -m fuzz.columns` tries all pairs of types; here are some of each family.
"""

import datetime
import itertools
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from support.forms import FAMILIES
from support.roles import Sample, assert_roles_do_not_matter, in_detector, in_network, numbered
from support.spellings import SIZES, Case, held, pairs, some_of, try_case, write_frame

import conovel as cn
from conovel.errors import ColumnError
from conovel.rows import columns
from conovel.rows.frames import FrameCodec
from conovel.runs.file_detection import detect_files

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.DataWarning")

WORST = [
    ("whole numbers", "float64", "pandas texts 3"),
    ("whole numbers", "int64", "float objects"),
    ("whole numbers", "Int64", "polars texts 3.5"),
    ("whole numbers", "arrow decimal", "category of floats"),
    ("fractions", "float32", "pandas texts 3.5"),
    ("large numbers", "float64", "polars Int64"),
    ("truths", "bool", "pandas texts True"),
    ("truths", "int64", "true"),
    ("dates", "polars Date", "2026-01-01T00:00:00"),
    ("durations", "timedelta64", "milliseconds"),
]


@pytest.mark.parametrize(
    ("family", "null", "test", "endings"),
    [(*forms, None) for forms in WORST]
    + [(*forms, (".parquet", ".csv")) for forms in WORST[:8:2]]
    + [(*forms, (".feather", ".parquet")) for forms in WORST[1:9:3]],
)
def test_a_value_has_one_code_whatever_type_the_sample_has(tmp_path, family, null, test, endings):
    for i, forms in enumerate([(null, test), (test, null)]):
        end = try_case(Case(family, *forms, endings=endings), tmp_path / str(i))
        assert not end.startswith("FAILED"), end
        may_be_refused = family in ("durations", "dates")
        assert may_be_refused or end in ("same", "not held"), end


@pytest.mark.parametrize("family", list(FAMILIES))
def test_pairs_of_types(tmp_path, family):
    ends = {}
    for i, case in enumerate(some_of(list(pairs(family)), 5, seed=1)):
        ends[str(case)] = try_case(case, tmp_path / str(i))
    assert {case: end for case, end in ends.items() if end.startswith("FAILED")} == {}


@pytest.mark.slow
@pytest.mark.parametrize("family", list(FAMILIES))
def test_all_pairs_of_types(tmp_path, family):
    every = list(pairs(family))
    cases = [*every, *some_of(every, len(every) // 2, seed=2)]
    ends = {str(case): try_case(case, tmp_path / str(i)) for i, case in enumerate(cases)}
    assert {case: end for case, end in ends.items() if end.startswith("FAILED")} == {}


def test_a_spelling_by_type_is_caught(tmp_path, monkeypatch):
    """Spell numbers in another way than texts."""
    monkeypatch.setattr(columns, "spell_number", lambda value, kind: "abcdefgh"[int(value)])
    end = try_case(Case("whole numbers", "float64", "pandas texts 3"), tmp_path)
    assert end.startswith("FAILED")


def rows_with_one_other(seed, n_null=300, n_test=100):
    """Draw rows that are all null; one of the test rows says "other", so that all are texts."""
    rng = np.random.default_rng(seed)
    n = n_null + n_test
    frame = pd.DataFrame({"x": rng.normal(size=n), "c": rng.integers(0, 2, n)})
    null, test = frame[:n_null], frame[n_null:]
    return null, test.assign(c=[*(f"{v}.0" for v in test["c"][1:]), "other"])


@pytest.mark.parametrize(
    ("dtype", "endings"),
    [
        ("float64", None),
        ("Int64", None),
        ("bool", None),
        ("float64", (".parquet", ".csv")),
        ("float64", (".parquet", ".parquet")),
    ],
)
def test_one_other_among_null_rows_costs_no_false_discoveries(tmp_path, dtype, endings):
    """All rows are null, so that the FDR is the share of runs with any rejection."""
    false = []
    for seed in range(10):
        null, test = rows_with_one_other(seed)
        if dtype == "bool":
            test = test.replace({"c": {"0.0": "False", "1.0": "True"}})
        null = null.astype({"c": dtype})
        detector = cn.AdaDetect("logistic", level=0.1)
        if endings is None:
            false.append(detector.detect(null, test).rejected.any())
            continue
        paths = [tmp_path / f"{name}{seed}{end}" for name, end in zip("nt", endings, strict=True)]
        for path, rows in zip(paths, (null, test), strict=True):
            write_frame(path, rows)
        result = detect_files(detector, *paths, tmp_path / f"out{seed}.parquet")
        false.append(result.n_rejected > 0)
    assert np.mean(false) <= 0.1 + 3 * (0.1 * 0.9 / 10) ** 0.5


def test_agents_with_other_types_under_one_schema():
    schema = cn.Schema.from_dict(
        {
            "x": "number",
            "c": {"kind": "category", "levels": ["0", "1.0", "2"], "rare": ["3", "other"]},
        }
    )
    sizes = SIZES, (64, 26)
    rng = np.random.default_rng(0)
    n = sum(map(sum, sizes))
    x, c = rng.normal(size=n).round(1), rng.integers(0, 5, n)
    others = {SIZES[0], sum(SIZES) + 64}  # a test row of each agent

    def as_samples(sample):
        is_first = sample.X_null.min() < SIZES[0] or sample.X_test.min() < sum(SIZES)
        found = []
        for rows in (sample.X_null[:, 0], sample.X_test[:, 0]):
            values = [int(c[i]) for i in rows]
            if others & set(rows.tolist()):
                values = ["other" if i in others else f"{c[i]}.0" for i in rows]
            make = pd.DataFrame if is_first else pl.DataFrame
            found.append(make({"x": x[rows], "c": values}))
        return Sample(*found)

    run = in_network(regime="joint", level="1/5", schema=schema)
    assert_roles_do_not_matter(held(run, as_samples), numbered(*sizes), "logistic")


# Kept detectors ----------------------------------------------------------------------------------


def kept(null, unlabelled, **options):
    return cn.AdaDetect("logistic", **options).keep(null, unlabelled)


@pytest.mark.parametrize("schema", [None, {"c": "category"}])
def test_a_kept_detector_codes_a_value_alike_in_every_type(schema):
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({"x": rng.normal(size=n), "c": rng.integers(0, 5, n)})
    null, unlabelled, batch = frame[:400], frame[400:500], frame[500:]
    detector = kept(null.astype({"c": "float64"}), unlabelled.astype({"c": "str"}), schema=schema)
    expected = detector.score(batch)
    for dtype in ("float64", "Int64", "uint8", "str", "object", "category"):
        np.testing.assert_array_equal(detector.score(batch.astype({"c": dtype})), expected)
    np.testing.assert_array_equal(detector.score(pl.from_pandas(batch)), expected)
    texts = batch.assign(c=[f"{v}.0" for v in batch["c"]])
    np.testing.assert_array_equal(detector.score(texts), expected)


@pytest.mark.parametrize("fill", [None, 0.7])
def test_a_kept_detector_rounds_before_it_fills(fill):
    rng = np.random.default_rng(0)
    c = np.where(rng.random(900) < 0.3, np.nan, rng.normal(size=900))
    frame = pd.DataFrame({"x": rng.normal(size=900), "c": c})
    schema = fill and {"c": {"kind": "number", "missing": True, "fill": fill}}
    narrow = frame.astype({"c": "float32"})
    detector = kept(narrow[:600], narrow[600:700], schema=schema)
    wide, same = (detector.score(rows[700:]) for rows in (frame, narrow))
    np.testing.assert_array_equal(wide, same)
    # What was calibrated has the code that it has later.
    both = kept(frame[:600], narrow[600:700], schema=schema)
    np.testing.assert_array_equal(both.score(frame[700:]), both.score(narrow[700:]))


def test_a_kept_detector_refuses_what_may_be_a_value_in_another_spelling():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=500), "c": rng.integers(0, 5, 500)})
    detector = kept(frame[:300], frame[300:400], schema={"c": "category"})
    batch = frame[400:].assign(c="3,0")
    with pytest.raises(ColumnError, match=r"'3,0', which may be one of them in another spelling"):
        detector.score(batch)


# Pipelines ---------------------------------------------------------------------------------------


def one_hot():
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_pipeline(
        ColumnTransformer([("c", encoder, ["c"])], remainder="passthrough"), LogisticRegression()
    )


@pytest.mark.parametrize(
    ("null", "test"),
    [
        (lambda v: [int(i) for i in v], lambda v: [float(i) for i in v]),
        (lambda v: [i == 1 for i in v], lambda v: [i % 2 for i in v]),
        (lambda v: v.astype("category"), lambda v: v.astype("float64").astype("category")),
    ],
)
def test_a_pipeline_sees_one_form_of_a_value(null, test):
    rng = np.random.default_rng(0)
    n = sum(SIZES)
    x, c = rng.normal(size=n).round(1), pd.Series(rng.integers(0, 2, n))

    def as_samples(sample):
        frames = []
        for rows, form in zip(sample, (null, test), strict=True):
            values = form(c[rows[:, 0]].reset_index(drop=True))
            column = pd.Series(values, dtype=getattr(values, "dtype", "object"))
            frames.append(pd.DataFrame({"x": x[rows[:, 0]], "c": column}))
        return Sample(*frames)

    run = held(in_detector(level="1/5"), as_samples)
    assert_roles_do_not_matter(run, numbered(SIZES), one_hot())


@pytest.mark.parametrize(
    "forms",
    [
        [1, True, 1.0, np.int8(1)],
        [0.0, -0.0, False],
        [Decimal("1.0"), Decimal("1.00")],
        [pd.Timestamp("2026-03-01"), datetime.datetime(2026, 3, 1), datetime.date(2026, 3, 1)],
        [np.str_("a"), "a"],
    ],
)
def test_a_pipeline_gets_a_value_in_one_form_whichever_came_first(forms):
    made = set()
    for null, test in itertools.permutations(forms, 2):
        columns = (pd.Series([v, None], dtype=object) for v in (null, test))
        first, second = (nw.from_native(pd.DataFrame({"c": c}), eager_only=True) for c in columns)
        codec = FrameCodec.of(first, second)
        for frame in (first, second):
            value = codec.decode(codec.encode(frame, "X").values)["c"].iloc[0]
            made.add((type(value), repr(value)))
        same = codec.encode(first, "X").values, codec.encode(second, "X").values
        np.testing.assert_array_equal(*same)
    assert len(made) == 1


def test_a_pipeline_refuses_numbers_beside_texts(tmp_path):
    null, test = rows_with_one_other(0)
    with pytest.raises(ColumnError, match=r"column 'c' holds texts and values of type integer"):
        cn.AdaDetect(one_hot()).detect(null.astype({"c": "object"}), test)
    for path, rows in ((tmp_path / "n.parquet", null), (tmp_path / "t.parquet", test)):
        write_frame(path, rows)
    with pytest.raises(ColumnError, match=r"column 'c' holds texts and values of type int64"):
        detect_files(
            cn.AdaDetect(one_hot()), tmp_path / "n.parquet", tmp_path / "t.parquet",
            tmp_path / "o.parquet",
        )  # fmt: skip


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Boolean, pl.Float32, pl.UInt8, pl.Decimal(9, 0)])
@pytest.mark.parametrize("gone", [0.0, 0.2])
def test_pipelines_on_polars_frames_with_missing_numbers(dtype, gone):
    rng = np.random.default_rng(0)
    values = [None if rng.random() < gone else int(v) for v in rng.integers(0, 2, 200)]
    column = pl.Series("c", values, pl.Int64).cast(dtype)
    frame = pl.DataFrame({"x": rng.normal(size=200), "c": column})
    seen = []

    class Looking(OneHotEncoder):
        def fit(self, X, y=None):
            seen.append(X.schema["c"])
            return super().fit(X, y)

    encoder = Looking(handle_unknown="ignore", sparse_output=False)
    model = make_pipeline(
        ColumnTransformer([("c", encoder, ["c"])], remainder="passthrough"), LogisticRegression()
    )
    result = cn.AdaDetect(model, level=0.2).detect(frame[:150], frame[150:])
    assert np.isfinite(result.scores).all()
    assert set(seen) == {dtype}
    assert pa.table(frame.to_arrow()).num_rows == 200

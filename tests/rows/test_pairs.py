"""Tables with columns of every kind: the same features from every library, and named refusals."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

import conovel as cn
from conovel.errors import ColumnError, DataWarning, FileError, InputError
from conovel.rows.columns import Numbers, Texts
from conovel.rows.pairs import read_pair
from conovel.rows.profiles import Profile

pytestmark = pytest.mark.filterwarnings("ignore::conovel.errors.DataWarning")  # rows are few

N = 60
RNG = np.random.default_rng(0)
MIXED = pd.DataFrame(
    {
        "x": np.where(np.arange(N) % 7 == 0, np.nan, RNG.normal(size=N)),
        "size": RNG.choice(["L", "M", "H", " ?"], N),
        "on": RNG.random(N) < 0.5,
        "when": pd.Timestamp("2026-01-05 09:30") + pd.to_timedelta(np.arange(N), "h"),
        "who": [f"u{i}" for i in range(N)],
    }
)
NULL, TEST = MIXED[:40], MIXED[40:].reset_index(drop=True)
KINDS = {"who": "ignore", "when": "date"}


@pytest.mark.parametrize(
    "make", [pl.from_pandas, pa.Table.from_pandas, lambda frame: frame.convert_dtypes()]
)
def test_every_library_gives_the_same_features(make):
    expected = read_pair(NULL, TEST, KINDS)
    found = read_pair(make(NULL), make(TEST), KINDS)
    for one, other in zip(expected, found, strict=True):
        assert one.values.tobytes() == other.values.tobytes()
        assert one.columns == other.columns


def test_what_each_column_becomes():
    null, _ = read_pair(NULL, TEST, KINDS)
    frame = pd.DataFrame(null.values, columns=null.columns)
    assert frame["x is missing"].tolist() == NULL["x"].isna().astype(float).tolist()
    assert frame["x"][0] in set(MIXED["x"])
    assert frame["size=H"].tolist() == (NULL["size"] == "H").astype(float).tolist()
    assert frame["size is missing"].tolist() == (NULL["size"] == " ?").astype(float).tolist()
    assert frame["when: weekday"].tolist() == NULL["when"].dt.day_of_week.astype(float).tolist()
    assert frame["when: hour"].tolist() == NULL["when"].dt.hour.astype(float).tolist()
    assert null.encoder.source[:2] == ("x", "x")
    assert set(null.encoder.source) == {"x", "size", "on", "when"}


def test_parts_of_a_date():
    parts = ["year", "month", "day", "weekday", "hour", "minute", "second"]
    texts = ["1969-12-31 23:59:58.5", "2024-02-29 00:00:00", "2026-11-17 08:09:10"]
    when = pd.to_datetime(texts, format="ISO8601")
    frame = pd.DataFrame({"when": when, "x": [1.0, 2.0, 3.0]})
    rows, _ = read_pair(frame, frame.assign(x=0.0), {"when": {"kind": "date", "parts": parts}})
    for i, moment in enumerate(when):
        expected = [getattr(moment, part) for part in parts]
        expected[3] = moment.weekday()
        assert rows.values[i, : len(parts)].tolist() == expected


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
def test_texts_in_iso_8601_are_dates(zone):
    frame = pd.DataFrame({"when": [f"2026-03-0{i}T10:00:00{zone}" for i in range(1, 9)]})
    frame["x"] = np.arange(8.0)
    with pytest.warns(DataWarning, match="'when' holds dates and is left out"):
        assert read_pair(frame, frame)[0].columns == ("x",)
    hours, _ = read_pair(frame, frame + {"when": "", "x": 9}, {"when": "date"})
    assert set(hours.values[:, 1]) == {8.0 if zone == "+02:00" else 10.0}


@pytest.mark.filterwarnings("ignore:X_null and X_test. 'when' holds dates")
def test_ids_and_free_text_are_refused_with_the_option():
    with pytest.raises(ColumnError) as raised:
        read_pair(NULL, TEST)
    said = str(raised.value)
    assert "'who' has 60 different texts in 60 rows" in said
    assert "--exclude 'who'" in said
    assert "schema={'who': 'ignore'}" in said


def test_objects_dates_and_durations():
    frame = pd.DataFrame(
        {
            "d": [datetime.date(2026, 1, 1 + i % 9) for i in range(30)],
            "t": pd.to_timedelta(np.arange(30), "s"),
            "mixed": pd.Series([1, "a", None] * 10, dtype=object),
        }
    )
    rows, _ = read_pair(frame, frame[::-1], {"d": "date"})
    assert rows.columns == ("d: weekday", "t", "mixed=1", "mixed=a", "mixed is missing")
    assert rows.values[:, 1].tolist() == list(range(30))


def test_a_structured_array_is_a_table():
    array = np.array([(1.0, "a"), (2.0, "b")] * 10, dtype=[("x", float), ("c", "U1")])
    rows, _ = read_pair(array, array[:5])
    assert rows.columns == ("x", "c=a", "c=b")


def test_missing_numbers_in_an_array():
    array = np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0]])
    rows, _ = read_pair(array, array + 10)
    assert rows.values[:, 1].tolist() == [6.0, 5.0, 6.0]  # the middle value of both samples
    assert rows.values[:, 2].tolist() == [1.0, 0.0, 0.0]


def test_rare_unseen_and_missing_levels():
    schema = cn.Schema.from_dict(
        {"c": {"kind": "category", "missing": True, "levels": ["a", "b"], "rare": ["r", "s"]}}
    )
    frame = pd.DataFrame({"c": ["a", "b", "r", "s", "new", None]})
    rows, _ = read_pair(frame, frame, schema)
    assert rows.values.tolist() == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
    ]


def test_many_levels_are_places_in_the_order_of_their_frequency():
    texts = np.repeat([f"c{i}" for i in range(12)], np.arange(40, 16, -2))
    frame = pd.DataFrame({"c": [*texts, "once", "too"]})
    rows, _ = read_pair(frame, frame[:4])
    assert rows.columns == ("c",)
    assert rows.values[[0, -3, -2, -1], 0].tolist() == [0, 11, 12, 12]


def test_bounds_and_booleans_of_a_schema():
    schema = cn.Schema.from_dict(
        {"x": {"kind": "number", "low": 0, "high": 10, "missing": True}, "on": "boolean"}
    )
    frame = pd.DataFrame({"x": ["-5", "20", "?"], "on": ["yes", "No", "TRUE"]})
    rows, _ = read_pair(frame, frame, schema)
    assert rows.values.tolist() == [[0, 0, 1], [10, 0, 0], [5, 1, 1]]


@pytest.mark.parametrize(
    ("said", "frame", "words"),
    [
        ({"x": "number"}, {"x": ["1", "abc"]}, "'abc' in column 'x' is no number"),
        ({"x": "number"}, {"x": [1.0, None]}, "and the schema says that it has none"),
        ({"x": "boolean"}, {"x": [1, 2]}, "'2' in column 'x' is not true or false"),
        ({"x": "boolean"}, {"x": ["yes", "maybe"]}, "'maybe' in column 'x'"),
        ({"x": "date"}, {"x": ["2026-01-01", "soon"]}, "'soon' in column 'x' is no date"),
        ({"x": "date"}, {"x": [1, 2]}, "is no date"),
        ({"x": "number", "y": "number"}, {"x": [1, 2]}, "X_null lacks 'y'"),
        ({"x": "number"}, {"x": [1, 2], "z": [1, 2]}, "X_null also has 'z'"),
    ],
)
def test_values_that_do_not_fit_a_schema_are_named(said, frame, words):
    with pytest.raises(ColumnError) as raised:
        read_pair(pd.DataFrame(frame), pd.DataFrame(frame), cn.Schema.from_dict(said))
    assert words in str(raised.value)


@pytest.mark.parametrize("schema", [3, ["x"], {"no": "number"}, {"x": "text"}])
def test_what_is_no_schema(schema):
    with pytest.raises(InputError):
        read_pair(pd.DataFrame({"x": [1.0, None]}), pd.DataFrame({"x": [1.0]}), schema)


def test_a_schema_may_be_a_file(tmp_path):
    schema = cn.infer_schema(NULL, TEST, kinds=KINDS)
    path = tmp_path / "schema.toml"
    path.write_text(schema.to_toml(), encoding="utf-8")
    expected = cn.AdaDetect("logistic", schema=KINDS).detect(NULL, TEST)
    for given in (path, str(path), schema):
        found = cn.AdaDetect("logistic", schema=given).detect(NULL, TEST)
        assert np.array_equal(found.scores, expected.scores)
    with pytest.raises(FileError, match=r"no\.toml cannot be read"):
        cn.AdaDetect(schema=tmp_path / "no.toml").detect(NULL, TEST)


def test_plain_numbers_have_the_bits_they_had():
    plain = MIXED[["on"]].assign(y=RNG.normal(size=N))
    expected = cn.AdaDetect("logistic").detect(
        plain.to_numpy(float)[:40], plain.to_numpy(float)[40:]
    )
    for schema in (None, {"who": "ignore"}, {"y": "number", "on": "boolean"}):
        found = cn.AdaDetect("logistic", schema=schema).detect(plain[:40], plain[40:])
        assert np.array_equal(found.scores, expected.scores)


def test_fit_and_predict_take_tables():
    detector = cn.AdaDetect("logistic", schema=KINDS)
    expected = detector.detect(NULL, TEST)
    assert ((detector.fit(NULL).predict(TEST) == -1) == expected.rejected).all()


def test_a_profile_does_not_depend_on_how_the_rows_are_cut(monkeypatch):
    monkeypatch.setattr("conovel.rows.profiles.MOST_KEPT", 8)
    values = RNG.integers(0, 40, 200)
    for column in (Numbers(values.astype(float)), Texts.of(values, [f"t{i}" for i in range(40)])):
        whole = Profile()
        whole.join(Profile.of(column))
        cut = Profile()
        for part in np.array_split(RNG.permutation(200), 7):
            if isinstance(column, Numbers):
                cut.join(Profile.of(Numbers(column.values[part])))
            else:
                names = [column.levels[code] for code in column.codes[part]]
                cut.join(Profile.of(Texts.of(np.arange(part.size), names)))
        assert cut.is_cut
        assert sorted(cut.counts.items()) == sorted(whole.counts.items())
        assert cut.n_values == whole.n_values


def test_a_pipeline_that_imputes_gets_rows_with_missing_values():
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression

    array = np.where(RNG.random((N, 2)) < 0.2, np.nan, RNG.normal(size=(N, 2)))
    pipeline = make_pipeline(SimpleImputer(), LogisticRegression())
    assert cn.AdaDetect(pipeline).detect(array[:40], array[40:]).scores.size == 20

"""One spelling of a value, whatever type it came in; what leaves it open is refused."""

import datetime
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import conovel as cn
from conovel.errors import ColumnError, ValueTypeError
from conovel.rows.columns import Texts, read_series
from conovel.rows.datafiles import open_files
from conovel.rows.dialects import ReadingOptions
from conovel.rows.samples import raw_numbers, read_sample
from conovel.rows.spelling import respell, spell, spell_number
from conovel.rows.storage import read_pair_of_files


def texts_of(values, dtype="object"):
    return read_series(
        nw.from_native(pd.Series(values, dtype=dtype), series_only=True), "c"
    ).texts()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_print_of_a_number_is_spelled_alike(value):
    expected = spell_number(value)
    for text in (repr(value), str(np.float64(value)), f"{value:.17g}", f" {value:.17e}"):
        assert spell(text) == expected
    assert spell(expected) == expected


@given(st.text(max_size=12))
def test_a_spelling_is_its_own_spelling(text):
    once = spell(text)
    assert once is None or spell(once) == once


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_number_is_rounded_to_the_type_that_the_column_has_elsewhere(kind):
    narrow = np.dtype(kind).type(0.123456789)
    assert spell("0.123456789", kind) == spell_number(float(narrow), kind) == str(narrow)


def test_objects_of_every_library_are_spelled_alike():
    for three in (3, 3.0, np.int8(3), np.float32(3), Decimal("3.00"), "3", "3.0", " 03", True + 2):
        assert texts_of([three, "x"]).levels == ("3", "x")
    day = datetime.datetime(2026, 3, 1)
    for first in (day, day.date(), pd.Timestamp(day), np.datetime64("2026-03-01")):
        assert texts_of([first, "2026-03-01 00:00"]).levels == ("2026-03-01",)
    assert texts_of([True, "false", "other"]).levels == ("0", "1", "other")


@pytest.mark.parametrize("size", [10, 10_000])
def test_long_digits_are_no_number_and_take_no_time(size):
    text = "9" * (size - 1) + "1"
    assert spell("12345678901234567891") == "12345678901234567891"
    assert spell(text) == text or size == 10
    assert spell("1e999") == "1e999"
    assert spell("1e-99999999999999999999") == "0"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("3,5", {"float64"}),
        ("12345678901234567891", {"int64"}),
        ("10:00:00", {"time of day"}),
        ("3600", {"duration"}),
        ("yes", {"bool"}),
        ("01.03.2026", {"date"}),
        ("other", {"date"}),
        ("2026-03-01T10:00:00Z", {"date"}),
        ("2026-03-01", {"date with a time zone"}),
    ],
)
def test_a_text_that_may_be_a_value_in_another_spelling_is_refused(text, kinds):
    with pytest.raises(
        ValueTypeError, match=r"column 'c' holds .* another spelling: give the col"
    ):
        respell(
            ["3", text] if not kinds & {"date", "date with a time zone"} else [text],
            kinds,
            "column 'c'",
        )
    assert respell([text], (), "column 'c'") == [text]


@pytest.mark.parametrize("other", [[0.5, 1.5], [True, False]])
def test_types_without_a_common_form_are_refused(other):
    days = pd.to_datetime(["2026-03-01", "2026-03-02"])
    frames = [pd.DataFrame({"x": [1.0, 2.0], "c": column}) for column in (days, other)]
    for pair in (frames, frames[::-1]):
        with pytest.raises(ColumnError, match=r"column 'c' holds date and number, .* one type"):
            cn.infer_schema(*pair)


def test_a_schema_names_levels_in_any_spelling():
    schema = cn.Schema.from_dict({"c": {"kind": "category", "levels": ["1.0", "False", "x"]}})
    encoder = cn.AdaDetect("logistic", schema=schema)
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 60)
    as_ints, as_bools = pd.DataFrame({"c": codes}), pd.DataFrame({"c": codes == 1})
    result = encoder.detect(as_ints[:40], as_bools[40:])
    assert {tuple(row) for row in result.test_rows.values} == {(1, 0, 0), (0, 1, 0)}


def test_equal_content_has_one_digest_whatever_its_type():
    frames = [pd.DataFrame({"x": [1.0, 2.0], "c": c}) for c in ([3, 4], ["3.0", "4"])]
    numbers = [raw_numbers(read_sample(frame, "X")) for frame in frames]
    np.testing.assert_array_equal(*numbers)


def test_files_with_several_decimal_signs_are_refused_or_read_alike(tmp_path):
    comma, point = tmp_path / "comma.csv", tmp_path / "point.csv"
    comma.write_text("x;c\n1;3,5\n2;4,5\n", encoding="utf-8")
    point.write_text("x;c\n1;3.5\n2.5;other\n", encoding="utf-8")
    null, test = read_pair_of_files(comma, point, None, None)
    assert null.features["c"].to_pylist() == ["3.5", "4.5"]
    assert test.features["c"].to_pylist() == ["3.5", "other"]
    point.write_text("x;c\n1;3,5\n2.5;other\n", encoding="utf-8")
    with pytest.raises(
        ColumnError, match=r"column 'c' has numbers with a comma, .* \(--decimal\)"
    ):
        read_pair_of_files(comma, point, None, None)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("values", [[-99, 1], ["-99", "1"], ["-99.0", "x"], [-99.0, 1.5]])
def test_marks_of_missing_values_in_any_spelling(tmp_path, ending, values):
    path = tmp_path / f"rows.{ending}"
    table = pa.table({"c": values})
    if ending == "csv":
        pd.DataFrame({"c": values}).to_csv(path, index=False)
    else:
        pa_parquet.write_table(table, path)
    [file] = open_files(path, ReadingOptions(na=("-99",)))
    types = pa.schema([("c", file.feature_type("c"))])
    assert file.read(types)["c"].null_count == 1


def test_levels_that_do_not_occur_are_not_refused():
    texts = Texts.of(np.array([0, 0]), ["3", "3,5"], {"float64"}, "column 'c'")
    assert texts.levels == ("3",)


@pytest.mark.parametrize("kind", [None, "date", "category"])
def test_texts_of_moments_with_and_without_a_time_zone_are_refused(kind):
    texts = ["2026-03-01T10:00:00", "2026-03-01T10:00:00+01:00"]
    frames = [pd.DataFrame({"x": [1.0, 2.0], "c": [text] * 2}) for text in texts]
    for pair in (frames, frames[::-1]):
        with pytest.raises(ColumnError, match=r"column 'c' holds date and date with a time zone"):
            cn.infer_schema(*pair, kinds=kind and {"c": kind})

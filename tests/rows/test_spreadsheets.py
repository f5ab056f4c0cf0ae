"""A CSV that we write runs nothing in a spreadsheet, and can be read back."""

import csv
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conovel.rows.storage import neutral_table, neutral_texts, write_table
from conovel.site.output import write_rows

BEGINNINGS = tuple("=+-@\t\r\n＝＋－＠")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")
TEXTS = st.text(max_size=8) | st.text("='+-@\t\r\n0.5e ", max_size=8)


def neutral(text):
    return neutral_texts(pa.array([text], pa.string()))[0].as_py()


def read_back(text):
    """Undo it as the documentation says."""
    return text[1:] if re.match(r"'+[=+\-@\t\r\n＝＋－＠]", text) else text


@given(TEXTS)
def test_no_text_begins_like_a_formula_and_all_can_be_read_back(text):
    written = neutral(text)
    assert not written.startswith(BEGINNINGS) or NUMBER.match(written)
    assert read_back(written) == text
    assert written in (text, f"'{text}")


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60))
def test_a_number_stays_a_number(value):
    table = pa.table({"x": [value]})
    assert neutral_table(table).equals(table)
    assert neutral(str(value)) == str(value)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_every_type_of_text(kind):
    values = pa.array(["=1", "a", None]).cast(kind)
    column = neutral_table(pa.table({"x": values}))["x"]
    assert column.type == kind
    assert column.cast(pa.string()).to_pylist() == ["'=1", "a", None]


def test_categories_are_texts():
    values = pa.array(["@SUM(A1)", "b"]).dictionary_encode()
    assert neutral_table(pa.table({"x": values}))["x"].to_pylist() == ["'@SUM(A1)", "b"]


@pytest.mark.parametrize("way", ["whole", "in parts"])
def test_both_writers_of_csv(tmp_path, way):
    columns = {"=id": ["-1", "=cmd|' /C calc'!A0"], "score": [-0.5, 1.5]}
    path = tmp_path / "x.csv"
    if way == "whole":
        write_table(path, columns)
    else:
        (tmp_path / "work").mkdir()
        table = pa.table(columns)
        parts = iter([table.slice(0, 1), table.slice(1)])
        write_rows(path, parts, tmp_path / "work")
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["'=id", "score"],
            ["-1", "-0.5"],
            ["'=cmd|' /C calc'!A0", "1.5"],
        ]

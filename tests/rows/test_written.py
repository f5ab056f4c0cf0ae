"""Tables are written as CSV, Parquet, JSON lines and Excel files, and read back as they were."""

import datetime
import json
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from conovel.errors import FileError, MissingExtraError
from conovel.rows.storage import read_columns, require_writable, write_table

COLUMNS = {
    "id": ["a", "=1+1", "http://x"],
    "rank": [1, 2, 30],
    "p_value": [1 / 241, 0.1 + 0.2, 1.0],
    "rejected": [True, False, None],
}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.jsonl", "t.ndjson", "t.xlsx"])
def test_what_is_written_is_read_back_with_all_digits(name, tmp_path):
    write_table(tmp_path / name, COLUMNS)
    back = read_columns(tmp_path / name, list(COLUMNS))
    if name == "t.csv":  # where a spreadsheet would take a text for a formula
        assert back.pop("id")[1] == "'=1+1"
    assert back == {key: COLUMNS[key] for key in back}
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.jsonl", "a.xlsx"])
def test_equal_rows_give_equal_bytes(name, tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_table(tmp_path / folder / name, COLUMNS)
    first, second = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
    assert first == second


def test_lines_are_json_whatever_a_column_holds(tmp_path):
    when = datetime.datetime(2026, 11, 17, 8)
    table = {"x": [1.5, np.inf, np.nan], "t": ["é", "\n", None], "when": [when, None, when]}
    write_table(tmp_path / "t.jsonl", table)
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert list(map(json.loads, lines)) == [
        {"x": 1.5, "t": "é", "when": "2026-11-17T08:00:00"},
        {"x": None, "t": "\n", "when": None},
        {"x": None, "t": None, "when": "2026-11-17T08:00:00"},
    ]


def test_a_sheet_has_no_formulas_and_opens_elsewhere(tmp_path):
    large = {"n": [2**60, 1], "x": [np.inf, 0.1], **{"=name": ["=1+1", "+2"]}}
    write_table(tmp_path / "t.xlsx", large)
    frame = pl.read_excel(tmp_path / "t.xlsx", infer_schema_length=None)
    assert frame["=name"].to_list() == ["=1+1", "+2"]
    assert str(2**60) in map(str, frame["n"].to_list())
    assert frame["x"].to_list() == [None, 0.1]


def test_what_a_sheet_cannot_hold_is_named(tmp_path):
    path = tmp_path / "t.xlsx"
    with pytest.raises(FileError, match="at most 32,767 characters"):
        write_table(path, {"t": ["x" * 40_000]})
    with pytest.raises(FileError, match="at most 1,048,575 rows"):
        write_table(path, {"t": pa.nulls(1_048_576)})
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_ending_and_a_missing_extra_are_named_before_the_work(tmp_path, monkeypatch):
    with pytest.raises(FileError, match=r"name the output .csv, .parquet, .jsonl or .xlsx"):
        require_writable(tmp_path / "t.doc")
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(MissingExtraError, match=r"conovel\[excel\]"):
        require_writable(tmp_path / "t.xlsx")

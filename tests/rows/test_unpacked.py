"""A small file that takes gigabytes is refused before its rows are read."""

import contextlib
import gzip
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as pa_feather
import pyarrow.parquet as pa_parquet
import pytest
from support.excel import write_excel

from conovel.errors import ConovelError, FileError, InputError
from conovel.rows import unpacked
from conovel.rows.datafiles import DataFile, open_files
from conovel.rows.dialects import ReadingOptions
from conovel.rows.storage import read_table

ROWS = 200_000
REFUSED = r"takes at least .* MB when it is unpacked, more than"


def numbers(path):
    pa_parquet.write_table(pa.table({"a": np.zeros(ROWS), "b": np.ones(ROWS)}), path)


def texts(path):
    column = pa.DictionaryArray.from_arrays(np.arange(ROWS, dtype=np.int32) % 2, ["x" * 90, "y"])
    pa_parquet.write_table(pa.table({"a": column.cast(pa.string())}), path)


def lines(path):
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,0\n" * ROWS))


def short_lines(path):
    """Few bytes, and eight in memory for each of them."""
    path.write_bytes(gzip.compress(b"a,b,c,d,e,f,g,h\n" + b",,,,,,,1\n" * (ROWS // 4)))


def buffers(path):
    table = pa.table({"a": np.zeros(ROWS), "b": np.ones(ROWS)})
    pa_feather.write_feather(table, path, compression="zstd")


def one_far_cell(path):
    write_excel(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    far = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in parts.items():
            file.writestr(name, data.replace(b"</sheetData>", far + b"</sheetData>"))


BOMBS = {
    "numbers.parquet": numbers,
    "texts.parquet": texts,
    "lines.csv.gz": lines,
    "short.csv.gz": short_lines,
    "buffers.feather": buffers,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_takes_much_memory_is_refused_before_it_is_read(
    name, tmp_path, monkeypatch
):
    path = tmp_path / name
    BOMBS[name](path)
    assert path.stat().st_size * unpacked.TIMES < 2 * 10**6
    monkeypatch.setattr(unpacked, "BUDGET", 2 * 10**6)
    (file,) = open_files(path)
    types = file.schema
    with monkeypatch.context() as nothing_is_read:
        nothing_is_read.setattr(DataFile, "fragment", property(lambda self: pytest.fail("read")))
        with pytest.raises(
            FileError, match=r"takes at least .* MB when it is unpacked, more than"
        ):
            file.read(types)
    for reading in (ReadingOptions(unpacked="1GB"), ReadingOptions()):
        if reading.unpacked is None:
            monkeypatch.setenv(unpacked.VARIABLE, "0.5 GB")
        assert read_table(path, reading).num_rows >= ROWS // 4


def test_a_sheet_with_one_cell_far_away_is_refused(tmp_path):
    pytest.importorskip("fastexcel")
    path = tmp_path / "far.xlsx"
    one_far_cell(path)
    with pytest.raises(FileError, match=REFUSED):
        read_table(path)


def test_a_large_file_may_take_many_times_its_size(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(2000, 3))
    pa_parquet.write_table(pa.table(list(rows.T), names=list("abc")), tmp_path / "a.parquet")
    monkeypatch.setattr(unpacked, "BUDGET", 10)
    assert read_table(tmp_path / "a.parquet").num_rows == 2000


@pytest.mark.parametrize("said", ["much", "-1", "1e9", "9" * 5000])
def test_a_budget_that_is_none(said, tmp_path, monkeypatch):
    numbers(tmp_path / "a.parquet")
    monkeypatch.setenv(unpacked.VARIABLE, said)
    with pytest.raises(InputError, match="unpacked must be like 800MB or 2GB"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_file_ends_in_an_error_of_ours(seed, tmp_path):
    """The measuring reads bytes of its own, so damaged ones must not end it otherwise."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "a.feather"
    pa_feather.write_feather(
        pa.table({"a": np.zeros(50), "b": ["x", "y"] * 25}), path, compression="lz4"
    )
    data = bytearray(path.read_bytes())
    for at in rng.integers(8, len(data), 4):
        data[at] = rng.integers(256)
    path.write_bytes(data)
    with contextlib.suppress(ConovelError):
        read_table(path)

"""Files as a source of pieces, and files that cannot be read."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files import N_TEST, cut, draw, in_pieces, left_in, make_files, trees

from conovel.errors import ColumnError, FileError
from conovel.rows.pieces import FileSource


@settings(max_examples=20)
@given(st.integers(1, 700))
def test_pieces_have_one_size_whatever_the_files(tmp_path_factory, size):
    folder = tmp_path_factory.getbasetemp() / "pieces"
    if not folder.exists():
        folder.mkdir()
        make_files(folder)
    source = FileSource(folder / "test", None, "name")
    pieces = list(source.pieces(size))
    assert {len(piece) for piece in pieces[:-1]} <= {size}
    assert np.array_equal(np.concatenate([piece.rows() for piece in pieces]), draw()[1])
    assert [piece.start for piece in pieces] == list(range(0, N_TEST, size))
    assert pa.concat_arrays(
        [chunk for piece in pieces for chunk in piece.ids.chunks]
    ).to_pylist() == [f"row {i}" for i in range(N_TEST)]


def test_a_truncated_parquet_file_is_named_and_nothing_is_left(files):
    broken = files / "test" / "1.parquet"
    broken.write_bytes(broken.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"test/1\.parquet cannot be read"):
        in_pieces(trees(), files, files / "out.parquet")
    assert left_in(files) == ["null", "test"]


def test_damage_inside_a_parquet_file_is_named(files):
    broken = files / "test" / "2.parquet"
    content = bytearray(broken.read_bytes())
    content[4:400] = bytes(396)
    broken.write_bytes(content)
    with pytest.raises(FileError, match=r"test/2\.parquet cannot be read"):
        in_pieces(trees(), files, files / "out.parquet")
    assert left_in(files) == ["null", "test"]


def test_a_truncated_csv_file_is_named(tmp_path):
    files = make_files(tmp_path, "csv")
    broken = files / "null" / "1.csv"
    broken.write_bytes(broken.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"null/1\.csv, line 451: 2 values"):
        in_pieces(trees(), files, files / "out.csv")
    assert left_in(files) == ["null", "test"]


def test_a_missing_value_is_named_with_file_and_column(files):
    table = pa_parquet.read_table(files / "test" / "2.parquet")
    values = table["x1"].to_numpy().copy()
    values[17] = np.nan
    changed = table.set_column(table.column_names.index("x1"), "x1", pa.array(values))
    pa_parquet.write_table(changed, files / "test" / "2.parquet")
    with pytest.raises(ColumnError, match=r"test/2\.parquet.*missing values: column 'x1' has 1"):
        list(FileSource(files / "test", id_column="name").pieces(1000))


def test_a_disappearing_file_is_named(files, monkeypatch):
    cut(monkeypatch, 100)

    def vanish(stage, done, total):
        if stage == "reading":  # the known normals are read first
            (files / "test" / "2.parquet").unlink(missing_ok=True)

    with pytest.raises(FileError, match=r"2\.parquet is gone since it was first read"):
        in_pieces(trees(), files, files / "out.parquet", on_progress=vanish)
    assert left_in(files) == ["null", "test"]

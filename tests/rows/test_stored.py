"""Rows that are kept in a folder: the rows of the files, chunk by chunk and by places."""

import numpy as np
import pytest
from support.files import N_TEST, draw, make_files

from conovel.errors import FileError, SampleError
from conovel.rows.pieces import FileSource
from conovel.rows.stored import store_rows
from conovel.rows.tables import Rows
from conovel.rows.work_folder import WorkFolder
from conovel.scorers.content import content_hash
from conovel.site.checks.rows import CheckedRows


@pytest.fixture
def source(tmp_path):
    return FileSource(make_files(tmp_path) / "test", id_column="name")


@pytest.fixture
def work(tmp_path):
    return WorkFolder.at(tmp_path / "work", "key")


def store(source, work, size, tell=lambda n: None):
    return store_rows(source, work, "test", size, tell)


@pytest.mark.parametrize("size", [1, 37, 600, 10_000])
def test_rows_names_hashes_and_ranges_are_those_of_the_files(source, work, size):
    _, expected = draw()
    n_read = []
    stored = store(source, work, size, n_read.append)
    assert len(stored) == sum(n_read) == N_TEST
    chunks = list(stored.chunks())
    assert [start for start, _ in chunks] == list(range(0, N_TEST, size))
    assert np.array_equal(np.concatenate([rows for _, rows in chunks]), expected)
    hashes = np.concatenate([part for _, part in stored.hashes()])
    assert np.array_equal(hashes, content_hash(expected))
    names = [name for start, _ in chunks for name in stored.ids(start).to_pylist()]
    assert names == [f"row {i}" for i in range(N_TEST)]
    assert np.array_equal([stored.low, stored.high], [expected.min(axis=0), expected.max(axis=0)])
    assert np.array_equal(stored.in_memory().values, expected)


def test_rows_at_places_come_in_the_order_asked_for(source, work, monkeypatch):
    monkeypatch.setattr("conovel.rows.stored._TAKEN", 7)
    places = np.random.default_rng(0).permutation(N_TEST)[:50]
    assert np.array_equal(store(source, work, 100).take(places), draw()[1][places])


def test_checks_look_at_the_rows_that_they_look_at_in_memory(source, work, monkeypatch):
    monkeypatch.setattr("conovel.site.checks.rows._MOST_ROWS", 64)
    stored, rows = store(source, work, 100), Rows(draw()[1], ("x0", "x1", "x2"))
    for one, two in zip(CheckedRows.of(stored, stored), CheckedRows.of(rows, rows), strict=True):
        assert np.array_equal(one, two)


def test_rows_that_are_kept_are_not_read_again(source, work):
    store(source, work, 100)
    n_read = []
    again = store(source, work, 100, n_read.append)
    assert not n_read
    assert np.array_equal(again.in_memory().values, draw()[1])


def test_nobody_else_can_read_them(source, work):
    store(source, work, 100)
    assert work.folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in work.folder.glob("test.*s")}
    assert modes == {"test.rows": 0o600, "test.hashes": 0o600}


def test_files_without_rows_and_rows_that_are_gone_are_named(source, work, tmp_path):
    (tmp_path / "empty.csv").write_text("x0,x1\n")
    with pytest.raises(SampleError, match=r"empty\.csv has no rows"):
        store(FileSource(tmp_path / "empty.csv"), work, 10)
    stored = store(source, work, 100)
    (work.folder / "test.rows").unlink()
    with pytest.raises(FileError, match=r"test\.rows cannot be read, start again"):
        stored.take(np.arange(3))

"""What is written is for its owner alone, whatever the umask."""

import os

import pyarrow as pa
import pytest

from conovel.rows.private_files import make_private_folder
from conovel.rows.storage import locked, write_durably, write_json, write_table, write_text
from conovel.site.output import write_rows


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return path.stat().st_mode & 0o777


def lock(path):
    with locked(path):
        pass


WRITERS = {
    "x.csv": lambda path: write_table(path, {"a": [1]}),
    "x.parquet": lambda path: write_table(path, {"a": [1]}),
    "rows.csv": lambda path: write_rows(path, iter([pa.table({"a": [1]})]), path.parent / "work"),
    "x.json": lambda path: write_json(path, {}),
    "x.txt": lambda path: write_text(path, ""),
    "x.bin": lambda path: write_durably(path, b"x"),
    ".x.lock": lambda path: lock(path.with_name("x")),
}


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_for_their_owner(tmp_path, name):
    (tmp_path / "work").mkdir()
    WRITERS[name](tmp_path / name)
    assert mode(tmp_path / name) == 0o600


def test_a_file_that_its_owner_has_opened_stays_open(tmp_path):
    path = tmp_path / "list.csv"
    write_table(path, {"a": [1]})
    path.chmod(0o640)
    write_table(path, {"a": [2]})
    assert mode(path) == 0o640


def test_what_a_killed_process_left_is_not_written_into(tmp_path):
    left = tmp_path / f".x.txt.{os.getpid()}"
    left.write_text("somebody reads this")
    with left.open() as reader:
        write_text(tmp_path / "x.txt", "secret")
        assert "secret" not in reader.read()
    assert mode(tmp_path / "x.txt") == 0o600


def test_folders_are_too_and_those_above(tmp_path):
    make_private_folder(tmp_path / "a" / "b")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o700, 0o700]
    (tmp_path / "a").chmod(0o750)
    make_private_folder(tmp_path / "a")
    assert mode(tmp_path / "a") == 0o750

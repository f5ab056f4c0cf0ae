"""A file that is read a second time must be the one that was decided on."""

import pyarrow.parquet as pa_parquet
import pytest
from support.files import cut, in_pieces, make_files, trees
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.errors import FileError
from conovel.rows.datafiles import state_of
from conovel.rows.pieces import FileSource
from conovel.rows.storage import read_originals


def grow(file):
    """Append a copy of the last row."""
    text = file.read_text()
    file.write_text(text + text.splitlines()[-1] + "\n")


def change_values(file):
    """Write other values of the same length."""
    text = file.read_text()
    size = file.stat().st_size
    file.write_text(text.replace("1", "x").replace("2", "1").replace("x", "2"))
    assert file.stat().st_size == size


def remove(file):
    file.unlink()


CHANGED = r"test/\d\.csv (has changed|is gone) since it was first read"
CHANGES = [grow, change_values, remove]


@pytest.fixture
def files(tmp_path):
    return make_files(tmp_path, "csv")


def changing_once(stage, change, file):
    """Change a file as soon as a stage begins."""
    changed = []

    def on_progress(name, *_):
        if name == stage and not changed:
            changed.append(name)
            change(file)

    return on_progress


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("piece", [100, 10_000])
def test_columns_are_copied_from_the_rows_that_were_decided_on(files, monkeypatch, change, piece):
    cut(monkeypatch, piece)
    on_progress = changing_once("writing", change, files / "test" / "2.csv")
    with pytest.raises(FileError, match=CHANGED):
        in_pieces(trees(), files, files / "a.csv", keep_columns=True, on_progress=on_progress)
    assert not (files / "a.csv").exists()
    assert not (files / ".a.csv.work").exists()


@pytest.mark.parametrize("stage", ["reading", "explaining"])
def test_rows_that_are_read_again_are_those_of_the_first_time(files, stage):
    on_progress = changing_once(stage, change_values, files / "test" / "0.csv")
    with pytest.raises(FileError, match=CHANGED):
        in_pieces(trees(), files, files / "a.csv", most_reasons=5, on_progress=on_progress)


def test_decisions_without_columns_do_not_need_the_files_again(files):
    on_progress = changing_once("writing", grow, files / "test" / "0.csv")
    in_pieces(trees(), files, files / "a.csv", on_progress=on_progress)
    assert (files / "a.csv").exists()


@pytest.mark.parametrize("change", CHANGES)
def test_the_command_refuses_to_copy_columns_of_another_file(files, monkeypatch, change):
    detect = cn.AdaDetect.detect

    def detect_and_change(*given, **more):
        result = detect(*given, **more)
        change(files / "test" / "0.csv")
        return result

    monkeypatch.setattr(cn.AdaDetect, "detect", detect_and_change)
    options = ["--null", files / "null", "--test", files / "test", "--id", "name"]
    options += ["--keep-columns", "--out", files / "out.csv"]
    done = CliRunner().invoke(app, ["detect", *map(str, options)])
    assert isinstance(done.exception, FileError)
    assert "0.csv" in str(done.exception)
    assert "since it was first read" in str(done.exception)
    assert not (files / "out.csv").exists()


def test_another_number_of_rows_is_refused_whatever_the_state(files):
    with pytest.raises(FileError, match="has changed since it was first read"):
        read_originals(files / "test", state_of(files / "test"), n_rows=599)


def test_a_new_file_in_a_folder_is_a_change(files):
    source = FileSource(files / "test", id_column="name")
    assert sum(map(len, source.pieces(100))) == 600
    (files / "test" / "3.csv").write_text((files / "test" / "0.csv").read_text())
    with pytest.raises(FileError, match="has changed since it was first read"):
        list(source.pieces(100))


def test_columns_are_copied_from_unchanged_files(files, monkeypatch):
    cut(monkeypatch, 100)
    in_pieces(trees(), files, files / "a.parquet", keep_columns=True)
    written = pa_parquet.read_table(files / "a.parquet")
    assert written["name"].to_pylist() == written["id"].to_pylist()
    assert written["name"].to_pylist() == [f"row {i}" for i in range(600)]

"""``conovel watch`` with files that are no tables: each is set aside, the others are tested."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from support.excel import write_excel, write_vast_excel
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app
from conovel.cli.tables import FileOptions
from conovel.cli.watch import MOST_ENDS, Watcher, _kept_test
from conovel.errors import ColumnError, FileError, SampleError
from conovel.rows.datafiles import open_files
from conovel.rows.unpacked import read_sheet
from conovel.spec.exits import NO

WATCH = "from conovel.cli import main; main()"
OPTIONS = ["--detector", "d.conovel", "--ledger", "m.json", "--id", "id", "--once"]


def table(seed, n=60, n_novel=8):
    X = np.random.default_rng(seed).normal(size=(n, 2))
    X[:n_novel] += 6
    return pd.DataFrame(X, columns=["a", "b"]).assign(id=[f"{seed}-{i}" for i in range(n)])


def random_bytes(path):
    path.write_bytes(np.random.default_rng(0).bytes(2000))


def half_a_character(path):
    path.write_bytes(b"\xff\xfe" + np.random.default_rng(1).bytes(2001))


def bytes_as_ids(path):
    columns = {name: table(2)[name].to_numpy() for name in "ab"}
    ids = [bytes([200, i]) for i in range(60)]
    pa_parquet.write_table(pa.table({**columns, "id": ids}), path)


def lists_as_ids(path):
    columns = {name: table(2)[name].to_numpy() for name in "ab"}
    pa_parquet.write_table(pa.table({**columns, "id": [[i] for i in range(60)]}), path)


def table_of_that_name(path):
    table(2).to_csv(path, index=False)


def link_to_a_secret(path):
    Path("shadow").write_text("root,secret\n1,2\n")
    path.symlink_to(Path("shadow").absolute())


def link_to_a_table(path):
    table(2).to_csv("elsewhere.csv", index=False)
    path.symlink_to(Path("elsewhere.csv").absolute())


def link_without_end(path):
    path.symlink_to("/dev/zero")


BAD = {
    "random.csv": (random_bytes, "no text in"),
    "utf16.csv": (half_a_character, "no text in utf-16"),
    "ids.parquet": (bytes_as_ids, "column 'id' cannot name rows, it holds binary"),
    "lists.parquet": (lists_as_ids, "column 'id' cannot name rows, it holds list"),
    os.fsdecode(b"caf\xe9.csv"): (table_of_that_name, "its name is not UTF-8: rename it"),
    "vast.xlsx": (write_vast_excel, "when it is unpacked, more than"),
    "cut.parquet": (random_bytes, "cut.parquet cannot be read"),
    "cut.arrow": (random_bytes, "cut.arrow cannot be read"),
    "cut.xlsx": (random_bytes, "cut.xlsx cannot be read"),
    "cut.csv.gz": (random_bytes, "cut.csv.gz cannot be read"),
    "shadow.csv": (link_to_a_secret, "it is a link"),
    "link.csv": (link_to_a_table, "it is a link"),
    "endless.csv": (link_without_end, "it is a link"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inbox").mkdir()
    table(0, 300, 0).drop(columns="id").to_csv("normal.csv", index=False)
    table(9, 100, 10).to_csv("past.csv", index=False)
    files = ["--null", "normal.csv", "--unlabelled", "past.csv", "--id", "id"]
    made = CliRunner().invoke(app, ["fit", *files, "--scorer", "logistic", "--out", "d.conovel"])
    assert made.exit_code == 0, made.output
    table(1).to_csv("inbox/day1.csv", index=False)
    return tmp_path


def watch():
    for number, path in enumerate(sorted(Path("inbox").iterdir())):
        # The good file comes last.
        when = 1000 if path.name.startswith("day") else number
        os.utime(path, (when, when), follow_symlinks=False)
    command = [sys.executable, "-c", WATCH, "watch", "inbox", *OPTIONS]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_each_is_named_and_set_aside_and_the_others_are_tested(here):
    for name, (write, _) in BAD.items():
        write(Path("inbox", name))
    os.mkfifo("inbox/pipe.csv")
    for _ in range(2):  # also after a restart
        ended = watch()
        assert (ended.returncode, ended.stderr) == (NO, ""), ended.stderr
        said = {line.partition(": ")[0]: line for line in ended.stdout.splitlines()}
        for name, (_, why) in BAD.items():
            assert why in said.get(name.replace("\udce9", "\\udce9"), ""), (name, said)
        assert "secret" not in ended.stdout
        assert [entry.name for entry in cn.Ledger.load("m.json").entries] == ["day1.csv"]
    assert "day1.csv" not in said  # it was tested before
    assert not Path(".m.json.begun").exists()


ENDS = """
import os, signal
from pathlib import Path
from conovel.cli.tables import FileOptions
from conovel.cli.watch import Watcher
end = lambda path: os.kill(os.getpid(), signal.SIGKILL)
Watcher(Path("inbox"), Path("m.json"), end, None).look(0)
"""


def test_a_file_that_ends_the_process_is_set_aside_after_some_times(here, capsys):
    """As a file does that needs more memory than there is."""
    bad = Path("inbox/bad.csv")
    bad.write_text("a,b,id\n1,2,3\n")
    os.utime(bad, (1, 1))
    for _ in range(MOST_ENDS):
        assert subprocess.run([sys.executable, "-c", ENDS], check=False).returncode == -9
    test = _kept_test(Path("d.conovel"), Path("m.json"), None, FileOptions(id_column="id"))
    for _ in range(2):  # it stays aside
        watcher = Watcher(Path("inbox"), Path("m.json"), test, None)
        watcher.look(0)
        said = capsys.readouterr().out
        assert f"bad.csv: not tested: the watch has ended {MOST_ENDS} times" in said
        assert watcher.n_failed == 1
    assert [entry.name for entry in cn.Ledger.load("m.json").entries] == ["day1.csv"]
    table(3).to_csv(bad, index=False)
    watcher.look(0)
    assert "bad.csv: 60 rows" in capsys.readouterr().out  # until it changes


def test_a_sheet_is_read_with_bounded_memory(tmp_path):
    frame = table(4)
    write_excel(frame, tmp_path / "good.xlsx")
    assert read_sheet(tmp_path / "good.xlsx").to_pandas().equals(frame)
    write_vast_excel(tmp_path / "vast.xlsx")
    assert (tmp_path / "vast.xlsx").stat().st_size < 1500
    with pytest.raises(FileError, match=r"needs more than 512 MB.*save it as CSV"):
        read_sheet(tmp_path / "vast.xlsx", 512 << 20)


def test_no_module_of_the_current_folder_reads_a_sheet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_excel(table(4), tmp_path / "good.xlsx")
    Path("fastexcel.py").write_text("open('proof', 'w').close()\n")
    assert read_sheet(Path("good.xlsx")).num_rows == 60
    assert not Path("proof").exists()


@pytest.mark.parametrize("ids", [[b"\xc8", b"x"], np.array([b"a", b"b"])])
def test_ids_of_bytes_are_refused(ids):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(SampleError, match="ids holds bytes: name rows by texts or numbers"):
        cn.AdaDetect("logistic").detect(X[2:], X[:2], ids=ids)


def test_random_bytes_raise_an_error_that_is_ours(tmp_path):
    path, rng = tmp_path / "x.csv", np.random.default_rng(3)
    marks = [b"", b"\xff\xfe", b"\xef\xbb\xbf", b"a,b\n1,2\n"]
    for number in range(120):
        path.write_bytes(marks[number % 4] + rng.bytes(int(rng.integers(1, 3000))))
        try:
            (file,) = open_files(path)
            file.read(pa.schema([(name, pa.string()) for name in file.schema.names]))
        except (FileError, ColumnError):
            pass

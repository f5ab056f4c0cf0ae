"""Tables at addresses and on standard input are copied within bounds, and read like files."""

import gzip
import io
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import fsspec
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import conovel as cn
from conovel.errors import FileError, MissingExtraError
from conovel.rows.fetched import copy_input, fetch, is_address, without_secrets

CSV = b"a,b\n1,2\n3,4\n"
COLUMNS = {"a": [1.0, 3.0], "b": [2.0, 4.0]}


OBJECTS = {"/today.csv": CSV, "/bucket/today.csv": CSV, "/bucket/empty.csv": b""}


class Store(BaseHTTPRequestHandler):
    """Gives what is at a path, as a web server and as an object store do."""

    def do_GET(self):
        self.answer(with_body=True)

    def do_HEAD(self):
        self.answer(with_body=False)

    def answer(self, *, with_body):
        path = self.path.partition("?")[0]
        if path == "/moved.csv":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.2:{self.server.server_port}/today.csv")
            self.end_headers()
            return
        body = OBJECTS.get(path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        if with_body and body:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    server = HTTPServer(("0.0.0.0", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,127.0.0.2")
    monkeypatch.setenv("no_proxy", "127.0.0.1,127.0.0.2")


def s3(port, key):
    where = f"endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    return f"s3://name:secret@bucket/{key}?{where}"


def test_an_object_store_is_read_with_both_slashes(port):
    assert cn.read(s3(port, "today.csv")).to_pydict() == COLUMNS


def test_a_web_server_is_read(port):
    assert cn.read(f"http://127.0.0.1:{port}/today.csv").to_pydict() == COLUMNS


def test_what_fsspec_knows_is_read():
    class Elsewhere(MemoryFileSystem):
        protocol = "smb"

    fsspec.register_implementation("smb", Elsewhere, clobber=True)
    with fsspec.open("smb://host/today.csv", "wb") as file:
        file.write(CSV)
    assert cn.read("smb://host/today.csv").to_pydict() == COLUMNS


def test_a_file_of_this_machine_is_not_copied(tmp_path):
    path = tmp_path / "today.csv"
    path.write_bytes(CSV)
    assert fetch(path.as_uri(), tmp_path / "nowhere") == path
    assert cn.read(path.as_uri()).to_pydict() == COLUMNS


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://example.org/today.csv", "use https"),
        ("s3://bucket/today", "s3://bucket/today is no address of a table"),
        ("s3://bucket/", "is no address of a table"),
        ("gopher://host/today.csv", "tables are read from https, s3"),
        ("zip://today.csv::https://host/a.zip", "no address of a table|tables are read from"),
        ("sftp://h/a.csv::b.csv", "tables are read from"),
    ],
)
def test_other_addresses_are_refused_by_name(address, words, tmp_path):
    with pytest.raises(FileError, match=words):
        fetch(address, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_object_an_empty_one_and_a_way_out_of_https_are_named(port, tmp_path):
    for address, words in {
        f"http://127.0.0.1:{port}/nothing.csv": "nothing.csv cannot be read: .*404",
        f"http://127.0.0.1:{port}/moved.csv": "cannot be read",
        s3(port, "nothing.csv"): "s3://bucket/nothing.csv cannot be read",
        s3(port, "empty.csv"): "s3://bucket/empty.csv is empty",
    }.items():
        with pytest.raises(FileError, match=words) as raised:
            fetch(address, tmp_path)
        assert "secret" not in str(raised.value)


def test_a_copy_is_bounded(port, tmp_path, monkeypatch):
    monkeypatch.setenv("CONOVEL_FETCHED", "5")
    with pytest.raises(FileError, match="more than the 0 MB that a copy may have: set CONOVEL_F"):
        fetch(s3(port, "today.csv"), tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CONOVEL_FETCHED", "1KB")
    copy = fetch(s3(port, "today.csv"), tmp_path)
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"conovel\[remote\]"):
        fetch("sftp://host/today.csv", tmp_path)


def test_secrets_are_not_shown():
    assert without_secrets("s3://id:key@bucket/a.csv?X-Amz-Signature=1") == "s3://bucket/a.csv"
    assert is_address("gs://b/a.csv")
    assert not is_address("C:\\data\\a.csv")


def parquet():
    buffer = io.BytesIO()
    pa_parquet.write_table(pa.table(COLUMNS), buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        (CSV, ".csv"),
        (gzip.compress(CSV, mtime=0), ".csv.gz"),
        (b'{"a": 1.0, "b": 2.0}\n{"a": 3.0, "b": 4.0}\n', ".jsonl"),
        (parquet(), ".parquet"),
    ],
)
def test_standard_input_gets_the_ending_of_its_format(content, ending, tmp_path):
    path = copy_input(io.BytesIO(content), tmp_path)
    assert path.name == f"stdin{ending}"
    assert cn.read(path).to_pydict() == COLUMNS

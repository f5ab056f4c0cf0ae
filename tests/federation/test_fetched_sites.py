"""`site.toml` takes addresses: the rows are copied for each run, and no secret is written down."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.commands import invoke
from support.desk import run_once, write_sites
from support.federation import SITES
from support.terms import make_terms

from conovel.federation.rehearsal import rehearse, usual_terms
from conovel.federation.settings import read_site
from conovel.rows import fetched
from conovel.rows.storage import read_json

SECRET = "verysecret"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serve the folder of the sites, as a web server does that asks for a token."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def remote(tmp_path, served):
    """Write three sites whose rows are at addresses, and what they are called here."""
    local = write_sites(tmp_path, "regimes = ['together', 'full']")
    found = {}
    for name in SITES:
        path = tmp_path / name / "site.toml"
        text = path.read_text()
        for table in ("normal", "today"):
            address = f"{served}/{name}/{table}.parquet?token={SECRET}"
            text = text.replace(f'"{table}.parquet"', f'"{address}"')
        path.write_text(text)
        found[name] = read_site(path)
    return local, found


def texts_of(folder):
    """Read all that was written below a folder, but for the settings."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "site.toml"]
    return b"".join(path.read_bytes() for path in paths)


def test_a_run_on_addresses_is_the_run_on_files(remote, tmp_path, caplog):
    local, files = remote
    with caplog.at_level("DEBUG"):
        run_id = run_once(files)
    file = files["north"]
    own = read_json(file.results / run_id / "run.json")["decisions"]["north"]
    assert own["ids"][0] == "north-000"
    assert sum(own["rejected"]) >= 20
    assert run_once({**files, "north": local["north"]})
    entries = [entry for entry in file.audit_log.read().entries if entry["entry"] == "data"]
    assert len(entries) == 2
    assert entries[0]["data"] == entries[1]["data"]  # the same content is the same data set
    assert "copied http://127.0.0.1" in caplog.text
    assert SECRET not in caplog.text + repr(files)
    assert SECRET.encode() not in texts_of(tmp_path)


def test_a_check_reads_them_and_names_what_cannot_be_read(
    remote, tmp_path, served, monkeypatch, capsys
):
    settings = tmp_path / "north" / "site.toml"
    told = invoke(capsys, monkeypatch, "agent", str(settings), "--check")
    assert told.code == 0, told.out
    monkeypatch.setenv(fetched.VARIABLE, "1kB")
    refused = invoke(capsys, monkeypatch, "agent", str(settings), "--check")
    assert refused.code == 3
    assert "that a copy may have: set CONOVEL_FETCHED" in " ".join(refused.out.split())
    settings.write_text(settings.read_text().replace("http://", f"ftp://me:{SECRET}@"))
    other = invoke(capsys, monkeypatch, "agent", str(settings), "--check")
    assert other.code == 3
    assert "tables are read from https, s3" in " ".join(other.out.split())
    assert SECRET not in told.out + refused.out + other.out + other.err


def test_a_list_needs_rows_in_memory_wherever_they_come_from(remote, monkeypatch):
    _, files = remote
    path = files["north"].path
    path.write_text(path.read_text() + '\n[list]\nname = "april"\nledger = "april.json"\n')
    file = read_site(path)
    terms = usual_terms(file)
    listed = make_terms(terms.agents, list_name="april", level="0.1")
    reason = "it reads its files in pieces, and a ledger needs the rows in memory"
    assert not any(reason in one for one in rehearse(file, listed).objections)
    monkeypatch.setattr("conovel.federation.site_files.are_large", lambda *paths: True)
    assert any(reason in one for one in rehearse(file, listed).objections)

"""The page of metrics: it adds up what runs did, and says nothing about rows or parties."""

import fcntl
import os
import re
import sys
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.fake_nvflare import FakeNVFlare
from support.federation import SCORER, SITES
from support.terms import make_terms

from conovel.cli.agent import _metrics_at
from conovel.errors import FederationError, InputError, MissingExtraError
from conovel.federation.audit_log import AuditLog
from conovel.federation.consent import Limits
from conovel.federation.loopback import COORDINATOR, OPERATOR, Loopback, free_ports
from conovel.federation.metrics import (
    PartyMetrics,
    RunTotals,
    n_connected,
    serving,
)
from conovel.federation.processes import wait_for
from conovel.federation.run_records import FAILED, RunRecords
from conovel.federation.settings import MetricsAddress, read_federation, read_site
from conovel.rows.storage import write_table


def scrape(port):
    """Ask for the page; give its text, and its samples by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("conovel_")
            samples[name, *sorted(sample.labels.values())] = sample.value
    return text, samples


@pytest.fixture
def files(rows, tmp_path):
    found = {}
    for name, (null, test) in rows.items():
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "normal.parquet", null)
        write_table(tmp_path / name / "test.parquet", test)
        settings = tmp_path / name / "site.toml"
        settings.write_text(
            f'[site]\nname = "{name}"\nkit = "kit"\n[data]\nnull = "normal.parquet"\n'
            f'test = "test.parquet"\n[model]\nscorer = "{SCORER}"\n'
        )
        found[name] = read_site(settings)
    return found


def assert_nothing_is_told(text, *secrets):
    words = [*SITES, *secrets, "/tmp", ".toml", ".parquet", "reject", "flagged"]
    assert [word for word in words if word in text] == []


def test_a_page_adds_up_the_runs_of_a_site(files):
    asked = make_terms(SITES, regime="full", bits=4)
    fake = FakeNVFlare(asked, files, dict.fromkeys(SITES, Limits(regimes=("full",))))
    assert fake.run()["state"] == "done"
    file = files["north"]
    refused = RunRecords(file.state, file.audit_log)
    refused.refuse("0" * 32, "level 1/10 is above", fault="RefusedError")
    page = PartyMetrics("site", file.state, {"state": file.state}, file.audit_log, 2e9)
    for run in refused.runs():
        page.totals.follow(run)
    port, _ = free_ports()
    with serving(MetricsAddress(port), page):
        text, samples = scrape(port)
    assert samples["runs_started_total",] == 1
    assert samples["runs_ended_total", "", "", "done"] == 1
    assert samples["runs_ended_total", "CN-529", "RefusedError", "refused"] == 1
    assert samples["runs_running",] == 0
    sent = [e for e in file.audit_log.read().entries if e.get("kind") == "MODEL" and "to" in e]
    assert samples["messages_total", "MODEL", "out"] == len(sent) == 2
    assert samples["message_bytes_total", "MODEL", "out"] == sum(e["bytes"] for e in sent)
    assert samples["messages_total", "MODEL", "in"] == 2
    for phase in ("read", "fit", "score", "count", "write"):
        assert samples["phase_seconds_count", phase] == 1
        assert samples["phase_seconds_sum", phase] >= 0
    assert samples["audit_log_entries",] == len(file.audit_log.read().entries) > 10
    assert samples["disk_bytes", "state"] == sum(p.stat().st_size for p in file.state.iterdir())
    assert samples["connected_peers",] == 0
    assert samples["certificate_expiry_timestamp_seconds",] == 2e9
    assert_nothing_is_told(text, asked.run_id)
    # What the coordinator would note: every message that it got or sent.
    measures = fake.coordinator.measures()
    counted = {(of, kind): n for of, kind, n, _ in measures["messages"]}
    kinds = [(e.sender, e.kind) for e in fake.coordinator.transcript.entries if e.kind != "MODEL"]
    assert counted["in", "HELLO"] == 3
    assert sum(counted.values()) == len(kinds)
    assert {"gathering", "waiting", "asking"} <= set(measures["seconds"])


def test_no_text_of_a_record_gets_onto_the_page():
    totals = RunTotals()
    run = {"run_id": "a", "began": 1.0, "state": "failed", "fault": "north's row 7"}
    rows = [["out", "secret", 1, 5], ["sideways", "MODEL", 1, 5]]
    totals.follow(run | {"measures": {"messages": rows, "seconds": {"of north": 1.0}}})
    assert totals.n_ended == {("failed", "other"): 1}
    assert set(totals.messages) == {("out", "other"), ("other", "MODEL")}
    assert set(totals.seconds) == {"other"}
    for odd in (None, [], {"messages": [[1]], "seconds": {}}, {"messages": [], "seconds": 3}):
        totals.follow(run | {"run_id": f"{odd}", "measures": odd})
    assert totals.n_ended == {("failed", "other"): 5}
    assert set(totals.seconds) == {"other"}


def test_a_run_is_counted_once_whenever_it_is_looked_at(tmp_path):
    totals, records = RunTotals(), RunRecords(tmp_path)
    record = records.open("01" * 16, 60)
    totals.follow(next(records.runs()))
    assert (totals.n_started, totals.n_running, totals.n_ended) == (1, 1, {})
    record.finish(FAILED, "south vanished", fault="SiteVanishedError")
    totals.follow(next(records.runs()))
    records.open("02" * 16, 60).finish("done", "")  # too short to be seen before its end
    totals.follow(list(records.runs())[1])
    assert (totals.n_started, totals.n_running) == (2, 0)
    assert totals.n_ended == {("failed", "SiteVanishedError"): 1, ("done", ""): 1}


def test_an_old_number_of_connected_parties_does_not_count(tmp_path):
    path = tmp_path / "peers"
    assert n_connected(path) == 0
    path.write_text("3\n")
    assert n_connected(path) == 3
    assert n_connected(path, time.time() + 200) == 0
    path.write_text("")  # it is being written
    assert n_connected(path) == 0


def test_a_log_that_is_broken_has_no_entries_to_tell(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    assert log.n_lines() == 0
    log.append({"entry": "begin"}, {"entry": "end"})
    assert log.n_lines() == 2
    log.path.write_text("not a log\n")
    assert log.n_lines() == 0


def test_metrics_are_off_unless_asked_for(files):
    assert files["north"].metrics is None
    assert _metrics_at(None, None) is None
    assert _metrics_at(None, 9464) == MetricsAddress(9464, "127.0.0.1")
    path = files["north"].path
    path.write_text(path.read_text() + '[metrics]\nport = 9000\naddress = "10.0.0.5"\n')
    asked = read_site(path).metrics
    assert asked == MetricsAddress(9000, "10.0.0.5")
    assert _metrics_at(asked, 9464) == MetricsAddress(9464, "10.0.0.5")
    shared = path.with_name("federation.toml")
    shared.write_text('[federation]\nname = "f"\nsites = ["a", "b"]\n[metrics]\nport = 9001\n')
    assert read_federation(shared).metrics == MetricsAddress(9001)
    for wrong, said in (
        ("port = 70000", "from 1 to 65535"),
        ('address = "::1"', "needs the key"),
    ):
        shared.write_text(re.sub("port = .*", wrong, shared.read_text()))
        with pytest.raises(InputError, match=said):
            read_federation(shared)


def test_what_prevents_a_page_is_named(tmp_path, monkeypatch):
    page = PartyMetrics("site", tmp_path, {})
    port, _ = free_ports()
    with serving(MetricsAddress(port), page):
        again = serving(MetricsAddress(port), page)
        with pytest.raises(FederationError, match=f"cannot be served on 127.0.0.1:{port}"):
            again.__enter__()
    with serving(MetricsAddress(port), page):  # the port is free again
        pass
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(MissingExtraError, match=r"conovel\[metrics\]"),
        serving(MetricsAddress(port), page),
    ):
        pass


def test_a_party_is_up_while_it_is_served_and_connected(files, conovel):
    file = files["north"]

    def told():
        ended = conovel("status", file.path, "--up")
        return ended.stdout.strip(), ended.returncode

    assert told() == ("not up", 3)
    file.state.mkdir()
    with (file.state / "supervisor.pid").open("w") as pid:
        fcntl.flock(pid, fcntl.LOCK_EX)
        pid.write(str(os.getpid()))
        pid.flush()
        assert told() == ("not up", 3)
        (file.state / "peers").write_text("1\n")
        assert told() == ("up", 0)
    assert told() == ("not up", 3)


@pytest.mark.slow
def test_pages_of_a_real_federation(rows, tmp_path):
    federation = Loopback(
        tmp_path / "f",
        rows,
        model=f'scorer = "{SCORER}"',
        consent='regimes = ["full"]\nmax_level = 0.2',
        environment={"OMP_NUM_THREADS": "1"},
    )
    ports = {COORDINATOR: free_ports()[0], "north": free_ports()[0]}
    for party, port in ports.items():
        with federation.settings(party).open("a") as file:
            file.write(f"\n[metrics]\nport = {port}\n")
    operator = str(federation.settings(OPERATOR))
    try:
        federation.bring_up()
        assert wait_for(lambda: scrape(ports[COORDINATOR])[1]["connected_peers",] == 3, 60)
        assert wait_for(lambda: scrape(ports["north"])[1]["connected_peers",] == 1, 60)
        for level, code in (("0.1", 0), ("0.3", 3)):  # the second is refused by the sites
            asked = ("--regime", "full", "--level", level)
            ended = federation.run("run", "--federation", operator, *asked)
            assert ended.returncode == code, ended.stdout + ended.stderr

        def all_ended(port):
            found = scrape(port)[1]
            return sum(n for name, n in found.items() if name[0] == "runs_ended_total") == 2

        for port in ports.values():
            assert wait_for(lambda port=port: all_ended(port), 60)
        text, found = scrape(ports["north"])
        assert found["runs_ended_total", "", "", "done"] == 1
        assert found["runs_ended_total", "CN-529", "RefusedError", "refused"] == 1
        assert found["messages_total", "MODEL", "out"] == 2
        assert found["phase_seconds_sum", "fit"] > 0
        assert found["disk_bytes", "kit"] > 0
        assert_nothing_is_told(text, str(os.getuid()) + "/")
        _, found = scrape(ports[COORDINATOR])
        assert found["runs_ended_total", "", "", "done"] == 1
        assert found["runs_ended_total", "CN-529", "RefusedError", "failed"] == 1
        assert found["messages_total", "HELLO", "in"] == 3
        assert ("audit_log_entries",) not in found
        # A site that is lost is not counted any more.
        federation.kill("west")
        assert wait_for(lambda: scrape(ports[COORDINATOR])[1]["connected_peers",] == 2, 150)
    finally:
        federation.stop()

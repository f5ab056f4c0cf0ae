"""The commands of a federation as far as they need no connection: what they say and refuse."""

import json
import shutil
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import conovel as cn
from conovel.errors import InputError
from conovel.experiments.gaussian import gaussian_design
from conovel.federation import kits, processes
from conovel.federation.loopback import free_ports
from conovel.federation.processes import PID_FILE
from conovel.federation.run_records import DONE, RunRecords

OPERATOR = "ana@example.org"
INIT = ("federation", "init", "f", "--site", "north", "--site", "south", "--operator", OPERATOR)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a federation once."""
    folder = tmp_path_factory.mktemp("commands") / "f"
    port, admin_port = free_ports()
    sites, operators = ("north", "south"), (OPERATOR,)
    kits.make_federation(
        kits.FederationPlan("f", "localhost", sites, operators, port, admin_port), folder
    )
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """Give every test a federation of its own."""
    return Path(shutil.copytree(made, tmp_path / "f"))


def test_init_says_what_to_hand_to_whom(conovel, tmp_path):
    ended = conovel(*INIT, "--out", tmp_path / "f")
    said = ended.stdout
    assert "PRIVATE" not in said + ended.stderr
    for party in ("coordinator", "north", "south", OPERATOR):
        assert f"{tmp_path / 'f' / party}/" in said
    assert f"Keep {tmp_path / 'f' / 'authority'}/ to yourself" in said


def test_renew_says_so_too(conovel, folder):
    renewed = conovel("federation", "renew", folder)
    assert renewed.returncode == 0
    assert f"{folder / 'north'}/" in renewed.stdout


def test_an_agent_without_its_rows_does_not_start(conovel, folder):
    ended = conovel("agent", folder / "north" / "site.toml")
    assert ended.returncode == 2
    assert "normal.parquet does not exist" in ended.stderr


def test_an_agent_without_a_coordinator_gives_up(conovel, folder):
    for name in ("normal", "test"):
        (folder / "north" / f"{name}.csv").write_text("a,b\n1,2\n")
    settings = folder / "north" / "site.toml"
    settings.write_text(settings.read_text().replace(".parquet", ".csv"))
    ended = conovel("agent", settings, "--join-seconds", "1")
    assert ended.returncode == 2
    assert "was not accepted by the coordinator at localhost:" in ended.stderr
    assert not processes.find("nvflare", str(folder))


def test_an_agent_with_the_certificate_of_another_site_does_not_start(conovel, folder):
    for name in ("normal", "test"):
        (folder / "south" / f"{name}.csv").write_text("a,b\n1,2\n")
    settings = folder / "south" / "site.toml"
    settings.write_text(settings.read_text().replace(".parquet", ".csv"))
    for name in ("client.crt", "client.key"):
        startup = Path("kit") / "startup" / name
        shutil.copy(folder / "north" / startup, folder / "south" / startup)
    ended = conovel("agent", settings, "--join-seconds", "1")
    assert ended.returncode == 2
    assert "is that of 'north', not of 'south'" in ended.stderr


@pytest.mark.parametrize(
    ("command", "party", "said"),
    [
        (("run", "--federation"), "coordinator", "has no [operator]"),
        (("coordinate",), OPERATOR, "has no [coordinator]"),
    ],
)
def test_everybody_has_a_part(conovel, folder, command, party, said):
    ended = conovel(*command, folder / party / "federation.toml")
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_run_needs_a_coordinator(conovel, folder, monkeypatch):
    monkeypatch.setattr("conovel.federation.session.CONNECT_SECONDS", 1.0)
    ended = conovel("run", "--federation", folder / OPERATOR / "federation.toml")
    assert ended.returncode == 2
    assert "no connection to the coordinator of f" in ended.stderr


def test_a_port_in_use_is_named(conovel, folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        startup = folder / "coordinator" / "kit" / "startup" / "fed_server.json"
        content = json.loads(startup.read_text())
        content["servers"][0]["admin_port"] = number
        startup.write_text(json.dumps(content))
        ended = conovel("coordinate", folder / "coordinator" / "federation.toml")
    assert ended.returncode == 2
    assert f"port {number} is in use" in ended.stderr


SUPERVISOR = """
import fcntl, os, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
print("up", flush=True)
time.sleep(60)
"""


def test_one_agent_serves_a_site(conovel, folder):
    for name in ("normal", "test"):
        (folder / "north" / f"{name}.csv").write_text("a,b\n1,2\n")
    settings = folder / "north" / "site.toml"
    settings.write_text(settings.read_text().replace(".parquet", ".csv"))
    path = RunRecords(folder / "north" / "state").folder / PID_FILE
    command = [sys.executable, "-c", SUPERVISOR, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            other.stdout.readline()
            ended = conovel("agent", settings, "--join-seconds", "1")
            assert ended.returncode == 2
            assert f"process {other.pid} serves" in ended.stderr
            assert conovel("stop", settings).stdout == "stopped\n"
        finally:
            other.kill()
    assert path.read_text()  # whose number may be anybody's by now
    assert conovel("stop", settings).stdout == "no agent is running here\n"
    coordinator = folder / "coordinator" / "federation.toml"
    assert conovel("stop", coordinator).stdout == "no coordinator is running here\n"


def test_status_of_a_site_lists_its_runs(conovel, folder):
    RunRecords(folder / "north" / "state").open("ab" * 16, 60).finish(DONE, "12 rows flagged")
    said = conovel("status", folder / "north" / "site.toml").stdout
    assert f"{'ab' * 16} done: 12 rows flagged" in said


def test_without_the_extra_it_is_named(conovel, monkeypatch, tmp_path):
    monkeypatch.setattr(kits, "find_spec", lambda name: None)
    ended = conovel(*INIT, "--out", tmp_path / "f")
    assert ended.returncode == 2
    assert "pip install 'conovel[nvflare]'" in ended.stderr


def test_a_deployment_refuses_to_pool_rows(conovel, folder):
    file = folder / OPERATOR / "federation.toml"
    ended = conovel("run", "--federation", file, "--regime", "pooled")
    assert ended.returncode == 2
    assert "pools raw rows" in ended.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--list", "april"), "not possible with --list"),
        (("--pi0", "storey"), "not possible with --pi0"),
        (("--on-dropout", "conservative"), "not possible with --on-dropout conservative"),
        (("--counting", "rounds"), "not possible with --counting rounds"),
        (("--list", "april", "--liars", "0"), "no connection"),
        (("--regime", "together", "--counting", "rounds"), "not possible with --counting rounds"),
    ],
)
def test_from_four_sites_on_no_tolerance_is_said_in_writing(conovel, folder, options, said):
    file = folder / OPERATOR / "federation.toml"
    file.write_text(file.read_text().replace('"north", "south"', '"a", "b", "c", "d"'))
    ended = conovel("run", "--federation", file, *options)
    assert ended.returncode == 2
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("sites", "options", "expected"),
    [
        ("abc", ("--regime", "together"), (True, "rounds", 0)),  # counts are hidden
        ("abcd", ("--regime", "together"), (True, "committed", 1)),  # a liar is tolerated
        ("abcd", ("--regime", "together", "--liars", "0"), (True, "rounds", 0)),
        ("abc", ("--regime", "together", "--no-masks"), (False, "committed", 0)),
        ("abc", ("--regime", "together", "--counting", "committed"), (True, "committed", 0)),
        ("abc", ("--regime", "joint"), (False, "committed", 0)),
    ],
)
def test_sums_are_hidden_unless_the_operator_says_otherwise(
    conovel, folder, monkeypatch, sites, options, expected
):
    file = folder / OPERATOR / "federation.toml"
    names = ", ".join(f'"{name}"' for name in sites)
    file.write_text(file.read_text().replace('"north", "south"', names))
    proposed = []

    def note(names, spec, **more):
        proposed.append((spec.masks, spec.counting, spec.liars))
        raise InputError("as far as this test goes")

    monkeypatch.setattr("conovel.federation.terms.Terms", note)
    assert "as far as this test goes" in conovel("run", "--federation", file, *options).stderr
    assert proposed == [expected]


def test_masks_are_refused_where_there_are_no_sums(conovel, folder):
    file = folder / OPERATOR / "federation.toml"
    ended = conovel("run", "--federation", file, "--regime", "full", "--masks")
    assert ended.returncode == 2
    assert "use the regime 'together'" in " ".join(ended.stderr.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--regime", "counts", "--certificate", "0.95"), "Use 'joint' or 'together'"),
        (("--certificate", "2"), "confidence must lie strictly between 0 and 1"),
    ],
)
def test_a_certificate_that_cannot_be_had_is_refused_before_the_run(
    conovel, folder, options, words
):
    file = folder / OPERATOR / "federation.toml"
    ended = conovel("run", "--federation", file, *options)
    assert ended.returncode == 2
    assert words in " ".join(ended.stderr.split())


def test_a_certificate_follows_from_the_account_of_the_coordinator(conovel, folder, monkeypatch):
    rows = gaussian_design(2.0, 0, n_agents=2, n_null=600, n_test=200)
    named = zip(("north", "south"), rows, strict=True)
    agents = [cn.Agent(name, one.X_null, one.X_test) for name, one in named]
    run = cn.Network(agents, regime="joint", scorer="logistic").run(check=False)
    transcript = run.transcript.to_dict()
    terms = {"run_id": transcript["run_id"], "spec": run.spec.to_dict()}
    account = {"state": "done", "unpublished": {}, "terms": terms, "transcript": transcript}
    account |= {"outcome": transcript["outcome"], "guarantee": str(run.guarantee)}
    monkeypatch.setattr("conovel.federation.session.connect", lambda _: nullcontext())
    monkeypatch.setattr("conovel.federation.session.run", lambda *_: account)
    out, file = folder / "account.json", folder / OPERATOR / "federation.toml"
    ended = conovel("run", "--federation", file, "--certificate", "0.9", "--out", out)
    assert "certificate" in ended.stdout
    assert json.loads(out.read_text())["certificate"] == run.certificate(0.9).to_dict()

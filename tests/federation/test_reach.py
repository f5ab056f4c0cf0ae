"""Why a party does not come through to the coordinator: every cause has words of its own."""

import json
import shutil
import socket
import ssl
import threading
from contextlib import contextmanager

import pytest

from conovel.errors import FederationError
from conovel.federation import reach
from conovel.federation.kits import FederationPlan, make_federation
from conovel.federation.loopback import free_ports
from conovel.federation.session import Job, _refusal

OPERATOR = "ana@example.org"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make two federations of the same names."""
    folder = tmp_path_factory.mktemp("reach")
    for name in ("f", "other"):
        plan = FederationPlan(name, "localhost", ("north", "south"), (OPERATOR,), 8002, 8003)
        make_federation(plan, folder / name)
    return folder


@contextmanager
def listening(speaks):
    """Accept connections, and do something with each."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            while True:
                try:
                    plain, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=speaks, args=(plain,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def coordinator(kit, trusts):
    """Speak TLS as the coordinator of a kit that asks for certificates of an authority."""
    startup = kit / "coordinator" / "kit" / "startup"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(trusts / "coordinator" / "kit" / "startup" / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    def speaks(plain):
        try:
            with context.wrap_socket(plain, server_side=True) as secure:
                secure.sendall(b"settings")
                secure.recv(1)
        except OSError:
            pass

    return speaks


def at(made, folder, port, host="localhost"):
    """Let the kit of an operator look at another address."""
    kit = shutil.copytree(made / "f" / OPERATOR / "kit", folder / "kit")
    path = kit / "startup" / "fed_admin.json"
    content = json.loads(path.read_text())
    content["admin"] |= {"host": host, "port": port}
    path.write_text(json.dumps(content))
    return kit


@pytest.mark.parametrize(
    ("shows", "trusts", "host", "words"),
    [
        ("f", "f", "localhost", ""),
        ("f", "other", "localhost", "it refuses the certificate of this kit"),
        ("other", "other", "localhost", "its certificate is of another authority"),
        ("f", "f", "127.0.0.1", "its certificate is for another name"),
    ],
)
def test_what_a_coordinator_shows_and_accepts(made, tmp_path, shows, trusts, host, words):
    with listening(coordinator(made / shows, made / trusts)) as port:
        why = reach.obstacle(at(made, tmp_path, port, host))
    assert why.startswith(words)
    assert bool(why) is bool(words)


def test_a_port_at_which_nothing_listens(made, tmp_path):
    port, _ = free_ports()
    assert f"nothing listens on port {port}" in reach.obstacle(at(made, tmp_path, port))


def test_a_name_that_nobody_knows(made, tmp_path):
    kit = at(made, tmp_path, 8003, "coordinator.invalid")
    assert reach.obstacle(kit) == "this machine does not know the name coordinator.invalid"


def test_a_port_that_says_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setattr(reach, "PATIENCE_SECONDS", 0.2)
    silent = threading.Event()
    with listening(lambda plain: silent.wait() or plain.close()) as port:
        assert "does a firewall stop" in reach.obstacle(at(made, tmp_path, port))
        silent.set()


def test_addresses_of_kits(made):
    assert reach.address_of(made / "f" / "north" / "kit") == ("localhost", 8002)
    assert reach.address_of(made / "f" / OPERATOR / "kit") == ("localhost", 8003)
    with pytest.raises(FederationError, match="is not the kit of a site or an operator"):
        reach.address_of(made / "f" / "coordinator" / "kit")


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"status": "FINISHED:CAN_NOT_SCHEDULE"}, "a site was not there, or had no room"),
        ({"status": "FINISHED:ABORTED"}, "it was stopped before it began"),
        ({"status": "FINISHED:NEW_KIND"}, "a party could not start its part, see the engine.log"),
        (
            {"job_deploy_detail": ["server: OK", "north: OK", "south: no reply (deployment)"]},
            "south: it did not answer in time",
        ),
        (
            {"job_deploy_detail": ["server: Error: BYOC not permitted", "num_ok_sites 1 < 2"]},
            "coordinator: the job brings code, and no party takes code",
        ),
    ],
)
def test_why_a_job_did_not_run_is_told_in_our_words(meta, words, caplog):
    with caplog.at_level("INFO", "conovel.federation"):
        told = _refusal(meta)
    assert told.startswith(words)
    assert "FINISHED" not in told
    assert "NVFlare: " in caplog.text  # its own text is in the log file


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("FINISHED:COMPLETED", "done"),
        ("FINISHED:EXECUTION_EXCEPTION", "failed"),
        ("FINISHED:CAN_NOT_SCHEDULE", "never began"),
        ("RUNNING", ""),
    ],
)
def test_how_jobs_ended_is_told_in_our_words(status, word):
    assert Job("1", "a", status, "").ending == word

"""What NVFlare's events leave in a party's folder, for its supervisor."""

from types import SimpleNamespace

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext

from conovel.federation.presence import Presence
from conovel.federation.processes import ENVIRONMENT, JOINED_FILE, PEERS_FILE
from conovel.federation.run_records import RunRecords


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "site.toml"))
    RunRecords(tmp_path / "state")  # makes the folder
    return tmp_path / "state"


def fire(event, job="", **engine):
    context = FLContext()
    context.set_prop(ReservedKey.ENGINE, SimpleNamespace(**engine))
    context.set_prop(FLContextKey.CURRENT_JOB_ID, job)
    Presence().handle_event(event, context)


def cell(*connected):
    core = SimpleNamespace(is_cell_connected=lambda name: name in connected)
    return lambda: SimpleNamespace(core_cell=core)


def test_connected_parties_are_counted(state):
    fire(EventType.SYSTEM_START, get_cell=cell("server"))
    assert (state / JOINED_FILE).exists()
    assert (state / PEERS_FILE).read_text() == "1\n"
    fire(EventType.AFTER_CLIENT_HEARTBEAT, get_cell=cell())
    assert (state / PEERS_FILE).read_text() == "0\n"
    fire(EventType.CLIENT_HEARTBEAT_PROCESSED, get_clients=lambda: ["north", "south"])
    assert (state / PEERS_FILE).read_text() == "2\n"


def test_a_job_that_ends_without_a_run_is_a_refusal(state):
    records = RunRecords(state)
    fire(EventType.JOB_COMPLETED, "a")
    assert [(run["job"], run["state"]) for run in records.runs()] == [("a", "refused")]
    fire(EventType.JOB_COMPLETED, "a")  # noted already
    fire(EventType.JOB_COMPLETED, "b", run_processes={"b": {}})  # it is running
    assert len(list(records.runs())) == 1

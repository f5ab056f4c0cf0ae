"""What is between NVFlare and the drivers: answers and bytes of others are checked there."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from nvflare.collab.api.exceptions import CollabCallError
from support.certificates import credentials
from support.terms import changed_terms, make_terms, signed_terms, with_own_id

from conovel.cli.run import _in_words
from conovel.errors import FederationError
from conovel.federation import apps, calls, kits
from conovel.federation.run_records import DONE, FAILED, RunRecords
from conovel.federation.settings import read_site
from conovel.federation.supervise import RunMonitor
from conovel.protocol.states import Send
from conovel.spec.exits import ERROR, NO

TERMS = make_terms(("north", "south"), regime="full")


def proxy(**methods):
    """Stand in for a party that can be called."""
    return lambda **options: SimpleNamespace(**methods)


@pytest.mark.parametrize("data", [10**12, "text", None, [1, 2], {}])
def test_what_is_not_bytes_is_no_message(data):
    assert apps._as_bytes(data) == b""


def test_bytes_are():
    assert apps._as_bytes(bytearray(b"ab")) == b"ab"


@pytest.mark.parametrize("answer", [None, 7, [], {}, {"error": 7}, "value", {"error": None}])
def test_an_answer_that_is_none_is_a_failure(answer):
    proxies = {"north": proxy(settle=lambda: {"value": []}), "south": proxy(settle=lambda: answer)}
    replies = calls.Sites(proxies, TERMS, None).ask("settle", TERMS.agents)
    assert replies.values == {"north": []}
    assert replies.failures == {"south": "its answer could not be read"}


def test_a_reason_is_one_short_line():
    answer = {"error": "much\x1b[2J\n" * 1000}
    replies = calls.Sites({"south": proxy(settle=lambda: answer)}, TERMS, None).ask(
        "settle", ["south"]
    )
    assert replies.failures["south"].isprintable()
    assert len(replies.failures["south"]) <= calls.MAX_REASON


def test_whoever_does_not_take_a_message_is_named():
    def lost(data):
        raise CollabCallError("south", "take", TimeoutError())

    proxies = {
        "north": proxy(take=lambda data: "its run has not begun"),
        "south": proxy(take=lost),
    }
    post = calls.Delivery(proxies, 1.0)
    unreached = post([Send(name, b"1", None) for name in ("north", "south", "west")])
    assert unreached["north"] == "its run has not begun"
    assert unreached["west"] == "it does not take part"
    assert unreached["south"]


@pytest.fixture
def site(tmp_path):
    """Give a site's end of the calls, as NVFlare prepares it."""
    path = tmp_path / "site.toml"
    path.write_text(
        '[site]\nname = "north"\nkit = "kit"\n[data]\nnull = "n.csv"\ntest = "t.csv"\n'
        "[consent]\nmax_level = 0.05\n"
    )
    app = apps.SiteApp()
    app._file, app._job, app._proxies = read_site(path), "job", {"north": None, "south": None}
    app._own = credentials("north")
    return app


def asked(**change):
    """Signed terms, with changes."""
    plain = changed_terms(TERMS.to_dict(), **change)
    return signed_terms(plain if "run_id" in change else with_own_id(plain))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "level 1/10 is above the 1/20"),
        ({"null": "/etc/passwd"}, "there is no key 'null'"),
        ({"scorer": "os.system"}, "there is no key 'scorer'"),
        ({"composite": "os.system"}, "composite"),
        ({"level": "1/100", "agents": ["north", "west"]}, "other agents than the job"),
        ({"run_id": "../../north"}, "32 hexadecimal digits"),
    ],
)
def test_a_refusal_is_answered_and_written_down(site, change, said):
    assert said in site._begin(asked(**change))
    (run,) = RunRecords(site._file.state).runs()
    assert (run["state"], run["job"]) == ("refused", "job")
    assert said in run["message"]
    assert site.take(b"") == "its run has not begun"
    (entry,) = site._file.audit_log.read().entries
    assert entry["entry"] == "refused"
    assert said in entry["reason"]
    can_be_read = not change or "agents" in change
    assert ("terms" in entry) is can_be_read
    assert entry.get("operator") == ("ana@example.org" if can_be_read else None)


def test_a_replay_is_refused_and_the_first_file_stays(site):
    records = RunRecords(site._file.state)
    again = asked(level="1/100")
    records.open(again["terms"]["run_id"], 60).finish(DONE, "12 rows flagged")
    assert "was here before" in site._begin(again)
    assert [run["state"] for run in records.runs()] == ["done", "refused"]


@pytest.mark.parametrize("terms", [None, 7, [], "agents"])
def test_terms_that_are_none_are_refused_too(site, terms):
    assert "the terms of a run: it must be a table" in site._begin(signed_terms(terms))
    assert "are not signed by an operator" in site._begin(terms)
    assert {run["run_id"] for run in RunRecords(site._file.state).runs()} == {"job"}


def test_terms_that_nobody_signed_are_refused(site):
    assert "are not signed by an operator" in site._begin(TERMS.to_dict())
    forged = asked(level="1/100") | {"terms": TERMS.to_dict()}
    assert "are not what ana@example.org has signed" in site._begin(forged)
    assert site.take(b"") == "its run has not begun"


def test_a_record_says_who_asked(site, monkeypatch):
    begun = []
    monkeypatch.setattr(
        apps, "SiteDriver", lambda *args: SimpleNamespace(begin=lambda: begun.append(args))
    )
    assert "is above the 1/20" in site._begin(asked())
    assert site._begin(asked(level="1/100")) == ""
    assert begun
    runs = [(run["state"], run["operator"]) for run in RunRecords(site._file.state).runs()]
    assert runs == [("refused", "ana@example.org"), ("running", "ana@example.org")]


@pytest.fixture
def watch(tmp_path):
    """Watch a process that does nothing; what is told is in a list."""
    told = []
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        try:
            yield SimpleNamespace(
                make=lambda: RunMonitor(process, tmp_path, told.append),
                told=told,
                records=RunRecords(tmp_path),
                process=process,
            )
        finally:
            process.kill()


def test_no_run_in_time_is_a_failure(watch):
    assert watch.make().watch(True, 0.5) == NO
    assert watch.told == ["no run began within 0.5 s"]


@pytest.mark.parametrize(("state", "code"), [(DONE, 0), (FAILED, NO)])
def test_once_ends_with_the_run(watch, state, code):
    one = watch.make()
    record = watch.records.open("ab" * 16, 60)
    record.note(pid=0)
    record.finish(state, "so it ended")
    assert one.watch(True, 60) == code
    assert watch.told == [f"run abababab {state}: so it ended"]


def test_a_refusal_ends_it_too(watch):
    one = watch.make()
    watch.records.refuse("ab" * 16, "too high a level")
    assert one.watch(True, 60) == NO
    assert watch.told == ["run abababab refused: too high a level"]


def test_what_was_left_open_is_told_first_and_is_not_the_run_to_wait_for(watch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    watch.records.open("ab" * 16, 60).note(pid=ended.pid)
    one = watch.make()
    (line,) = watch.told
    assert "its process ended without an outcome: nothing was published" in line
    assert one.watch(True, 0.5) == NO


def test_that_nvflare_ends_is_a_failure(watch):
    one = watch.make()
    watch.process.kill()
    assert one.watch(False, 0) == ERROR
    assert "NVFlare ended unexpectedly (see " in watch.told[0]


def test_progress_says_who_is_there_which_round_and_how_many_bytes():
    progress = {
        "state": "asking",
        "here": ["north", "south"],
        "owing": ["south"],
        "round": 3,
        "bytes": 12345,
    }
    assert _in_words(progress) == "round 3 · north, south · waiting for south · 12,345 bytes"
    begun = progress | {"state": "gathering", "here": [], "round": 0, "bytes": 0, "owing": []}
    assert _in_words(begun) == "gathering · 0 bytes"


def test_half_a_federation_is_not_in_the_way(tmp_path, monkeypatch):
    def fail(authority, name):
        raise FederationError("the kits could not be made")

    monkeypatch.setattr(kits, "provision", fail)
    plan = kits.FederationPlan("f", "localhost", ("north", "south"), ("ana@example.org",))
    with pytest.raises(FederationError, match="could not be made"):
        kits.make_federation(plan, tmp_path / "f")
    assert not (tmp_path / "f").exists()

"""What can go wrong between organisations, on real processes: nothing wrong is published.

Every test declares its row of the table in docs/deployment.md, and asserts the words in it.
The next test of the module is the next run: it would fail if something had to be cleaned up.
"""

import json
import shutil
import threading

import faults
import pytest
import test_real_faults
from conftest import QUICK, SITES
from faults import fault

from conovel.errors import FederationError
from conovel.federation import processes
from conovel.federation.ledger import Ledger
from conovel.federation.loopback import COORDINATOR, OPERATOR, Loopback
from conovel.federation.operator import follow, run
from conovel.federation.processes import wait_for
from conovel.federation.session import write_job
from conovel.federation.terms import Terms

# Whoever notices first says so: a peer, or the coordinator when it asks or has waited.
GONE = ("could not reach south", "south could not be reached", "south did not answer within")
ALL = "all sites end the run as failed, the operator exits with 1"


@pytest.fixture
def row(request):
    return request.function.fault


@pytest.fixture
def published(loopback):
    """Tell which results there are at all sites."""
    return lambda: {
        path.parent.name for path in loopback.folder.glob("*/results/*/*") if path.is_file()
    }


@pytest.fixture
def everybody_up(loopback):
    """Start whoever a test before has killed, as a supervisor of the machine would."""
    for party in (COORDINATOR, *SITES):
        if party not in loopback.running:
            loopback.start(party)
    loopback.wait_until_up()


def record(loopback, party, run_id):
    for run_ in Ledger(loopback.folder / party / "state").runs():
        if run_["run_id"] == run_id:
            return run_
    return {"state": "unknown", "message": ""}


def ends_failed(loopback, run_id, *parties):
    """Wait until every party has closed the run as failed; the messages by party."""
    assert wait_for(
        lambda: all(record(loopback, p, run_id)["state"] == "failed" for p in parties), 45
    ), {p: record(loopback, p, run_id) for p in parties}
    return {party: record(loopback, party, run_id)["message"] for party in parties}


def break_off(submit, published, row, **more):
    """Submit a run that must fail in the words of the row, and publish nothing."""
    before = published()
    account = submit(**(QUICK | more))
    assert account["state"] == "failed"
    assert row.is_in(account["message"]), account["message"]
    assert published() == before
    return account["terms"]["run_id"]


def break_by_killing(loopback, submit, sabotage, published, row, when, nth=1):
    reached = sabotage(site="south", when=when, nth=nth, do="wait")

    def kill():
        if wait_for(reached.exists, 120):
            loopback.kill("south")

    killer = threading.Thread(target=kill)
    killer.start()
    run_id = break_off(submit, published, row, regime="full")
    killer.join()
    assert reached.exists()
    for message in ends_failed(loopback, run_id, COORDINATOR, "north", "west").values():
        assert "south" in message


@pytest.mark.slow
@fault(
    "a site is killed before it sends its models",
    GONE,
    f"{ALL}; the killed site finds the run buried when it is started again",
)
def test_killed_before_models(everybody_up, loopback, submit, sabotage, published, row):
    break_by_killing(loopback, submit, sabotage, published, row, "ROSTER")


@pytest.mark.slow
@fault("a site is killed between models and counts", GONE, ALL)
def test_killed_between_models_and_counts(
    everybody_up, loopback, submit, sabotage, published, row
):
    break_by_killing(loopback, submit, sabotage, published, row, "START")


@fault("a site is killed during the counts", GONE, ALL)
def test_killed_during_counts(everybody_up, loopback, submit, sabotage, published, row):
    break_by_killing(loopback, submit, sabotage, published, row, "STEP", nth=2)


@pytest.mark.slow
@fault(
    "a site hangs",
    "south did not answer within",
    f"{ALL}; the process that hangs is ended with the run",
)
def test_hangs(everybody_up, loopback, submit, sabotage, published, row):
    sabotage(site="south", when="MODEL", do="wait")
    run_id = break_off(submit, published, row, regime="full", run_seconds=30.0)
    ends_failed(loopback, run_id, *SITES)


@pytest.mark.slow
@fault("a site sends garbage", "south sent what is not a message", ALL)
def test_garbage(everybody_up, loopback, submit, sabotage, published, row):
    sabotage(site="south", when="STEP", do="garbage")
    run_id = break_off(submit, published, row, regime="counts")
    messages = ends_failed(loopback, run_id, *SITES)
    assert row.is_in(messages["north"])


@pytest.mark.slow
@fault("a site sends garbage instead of a model", "south sent what is not a message", ALL)
def test_garbage_for_a_model(everybody_up, loopback, submit, sabotage, published, row):
    sabotage(site="south", when="ROSTER", do="garbage")
    run_id = break_off(submit, published, row, regime="full")
    ends_failed(loopback, run_id, *SITES)


@pytest.mark.slow
@fault(
    "a run asks for more than a site agrees to",
    "refuses: level 3/10 is above the 1/5",
    "that site does not begin, those who did end the run as failed, the operator exits with 1",
)
def test_refused(everybody_up, loopback, submit, published, row):
    break_off(submit, published, row, regime="counts", level="0.3")


@pytest.mark.slow
@fault(
    "a run is submitted a second time, also by a coordinator that has forgotten it",
    "was here before: every run needs an id of its own",
    "no site begins, the operator exits with 1",
)
def test_replayed_run(everybody_up, loopback, submit, published, row):
    used = submit(regime="counts")["terms"]["run_id"]
    (loopback.folder / COORDINATOR / "state" / f"{used}.json").unlink()
    break_off(submit, published, row, run_id=used)


@fault(
    "a job brings code",
    "BYOC not permitted",
    "nothing is started at any site, the operator exits with 2",
)
def test_job_with_code(everybody_up, connection, published, row, tmp_path):
    job, proof = _job_with_code(tmp_path)
    before = published()
    assert row.is_in(_submit_and_fail(connection(), job))
    assert published() == before
    assert not proof.exists()


def refuse_class(loopback, connection, published, row, tmp_path, party, config, foreign):
    job = tmp_path / "conovel"
    write_job(job, Terms(SITES, **QUICK))
    content = json.loads((job / config).read_text())
    content["components"].append({"id": "more", "path": foreign})
    (job / config).write_text(json.dumps(content))
    before = published()
    assert "refused by the engine" in _submit_and_fail(connection(), job)
    assert published() == before
    assert row.is_in((loopback.folder / party / "state" / "engine.log").read_text())


@pytest.mark.slow
@fault(
    "a job names a class for the sites that is not ours",
    "is not in allow_list",
    "nothing of it is built, the operator exits with 2",
)
def test_foreign_class(everybody_up, loopback, connection, published, row, tmp_path):
    config = "site/config/config_fed_client.json"
    foreign = "nvflare.app_common.np.np_trainer.NPTrainer"
    refuse_class(loopback, connection, published, row, tmp_path, "north", config, foreign)


@pytest.mark.slow
@fault(
    "a job names a class for the coordinator that is not ours",
    "is not in allow_list",
    "nothing of it is built, the operator exits with 2",
)
def test_foreign_class_at_the_coordinator(
    everybody_up, loopback, connection, published, row, tmp_path
):
    config = "coordinator/config/config_fed_server.json"
    foreign = "nvflare.app_common.np.np_model_persistor.NPModelPersistor"
    refuse_class(loopback, connection, published, row, tmp_path, COORDINATOR, config, foreign)


@fault(
    "a site starts with the certificate of another site",
    "is that of 'north', not of 'south'",
    "the agent exits with 2 before it connects",
)
def test_wrong_certificate(loopback, row, tmp_path):
    _copy_site(loopback.folder / "south", tmp_path)
    for name in ("client.crt", "client.key"):
        shutil.copy(loopback.folder / "north" / "kit" / "startup" / name, tmp_path / "kit/startup")
    ended = loopback.run("agent", str(tmp_path / "site.toml"), "--join-seconds", "5")
    assert ended.returncode == 2
    assert row.is_in(ended.stderr)


@fault(
    "a site starts with a kit of another federation",
    "was not accepted by the coordinator",
    "the agent exits with 2 after `--join-seconds`; the coordinator never sees it",
)
def test_another_federation(everybody_up, loopback, rows, row, tmp_path):
    stranger = Loopback(tmp_path / "stranger", rows)
    kits = [federation.folder / "south" / "kit" / "startup" for federation in (loopback, stranger)]
    shutil.copy(kits[0] / "fed_client.json", kits[1])  # it knows where to knock
    ended = stranger.run("agent", str(stranger.settings("south")), "--join-seconds", "5")
    assert ended.returncode == 2
    assert row.is_in(ended.stderr)


@pytest.mark.slow
@fault(
    "a site gets past its own checks with the certificate of another site",
    "authenticated as 'north' but claimed endpoint 'south'",
    "the coordinator does not let it in either",
)
def test_wrong_certificate_at_the_coordinator(everybody_up, loopback, row, tmp_path, connection):
    loopback.kill("south")
    session = connection(fresh=True)
    assert wait_for(lambda: "south" not in session.connected(), 60)
    _copy_site(loopback.folder / "south", tmp_path)
    for name in ("client.crt", "client.key"):
        shutil.copy(loopback.folder / "north" / "kit" / "startup" / name, tmp_path / "kit/startup")
    engine = processes.start_site(
        tmp_path / "kit", "south", tmp_path / "site.toml", tmp_path / "state"
    )
    try:
        log = loopback.folder / COORDINATOR / "state" / "engine.log"
        assert wait_for(lambda: row.is_in(log.read_text()), 60)
        assert not (tmp_path / "state" / "joined").exists()
        assert "south" not in session.connected()
    finally:
        processes.kill_tree(engine.pid)
        engine.wait()


@pytest.mark.slow
@fault(
    "the coordinator itself lets code through",
    "BYOC not permitted",
    "every site refuses the job",
)
def test_code_past_the_coordinator(everybody_up, loopback, row, tmp_path, connection):
    local = loopback.folder / COORDINATOR / "kit" / "local"
    kept = {path: path.read_text() for path in local.glob("*.json")}
    loopback.kill(COORDINATOR)
    try:
        for path, text in kept.items():
            lax = text.replace('"byoc": "none"', '"byoc": "any"')
            path.write_text(lax)
        loopback.start(COORDINATOR)
        loopback.wait_until_up(COORDINATOR)
        session = connection(fresh=True)
        assert wait_for(lambda: set(session.connected()) == set(SITES), 60)
        job, proof = _job_with_code(tmp_path)
        assert row.is_in(_submit_and_fail(session, job))
        assert not proof.exists()
    finally:
        loopback.kill(COORDINATOR)
        for path, text in kept.items():
            path.write_text(text)


@pytest.mark.slow
@fault(
    "the coordinator is killed in the middle of a run, and started again",
    "the coordinator does not answer any more",
    "all sites end the run as failed by its deadline; the sites connect again by themselves",
)
def test_coordinator_killed(everybody_up, loopback, connection, sabotage, published, row):
    session = connection(fresh=True)
    assert wait_for(lambda: set(session.connected()) == set(SITES), 90)
    reached = sabotage(site="south", when="STEP", do="wait")
    before = published()
    terms = Terms(SITES, **(QUICK | {"run_seconds": 25.0}))
    told = []

    def submit():
        with pytest.raises(FederationError) as error:
            run(session, terms, lambda progress: None)
        told.append(str(error.value))

    operator = threading.Thread(target=submit)
    operator.start()
    assert wait_for(reached.exists, 120)
    loopback.kill(COORDINATOR)
    ends_failed(loopback, terms.run_id, *SITES)
    operator.join(90)
    assert row.is_in(told[0])
    loopback.start(COORDINATOR)
    loopback.wait_until_up(COORDINATOR)
    assert published() == before
    connection(fresh=True)


@pytest.mark.slow
@fault(
    "any of these, with parties started with `--once`",
    "did not answer within",
    "every party that is left exits with 1",
)
def test_exit_codes(loopback, connection, sabotage, row):
    loopback.stop()
    loopback.start(COORDINATOR, options=("--once",))
    loopback.wait_until_up(COORDINATOR)
    loopback.start(*SITES, options=("--once",))
    loopback.wait_until_up(*SITES)
    sabotage(site="south", when="STEP", do="wait")
    ended = loopback.run(
        *("run", "--federation", str(loopback.settings(OPERATOR))),
        *("--regime", "counts", "--stage-seconds", "8", "--run-seconds", "60"),
    )
    assert ended.returncode == 1
    assert "broken off" in ended.stdout
    assert row.is_in(ended.stdout)
    assert {party: loopback.wait(party, 60) for party in (COORDINATOR, *SITES)} == dict.fromkeys(
        (COORDINATOR, *SITES), 1
    )
    assert row.is_in(loopback.console("north"))


@pytest.mark.slow
@fault(
    "an operator stops a run with `conovel stop`",
    "an operator stopped it",
    "all sites end the run as failed, `conovel run` exits with 1",
)
def test_stopped_by_an_operator(everybody_up, loopback, submit, sabotage, published, row):
    reached = sabotage(site="south", when="STEP", do="wait")
    stopped = []

    def stop():
        if wait_for(reached.exists, 120):
            stopped.append(loopback.run("stop", str(loopback.settings(OPERATOR))))

    stopper = threading.Thread(target=stop)
    stopper.start()
    run_id = break_off(submit, published, row, regime="counts", stage_seconds=45.0)
    stopper.join()
    assert "stopped 1 run" in stopped[0].stdout
    ends_failed(loopback, run_id, "north", "west")


def test_the_next_run_works(everybody_up, submit, connection, loopback):
    connection(fresh=True)
    account = submit(regime="full")
    assert account["state"] == "done", account["message"]
    told = loopback.run("status", str(loopback.settings(OPERATOR))).stdout
    assert all(f"{site}: connected" in told for site in SITES)
    assert account["terms"]["run_id"] in told


def test_the_page_shows_the_table():
    assert faults.shown() == faults.table(test_real_faults)


def _copy_site(source, target):
    shutil.copytree(source / "kit", target / "kit")
    for name in ("site.toml", "normal.parquet", "test.parquet"):
        shutil.copy(source / name, target)


def _job_with_code(folder):
    """Make a job whose code would leave a file if it ran."""
    job, proof = folder / "conovel", folder / "proof"
    write_job(job, Terms(SITES, **QUICK))
    for app in ("coordinator", "site"):
        custom = job / app / "custom"
        custom.mkdir()
        (custom / "extra.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    path = job / "site" / "config" / "config_fed_client.json"
    content = json.loads(path.read_text())
    content["components"].append({"id": "more", "path": "extra.Anything"})
    path.write_text(json.dumps(content))
    return job, proof


def _submit_and_fail(session, job):
    """Submit a job by hand; give what the operator is told."""
    try:
        number = session._do(session._session.submit_job, str(job))
        follow(session, number, lambda progress: None, 90.0)
    except FederationError as error:
        return str(error)
    raise AssertionError("the job was run")

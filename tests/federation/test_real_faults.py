"""What can go wrong between organisations, on real processes: nothing wrong is published.

Every test declares its row of the table in docs/deployment.md and asserts it: the words, the
exit codes of all parties, that nothing was published, and that the next run works without
anybody cleaning up.
"""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from support import faults
from support.faults import GOES_ON, KILLED, fault
from support.federation import SCORER, SITES, in_one_process

import conovel as cn
from conovel.experiments.gaussian import DIMENSION
from conovel.federation.audit_log import AuditLog
from conovel.federation.exposure import runs_of
from conovel.federation.loopback import COORDINATOR, OPERATOR, Loopback
from conovel.federation.processes import AUDIT_FILE, all_gone, find, wait_for
from conovel.federation.run_records import RunRecords
from conovel.models.wire.header import schema_digest
from conovel.rows.storage import read_json, write_table

PARTIES = (COORDINATOR, *SITES)
REACH_SECONDS = 120.0  # for a run to come to where it breaks
END_SECONDS = 150.0  # past every deadline of a run here, and what follows it
# Whoever notices first says so: a peer, or the coordinator when it asks or has waited.
GONE = ("could not reach south", "south could not be reached", "south did not answer within")
BRINGS_CODE = "the job brings code, and no party takes code"
# No line of another library reaches a person: not from NVFlare, gRPC or Python.
FOREIGN = re.compile(r"BYOC|FINISHED:|\[ME=|ssl_transport|SSL_ERROR|Traceback|nvflare\.|Handshake")
REASON = re.compile(r" (failed|refused): .{10}| no run began within ")


class Scene:
    """One fault: how it comes about, how every party takes it, and the run after it."""

    def __init__(self, loopback, row):
        self.loopback, self.row = loopback, row
        self.before = self.published()

    def start(self, wait_seconds=120):
        """Start every party for one run."""
        self.loopback.stop()
        self.loopback.bring_up("--once", "--wait-seconds", str(wait_seconds))

    def run(self, *options, stage_seconds=12, run_seconds=50):
        """Let an operator start a run, and wait for the end of the command."""
        return self.loopback.run(
            *("run", "--federation", str(self.loopback.settings(OPERATOR))),
            *("--stage-seconds", str(stage_seconds), "--run-seconds", str(run_seconds)),
            *options,
        )

    def published(self):
        """Tell which files there are with results, hidden and half ones included.

        A report is left out: it is written into the folder of a run after the operator has its
        outcome, so the report of the run before may come late. The folder itself is listed.
        """
        folder = self.loopback.folder
        found = {path.relative_to(folder) for path in folder.glob("*/results/**/*")}
        return {path for path in found if path.name != "report.html"}

    def check(self, *operators):
        """Hold what happened against the row; then let the next run work."""
        row = self.row
        said = [operator.stdout + operator.stderr for operator in operators]
        assert [operator.returncode for operator in operators] == [row.operator] * len(said), said
        expected = {
            COORDINATOR: row.coordinator,
            "north": row.others,
            "west": row.others,
            "south": row.site,
        }
        for party, code in expected.items():
            if code == GOES_ON:
                assert party in self.loopback.running
            elif code != KILLED:
                ended = self.loopback.wait(party, END_SECONDS)
                said.append(self.loopback.console(party))
                assert ended == code, (party, ended, said[-1])
                assert REASON.search(said[-1]), (party, said[-1])
        assert row.is_in(" ".join(said)), said
        assert not FOREIGN.search(" ".join(said)), said
        assert self.published() == self.before
        self.next_run()

    def next_run(self):
        """Run again with whoever is there and whoever comes back."""
        killed = [party for party in PARTIES if party not in self.loopback.running]
        self.loopback.bring_up()
        ended = self.run("--regime", "counts", stage_seconds=60, run_seconds=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        new = {path for path in self.published() - self.before if path.suffix == ".parquet"}
        assert sorted(path.parts[0] for path in new) == list(SITES)
        for party in killed:
            for run in RunRecords(self.loopback.folder / party / "state").runs():
                assert run["state"] != "running"


@pytest.fixture
def row(request):
    return request.function.fault


@pytest.fixture
def scene(loopback, row):
    return Scene(loopback, row)


@pytest.fixture
def meanwhile():
    """Do something on another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def break_by_killing(scene, sabotage, meanwhile, when, nth=1):
    scene.start()
    reached = sabotage(site="south", when=when, nth=nth, do="wait")
    running = meanwhile(scene.run, "--regime", "full")
    assert wait_for(reached.exists, REACH_SECONDS)
    scene.loopback.kill("south")
    ended = running.result()
    sabotage()
    scene.check(ended)
    assert "without an outcome: nothing was published" in scene.loopback.console("south")
    log = AuditLog(scene.loopback.folder / "south" / "state" / AUDIT_FILE).read()
    assert not log.broken
    killed, after = runs_of(log.entries)[-2:]  # what the killed process had sent is written down
    assert (killed.state, after.state) == ("failed", "done")
    assert killed.n_models == (0 if when == "ROSTER" else len(SITES) - 1)


@pytest.mark.slow
@fault("a site is killed before it sends its models", GONE, site=KILLED)
def test_killed_before_models(scene, sabotage, meanwhile):
    break_by_killing(scene, sabotage, meanwhile, "ROSTER")


@pytest.mark.slow
@fault("a site is killed between models and counts", GONE, site=KILLED)
def test_killed_between_models_and_counts(scene, sabotage, meanwhile):
    break_by_killing(scene, sabotage, meanwhile, "START")


@pytest.mark.slow
@fault("a site is killed during the counts", GONE, site=KILLED)
def test_killed_during_counts(scene, sabotage, meanwhile):
    break_by_killing(scene, sabotage, meanwhile, "COMMITMENTS")


def kill_supervisor(scene, sabotage, meanwhile, party):
    """Kill the supervisor alone while a site rests; all processes of the party must end, too."""
    scene.start()
    reached = sabotage(site="south", when="START", do="pause")  # after it, the run would go on
    running = meanwhile(scene.run, "--regime", "full")
    assert wait_for(reached.exists, REACH_SECONDS)
    kit = str(scene.loopback.folder / party / "kit")
    left = find("nvflare", kit)
    assert len(left) == 2  # NVFlare's own process, and that of the run
    scene.loopback.kill_supervisor(party)
    assert wait_for(lambda: all_gone(left), 4)
    ended = running.result()
    sabotage()
    scene.check(ended)


@pytest.mark.slow
@fault("the process of `conovel agent` is killed, and no other", GONE, site=KILLED)
def test_agent_killed_alone(scene, sabotage, meanwhile):
    kill_supervisor(scene, sabotage, meanwhile, "south")
    assert "without an outcome: nothing was published" in scene.loopback.console("south")


@pytest.mark.slow
@fault(
    "the process of `conovel coordinate` is killed, and no other",
    "the coordinator does not answer any more",
    operator=2,
    coordinator=KILLED,
)
def test_coordinator_killed_alone(scene, sabotage, meanwhile):
    kill_supervisor(scene, sabotage, meanwhile, COORDINATOR)


@contextmanager
def keeping_a_list(loopback):
    """Let every site name a list, and give it batches; all is as before in the end."""
    texts = {name: loopback.settings(name).read_text() for name in SITES}
    tests = {name: loopback.folder / name / "test.parquet" for name in SITES}
    kept = {path: path.read_bytes() for path in tests.values()}

    def bring(rows):
        for name, (_, test) in rows.items():
            write_table(tests[name], test)

    try:
        for name, text in texts.items():
            listed = '[list]\nname = "april"\nledger = "april.json"\n'
            loopback.settings(name).write_text(f"{text}\n{listed}")
        yield bring
    finally:
        for name, text in texts.items():
            loopback.settings(name).write_text(text)
        for path, data in kept.items():
            path.write_bytes(data)


def batch_of(rows, day):
    """Draw few rows to test at every site, some of them novel."""
    rng = np.random.default_rng([day, 7])
    found = {}
    for name, (null, _) in rows.items():
        X = rng.normal(size=(40, len(null)))
        X[:8] += 4
        found[name] = null, dict(zip(null, X.T, strict=True))
    return found


LIST = ("--regime", "full", "--list", "april", "--level", "0.2", "--seed", "3")
AS_LIST = {"regime": "full", "level": "0.2", "scorer": SCORER, "counting": "committed"}


@pytest.mark.slow
@fault("a site is killed between the outcome of a batch and its list", GONE, site=KILLED)
def test_killed_before_the_list(scene, rows, sabotage, meanwhile, tmp_path):
    """Two batches; a site is killed in the third; it is tested again. All as in one process."""
    loopback = scene.loopback
    ledgers = {name: loopback.folder / name / "april.json" for name in SITES}

    def one_more(day):
        states = {name: loopback.folder / name / "state" for name in SITES}
        ended = scene.run(*LIST, stage_seconds=60, run_seconds=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "list so far" in ended.stdout
        *_, last = RunRecords(states["south"]).runs()
        run_id = last["run_id"]
        options = {"ledger": tmp_path / "l", **AS_LIST}
        in_one_process(batch_of(rows, day), states, 3, run_id, **options).run()
        for name, path in ledgers.items():
            assert path.read_text() == (tmp_path / f"l/{name}.json").read_text()

    with keeping_a_list(loopback) as bring:
        loopback.bring_up()
        for day in (1, 2):
            bring(batch_of(rows, day))
            one_more(day)
        before = {path: path.read_text() for path in ledgers.values()}
        scene.before = scene.published()
        bring(batch_of(rows, 3))
        scene.start()
        reached = sabotage(site="south", when="LISTING", do="wait")
        running = meanwhile(scene.run, *LIST)
        assert wait_for(reached.exists, REACH_SECONDS)
        loopback.kill("south")
        ended = running.result()
        sabotage()
        scene.check(ended)
        assert {path: path.read_text() for path in ledgers.values()} == before
        one_more(3)
        told = loopback.run("ledger", str(ledgers["south"])).stdout
        assert "3, network scores" in told
        assert re.search(r"\b\d+ of 40 in batch 3", told)


@pytest.mark.slow
@fault("a site hangs", "south did not answer within")
def test_hangs(scene, sabotage):
    scene.start()
    sabotage(site="south", when="MODEL", do="wait")
    ended = scene.run("--regime", "full", run_seconds=30)
    sabotage()
    scene.check(ended)


@pytest.mark.slow
@pytest.mark.parametrize(("regime", "when"), [("counts", "START"), ("full", "ROSTER")])
@fault("a site sends garbage, for a count or for a model", "south sent what is not a message")
def test_garbage(scene, sabotage, regime, when):
    scene.start()
    sabotage(site="south", when=when, do="garbage")
    ended = scene.run("--regime", regime)
    sabotage()
    scene.check(ended)


@pytest.mark.slow
@fault(
    "the coordinator is killed in the middle of a run, and started again",
    "the coordinator does not answer any more",
    operator=2,
    coordinator=KILLED,
)
def test_coordinator_killed(scene, sabotage, meanwhile):
    scene.start()
    reached = sabotage(site="south", when="START", do="wait")
    running = meanwhile(scene.run, "--regime", "full", run_seconds=30)
    assert wait_for(reached.exists, REACH_SECONDS)
    scene.loopback.kill(COORDINATOR)
    ended = running.result()
    sabotage()
    scene.check(ended)


@pytest.mark.slow
@fault(
    "a site starts with the certificate of another site",
    "is that of 'north', not of 'south'",
    operator=None,
    coordinator=GOES_ON,
    others=GOES_ON,
    site=2,
)
def test_wrong_certificate(scene, tmp_path):
    knock_with_wrong_certificate(scene, tmp_path)


@pytest.mark.slow
@fault(
    "the same, past its own checks: the coordinator does not let it in",
    "was not accepted by the coordinator",
    operator=None,
    coordinator=GOES_ON,
    others=GOES_ON,
    site=2,
)
def test_wrong_certificate_at_the_coordinator(scene, sabotage, tmp_path):
    log = scene.loopback.folder / COORDINATOR / "state" / "engine.log"
    seen = log.stat().st_size
    sabotage(agent="unchecked")
    knock_with_wrong_certificate(scene, tmp_path)
    assert "authenticated as 'north' but claimed endpoint 'south'" in log.read_text()[seen:]


def knock_with_wrong_certificate(scene, folder):
    south = scene.loopback.folder / "south"
    shutil.copytree(south / "kit", folder / "kit")
    for name in ("site.toml", "normal.parquet", "test.parquet"):
        shutil.copy(south / name, folder)
    for name in ("client.crt", "client.key"):
        north = scene.loopback.folder / "north"
        shutil.copy(north / "kit" / "startup" / name, folder / "kit" / "startup")
    check_stranger(scene, scene.loopback, folder / "site.toml")


@pytest.mark.slow
@fault(
    "a site starts with a kit of another federation",
    "was not accepted by the coordinator",
    operator=None,
    coordinator=GOES_ON,
    others=GOES_ON,
    site=2,
)
def test_another_federation(scene, rows, tmp_path):
    stranger = Loopback(tmp_path / "stranger", rows)
    kits = [f.folder / "south" / "kit" / "startup" for f in (scene.loopback, stranger)]
    shutil.copy(kits[0] / "fed_client.json", kits[1])  # it knows where to knock
    check_stranger(scene, stranger, stranger.settings("south"))


def check_stranger(scene, federation, settings):
    """Start a site that must not get in where there is none of its name."""
    scene.loopback.bring_up()
    scene.loopback.kill("south")
    ended = federation.run("agent", str(settings), "--join-seconds", "10")
    assert ended.returncode == scene.row.site
    assert scene.row.is_in(ended.stderr), ended.stderr
    assert not FOREIGN.search(ended.stdout + ended.stderr)
    assert not (settings.parent / "state" / "joined").exists()
    assert set(SITES) - {"south"} <= scene.loopback.running
    assert scene.published() == scene.before
    scene.next_run()


CODE = {
    "files": {"site/custom/extra.py": "open({proof!r}, 'w').close()\n"},
    "components": {
        "site/config/config_fed_client.json": {"id": "more", "path": "extra.Anything"},
    },
}


def submit_code(scene, sabotage, folder):
    proof = folder / "proof"
    code = {name: text.format(proof=str(proof)) for name, text in CODE["files"].items()}
    scene.start(wait_seconds=60)
    sabotage(operator=CODE | {"files": code})
    ended = scene.run()
    sabotage()
    assert not proof.exists()
    return ended


@pytest.mark.slow
@fault("a job brings code", BRINGS_CODE, operator=2)
def test_job_with_code(scene, sabotage, tmp_path):
    scene.check(submit_code(scene, sabotage, tmp_path))


@pytest.mark.slow
@fault("the same, and the coordinator lets it through", BRINGS_CODE, operator=2)
def test_code_past_the_coordinator(scene, sabotage, tmp_path):
    local = scene.loopback.folder / COORDINATOR / "kit" / "local"
    kept = {path: path.read_text() for path in local.glob("*.json")}
    try:
        for path, text in kept.items():
            path.write_text(text.replace('"byoc": "none"', '"byoc": "any"'))
        ended = submit_code(scene, sabotage, tmp_path)
    finally:
        for path, text in kept.items():
            path.write_text(text)
    scene.check(ended)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("party", "config", "foreign"),
    [
        (
            "north",
            "site/config/config_fed_client.json",
            "nvflare.app_common.np.np_trainer.NPTrainer",
        ),
        (
            COORDINATOR,
            "coordinator/config/config_fed_server.json",
            "nvflare.app_common.np.np_model_persistor.NPModelPersistor",
        ),
    ],
)
@fault(
    "a job names a class that is not ours, for the sites or for the coordinator",
    "the run was refused by the engine",
    operator=2,
)
def test_foreign_class(scene, sabotage, party, config, foreign):
    scene.start(wait_seconds=60)
    log = scene.loopback.folder / party / "state" / "engine.log"
    seen = log.stat().st_size
    sabotage(operator={"components": {config: {"id": "more", "path": foreign}}})
    ended = scene.run()
    sabotage()
    assert "is not in allow_list" in log.read_text()[seen:]
    scene.check(ended)


@pytest.mark.slow
@fault(
    "a run is submitted a second time, to a coordinator that has forgotten it",
    "was here before: every run needs an id of its own",
)
def test_replayed_run(scene, sabotage, tmp_path):
    scene.loopback.bring_up()
    outcome = tmp_path / "outcome.json"
    asked = ("--regime", "counts", "--out", str(outcome))
    ended = scene.run(*asked)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    used = {name: read_json(outcome)["terms"][name] for name in ("run_id", "nonce", "asked_at")}
    scene.before = scene.published()
    (scene.loopback.folder / COORDINATOR / "state" / f"{used['run_id']}.json").unlink()
    scene.start()
    sabotage(operator={"again": used})
    ended = scene.run(*asked)
    sabotage()
    scene.check(ended)


def forged_model():
    """Make a model that a site would take: of the right columns, in the wire format."""
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(60, DIMENSION)), np.arange(60) % 2
    columns = schema_digest(f"x{j}" for j in range(DIMENSION))
    return cn.encode(LogisticRegression().fit(rows, labels), bits=4, schema=columns)


def replace_a_model(scene, sabotage, **more):
    scene.start()
    reached = sabotage(relay={"model": forged_model().hex()}, **more)
    ended = scene.run("--regime", "full")
    assert reached.exists()
    sabotage()
    scene.check(ended)


@pytest.mark.slow
@fault(
    "the coordinator replaces a model on its way between sites",
    "in the name of south that is not encrypted from site to site: the relay, which is the"
    " coordinator, may have replaced it",
)
def test_replaced_model(scene, sabotage):
    replace_a_model(scene, sabotage)


@pytest.mark.slow
@fault(
    "the same, at a site that does not look for encryption: the signature is missing",
    "north got a message that is not signed by south",
)
def test_replaced_model_is_not_signed(scene, sabotage):
    replace_a_model(scene, sabotage, unfiltered=True)


@pytest.mark.slow
@fault(
    "a run asks for more than a site agrees to",
    "south refuses: level 1/10 is above the 1/20 this site agrees to",
)
def test_refused(scene):
    settings = scene.loopback.settings("south")
    kept = settings.read_text()
    scene.start()
    try:
        settings.write_text(kept.replace("max_level = 0.2", "max_level = 0.05"))
        ended = scene.run("--regime", "counts")
    finally:
        settings.write_text(kept)
    scene.check(ended)


EXTRACTION = ("--regime", "full", "--train-fraction", "1/1000", "--bits", "float64")


@pytest.mark.slow
@fault(
    "a run asks a site to learn a model from one row",
    "refuses: with train_fraction 1/1000 fewer of its known normals would train its model",
)
def test_extraction_is_refused(scene, sabotage):
    scene.start()
    came = sabotage(site="north", when="MODEL", do="nothing")
    ended = scene.run(*EXTRACTION)
    assert not came.exists()  # no model has left its site
    sabotage()
    scene.check(ended)


@pytest.mark.slow
def test_no_model_leaves_for_an_extraction(loopback, sabotage):
    loopback.bring_up()
    came = sabotage(site="north", when="MODEL", do="nothing")
    ended = loopback.run("run", "--federation", str(loopback.settings(OPERATOR)), *EXTRACTION)
    assert not came.exists()
    assert ended.returncode == 3, ended.stdout + ended.stderr
    assert test_extraction_is_refused.fault.is_in(ended.stdout), ended.stdout
    last = [list(RunRecords(loopback.folder / site / "state").runs())[-1] for site in SITES]
    assert {run["state"] for run in last} == {"failed"}
    # The numbers are in the record of whoever refused first, and were told to nobody.
    assert "1 of 1,000 would train, and 500 are needed" in " ".join(r["message"] for r in last)
    assert "1,000" not in ended.stdout
    for site, run in zip(SITES, last, strict=True):  # who asked for what, and that no model left
        assert run["terms"]["spec"]["train_fraction"] == "1/1000"
        assert "models_sent" not in run
        told = loopback.run("audit", str(loopback.settings(site)), "--json")
        assert told.returncode == 0, told.stdout + told.stderr
        logged = json.loads(told.stdout)["runs"][-1]
        assert (logged["run"], logged["operator"]) == (run["run_id"], OPERATOR)
        assert logged["terms"] == run["terms"]
        assert (logged["n_models"], logged["n_counts"], logged["state"]) == (0, 0, "failed")


@pytest.mark.slow
@fault("an operator stops a run with `conovel stop`", "an operator stopped it")
def test_stopped_by_an_operator(scene, sabotage, meanwhile):
    scene.start()
    reached = sabotage(site="south", when="START", do="wait")
    running = meanwhile(scene.run, "--regime", "counts", stage_seconds=35, run_seconds=35)
    assert wait_for(reached.exists, REACH_SECONDS)
    stopped = scene.loopback.run("stop", str(scene.loopback.settings(OPERATOR)))
    assert "stopped 1 run" in stopped.stdout
    ended = running.result()
    sabotage()
    scene.check(ended)


def test_status_tells_who_is_there(loopback):
    loopback.bring_up()
    told = loopback.run("status", str(loopback.settings(OPERATOR))).stdout
    assert all(f"{site}: connected" in told for site in SITES)


def test_the_page_shows_the_table():
    assert faults.shown() == faults.table(globals())


@pytest.mark.slow
def test_an_operator_of_another_federation_reads_our_words_only(loopback, rows, tmp_path):
    """gRPC and NVFlare write past Python's streams: look at the process."""
    loopback.bring_up()
    stranger = Loopback(tmp_path / "stranger", rows)
    kits = [f.folder / OPERATOR / "kit" / "startup" for f in (loopback, stranger)]
    shutil.copy(kits[0] / "fed_admin.json", kits[1])  # it knows where to knock
    log = tmp_path / "log"
    asked = ("status", str(stranger.settings(OPERATOR)), "--log-file", str(log))
    ended = stranger.run(*asked)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("conovel: no connection to the coordinator of loopback")
    assert ended.stderr.endswith("is of another federation, or a proxy decrypts TLS\n")
    assert "nvflare" in log.read_text()  # what NVFlare says is in the log file


@pytest.mark.slow
def test_a_run_ends_soon_if_a_site_leaves_before_it_begins(scene_without_row):
    loopback = scene_without_row
    loopback.kill("south")  # NVFlare lists it as connected for half a minute
    ended = loopback.run("run", "--federation", str(loopback.settings(OPERATOR)))
    assert ended.returncode == 2
    told = " ".join(ended.stderr.split())
    assert re.search(r"(not begin|to the coordinator): south.* Start `conovel agent`", told), told
    assert not FOREIGN.search(ended.stdout + ended.stderr)


@pytest.fixture
def scene_without_row(loopback):
    loopback.bring_up()
    yield loopback
    loopback.bring_up()

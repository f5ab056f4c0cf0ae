"""Old runs are removed, but not their ids, and nobody can have results removed by failing runs."""

import json
import os
import re
import subprocess
import sys
import uuid

import pytest

from conovel.errors import FileError, ReplayedMessageError
from conovel.federation.audit_log import AuditLog
from conovel.federation.loopback import COORDINATOR, OPERATOR, Loopback
from conovel.federation.processes import wait_for
from conovel.federation.run_records import DONE, FAILED, RunRecords, prune
from conovel.federation.supervise import RunMonitor


@pytest.fixture
def party(tmp_path):
    """Give the folders of a party with some runs: published, failed and refused ones."""
    state, kit, results = (tmp_path / name for name in ("state", "kit", "results"))
    records = RunRecords(state, AuditLog(state / "audit.jsonl"))
    store = kit / "store" / "jobs"

    def add(number, end=DONE):
        run_id, job = f"{number:02}" * 16, str(uuid.UUID(int=number))
        for folder in (kit / job, store / job):
            folder.mkdir(parents=True)
            (folder / "log.txt").write_text("x")
        if end == "refused":
            records.refuse(run_id, "too much", job)
            return
        record = records.open(run_id, 60, job)
        if end == DONE:
            (results / run_id).mkdir(parents=True)
            (results / run_id / "decisions.parquet").write_text("x")
        if end is not None:
            record.finish(end, "so it ended")

    return records, kit, results, add


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_last_runs_stay_and_the_ids_of_all(party):
    records, kit, results, add = party
    for number in range(1, 6):
        add(number)
    add(6, None)  # under way
    (kit / ".removed-x" / "y").mkdir(parents=True)  # a process was killed meanwhile
    assert prune(records.folder, kit, 2, results) == 3
    assert names(results) == ["04" * 16, "05" * 16]
    jobs = [str(uuid.UUID(int=number)) for number in (4, 5, 6)]
    assert names(kit / "store" / "jobs") == jobs
    assert names(kit) == [*jobs, "store"]
    assert [run["run_id"][:2] for run in records.runs()] == ["04", "05", "06"]
    for number in range(1, 7):
        with pytest.raises(ReplayedMessageError, match="was here before"):
            records.open(f"{number:02}" * 16, 60)
    assert prune(records.folder, kit, 2, results) == 0
    assert len(AuditLog(records.folder / "audit.jsonl").read().entries) == 11  # all of them
    assert (records.folder / "used-runs").stat().st_mode & 0o777 == 0o600


def test_runs_that_fail_push_no_results_out(party):
    records, kit, results, add = party
    add(1)
    for number in range(2, 7):
        add(number, FAILED if number % 2 else "refused")
    prune(records.folder, kit, 1, results)
    assert names(results) == ["01" * 16]
    assert sorted(run["state"] for run in records.runs()) == ["done", "refused"]
    # A refused run had no id of its own: another run may have it.
    records.open("04" * 16, 60)


def test_folders_of_jobs_without_a_record_go_when_they_are_old(party):
    records, kit, _, add = party
    add(1)
    strange = [kit / str(uuid.UUID(int=100 + i)) for i in range(3)]
    for path in [*strange, kit / "startup"]:
        path.mkdir()
    os.utime(strange[0], (0, 0))
    os.utime(strange[1], (1, 1))
    prune(records.folder, kit, 1)
    assert [path.exists() for path in strange] == [False, False, True]
    assert (kit / "startup").exists()


def test_only_folders_of_runs_and_jobs_are_removed(party, tmp_path):
    records, kit, results, add = party
    precious = tmp_path / "precious"
    precious.mkdir()
    for number, job in enumerate(("../precious", str(precious), "startup"), 10):
        records.open(f"{number:02}" * 16, 60, job).finish(DONE, "", results=str(precious))
    add(1)
    (results / ("10" * 16)).symlink_to(precious)
    prune(records.folder, kit, 1, results)
    assert precious.is_dir()


def test_a_ledger_among_the_files_of_runs_is_left_alone(party):
    records, kit, results, add = party
    ledger = records.folder / "april.json"
    ledger.write_text('{"format": "conovel ledger", "batches": []}')
    add(1)
    add(2)
    prune(records.folder, kit, 1, results)
    assert [run["run_id"][:2] for run in records.runs()] == ["02"]
    assert ledger.exists()


def test_a_list_of_used_runs_that_cannot_be_read_stops_runs(party):
    records, *_ = party
    (records.folder / "used-runs").mkdir()
    with pytest.raises(FileError, match="used-runs cannot be read"):
        records.open("ab" * 16, 60)


def test_a_supervisor_prunes_after_a_run(party):
    records, kit, results, add = party
    told = []

    def remove():
        prune(records.folder, kit, 1, results)
        raise OSError("no more")

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monitor = RunMonitor(process, records.folder, told.append, on_end=remove)
        add(1)
        add(2)
        assert len(monitor.look()) == 2
        process.stdin.close()
    assert names(results) == ["02" * 16]
    assert told[-1] == "old runs could not be removed: no more"  # and it goes on


@pytest.mark.slow
def test_on_real_processes_files_are_private_and_old_runs_go(rows, tmp_path):
    federation = Loopback(
        tmp_path / "f", rows, model='scorer = "logistic"', consent='regimes = ["full", "counts"]'
    )
    for party, table in ((COORDINATOR, "coordinator"), *((site, "site") for site in rows)):
        path = federation.settings(party)
        kept = path.read_text().replace(f"[{table}]\n", f"[{table}]\nkeep_runs = 1\n")
        path.write_text(re.sub("keep_runs = 100\n", "", kept))
    before = os.umask(0)
    try:
        federation.bring_up()
        operator = federation.settings(OPERATOR)
        accounts = [federation.folder / OPERATOR / f"{name}.json" for name in ("full", "counts")]
        for out in accounts:
            asked = ("--regime", out.stem, "--out", str(out))
            ended = federation.run("run", "--federation", str(operator), *asked)
            assert ended.returncode == 0, ended.stdout + ended.stderr
        old, new = (json.loads(out.read_text())["terms"]["run_id"] for out in accounts)
        for site in rows:
            assert wait_for(lambda s=site: names(tmp_path / "f" / s / "results") == [new], 30)
        records = RunRecords(tmp_path / "f" / COORDINATOR / "state")
        assert wait_for(lambda: [run["run_id"] for run in records.runs()] == [new], 30)
    finally:
        federation.stop()
        os.umask(before)
    for path in federation.folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    for party in (COORDINATOR, *rows):
        records = RunRecords(tmp_path / "f" / party / "state")
        (run,) = records.runs()
        assert (run["run_id"], records.used()) == (new, {old})
        kit = tmp_path / "f" / party / "kit"
        jobs = {path.name for folder in (kit, kit / "store" / "jobs") for path in folder.glob("*")}
        assert {name for name in jobs if re.fullmatch("[0-9a-f-]{36}", name)} <= {run["job"]}

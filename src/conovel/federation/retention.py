"""What a party keeps of old runs: the last ones in full, of all others the ids alone.

Runs that were published and runs that were not are counted apart. So nobody can have results
removed by runs that fail. An id that is removed goes into a list first: a run of that id is
refused as before. The audit log is never shortened.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

from conovel.federation.paths import USED_FILE
from conovel.federation.run_records import DONE, RUN_ID, RUNNING, RunRecords
from conovel.rows.private_files import FILE_MODE

ORPHAN_SECONDS = 3600.0  # from which age on the folder of a job without a record is removed
_MOVED = ".removed-"  # the name of a folder begins so while it is removed
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # NVFlare's name of a job


def prune(state: Path, kit: Path, keep: int, results: Path | None = None) -> int:
    """Remove records, results and folders of jobs, but for the last runs; return how many runs.

    Parameters
    ----------
    state, kit : Path
        The party's records and its kit, in which NVFlare keeps its jobs.
    keep : int
        How many runs that were published are kept, and how many that were not.
    results : Path, optional
        Where a site has its results.
    """
    for left in [path for f in (kit, results) if f is not None for path in f.glob(f"{_MOVED}*")]:
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    records = RunRecords(state)
    ended = [(path, run) for path, run in records.files() if run["state"] != RUNNING]
    dropped: list[tuple[Path, dict[str, Any]]] = []
    for is_done in (True, False):
        group = [one for one in ended if (one[1]["state"] == DONE) is is_done]
        dropped += group[:-keep]
    _remember(state / USED_FILE, [path.stem for path, _ in dropped if RUN_ID.fullmatch(path.stem)])
    for path, run in dropped:
        if results is not None and RUN_ID.fullmatch(path.stem):
            _remove(results / path.stem, results)
        _remove_job(kit, str(run.get("job", "")))
        path.unlink(missing_ok=True)  # last: what is broken off is done again
    _remove_orphans(kit, {str(run.get("job", "")) for _, run in records.files()}, keep)
    return len(dropped)


def _remember(path: Path, ids: list[str]) -> None:
    """Add ids to the list of runs that were here."""
    if not ids:
        return
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write("".join(f"\n{run_id}" for run_id in ids))  # after a line that was broken off
        file.flush()
        os.fsync(file.fileno())


def _jobs(kit: Path) -> list[Path]:
    """Return the folders in which NVFlare has a folder for every job."""
    return [kit, kit / "store" / "jobs"]


def _remove_job(kit: Path, job: str) -> None:
    if _JOB.fullmatch(job):
        for folder in _jobs(kit):
            _remove(folder / job, kit)


def _remove_orphans(kit: Path, known: set[str], keep: int) -> None:
    """Remove folders of jobs that came to no record, for instance because NVFlare refused them."""
    for folder in _jobs(kit):
        if not folder.is_dir():
            continue
        found = [p for p in folder.iterdir() if _JOB.fullmatch(p.name) and p.name not in known]
        found.sort(key=lambda path: path.stat().st_mtime)
        for path in found[:-keep]:
            if path.stat().st_mtime < time.time() - ORPHAN_SECONDS:
                _remove(path, kit)


def _remove(folder: Path, aside: Path) -> None:
    """Remove a folder: first it is moved aside, so that nobody finds half of it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    moved = aside / f"{_MOVED}{folder.name}"
    folder.rename(moved)
    shutil.rmtree(moved)

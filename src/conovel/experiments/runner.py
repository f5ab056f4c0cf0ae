"""Runs tasks in parallel and keeps each result, so that an interrupted run can continue.

Tasks are run by joblib, with the backend that the caller set with ``joblib.parallel_config``:
threads, processes, or a Dask or Ray cluster. A result depends
on its task alone, so the number of jobs changes only the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import joblib

from conovel.errors import FileError, InputError
from conovel.experiments.tasks import Row, Task
from conovel.rows.storage import read_json, write_json


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    n_jobs: int | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Row]:
    """Run the tasks that have no result yet and return the rows of all, in order.

    Parameters
    ----------
    tasks : sequence of Task
    folder : Path
        Where results are kept, one file for each task; made if it does not exist.
    n_jobs : int, optional
        As in :class:`joblib.Parallel`; by default what ``joblib.parallel_config`` says, or 1.
    on_done : callable, optional
        Called with the number of tasks that are done, at the start and after each.
    """
    if not tasks:
        raise InputError("there is nothing to run: ask for at least one trial")
    report_done = on_done or (lambda n: None)
    rows: dict[int, list[Row]] = {}
    for index, task in enumerate(tasks):
        known = _read(_file(folder, task))
        if known is not None:
            rows[index] = known
    report_done(len(rows))
    missing = [index for index in range(len(tasks)) if index not in rows]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for index, result in parallel(joblib.delayed(_run)(i, tasks[i]) for i in missing):
        file = _file(folder, tasks[index])
        make_folder(file.parent)
        write_json(file, {"rows": result})
        rows[index] = result
        report_done(len(rows))
    return [row for index in range(len(tasks)) for row in rows[index]]


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made: {error.strerror}") from None


def _run(index: int, task: Task) -> tuple[int, list[Row]]:
    return index, task.run()


def _file(folder: Path, task: Task) -> Path:
    return folder / "parts" / task.digest / f"{task.trial:05d}.json"


def _read(file: Path) -> list[Row] | None:
    """Return a kept result; None if there is none or it cannot be read."""
    if not file.exists():
        return None
    try:
        rows = read_json(file)["rows"]
    except (FileError, KeyError):
        return None
    return rows if isinstance(rows, list) else None

"""Run tasks, many at a time, and keep each result: what was broken off goes on from there.

Tasks go through joblib. Whatever backend the caller set with ``joblib.parallel_config`` is
used, so the same call runs on threads, processes, or a Dask or Ray cluster. A result depends
on its task alone, so the number of jobs changes nothing but the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import joblib

from conovel.errors import FileError, InputError
from conovel.experiments.tasks import Row, Task
from conovel.site.storage import read_json, write_json


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
        Where results are kept, one file for each task; made if need be.
    n_jobs : int, optional
        As in :class:`joblib.Parallel`; by default what ``joblib.parallel_config`` says, or 1.
    on_done : callable, optional
        Told how many tasks are done, at the start and after each.
    """
    if not tasks:
        raise InputError("there is nothing to run: ask for at least one trial")
    tell = on_done or (lambda n: None)
    rows: dict[int, list[Row]] = {}
    for index, task in enumerate(tasks):
        known = _read(_file(folder, task))
        if known is not None:
            rows[index] = known
    tell(len(rows))
    missing = [index for index in range(len(tasks)) if index not in rows]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for index, result in parallel(joblib.delayed(_run)(i, tasks[i]) for i in missing):
        file = _file(folder, tasks[index])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{file.parent} cannot be made: {error.strerror}") from None
        write_json(file, {"rows": result})
        rows[index] = result
        tell(len(rows))
    return [row for index in range(len(tasks)) for row in rows[index]]


def _run(index: int, task: Task) -> tuple[int, list[Row]]:
    return index, task.run()


def _file(folder: Path, task: Task) -> Path:
    return folder / "parts" / task.digest / f"{task.trial:05d}.json"


def _read(file: Path) -> list[Row] | None:
    """Return a result, or nothing where there is none that can be read."""
    if not file.exists():
        return None
    try:
        rows = read_json(file)["rows"]
    except (FileError, KeyError):
        return None
    return rows if isinstance(rows, list) else None

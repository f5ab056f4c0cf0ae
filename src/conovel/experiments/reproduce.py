"""Runs an experiment and writes its rows, tables and figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from conovel.errors import DataWarning, FileError, InputError, MissingExtraError
from conovel.experiments.figures import figures
from conovel.experiments.plans import EXPERIMENTS, PAPER, Options, merged, rows_of
from conovel.experiments.tables import ResultTable
from conovel.experiments.tasks import Row, Task
from conovel.experiments.views import views
from conovel.rows.storage import read_json, write_json, write_table, write_text
from conovel.spec.version import __version__


@dataclass(frozen=True)
class Reproduction:
    """The results of one experiment, and the files that hold them."""

    name: str
    tables: tuple[ResultTable, ...]
    rows: tuple[Row, ...]
    files: tuple[Path, ...]


def reproduce(
    name: str,
    options: Options,
    folder: Path,
    *,
    n_jobs: int | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> list[Reproduction]:
    """Run or continue an experiment, and write rows, tables and figures to a folder."""
    if name != "all" and name not in EXPERIMENTS:
        raise InputError(
            f"no experiment is called {name!r}: choose from {', '.join(EXPERIMENTS)} or all"
        )
    names = PAPER if name == "all" else (name,)
    planned = {each: EXPERIMENTS[each](options) for each in names}
    tasks = merged(task for each in planned.values() for task in each)
    make_folder(folder)
    report_done = on_done or (lambda done, total: None)
    rows = run_tasks(tasks, folder, n_jobs, lambda done: report_done(done, len(tasks)))
    return [_write(each, rows_of(rows, planned[each]), options, folder) for each in names]


def _write(name: str, rows: Sequence[Row], options: Options, folder: Path) -> Reproduction:
    tables = views(name, rows, options.level)
    try:
        drawn = figures(name, rows, folder)
    except MissingExtraError as error:
        warnings.warn(f"no figures were drawn: {error}", DataWarning, stacklevel=2)
        drawn = []
    files = [folder / f"{name}.{ending}" for ending in ("json", "parquet", "md", "tex")]
    write_json(files[0], {**_settings(name, options), **_content(tables, drawn)})
    write_table(files[1], {column: _objects([row[column] for row in rows]) for column in rows[0]})
    write_text(files[2], "\n\n".join(table.to_markdown() for table in tables) + "\n")
    write_text(files[3], "\n\n".join(table.to_latex() for table in tables) + "\n")
    return Reproduction(
        name, tuple(tables), tuple(rows), (*files, *(folder / each for each in drawn))
    )


def _objects(values: list[Any]) -> NDArray[np.object_]:
    """Return an array of objects, so that lists and None stay as they are."""
    column = np.empty(len(values), dtype=np.object_)
    column[:] = values
    return column


def _settings(name: str, options: Options) -> dict[str, Any]:
    settings = asdict(options)
    settings["data"] = None if options.data is None else options.data.name
    settings["version"] = __version__
    return {"command": "reproduce", "experiment": name, "settings": settings}


def _content(tables: Sequence[ResultTable], drawn: Sequence[str]) -> dict[str, Any]:
    return {"tables": [table.to_dict() for table in tables], "figures": list(drawn)}


def run_tasks(
    tasks: Sequence[Task],
    folder: Path,
    n_jobs: int | None = None,
    on_done: Callable[[int], None] | None = None,
) -> list[Row]:
    """Run the tasks that have no result yet and return the rows of all, in order."""
    if not tasks:
        raise InputError("there is nothing to run: ask for at least one trial")
    report_done = on_done or (lambda n: None)
    rows: dict[int, list[Row]] = {}
    for index, task in enumerate(tasks):
        kept = _read(_file(folder, task))
        if kept is not None:
            rows[index] = kept
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

"""What the files of a site say, read for a page: runs, the audit log, reports.

Everything is read again when its file has changed, and only up to a size. Nothing is written here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from conovel.errors import ConovelError, FileError, InputError
from conovel.federation.answers import Question, question_of, time_left, waiting_runs
from conovel.federation.exposure import (
    EpsilonSpent,
    Exposure,
    LoggedRun,
    RunsSpent,
    epsilon_spent,
    exposure_of,
    runs_of,
    runs_spent,
)
from conovel.federation.metrics import n_connected
from conovel.federation.processes import PEERS_FILE
from conovel.federation.run_records import DONE, RUN_ID, RunRecords
from conovel.federation.settings import SiteFile, read_site
from conovel.rows.chained_lines import Chain
from conovel.rows.storage import read_bytes
from conovel.spec.records import read_json

T = TypeVar("T")
MOST_BYTES = 64 * 2**20  # of a report, or of the result of a run
MOST_LOG = 32 * 2**20  # of the audit log
_KEPT = 64  # results that stay in memory


class TooLargeError(FileError):
    """A file is larger than a page reads."""


class Kept:
    """Results of reading files, until a file changes."""

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[Hashable, Any]] = {}
        self._lock = threading.Lock()

    def get(self, what: str, paths: tuple[Path, ...], read: Callable[[], T]) -> T:
        """Return what `read` gives for these files, from before if none has changed."""
        key, stamp = (what, paths), tuple(map(_stamp, paths))
        with self._lock:
            if key in self._values and self._values[key][0] == stamp:
                value: T = self._values[key][1]
                return value
        value = read()
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = stamp, value
            while len(self._values) > _KEPT:
                self._values.pop(next(iter(self._values)))
        return value


def _stamp(path: Path) -> Hashable:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


class Log(NamedTuple):
    """The audit log, checked, and what it adds up to."""

    chain: Chain
    runs: list[LoggedRun]  # the oldest first
    exposure: Exposure

    @classmethod
    def of(cls, chain: Chain) -> Log:
        """Add up what a chain says."""
        return cls(chain, runs_of(chain.entries), exposure_of(chain.entries))

    @property
    def wrong(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if not self.chain.broken:
            return ""
        return f"line {self.chain.broken} does not hold: {self.chain.why}"

    @property
    def n_sums(self) -> int:
        """How many messages with sums over rows left."""
        return sum(run.n_sums for run in self.runs)

    def run(self, run_id: str) -> LoggedRun | None:
        """Return what the log says of a run."""
        return next((run for run in self.runs if run.run == run_id), None)


@dataclass(frozen=True)
class RunView:
    """One run as its record has it."""

    record: Mapping[str, Any]
    folder: Path | None  # of its results; None if there are none

    @property
    def run_id(self) -> str:
        """The id, or what stands for it in the record of a refusal."""
        return str(self.record.get("run_id", ""))

    @property
    def has_page(self) -> bool:
        """Whether it began here, and so has a page."""
        return bool(RUN_ID.fullmatch(self.run_id)) and self.state != "refused"

    @property
    def state(self) -> str:
        """How far it is, in one word."""
        return str(self.record.get("state", ""))

    @property
    def began(self) -> str:
        """When it began, in UTC."""
        return in_utc(self.record.get("began"))

    @property
    def operator(self) -> str:
        """Who asked for it."""
        return str(self.record.get("operator", "") or "–")

    @property
    def message(self) -> str:
        """How it ended, without the path of the results."""
        return str(self.record.get("message", "")).partition(", see ")[0]

    @property
    def regime(self) -> str:
        """The regime that was asked for."""
        terms = self.record.get("terms")
        spec = terms.get("spec") if isinstance(terms, Mapping) else None
        return str(spec.get("regime", "")) if isinstance(spec, Mapping) else ""

    @property
    def question(self) -> Question | None:
        """What a person is asked, if it waits for one."""
        return question_of(self.record)

    @property
    def time_left(self) -> str:
        """How long a person can still answer."""
        question = self.question
        return "" if question is None else time_left(question)

    @property
    def report(self) -> Path | None:
        """The page about it, if there is one."""
        path = None if self.folder is None else self.folder / "report.html"
        return path if path is not None and path.is_file() else None

    @property
    def decisions(self) -> Path | None:
        """Its decisions, if it was published."""
        path = None if self.folder is None else self.folder / "decisions.parquet"
        return path if path is not None and path.is_file() else None


class SiteView:
    """A site, as its files are now."""

    def __init__(self, settings: Path) -> None:
        self.settings, self.kept = settings.resolve(), Kept()
        self._records = RunRecords(self.file.state)

    @property
    def file(self) -> SiteFile:
        """The settings."""
        return self.kept.get("settings", (self.settings,), lambda: read_site(self.settings))

    @property
    def verdicts_path(self) -> Path:
        """The file of verdicts."""
        path = self.file.verdicts
        return self.settings.with_name("site.verdicts") if path is None else path

    @property
    def is_connected(self) -> bool:
        """Whether the agent runs and is connected to the coordinator."""
        return n_connected(self.file.state / PEERS_FILE) > 0

    def runs(self) -> list[RunView]:
        """Return the runs that are kept, the latest first."""
        return [self._view(run) for run in self._records.runs()][::-1]

    def run(self, run_id: str) -> RunView:
        """Return the run of this id; :class:`InputError` if there is none."""
        for view in self.runs() if RUN_ID.fullmatch(run_id) else ():
            if view.run_id == run_id and view.has_page:
                return view
        raise InputError("There is no such run here. Old runs are removed (keep_runs).")

    def waiting(self) -> list[RunView]:
        """Return the runs that wait for a person."""
        return [self._view(run) for run in waiting_runs(self._records.runs(), self.file.state)]

    def _view(self, run: Mapping[str, Any]) -> RunView:
        run_id, folder = str(run.get("run_id", "")), None
        # From the id and never from the text of the record: it could lead anywhere.
        if run.get("state") == DONE and RUN_ID.fullmatch(run_id):
            folder = self.file.results / run_id
        return RunView(run, folder)

    def result(self, view: RunView) -> dict[str, Any]:
        """Read the result of a run; empty if it has none."""
        if view.folder is None:
            return {}
        path = view.folder / "run.json"
        if not path.is_file():
            return {}

        content = read_json(bounded(path), str(path), MOST_BYTES)  # too large to be kept
        return content if isinstance(content, dict) else {}

    def log(self) -> Log:
        """Read the audit log, and check its chain."""
        path = self.file.audit_log.path

        def read() -> Log:
            if path.is_file() and path.stat().st_size > MOST_LOG:
                raise TooLargeError(
                    f"The audit log has more than {MOST_LOG >> 20} MB, too much for a page: use"
                    " conovel audit."
                )
            return Log.of(self.file.audit_log.read())

        return self.kept.get("log", (path,), read)

    def spent(self) -> tuple[RunsSpent | None, EpsilonSpent]:
        """Return how much of the limits is used up; None where the log cannot be read."""
        try:
            runs = self.log().runs
        except ConovelError:
            return None, EpsilonSpent()
        return runs_spent(runs, ""), epsilon_spent(runs, self.file.data_set)


def bounded(path: Path, most: int = MOST_BYTES) -> bytes:
    """Read a file, unless it is too large."""
    data = read_bytes(path, most)
    if len(data) > most:
        raise TooLargeError(f"{path.name} has more than {most >> 20} MB, too much for a page.")
    return data


def in_utc(seconds: Any) -> str:
    """Write a time since 1970 for people.

    Examples
    --------
    >>> in_utc(0), in_utc("x")
    ('1970-01-01 00:00', '')
    """
    try:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""

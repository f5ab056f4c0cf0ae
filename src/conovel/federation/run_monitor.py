"""How a supervisor follows runs: by the files that NVFlare's processes write."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from conovel.errors import ConovelError
from conovel.federation import processes
from conovel.federation.audit_log import AuditLog
from conovel.federation.paths import LOG_FILE
from conovel.federation.run_records import DONE, RUNNING, RunRecords
from conovel.spec.exits import ERROR, NO

TICK_SECONDS = 0.3
END_SECONDS = 30.0  # in which the process of a run ends after the run


class RunMonitor:
    """Watches a process of NVFlare, and reports every run that begins or ends.

    Parameters
    ----------
    process : process
        NVFlare's own process of the party.
    state : Path
        Where the party's records are.
    print_line : callable
        Called with one line of text for every event.
    on_done : callable
        Called with the folder of every run that was published, before the line about it.
    linger : float
        Seconds to stay after the last run.
    log : AuditLog, optional
        The audit log of a site, for the end of runs whose process was killed.
    on_end : callable
        Called after runs have ended.
    on_change : callable
        Called with the record of every run that begins or ends.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        state: Path,
        print_line: Callable[[str], None],
        on_done: Callable[[Path], None] = lambda folder: None,
        linger: float = 0.0,
        log: AuditLog | None = None,
        on_end: Callable[[], object] = lambda: None,
        on_change: Callable[[Mapping[str, Any]], None] = lambda run: None,
    ) -> None:
        self.process = process
        self._log, self._records = state / LOG_FILE, RunRecords(state, log)
        self._print_line, self._on_done, self._linger = print_line, on_done, linger
        self._on_end, self._on_change = on_end, on_change
        self._seen = {_key(run): run["state"] for run in self._records.runs()}
        self.look()  # closes runs that a killed party left open

    def watch(self, wait_seconds: float | None) -> int:
        """Watch until one run has ended, or until NVFlare ends if `wait_seconds` is None."""
        return self.until_it_ends() if wait_seconds is None else self.until_one_ends(wait_seconds)

    def until_it_ends(self) -> int:
        """Watch until NVFlare ends, which is a failure."""
        while self.process.poll() is None:
            self.look()
            time.sleep(TICK_SECONDS)
        return self._ended_unexpectedly()

    def until_one_ends(self, wait_seconds: float) -> int:
        """Watch until a run has ended: 0 if it was published, 3 if not, or if none began."""
        deadline = time.monotonic() + wait_seconds
        begun = len(self._seen)
        while self.process.poll() is None:
            if ended := self.look():
                pids = [run["pid"] for run in ended if "pid" in run]
                processes.wait_for(partial(processes.all_gone, pids), END_SECONDS)
                time.sleep(self._linger)
                return 0 if all(run["state"] == DONE for run in ended) else NO
            if len(self._seen) == begun and time.monotonic() > deadline:
                self._print_line(f"no run began within {wait_seconds:g} s")
                return NO
            time.sleep(TICK_SECONDS)
        return self._ended_unexpectedly()

    def look(self) -> list[dict[str, Any]]:
        """Print what has changed; return the runs that have ended since the last look."""
        for run in self._records.close_ended():
            # The system may have given its number to another process: stop only our own.
            if run["pid"] in processes.descendants(self.process.pid):
                processes.stop_tree(run["pid"])
        ended = []
        for run in self._records.runs():
            state = run["state"]
            if self._seen.get(_key(run)) == state:
                continue
            self._seen[_key(run)] = state
            self._on_change(run)
            if state == RUNNING:
                self._print_line(f"run {run['run_id'][:8]} begins")
                continue
            if state == DONE and "results" in run:
                self._on_done(Path(run["results"]))
            self._print_line(f"run {run['run_id'][:8]} {state}: {run['message']}")
            ended.append(run)
        if ended:
            try:
                self._on_end()
            except (OSError, ConovelError) as error:  # tried again after the next run
                self._print_line(f"old runs could not be removed: {error}")
        return ended

    def _ended_unexpectedly(self) -> int:
        self._print_line(f"NVFlare ended unexpectedly (see {self._log})")
        return ERROR


def _key(run: Mapping[str, Any]) -> tuple[str, float]:
    """Return a key that differs between attempts at one run."""
    return run["run_id"], run["began"]

"""What a supervisor sees of runs: from their files, as the engine's processes write them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from conovel.drivers.nvflare import processes
from conovel.drivers.nvflare.paths import LOG_FILE
from conovel.drivers.nvflare.run_records import DONE, RUNNING, RunRecords

TICK_SECONDS = 0.3
END_SECONDS = 30.0  # for the process of a run to end after it


class RunMonitor:
    """Looks after an engine, and tells of every run that begins or ends.

    Parameters
    ----------
    engine : process
    state : Path
        Where the party's records are.
    tell : callable
        Told what happens, a line at a time.
    on_done : callable
        Told the folder of every run that was published, before the line about it.
    linger : float
        Seconds to stay after the last run.
    """

    def __init__(
        self,
        engine: subprocess.Popen[bytes],
        state: Path,
        tell: Callable[[str], None],
        on_done: Callable[[Path], None] = lambda folder: None,
        linger: float = 0.0,
    ) -> None:
        self.engine = engine
        self._log, self._ledger = state / LOG_FILE, RunRecords(state)
        self._tell, self._on_done, self._linger = tell, on_done, linger
        self._seen = {_key(run): run["state"] for run in self._ledger.runs()}
        self.look()  # at what a party that was killed has left open

    def until_it_ends(self) -> int:
        """Watch until the engine ends, which is a failure."""
        while self.engine.poll() is None:
            self.look()
            time.sleep(TICK_SECONDS)
        return self._engine_ended()

    def until_one_ends(self, wait_seconds: float) -> int:
        """Watch until a run has ended: 0 if it was published, 1 if not, or if none began."""
        deadline = time.monotonic() + wait_seconds
        begun = len(self._seen)
        while self.engine.poll() is None:
            if ended := self.look():
                pids = [run["pid"] for run in ended if "pid" in run]
                processes.wait_for(partial(processes.all_gone, pids), END_SECONDS)
                time.sleep(self._linger)
                return 0 if all(run["state"] == DONE for run in ended) else 1
            if len(self._seen) == begun and time.monotonic() > deadline:
                self._tell(f"no run began within {wait_seconds:g} s")
                return 1
            time.sleep(TICK_SECONDS)
        return self._engine_ended()

    def look(self) -> list[dict[str, Any]]:
        """Tell what has changed; give the runs that have ended since."""
        for run in self._ledger.bury():
            # Its number may be another process by now: only our own is ended.
            if run["pid"] in processes.descendants(self.engine.pid):
                processes.stop_tree(run["pid"])
        ended = []
        for run in self._ledger.runs():
            state = run["state"]
            if self._seen.get(_key(run)) == state:
                continue
            self._seen[_key(run)] = state
            if state == RUNNING:
                self._tell(f"run {run['run_id'][:8]} begins")
                continue
            if state == DONE and "results" in run:
                self._on_done(Path(run["results"]))
            self._tell(f"run {run['run_id'][:8]} {state}: {run['message']}")
            ended.append(run)
        return ended

    def _engine_ended(self) -> int:
        self._tell(f"the engine ended by itself (see {self._log})")
        return 1


def _key(run: Mapping[str, Any]) -> tuple[str, float]:
    """Tell apart the attempts at one run."""
    return run["run_id"], run["began"]

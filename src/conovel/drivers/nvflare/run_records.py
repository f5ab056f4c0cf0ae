"""A file for every run of a party: its id, its state and how it ended.

The file is made when the run begins and stays, so that terms cannot be used twice. A run that
was refused has a file as well. A supervisor or a person reads there what happened.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conovel.drivers.nvflare.processes import is_running
from conovel.errors import ConovelError, FileError, ReplayedMessageError
from conovel.site.storage import read_json, write_json

RUNNING, DONE, FAILED, REFUSED = "running", "done", "failed", "refused"
GRACE_SECONDS = 10.0  # from the deadline of a run until a supervisor closes its file


class RunRecords:
    """The runs of one party.

    Parameters
    ----------
    folder : Path
        Where the files are; made if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = RunRecords(Path(folder))
    ...     record = records.open("00" * 16, seconds=60)
    ...     _ = record.finish(FAILED, "south vanished")
    ...     [(run["state"], run["message"]) for run in records.runs()]
    [('failed', 'south vanished')]
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ended: dict[
            Path, dict[str, Any]
        ] = {}  # runs that have ended: their files do not change
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def open(self, run_id: str, seconds: float, job: str = "", **facts: Any) -> Record:
        """Make the file of a run that begins; an id that was used before is refused.

        `facts` go into the file, such as which operator asked.
        """
        path = self.folder / f"{run_id}.json"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise ReplayedMessageError(
                f"run {run_id} was here before: every run needs an id of its own"
            ) from None
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error}") from None
        now = time.time()
        return Record(
            path,
            {
                "run_id": run_id,
                "job": job,
                "state": RUNNING,
                "message": "",
                "pid": os.getpid(),
                "began": now,
                "deadline": now + seconds,
                **facts,
            },
        )

    def refuse(self, run_id: str, reason: str, job: str = "", **facts: Any) -> None:
        """Make the file of a run that is refused; a file of an earlier run of this id stays."""
        Record(
            self.folder / f"refused-{secrets.token_hex(8)}.json",
            {
                "run_id": run_id,
                "job": job,
                "state": REFUSED,
                "message": reason,
                "began": time.time(),
                **facts,
            },
        )

    def knows(self, job: str) -> bool:
        """Return whether there is a file of a run, begun or refused, for a job of NVFlare."""
        return any(run.get("job") == job for run in self.runs())

    def runs(self) -> Iterator[dict[str, Any]]:
        """Return every run, the oldest first, without files that are being written."""
        found = []
        for path in self.folder.glob("*.json"):
            run = self._ended.get(path)
            if run is None:
                try:
                    run = read_json(path)
                except ConovelError:
                    continue
                if run["state"] != RUNNING:
                    self._ended[path] = run
            found.append(run)
        yield from sorted(found, key=lambda run: run["began"])

    def close_ended(self) -> list[dict[str, Any]]:
        """Note the end of runs whose process is gone or whose deadline passed; return them."""
        closed = []
        for run in self.runs():
            if run["state"] != RUNNING:
                continue
            late = time.time() > run["deadline"] + GRACE_SECONDS
            if late or not is_running(run["pid"]):
                why = "its deadline passed" if late else "its process ended"
                record = Record(self.folder / f"{run['run_id']}.json", run)
                record.finish(FAILED, f"{why} without an outcome: nothing was published")
                closed.append(run)
        return closed


class Record:
    """The file of one run."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path, self._content = path, content
        self._lock = threading.Lock()
        self._write()

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return bool(self._content["state"] == RUNNING)

    def note(self, **facts: Any) -> None:
        """Add facts to the file of a run; nothing happens once the run has ended."""
        with self._lock:
            if self.is_open:
                self._content |= facts
                self._write()

    def finish(self, state: str, message: str, **facts: Any) -> bool:
        """Note the end of the run; False if it had ended before."""
        with self._lock:
            if not self.is_open:
                return False
            self._content |= {"state": state, "message": message, "ended": time.time(), **facts}
            self._write()
            return True

    def _write(self) -> None:
        write_json(self._path, self._content)

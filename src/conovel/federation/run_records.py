"""A file for every run of a party: its id, its state and how it ended.

The file is made when the run begins, so that terms cannot be used twice. A run that was refused
has a file as well. A supervisor or a person reads there what happened. Old files are removed
(:mod:`conovel.federation.run_records`); the ids of their runs are kept in a list. At a site,
the begin, the refusal and the end of every run also go into its audit log.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from conovel.deciding.ways import guarantee
from conovel.errors import (
    CODES,
    ConovelError,
    FederationError,
    FileError,
    ReplayedMessageError,
    SiteFailedError,
    with_number,
)
from conovel.federation.audit_log import AuditLog
from conovel.federation.processes import OWN_SEED_FILE, USED_FILE, is_running
from conovel.federation.terms import Terms
from conovel.protocol.not_checked import FORMATS
from conovel.protocol.states import as_text
from conovel.protocol.transcript import Transcript
from conovel.rows.chained_lines import now
from conovel.rows.private_files import FILE_MODE, make_private_folder
from conovel.rows.storage import read_json, write_json
from conovel.spec.bodies import Outcome

RUNNING, DONE, FAILED, REFUSED = "running", "done", "failed", "refused"
MAX_SAID = 1024  # bytes of a reason in the audit log
GRACE_SECONDS = 10.0  # from the deadline of a run until a supervisor closes its file
RUN_ID = re.compile(r"[0-9a-f]{32}")
_REFUSED_FILE = re.compile(r"refused-[0-9a-f]{16}")


def in_words(run: Mapping[str, Any]) -> str:
    """Say how a run ended, with the number of its error."""
    return with_number(f"{run['state']}: {run['message']}", CODES.get(str(run.get("fault"))))


class RunRecords:
    """The runs of one party."""

    def __init__(self, folder: Path, log: AuditLog | None = None) -> None:
        self.folder, self._log = folder, log
        self._ended: dict[Path, dict[str, Any]] = {}  # their files do not change any more
        make_private_folder(folder)

    def open(self, run_id: str, seconds: float, job: str = "", **facts: Any) -> Record:
        """Make the file of a run that begins; an id that was used before is refused.

        `facts` go into the file and into the audit log.
        """
        path = self.folder / f"{run_id}.json"
        replay = ReplayedMessageError(
            f"run {run_id} was here before: every run needs an id of its own"
        )
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
            if run_id in self.used():
                path.unlink()
                raise replay
        except FileExistsError:
            raise replay from None
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error}") from None
        began = time.time()
        content = {
            "run_id": run_id,
            "job": job,
            "state": RUNNING,
            "message": "",
            "pid": os.getpid(),
            "began": began,
            "deadline": began + seconds,
            **facts,
        }
        record = Record(path, content, self._log)
        try:
            record.tell("begin", job=job, **facts)
        except ConovelError as error:  # what is not written down does not happen
            record.finish(FAILED, str(error))
            raise
        return record

    def refuse(self, run_id: str, reason: str, job: str = "", **facts: Any) -> None:
        """Make the file of a run that is refused; a file of an earlier run of this id stays."""
        content = {
            "run_id": run_id,
            "job": job,
            "state": REFUSED,
            "message": reason,
            "began": time.time(),
            **facts,
        }
        record = Record(self.folder / f"refused-{secrets.token_hex(8)}.json", content, self._log)
        record.tell("refused", job=job, reason=as_text(reason, MAX_SAID), **facts)

    def used(self) -> set[str]:
        """Return the ids of runs whose files were removed."""
        try:
            return set((self.folder / USED_FILE).read_text(encoding="ascii").split())
        except FileNotFoundError:
            return set()
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{self.folder / USED_FILE} cannot be read: {error}") from None

    def knows(self, job: str) -> bool:
        """Return whether there is a file of a run, begun or refused, for a job of NVFlare."""
        return any(run.get("job") == job for run in self.runs())

    def runs(self) -> Iterator[dict[str, Any]]:
        """Return every run, the oldest first, without files that are being written."""
        return (run for _, run in self.files())

    def files(self) -> list[tuple[Path, dict[str, Any]]]:
        """Return the files of runs with their content, the oldest run first.

        Other files of the folder are left alone, such as the ledger of a list.
        """
        files = []
        for path in self.folder.glob("*.json"):
            if not (RUN_ID.fullmatch(path.stem) or _REFUSED_FILE.fullmatch(path.stem)):
                continue
            run = self._ended.get(path)
            if run is None:
                try:
                    run = read_json(path)
                except ConovelError:
                    continue
                if run["state"] != RUNNING:
                    self._ended[path] = run
            files.append((path, run))
        return sorted(files, key=lambda one: one[1]["began"])

    def close_ended(self) -> list[dict[str, Any]]:
        """Note the end of runs whose process is gone or whose deadline passed; return them."""
        closed = []
        for run in self.runs():
            if run["state"] != RUNNING:
                continue
            late = time.time() > run["deadline"] + GRACE_SECONDS
            if late or not is_running(run["pid"]):
                why = "its deadline passed" if late else "its process ended"
                record = Record(self.folder / f"{run['run_id']}.json", run, self._log)
                message = f"{why} without an outcome: nothing was published"
                record.finish(FAILED, message, **SiteFailedError.named())
                closed.append(run)
        return closed


class Record:
    """The file of one run, and its entries in the audit log."""

    def __init__(self, path: Path, content: dict[str, Any], log: AuditLog | None = None) -> None:
        self._path, self.content, self.log = path, content, log
        self._lock = threading.Lock()
        self._write()

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return bool(self.content["state"] == RUNNING)

    def note(self, **facts: Any) -> None:
        """Add facts to the file of a run; nothing happens once the run has ended."""
        with self._lock:
            if self.is_open:
                self.content |= facts
                self._write()

    def tell(self, entry: str, *, durable: bool = True, **facts: Any) -> None:
        """Add an entry of this run to the audit log, if there is one."""
        if self.log is not None:
            self.log.append(self.entry(entry, **facts), durable=durable)

    def entry(self, entry: str, **facts: Any) -> dict[str, Any]:
        """Return an entry of this run for the audit log."""
        return {"entry": entry, "time": now(), "run": self.content["run_id"], **facts}

    def finish(self, state: str, message: str, for_log: str = "", **facts: Any) -> bool:
        """Note the end of the run; False if it had ended before.

        `for_log` is what the audit log gets instead of the message, which may hold more.
        """
        with self._lock:
            if not self.is_open:
                return False
            self.content |= {"state": state, "message": message, "ended": time.time(), **facts}
            self._write()
            about = {key: facts[key] for key in ("fault", "code") if key in facts}
            reason = as_text(for_log or message, MAX_SAID)
            try:
                self.tell("end", state=state, reason=reason, **about)
            except ConovelError as error:  # the end of a run is noted here at least
                self.content["audit_log"] = str(error)
                self._write()
            return True

    def _write(self) -> None:
        write_json(self._path, self.content)


N_BYTES = 32


def own_secret(folder: Path) -> bytes:
    """Read the secret of a site from the folder of its records; make one if there is none."""
    path = folder / OWN_SEED_FILE
    try:
        if not path.exists():
            _make(path)
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read or made: {error}") from None
    with suppress(ValueError):
        secret = bytes.fromhex(text)
        if len(secret) == N_BYTES:
            return secret
    raise FederationError(
        f"{path} does not hold {2 * N_BYTES} hexadecimal digits: remove it and a new one is made"
    )


def _make(path: Path) -> None:
    """Make the file in one step; if another process made it first, its secret stays."""
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(N_BYTES) + "\n")
            file.flush()
            os.fsync(handle)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


ORPHAN_SECONDS = 3600.0  # from which age on the folder of a job without a record is removed
_MOVED = ".removed-"  # the name of a folder begins so while it is removed
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # NVFlare's name of a job


def prune(state: Path, kit: Path, keep: int, results: Path | None = None) -> int:
    """Remove records, results and folders of jobs, but for the last runs; return how many runs."""
    for left in [path for f in (kit, results) if f is not None for path in f.glob(f"{_MOVED}*")]:
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
    records = RunRecords(state)
    jobs = kit, kit / "store" / "jobs"  # where NVFlare has a folder for every job
    ended = [(path, run) for path, run in records.files() if run["state"] != RUNNING]
    dropped: list[tuple[Path, dict[str, Any]]] = []
    for is_done in (True, False):
        group = [one for one in ended if (one[1]["state"] == DONE) is is_done]
        dropped += group[:-keep]
    _remember(state / USED_FILE, [path.stem for path, _ in dropped if RUN_ID.fullmatch(path.stem)])
    for path, run in dropped:
        if results is not None and RUN_ID.fullmatch(path.stem):
            _remove(results / path.stem, results)
        if _JOB.fullmatch(job := str(run.get("job", ""))):
            for folder in jobs:
                _remove(folder / job, kit)
        path.unlink(missing_ok=True)  # last: what is broken off is done again
    _remove_orphans(jobs, kit, {str(run.get("job", "")) for _, run in records.files()}, keep)
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


def _remove_orphans(folders: Iterable[Path], kit: Path, recorded: set[str], keep: int) -> None:
    """Remove folders of jobs that came to no record, for instance because NVFlare refused them."""
    for folder in folders:
        if not folder.is_dir():
            continue
        orphans = [
            p for p in folder.iterdir() if _JOB.fullmatch(p.name) and p.name not in recorded
        ]
        orphans.sort(key=lambda path: path.stat().st_mtime)
        for path in orphans[:-keep]:
            if path.stat().st_mtime < time.time() - ORPHAN_SECONDS:
                _remove(path, kit)


def _remove(folder: Path, aside: Path) -> None:
    """Remove a folder: first it is moved aside, so that nobody finds half of it."""
    if not folder.is_dir() or folder.is_symlink():
        return
    moved = aside / f"{_MOVED}{folder.name}"
    folder.rename(moved)
    shutil.rmtree(moved)


def guarantee_of(terms: Terms, outcome: Outcome, transcript: Transcript) -> str:
    """Return the guarantee of a run with these terms, this outcome and these messages."""
    losses = {"left_out": outcome.left_out, "dropped": outcome.dropped}
    return str(guarantee(terms.spec, **losses, uncovered=transcript.uncovered))


def account_of(
    error: ConovelError | None, terms: Mapping[str, Any], transcript: Transcript | None = None
) -> dict[str, Any]:
    """Return the fields of every account, also of a run that could not begin."""
    return {
        "format": FORMATS["run"],
        "command": "run",
        "state": "done" if error is None else "failed",
        "message": "" if error is None else str(error),
        **({"fault": "", "code": ""} if error is None else error.named()),
        "culprit": getattr(error, "culprit", ""),
        "terms": dict(terms),
        "unpublished": {},
        "seconds": {},
        "transcript": (transcript or Transcript()).to_dict(),
    }

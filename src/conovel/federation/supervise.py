"""A party's process: start NVFlare, wait until it is connected, watch it, stop it."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

from conovel.errors import ConovelError, FederationError
from conovel.federation import processes
from conovel.federation.audit_log import AuditLog
from conovel.federation.kits import require_nvflare
from conovel.federation.metrics import PartyMetrics, n_connected, serving
from conovel.federation.processes import JOINED_FILE, LOG_FILE, PEERS_FILE, PID_FILE
from conovel.federation.reach import address_of, obstacle
from conovel.federation.run_records import DONE, RUNNING, RunRecords, in_words, prune
from conovel.federation.settings import FederationFile, MetricsAddress, SiteFile
from conovel.rows.private_files import UMASK, make_private_folder
from conovel.spec.exits import ERROR, NO, YES

TICK_SECONDS = 0.3
END_SECONDS = 30.0  # in which the process of a run ends after the run
LINGER_SECONDS = 15.0  # in which the operator can fetch the outcome of the last run


class Stopped(Exception):
    """The process received a signal to end."""


class RunMonitor:
    """Watches a process of NVFlare, and reports every run that begins or ends.

    `on_change` is called with the record of every run that begins or ends, `on_done` with the
    folder of every run that was published, `on_end` after runs have ended.
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

    def watch(self, once: bool, wait_seconds: float) -> int:
        """Watch until NVFlare ends, which is a failure; with `once`, until a run has ended.

        Then it is 0 if the run was published, and 3 if not, or if none began in time.
        """
        deadline = time.monotonic() + wait_seconds
        begun = len(self._seen)
        while self.process.poll() is None:
            if (ended := self.look()) and once:
                pids = [run["pid"] for run in ended if "pid" in run]
                processes.wait_for(partial(processes.all_gone, pids), END_SECONDS)
                time.sleep(self._linger)
                return YES if all(run["state"] == DONE for run in ended) else NO
            if once and len(self._seen) == begun and time.monotonic() > deadline:
                self._print_line(f"no run began within {wait_seconds:g} s")
                return NO
            time.sleep(TICK_SECONDS)
        self._print_line(f"NVFlare ended unexpectedly (see {self._log})")
        return ERROR

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
            self._print_line(f"run {run['run_id'][:8]} {in_words(run)}")
            ended.append(run)
        if ended:
            try:
                self._on_end()
            except (OSError, ConovelError) as error:  # tried again after the next run
                self._print_line(f"old runs could not be removed: {error}")
        return ended


def _key(run: Mapping[str, Any]) -> tuple[str, float]:
    """Return a key that differs between attempts at one run."""
    return run["run_id"], run["began"]


def serve_site(
    file: SiteFile, print_line: Callable[[str], None], *, join_seconds: float, **options: Any
) -> int:
    """Run a site until it is stopped, as :func:`_serve` does; return the exit code."""
    require_nvflare()
    expires = _check_kit(file.kit, print_line, file.name)
    host, port = address_of(file.kit)
    where, joined = f"{host}:{port}", file.state / JOINED_FILE
    folders = {"state": file.state, "results": file.results, "kit": file.kit}
    page = PartyMetrics("site", file.state, folders, file.audit_log, expires)

    def start() -> subprocess.Popen[bytes]:
        joined.unlink(missing_ok=True)
        return processes.start_site(file.kit, file.name, file.path, file.state)

    up = f"{file.name} is connected to {where} and waits for runs"

    def not_up() -> str:
        other = f"it answers, but not to {file.name}: is {file.kit} the kit that was made for it?"
        return (
            f"{file.name} was not accepted by the coordinator at {where} within"
            f" {join_seconds:g} s: {obstacle(file.kit) or other} (see {file.state / LOG_FILE})"
        )

    comes_up = partial(_comes_up, joined.exists, join_seconds, up, not_up)
    return _serve(file, page, print_line, start, comes_up, **options)


def serve_coordinator(
    file: FederationFile, print_line: Callable[[str], None], *, join_seconds: float, **options: Any
) -> int:
    """Run the coordinator until it is stopped, as :func:`_serve` does; return the exit code."""
    require_nvflare()
    expires = _check_kit(file.kit, print_line)
    ports = _ports(file.kit)
    folders = {"state": file.state, "kit": file.kit}
    page = PartyMetrics("coordinator", file.state, folders, expires=expires)

    def start() -> subprocess.Popen[bytes]:
        if used := [port for port in ports if _listens(port)]:
            raise FederationError(f"port {used[0]} is in use on this machine")
        return processes.start_coordinator(file.kit, file.path, file.state)

    up = f"the coordinator of {file.name} listens on ports {ports[0]} and {ports[1]}"
    log = file.state / LOG_FILE
    not_up = f"the coordinator did not come up within {join_seconds:g} s (see {log})"
    comes_up = partial(
        _comes_up, lambda: all(map(_listens, ports)), join_seconds, up, lambda: not_up
    )
    return _serve(file, page, print_line, start, comes_up, linger=LINGER_SECONDS, **options)


def _serve(
    file: SiteFile | FederationFile,
    page: PartyMetrics,
    print_line: Callable[[str], None],
    start: Callable[[], subprocess.Popen[bytes]],
    comes_up: Callable[[subprocess.Popen[bytes]], str],
    *,
    once: bool,
    wait_seconds: float = math.inf,
    metrics: MetricsAddress | None = None,
    on_done: Callable[[Path], None] = lambda folder: None,
    linger: float = 0.0,
) -> int:
    """Start NVFlare and watch it until a signal comes; with `once`, until a run has ended."""
    state, kit = file.state, file.kit
    results = file.results if isinstance(file, SiteFile) else None
    on_end = partial(prune, state, kit, file.keep_runs, results)
    follow = page.totals.follow
    with _only_supervisor(state, kit), serving(metrics, page), _until_stopped(print_line) as code:
        process = start()
        monitor = RunMonitor(process, state, print_line, on_done, linger, page.log, on_end, follow)
        with _stopped_at_end(monitor):
            print_line(comes_up(process))
            code.append(monitor.watch(once, wait_seconds))
    return code[-1]


def _comes_up(
    is_up: Callable[[], object],
    seconds: float,
    up: str,
    not_up: Callable[[], str],
    process: subprocess.Popen[bytes],
) -> str:
    """Wait until a party is up, and return what is printed then."""
    processes.wait_for(lambda: is_up() or process.poll() is not None, seconds)
    if not is_up() or process.poll() is not None:
        raise FederationError(not_up())
    return up


def site_is_up(file: SiteFile) -> bool:
    """Return whether a site is served on this machine, and connected to the coordinator."""
    return _supervisor(file.state) is not None and n_connected(file.state / PEERS_FILE) > 0


def coordinator_is_up(file: FederationFile) -> bool:
    """Return whether a coordinator is served on this machine, and listens."""
    kit = file.kit
    return _supervisor(file.state) is not None and all(map(_listens, _ports(kit)))


def stop_party(state: Path, seconds: float = 20.0) -> bool:
    """Stop the supervisor that uses this folder; False if there is none."""
    pid = _supervisor(state)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    if not processes.wait_for(lambda: not processes.is_running(pid), seconds):
        processes.stop_tree(pid)
    return True


@contextmanager
def _stopped_at_end(monitor: RunMonitor) -> Iterator[None]:
    """Stop NVFlare and its child processes at the end; a run under way then fails."""
    try:
        yield
    finally:
        processes.stop_tree(monitor.process.pid)
        monitor.process.wait()
        monitor.look()


@contextmanager
def _only_supervisor(state: Path, kit: Path) -> Iterator[None]:
    """Let no second supervisor serve the party; end processes that a killed one left behind."""
    make_private_folder(state)
    before = os.umask(UMASK)  # NVFlare's processes write where we cannot choose
    try:
        with _pid_file(state, kit):
            yield
    finally:
        os.umask(before)


@contextmanager
def _pid_file(state: Path, kit: Path) -> Iterator[None]:
    with (state / PID_FILE).open("a+") as file:
        if not _lock(file):
            pid = _supervisor(state)
            raise FederationError(f"process {pid} serves {state.parent} already: stop it first")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        for orphan in processes.find("nvflare", str(kit)):
            processes.stop_tree(orphan)
        yield


@contextmanager
def _until_stopped(print_line: Callable[[str], None]) -> Iterator[list[int]]:
    """Catch SIGTERM and SIGINT and end with exit code 0."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    code: list[int] = []
    try:
        yield code
    except Stopped:
        print_line("stopped")
        code.append(YES)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _supervisor(state: Path) -> int | None:
    """Return the process that serves a party; the system drops its lock when it ends."""
    try:
        with (state / PID_FILE).open("r+") as file:
            return None if _lock(file) else int(file.read())
    except (OSError, ValueError):
        return None


def _lock(file: IO[str]) -> bool:
    if not Path("/proc/self/stat").exists():
        raise FederationError("agents and coordinators run on Linux only: there is no /proc here")
    import fcntl  # noqa: PLC0415

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ports(kit: Path) -> tuple[int, int]:
    try:
        config = json.loads((kit / "startup" / "fed_server.json").read_text())["servers"][0]
        return int(config["service"]["target"].rpartition(":")[2]), int(config["admin_port"])
    except (OSError, ValueError, LookupError) as error:
        raise FederationError(f"{kit} is not the kit of a coordinator: {error}") from None


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _check_kit(kit: Path, print_line: Callable[[str], None], name: str | None = None) -> float:
    """Check the certificate of a kit; return when it expires, in seconds since 1970."""
    from conovel.federation import certificates  # noqa: PLC0415  (an extra)

    if warning := certificates.check_certificate(kit, name):
        print_line(warning)
    return certificates.read_credentials(kit).certificate.not_valid_after_utc.timestamp()

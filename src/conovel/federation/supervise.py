"""A party's process: start the engine, see that it joins, tell what becomes of runs, stop it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from conovel.errors import FederationError
from conovel.federation import processes
from conovel.federation.certificates import check_certificate
from conovel.federation.kits import require_engine
from conovel.federation.ledger import DONE, RUNNING, Ledger
from conovel.federation.places import JOINED_FILE, LOG_FILE, PID_FILE
from conovel.federation.settings import FederationFile, SiteFile

TICK_SECONDS = 0.3
LINGER_SECONDS = 15.0  # for whoever submitted the last run to fetch its outcome


class Stopped(Exception):
    """Somebody asked this process to end."""


def serve_site(
    file: SiteFile,
    tell: Callable[[str], None],
    *,
    join_seconds: float,
    once: bool,
    on_done: Callable[[Path], None] = lambda folder: None,
) -> int:
    """Run a site until it is stopped; give the exit code.

    Parameters
    ----------
    file : SiteFile
    tell : callable
        Told what happens, a line at a time.
    join_seconds : float
        How long the coordinator may take to accept this site.
    once : bool
        End after one run: 0 if it was published, 1 if it was not.
    on_done : callable
        Told the folder of every run that was published, before the line about it.
    """
    require_engine()
    _tell_if(tell, check_certificate(file.kit, file.name))
    where = _address(file.kit)
    with _alone(file.state, file.kit), _until_stopped(tell) as code:
        joined = file.state / JOINED_FILE
        joined.unlink(missing_ok=True)
        engine = processes.start_site(file.kit, file.name, file.path, file.state)
        with _ended(engine):
            if not _comes_up(engine, joined.exists, join_seconds):
                raise FederationError(
                    f"{file.name} was not accepted by the coordinator at {where} within"
                    f" {join_seconds:g} s: is it running there, and is this kit of its federation?"
                    f" (see {file.state / LOG_FILE})"
                )
            tell(f"{file.name} is connected to {where} and waits for runs")
            code.append(_watch(engine, Ledger(file.state), tell, once, on_done))
    return code[-1]


def serve_coordinator(
    file: FederationFile, tell: Callable[[str], None], *, join_seconds: float, once: bool
) -> int:
    """Run the coordinator until it is stopped; give the exit code."""
    require_engine()
    if file.coordinator_kit is None:
        raise FederationError(f"{file.path} has no [coordinator] with a kit")
    _tell_if(tell, check_certificate(file.coordinator_kit))
    ports = _ports(file.coordinator_kit)
    with _alone(file.state, file.coordinator_kit), _until_stopped(tell) as code:
        for port in ports:
            if _listens(port):
                raise FederationError(f"port {port} is in use on this machine")
        engine = processes.start_coordinator(file.coordinator_kit, file.path, file.state)
        with _ended(engine):
            if not _comes_up(engine, lambda: all(map(_listens, ports)), join_seconds):
                raise FederationError(
                    f"the coordinator did not come up within {join_seconds:g} s"
                    f" (see {file.state / LOG_FILE})"
                )
            tell(f"the coordinator of {file.name} listens on ports {ports[0]} and {ports[1]}")
            code.append(_watch(engine, Ledger(file.state), tell, once, linger=LINGER_SECONDS))
    return code[-1]


def stop_party(state: Path, seconds: float = 20.0) -> bool:
    """Stop the supervisor whose state is here; False if there is none."""
    pid = _supervisor(state)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    if not processes.wait_for(lambda: not processes.is_running(pid), seconds):
        processes.stop_tree(pid)
    return True


def _watch(
    engine: subprocess.Popen[bytes],
    ledger: Ledger,
    tell: Callable[[str], None],
    once: bool,
    on_done: Callable[[Path], None] = lambda folder: None,
    linger: float = 0.0,
) -> int:
    """Tell of every run that begins or ends; go on until the engine ends, or one run has."""
    ledger.bury()
    states = {run["run_id"]: run["state"] for run in ledger.runs()}
    while engine.poll() is None:
        for run in ledger.bury():
            # Its number may be another process by now: only our own is ended.
            if run["pid"] in processes.descendants(engine.pid):
                processes.stop_tree(run["pid"])
        for run in ledger.runs():
            run_id, state = run["run_id"], run["state"]
            if states.get(run_id) == state:
                continue
            states[run_id] = state
            if state == RUNNING:
                tell(f"run {run_id[:8]} begins")
                continue
            if state == DONE and "results" in run:
                on_done(Path(run["results"]))
            tell(f"run {run_id[:8]} {state}: {run['message']}")
            if once:
                processes.wait_for(partial(_is_over, run["pid"]), 2 * LINGER_SECONDS)
                time.sleep(linger)
                return 0 if state == DONE else 1
        time.sleep(TICK_SECONDS)
    tell("the engine ended by itself")
    return 1


def _is_over(pid: int) -> bool:
    return not processes.is_running(pid)


def _comes_up(
    engine: subprocess.Popen[bytes], is_up: Callable[[], object], seconds: float
) -> bool:
    processes.wait_for(lambda: is_up() or engine.poll() is not None, seconds)
    return bool(is_up()) and engine.poll() is None


@contextmanager
def _ended(engine: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the engine with all it began, whatever happens."""
    try:
        yield
    finally:
        processes.stop_tree(engine.pid)
        engine.wait()


@contextmanager
def _alone(state: Path, kit: Path) -> Iterator[None]:
    """Let nobody else serve the same party, and end what a killed supervisor left behind."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (pid := _supervisor(state)) is not None:
        raise FederationError(f"process {pid} serves {state.parent} already")
    for orphan in processes.find(b"nvflare", str(kit).encode()):
        processes.stop_tree(orphan)
    path = state / PID_FILE
    path.write_text(str(os.getpid()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _until_stopped(tell: Callable[[str], None]) -> Iterator[list[int]]:
    """Turn the signals to end into an orderly end with exit code 0."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    code: list[int] = []
    try:
        yield code
    except Stopped:
        tell("stopped")
        code.append(0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _supervisor(state: Path) -> int | None:
    try:
        pid = int((state / PID_FILE).read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    # The number may have gone to another process since.
    return pid if b"conovel" in command and processes.is_running(pid) else None


def _address(kit: Path) -> str:
    try:
        config = json.loads((kit / "startup" / "fed_client.json").read_text())
        return str(config["servers"][0]["service"]["target"])
    except (OSError, ValueError, LookupError) as error:
        raise FederationError(f"{kit} is not the kit of a site: {error}") from None


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


def _tell_if(tell: Callable[[str], None], text: str) -> None:
    if text:
        tell(text)

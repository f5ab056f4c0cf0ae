"""NVFlare's processes: start them with our settings, watch them, stop them with their children.

The worker processes of a job have process sessions of their own, so stopping a party means to find
and stop all descendants of its process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from conovel.rows.private_files import FILE_MODE, UMASK, make_private_folder
from conovel.spec.records import read_json

SERVER_MODULE = "nvflare.private.fed.app.server.server_train"
SITE_MODULE = "nvflare.private.fed.app.client.client_train"
STOP_SECONDS = 5.0


def start_coordinator(kit: Path, settings: Path, state: Path) -> subprocess.Popen[bytes]:
    """Start the coordinator's process of NVFlare."""
    path = kit / "startup" / "fed_server.json"
    options = [f"org={read_json(path.read_bytes(), str(path))['servers'][0]['name']}"]
    return _start(SERVER_MODULE, "fed_server.json", options, kit, settings, state)


def start_site(kit: Path, name: str, settings: Path, state: Path) -> subprocess.Popen[bytes]:
    """Start a site's process of NVFlare."""
    options = [f"uid={name}", f"org={name}"]
    return _start(SITE_MODULE, "fed_client.json", options, kit, settings, state)


def _start(
    module: str, config: str, options: Sequence[str], kit: Path, settings: Path, state: Path
) -> subprocess.Popen[bytes]:
    from conovel.federation.hardening import prepare  # noqa: PLC0415  (loads pyarrow)

    make_private_folder(state)
    prepare(kit)
    command = [sys.executable, "-m", module, "-m", str(kit), "-s", config]
    command += ["--set", "secure_train=true", "config_folder=config", *options]
    descriptor = os.open(state / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
    with os.fdopen(descriptor, "ab") as log:
        return subprocess.Popen(  # noqa: S603
            command,
            env=os.environ | {ENVIRONMENT: str(settings), PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=UMASK,
        )


def stop_tree(pid: int, seconds: float = STOP_SECONDS) -> None:
    """End a process and its descendants: by SIGTERM, then by SIGKILL."""
    pids = [pid, *descendants(pid)]
    for sent, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, seconds)):
        pids = [*dict.fromkeys(pids + descendants(pid))]
        for one in pids:
            with suppress(ProcessLookupError):
                os.kill(one, sent)
        if wait_for(partial(all_gone, pids), patience):
            return


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants; stop them first, so that none restarts another."""
    pids = [pid, *descendants(pid)]
    for one in pids:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGSTOP)
    for one in dict.fromkeys([*pids, *descendants(pid)]):
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """List the children of a process, their children, and so on."""
    import psutil  # noqa: PLC0415  (an extra)

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:  # it has ended
        return []


def find(*words: str) -> list[int]:
    """List this user's processes whose command contains all these words."""
    import psutil  # noqa: PLC0415  (an extra)

    commands = {
        process.pid: "\0".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline", "uids"])
        if process.info["uids"] is not None and process.info["uids"].effective == os.geteuid()
    }
    return [pid for pid, command in commands.items() if all(word in command for word in words)]


def all_gone(pids: Sequence[int]) -> bool:
    """Return whether none of these processes is running."""
    return not any(map(is_running, pids))


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    import psutil  # noqa: PLC0415  (an extra)

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def wait_for(happened: Callable[[], object], seconds: float, every: float = 0.1) -> bool:
    """Wait until `happened()` is true; False if that takes too long."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


PARENT = "CONOVEL_PARENT"  # environment variable with the number of the process to end with
POLL_SECONDS = 0.2  # between two looks, where the system cannot tell when a process ends


def end_with_parent() -> None:
    """End this process, and those of its group, when the one that started it ends.

    The parent is the one that :data:`PARENT` names, so that a process whose parent ended before it
    came here ends at once. Its own children get its number. Without the variable, nothing happens.
    """
    named = os.environ.get(PARENT, "")
    own = str(os.getpid())
    if named in ("", own):  # nobody supervises it, or it is watched already
        return
    os.environ[PARENT] = own
    parent = int(named)
    wait = _waiting_for(parent)
    # Asked after the parent is held, so that its number cannot belong to another process.
    if os.getppid() != parent:
        _end()
    threading.Thread(target=_end_after, args=(wait,), name="lifeline", daemon=True).start()


def _waiting_for(parent: int) -> Callable[[], object]:
    """Return a function that returns once the parent has ended."""
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # not Linux, an old kernel, or it has ended
        return lambda: _poll(parent)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


def _poll(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)


def _end_after(wait: Callable[[], object]) -> None:
    wait()
    _end()


def _end() -> None:
    """End at once: what a signal handler or an exception could catch might still publish."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


ENVIRONMENT = "CONOVEL_SETTINGS"  # environment variable with the path of the party's TOML file
PEERS_FILE = "peers"  # how many parties are connected; written again at every heartbeat
JOINED_FILE = "joined"  # exists once the coordinator has accepted the site
PID_FILE = "supervisor.pid"
OWN_SEED_FILE = "seed-secret"  # mixed into the seed of every run; stays at the site
LOG_FILE = "engine.log"
AUDIT_FILE = "audit.jsonl"  # what left the site and what came in; never pruned
USED_FILE = "used-runs"  # ids of runs whose records were removed
REVOKED_FILE = "revoked.pem"  # in a kit, beside its certificate: certificates that do not count


def state_of(settings: Path) -> Path:
    """Return the folder of a party's records, beside its TOML file."""
    return settings.parent / "state"

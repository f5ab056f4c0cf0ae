"""A party's processes end with the process that started them, however that one ended.

A supervisor that is killed by SIGKILL can end nothing any more. So NVFlare's process watches its
supervisor, and the process of a run watches NVFlare's: each ends as soon as its parent has.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable

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

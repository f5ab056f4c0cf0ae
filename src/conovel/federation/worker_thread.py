"""One thread with a queue: work is done one piece after the other, in order.

A party of a run is a state machine that must not be called by two threads at once, while messages
arrive on many threads. The thread is a daemon, so that a site that hangs can still be ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class WorkerThread:
    """A thread that does pieces of work in order.

    Examples
    --------
    >>> worker = WorkerThread("example")
    >>> worker.do(sum, [1, 2]).result()
    3
    >>> worker.stop()
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a piece of work; the future holds its result or error."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # passed on to the caller that waits
                future.set_exception(error)

        self._queue.put(job)
        return future

    def stop(self) -> None:
        """End the thread after the work that is queued."""
        self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

"""One thread with a queue: what is handed in is done one after the other, in that order.

A party of a run is a machine that must not be called twice at once, while messages arrive on
many threads. The thread is a daemon: a site that hangs must not keep its process alive.
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
    """A thread that does what it is handed, in order.

    Examples
    --------
    >>> actor = WorkerThread("example")
    >>> actor.do(sum, [1, 2]).result()
    3
    >>> actor.stop()
    """

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand in some work; its result or error is in the future."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # whoever waits must hear of it
                future.set_exception(error)

        self._queue.put(job)
        return future

    def stop(self) -> None:
        """End the thread after what was handed in before."""
        self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()

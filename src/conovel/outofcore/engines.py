"""Who scores: threads of this process, or whatever else offers :class:`Engine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from joblib import cpu_count

from conovel.scoring import Matrix, ScoreModel, Vector

Tag = TypeVar("Tag")


class Engine(Protocol):
    """Scores pieces of rows, several at a time, and gives the scores back in order."""

    def scores(
        self, model: ScoreModel, pieces: Iterable[tuple[Tag, Matrix]]
    ) -> Iterator[tuple[Tag, Vector]]:
        """Score each piece; its tag comes back with its scores."""


class LocalEngine:
    """Threads of this process; what takes the time in scoring does not hold Python's lock.

    Parameters
    ----------
    n_threads : int, optional
        One for each core by default.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or cpu_count()

    def scores(
        self, model: ScoreModel, pieces: Iterable[tuple[Tag, Matrix]]
    ) -> Iterator[tuple[Tag, Vector]]:
        """Score each piece; its tag comes back with its scores."""
        with ThreadPoolExecutor(self.n_threads) as pool:
            yield from in_order(lambda X: pool.submit(model.score, X), pieces, self.n_threads)


class Promise(Protocol):
    """Scores that will be there."""

    def result(self) -> Vector:
        """Wait for it."""


def in_order(
    submit: Callable[[Matrix], Promise],
    pieces: Iterable[tuple[Tag, Matrix]],
    n_waiting: int,
) -> Iterator[tuple[Tag, Vector]]:
    """Keep so many pieces at work, and give results in the order of the pieces."""
    waiting: deque[tuple[Tag, Promise]] = deque()
    for tag, values in pieces:
        waiting.append((tag, submit(values)))
        if len(waiting) > n_waiting:
            first, promise = waiting.popleft()
            yield first, promise.result()
    for tag, promise in waiting:
        yield tag, promise.result()

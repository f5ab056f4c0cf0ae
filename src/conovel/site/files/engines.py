"""Who scores: threads of this process, or whatever else offers :class:`Engine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from joblib import cpu_count

from conovel.scorers.base import Matrix, ScoreModel, Vector
from conovel.site.files.ordered import Promise, in_order

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
            yield from tagged(lambda X: pool.submit(model.score, X), pieces, self.n_threads)


def tagged(
    submit: Callable[[Matrix], Promise[Vector]],
    pieces: Iterable[tuple[Tag, Matrix]],
    n_waiting: int,
) -> Iterator[tuple[Tag, Vector]]:
    """Submit the pieces, and give the scores back in order, each with its tag."""
    tags: deque[Tag] = deque()

    def promises() -> Iterator[Promise[Vector]]:
        for tag, values in pieces:
            tags.append(tag)
            yield submit(values)

    for scores in in_order(promises(), n_waiting):
        yield tags.popleft(), scores

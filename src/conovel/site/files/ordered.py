"""Work that is done several pieces at a time and comes back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Promise(Protocol[T_co]):
    """A result that will be there."""

    def result(self) -> T_co:
        """Wait for it."""


def in_order(promises: Iterable[Promise[T]], n_waiting: int) -> Iterator[T]:
    """Wait for results in their order, while so many later ones are already under way.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     list(in_order((pool.submit(pow, n, 2) for n in range(5)), n_waiting=2))
    [0, 1, 4, 9, 16]
    """
    waiting: deque[Promise[T]] = deque()
    for promise in promises:
        waiting.append(promise)
        if len(waiting) > n_waiting:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()

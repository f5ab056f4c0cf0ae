"""Who scores: threads of this process, or whatever else offers :class:`Engine`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import joblib
import numpy as np
from joblib import cpu_count

from conovel.errors import ClusterError, MissingExtraError
from conovel.rows.pieces import Promise, in_order
from conovel.scorers.base import Matrix, ScoreModel, Vector

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


_MOST_WAITING = 64  # pieces that may be on their way


class DaskEngine:
    """Workers of a Dask cluster; the scores are those of this process, bit for bit.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler, such as ``tcp://host:8786``.
    timeout : float
        Seconds to wait for the scheduler.
    """

    def __init__(self, scheduler: str, timeout: float = 10) -> None:
        try:
            from distributed import Client  # noqa: PLC0415
        except ImportError:
            raise MissingExtraError("distributed", "dask") from None
        try:
            client: Any = Client
            self.client = client(scheduler, timeout=timeout, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no Dask scheduler answers at {scheduler}: {error}") from None

    def scores(
        self, model: ScoreModel, pieces: Iterable[tuple[Tag, Matrix]]
    ) -> Iterator[tuple[Tag, Vector]]:
        """Score each piece; its tag comes back with its scores."""
        from dask import config  # noqa: PLC0415
        from distributed import KilledWorker  # noqa: PLC0415

        # Rows travel inside the tasks on purpose: what is scattered is lost with its worker.
        with config.set({"distributed.admin.large-graph-warning-threshold": "1GiB"}):
            there = self.client.submit(_keep, model, pure=False)
            n_waiting = min(2 * max(1, sum(self.client.ncores().values())), _MOST_WAITING)
            try:
                yield from tagged(
                    lambda X: self.client.submit(_score, there, X, pure=False), pieces, n_waiting
                )
            except KilledWorker as error:
                raise ClusterError(f"workers keep dying: {error}") from None

    def close(self) -> None:
        """Leave the cluster."""
        self.client.close()


@contextmanager
def joblib_on(scheduler: str) -> Iterator[None]:
    """Let everything that goes through joblib meanwhile run on a Dask cluster."""
    engine = DaskEngine(scheduler)
    try:
        with joblib.parallel_config(backend="dask", client=engine.client):
            yield
    finally:
        engine.close()


def _keep(model: ScoreModel) -> ScoreModel:
    return model


def _score(model: ScoreModel, X: Matrix) -> Vector:
    return np.asarray(model.score(X))

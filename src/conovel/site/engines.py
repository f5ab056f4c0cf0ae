"""Who scores: threads of this process, or whatever else offers :class:`Engine`."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import joblib
import numpy as np
import pyarrow as pa
from joblib import cpu_count

from conovel.errors import ClusterError, InputError, MissingExtraError
from conovel.rows.pieces import Promise, in_order
from conovel.rows.unpacked import as_bytes
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


DEFAULT_MEMORY = 10**9  # if no budget is asked for; a fit may then take more
_LEAST = 750_000_000  # the libraries with a fit on few columns take most of it
_LIBRARIES = 300_000_000
# What the default scorers hold at once of each row that they learn from, measured on 10 to 80
# columns: so many copies of its numbers, and so many bytes besides.
_COPIES, _PER_ROW = 8.5, 500
_LARGEST_PIECE = 1 << 16  # rows; larger ones gain nothing


@dataclass(frozen=True)
class MemoryPlan:
    """Sizes of what is held at a time."""

    piece: int  # rows that are read and scored together
    cell_bits: int  # see conovel.site.stored_blocks.draw_sample

    @classmethod
    def of(cls, memory: int, n_features: int) -> MemoryPlan:
        """Divide the budget: a quarter for pieces at work, a sixteenth for cells.

        The rest is left to the libraries, to the rows that the scorer learns from and to
        the calibration scores.
        """
        # About six copies of a row are made on its way, and eight pieces are on it.
        fitting = memory // 4 // (8 * 6 * 8 * (n_features + 2))
        return cls(
            piece=min(max(fitting, 1024), _LARGEST_PIECE),
            cell_bits=min(max((memory // 64).bit_length() - 1, 16), 26),
        )


def release_unused() -> None:
    """Give the memory back that allocators keep after a stage; the next stage needs it.

    Arrow and the C library keep what was freed. Before a fit that is about a fifth of the
    smallest budget.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only the GNU C library has it
        ctypes.CDLL(None).malloc_trim(0)


def require_room_to_fit(n_rows: int, n_features: int, memory: int) -> None:
    """Fail before the work where fitting on so many rows would break the budget."""
    needed = _LIBRARIES + int(n_rows * (_COPIES * 8 * n_features + _PER_ROW))
    if needed > memory:
        raise InputError(
            f"learning from {n_rows} rows of {n_features} columns takes about"
            f" {needed // 10**6}MB: raise the memory to that, or lower max_train_rows"
        )


def as_memory(memory: int | str) -> int:
    """Read an amount of memory: a number of bytes, or a text such as "800MB" or "1.5 GB"."""
    n_bytes = as_bytes(memory)
    if n_bytes < _LEAST:
        raise InputError(f"{memory} of memory is too little: give {_LEAST // 10**6}MB or more")
    return n_bytes

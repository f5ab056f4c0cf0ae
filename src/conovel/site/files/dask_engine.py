"""Work on the machines of one organisation, through a Dask cluster.

The files are read here and the parts written here; workers get rows and give scores. Pieces
and the model are part of the tasks that the scheduler keeps, so that a worker that dies takes
nothing with it: what it was doing is done again elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np

from conovel.errors import ClusterError, MissingExtraError
from conovel.scorers.base import Matrix, ScoreModel, Vector
from conovel.site.files.engines import Tag, tagged

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

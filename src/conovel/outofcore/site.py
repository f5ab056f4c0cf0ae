"""An agent whose rows are in files of any size: the same messages, in bounded memory.

It learns from the rows that an agent with everything in memory would learn from, scores and
ranks piece by piece, and answers counts from how often each rank occurs. What it decides is
written when the run is over (:meth:`FileSite.write`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from conovel.composite import composite_model
from conovel.errors import InputError
from conovel.files import pick_features
from conovel.outofcore.decisions import count_ranks, write_rows
from conovel.outofcore.engines import LocalEngine
from conovel.outofcore.gather import Training
from conovel.outofcore.memory import DEFAULT_MEMORY, as_memory
from conovel.outofcore.source import Source
from conovel.outofcore.stream import Progress, Stream, silent
from conovel.participant import Facts
from conovel.site import Settings, Workplace
from conovel.stepup import RankHistogram


class FileSite(Workplace[Training]):
    """One agent's rows in files, and the work on them; see :class:`conovel.site.LocalSite`.

    Parameters
    ----------
    null, test : Path
        Known normals and rows to test: CSV or Parquet files, or folders of them.
    settings : Settings
        Any regime but `split`, which cuts the rows into blocks.
    folder : Path
        Where scores and ranks are kept until :meth:`close`, 16 bytes for each test row.
    columns, id_column
        Features and the column that names the rows; see :func:`conovel.files.pick_features`.
    memory : int or str
        What may be used, in bytes or as "1.5GB"; known normals take about 48 bytes each beyond.
    on_progress : callable, optional
        Told the stage, how many rows are done and how many there are, if known.

    Attributes
    ----------
    histogram : RankHistogram
        How often each rank occurs, once they are known.
    """

    def __init__(
        self,
        null: Path,
        test: Path,
        settings: Settings,
        folder: Path,
        *,
        columns: Sequence[str] | None = None,
        id_column: str | None = None,
        memory: int | str = DEFAULT_MEMORY,
        on_progress: Progress | None = None,
    ) -> None:
        if settings.regime.splits_rows:
            raise InputError(
                f"the regime {settings.regime.name} cuts rows into blocks, which files read in"
                " pieces do not allow: take another regime, or a larger memory"
            )
        features = pick_features(null, test, columns, id_column)
        super().__init__(features, settings)
        self._stream = Stream(
            Source(null, features),
            Source(test, features, id_column),
            as_memory(memory),
            LocalEngine(),
            folder,
            settings=[repr(settings)],
            tell=on_progress or silent,
        )

    @cached_property
    def _training(self) -> Training:
        return self._stream.learn(lambda *sizes: self._split(*sizes)[0], self.max_train_rows)

    @property
    def facts(self) -> Facts:
        """Row numbers and columns, as the hello tells them; every value is checked for it."""
        _ = self._training
        return self._facts(self._stream.n_null, self._stream.n_test)

    def models(self, index: int, names: Sequence[str]) -> Mapping[str, bytes]:
        """Fit, and make a model for every peer: one for all."""
        blob = self._surrogate(*self._keep(self._training))
        return {name: blob for i, name in enumerate(names) if i != index}

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram:
        """Score with everybody's models together; count the ranks of the tested rows."""
        training, local = self._own or self._keep(self._training)
        surrogates = self._decode(models)
        composite = self._composite(training, local, surrogates)
        task = local, surrogates, training.null_train, training.sample
        model = composite_model(composite, *task)
        calibration = self._stream.rank(model, training, local.name)
        self.histogram = count_ranks(self._stream.parts(), calibration.size)
        return self.histogram

    def write(self, path: Path, limit: int) -> None:
        """Write the decisions piece by piece, as :class:`conovel.results.SiteResult` has them.

        Parameters
        ----------
        path : Path
            .csv or .parquet, on the disk of the folder.
        limit : int
            The largest rejected rank.
        """
        n_calibration = self.histogram.n_calibration

        def decide(part: pa.Table) -> pa.Table:
            ranks = part["rank"].to_numpy()
            return (
                part.append_column("p_value", pa.array(ranks / (n_calibration + 1)))
                .append_column("tested", pa.array(np.ones(ranks.size, dtype=np.bool_)))
                .append_column("rejected", pa.array(ranks <= limit))
            )

        write_rows(path, map(decide, self._stream.parts("writing")), self._stream.work.folder)

    def close(self) -> None:
        """Remove the folder."""
        self._stream.work.clear()

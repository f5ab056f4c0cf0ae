"""AdaDetect on files of any size: the same decisions, in bounded memory.

The path: survey both samples → gather what the scorer learns from → fit → score the
calibration rows → score and rank the test rows, part by part → count the ranks → decide →
write. Parts are kept until the output is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import FileError, InputError
from conovel.scorers.registry import as_candidates
from conovel.scorers.selection import Selection, fit_best
from conovel.site.detector import AdaDetect, outline
from conovel.site.files.decisions import Decider, count_ranks, write_rows
from conovel.site.files.engines import Engine, LocalEngine
from conovel.site.files.memory import DEFAULT_MEMORY, as_memory
from conovel.site.files.sketch import Sketch
from conovel.site.files.source import FileSource
from conovel.site.files.stream import Progress, Stream, silent
from conovel.site.splitting import as_share, split_null
from conovel.site.storage import pick_features, require_writable
from conovel.spec.guarantee import Guarantee, one_site
from conovel.spec.seeds import detector_seeds
from conovel.stats.arguments import as_whole
from conovel.stats.levels import as_level
from conovel.stats.null_proportion import as_estimator
from conovel.stats.rank_counts import RankHistogram
from conovel.stats.resolution import Resolution, resolution, warn_resolution
from conovel.stats.stepup import StepUp, step_up_counts


@dataclass(frozen=True, eq=False)
class FileDetection:
    """What was decided about rows that are in files; see `conovel.Detection`."""

    out: Path
    n_train: int
    histogram: RankHistogram
    sketch: Sketch
    stepup: StepUp
    scorer: str
    selection: Selection | None
    guarantee: Guarantee

    @property
    def n_calibration(self) -> int:
        """Size ℓ of the calibration sample."""
        return self.histogram.n_calibration

    @property
    def n_rejected(self) -> int:
        """Number of rows declared novelties."""
        return self.stepup.n_rejected

    @property
    def level(self) -> Fraction:
        """The level α, exact."""
        return self.stepup.level

    @property
    def resolution(self) -> Resolution:
        """How few rows could have been rejected together with this calibration size."""
        return resolution(self.n_calibration, self.histogram.size, self.level)

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, ready for JSON."""
        k = np.array([self.n_rejected]) if self.n_rejected else np.array([], dtype=np.int64)
        return outline(
            self.stepup,
            n_train=self.n_train,
            n_calibration=self.n_calibration,
            n_test=self.histogram.size,
            largest_rejected_rank=int(self.histogram.smallest(k).max(initial=0)),
            scorer=self.scorer,
            selection=self.selection,
            guarantee=self.guarantee,
        )


def detect_files(
    detector: AdaDetect,
    null: Path,
    test: Path,
    out: Path,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    memory: int | str = DEFAULT_MEMORY,
    engine: Engine | None = None,
    on_progress: Progress | None = None,
) -> FileDetection:
    """Decide which rows of files are novelties, and write the decisions.

    The output has the bytes that reading everything into memory gives, whatever the budget
    and the engine. If it is broken off, the same call goes on where it stopped.

    Parameters
    ----------
    detector : AdaDetect
        Scorer, level and all other settings.
    null, test : Path
        Known normals and rows to test: CSV or Parquet files, or folders of them.
    out : Path
        File of decisions, .csv or .parquet.
    columns, id_column
        Features and the column that names the rows; see
        :func:`conovel.site.storage.pick_features`.
    memory : int or str
        What may be used, in bytes or as "1.5GB"; known normals take about 48 bytes each beyond.
    engine : Engine, optional
        Who scores; threads by default.
    on_progress : callable, optional
        Told the stage, how many rows are done and how many there are, if known.
    """
    require_writable(out)
    types = pick_features(null, test, columns, id_column)
    level, estimator = as_level(detector.level), as_estimator(detector.pi0)
    split_seed, scorer_seed = detector_seeds(detector.random_state)
    candidates = as_candidates(detector.scorer, scorer_seed)
    most = as_whole(detector.max_train_rows, "max_train_rows", least=1)
    stream = Stream(
        FileSource(null, types=types),
        FileSource(test, id_column=id_column, types=types),
        as_memory(memory),
        engine or LocalEngine(),
        folder=out.with_name(f".{out.name}.work"),
        settings=[
            [repr(candidate) for candidate in candidates],
            [str(level), repr(estimator), str(detector.train_fraction), split_seed, most],
        ],
        tell=on_progress or silent,
    )

    def split(n_null: int, n_test: int) -> NDArray[np.intp]:
        share = as_share(detector.train_fraction, n_null, n_test, level)
        return split_null(n_null, share, split_seed, most)[0]

    try:
        training = stream.learn(split, most)
        if estimator is None:
            n_calibration = stream.n_null - len(training.null_train)
            warn_resolution([(stream.n_test, n_calibration)], level)
        stream.teller("fitting the score model", None)
        model = fit_best(candidates, training)
        calibration = stream.rank(model, training, model.name)
        stream.teller("deciding", None)
        sketch = Sketch(calibration)
        histogram = count_ranks(map(sketch.see, stream.parts()), calibration.size)
        outcome = step_up_counts([histogram], level, estimator)
        decided = map(Decider(histogram, outcome.limits[0]).decide, stream.parts("writing"))
        write_rows(out, map(sketch.draw, decided), stream.work.folder)
    except (InputError, FileError):
        stream.work.clear()  # the same inputs would only fail again
        raise
    stream.work.clear()
    return FileDetection(
        out=out,
        n_train=len(training.null_train),
        histogram=histogram,
        sketch=sketch,
        stepup=outcome,
        scorer=model.name,
        selection=model.selection,
        guarantee=one_site(level, estimator),
    )

"""An agent whose rows are in files of any size: the same messages, in bounded memory.

It learns from the rows that an agent with everything in memory would learn from, scores and
ranks piece by piece, and answers counts from how often each rank occurs. What it decides is
written when the run is over (:meth:`FileSite.write`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conovel.errors import MissingValueError
from conovel.rows.asked import SchemaLike, asks, columns_read, needs_schema, restricted
from conovel.rows.datafiles import are_numbers, not_numbers
from conovel.rows.dialects import AS_FOUND, Reading
from conovel.rows.encoding import Encoder, FeatureMap
from conovel.rows.file_columns import codec_from_files, contents_in_files, infer_from_files
from conovel.rows.original import with_frames
from conovel.rows.pieces import FileSource, mask_of
from conovel.rows.storage import pick_features
from conovel.scorers.base import FittedScorer, TrainingSet, Vector
from conovel.scorers.estimators import reads_frames
from conovel.site.common_scale import CommonScale
from conovel.site.engines import Engine, LocalEngine
from conovel.site.explain.column_views import views_of
from conovel.site.explain.explainer import Explainer
from conovel.site.explain.reasons import MOST_EXPLAINED, Reasons, most_novel
from conovel.site.files.stream import Progress, Stream, silent
from conovel.site.memory import DEFAULT_MEMORY, MemoryPlan, as_memory
from conovel.site.output import (
    Decider,
    count_ranks,
    with_originals,
    with_reasons,
    write_rows,
)
from conovel.site.site import Site
from conovel.site.sketch import SeenDecisions, Sketch
from conovel.site.work import SiteWork
from conovel.spec.facts import Facts
from conovel.spec.findings import Finding
from conovel.spec.made_from import require_made_for
from conovel.spec.regimes import own_block
from conovel.spec.schema import Schema
from conovel.stats.cells import N_CELLS, CellHistogram, reaches
from conovel.stats.stepup import RankHistogram, within_limit


class FileSite(Site):
    """One agent's rows in files, and the work on them; see :class:`conovel.site.site.LocalSite`.

    Parameters
    ----------
    null, test : Path
        Known normals and rows to test: CSV or Parquet files, or folders of them.
    work : SiteWork
        In the regime `split` the files are read once for every block, and a row takes 9 bytes
        beyond the budget.
    folder : Path
        Where scores and ranks are kept until :meth:`close`, 16 bytes for each test row.
    columns, id_column, reading
        Features, the column that names the rows, and what the user says about the files; see
        :func:`conovel.rows.storage.pick_features`.
    schema : Schema, path, mapping or None
        What the columns are. In a network it is the run's.
    memory : int, str or None
        What may be used, in bytes or as "1.5GB"; known normals take about 48 bytes each beyond.
        None is 1 GB, and more where the fit needs more.
    engine : Engine, optional
        Who scores; threads by default.
    on_progress : callable, optional
        Told the stage, how many rows are done and how many there are, if known.

    Attributes
    ----------
    histogram : RankHistogram
        How often each rank occurs, once they are known.
    sketch : Sketch
        What a report draws of the rows.
    """

    def __init__(
        self,
        null: Path,
        test: Path,
        work: SiteWork,
        folder: Path,
        *,
        columns: Sequence[str] | None = None,
        id_column: str | None = None,
        reading: Reading = AS_FOUND,
        schema: SchemaLike = None,
        memory: int | str | None = None,
        engine: Engine | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        said = restricted(schema, reading.exclude, columns)
        kinds = None if isinstance(said, Schema) else said
        reading, columns = columns_read(said, reading, columns)
        types = pick_features(null, test, columns, id_column, reading)
        sources = (
            FileSource(null, types=types, reading=reading),
            FileSource(test, id_column=id_column, types=types, reading=reading),
        )
        n_bytes = as_memory(DEFAULT_MEMORY if memory is None else memory)
        tell = on_progress or silent
        plan = MemoryPlan.of(n_bytes, len(types.names))

        # Agents send models of features, so that their pipelines get what the features keep.
        whole = work.n_agents == 1 and reads_frames(work.candidates)

        def look() -> FeatureMap:
            tell("looking at the columns", 0, None)
            if whole:
                return codec_from_files(sources, plan.piece, n_bytes // 8)
            return Encoder(infer_from_files(sources, plan.piece, kinds))

        def open_stream(encoder: FeatureMap | None) -> Stream:
            return Stream(
                replace(sources[0], encoder=encoder),
                replace(sources[1], encoder=encoder),
                n_bytes,
                engine or LocalEngine(),
                folder,
                settings=[repr(work)],
                tell=tell,
                is_asked=memory is not None,
            )

        encoder: FeatureMap | None = None
        if whole:
            encoder = look()
        elif isinstance(said, Schema):
            encoder = Encoder(said)
            if (made := said.made_from) is not None:
                seen = (contents_in_files(p, reading, made, plan.piece) for p in (null, test))
                require_made_for(made, *seen, fixed=work.spec.regime.composite_null)
        elif asks(said) or not are_numbers(types):
            if work.n_agents > 1:
                raise needs_schema(not_numbers(types, null))
            encoder = look()
        self._all = self._stream = open_stream(encoder)
        features = self._all.null.features
        super().__init__(features, with_frames(work, features, encoder))
        # Whether values are missing is known when the numbers are read.
        self._reopen = None if encoder else lambda: open_stream(look())
        self._tested: NDArray[np.bool_] | None = None  # None: all
        self._cells: CommonScale | None = None  # of the regime `joint`
        self._explainer: Explainer | None = None

    def _learn(self, stream: Stream, name: str = "training") -> TrainingSet:
        return stream.learn(
            lambda n_null, n_test: self._split(n_null, self._all.n_test or n_test)[0],
            self.work.max_train_rows,
            name,
        )

    @cached_property
    def _training(self) -> TrainingSet:
        """All rows; in `split`, the block that this agent keeps for itself."""
        try:
            return self._learn(self._all)
        except MissingValueError as error:
            if self._reopen is None:
                raise
            if self.work.n_agents > 1:
                raise needs_schema(error) from None
            self._all = self._stream = self._reopen()
            self.columns, self._reopen = tuple(self._all.null.features), None
            return self._learn(self._all)

    @property
    def facts(self) -> Facts:
        """Row numbers and columns, as the hello tells them; every value is checked for it."""
        _ = self._training
        return self._facts(self._all.n_null, self._all.n_test)

    def models(
        self, index: int, names: Sequence[str], weight: Fraction = Fraction(0)
    ) -> Mapping[str, bytes]:
        """Fit, and make a model for every peer: one for all, or one per block in `split`."""
        self._weight = weight
        if not self.spec.regime.splits_rows:
            facts = self.facts
            n_train = self._n_train(facts.n_null, facts.n_test)
            if n_train != self.n_train:  # more of them train than was known before the roster
                self._training = self._learn(self._all, f"training-{n_train}")
            own = self._fit_own(self._training)
            blob = self._surrogate(self._training, own, facts.n_null + facts.n_test - n_train)
            return {name: blob for i, name in enumerate(names) if i != index}
        facts = self.facts
        cuts = self._cuts(facts.n_null, facts.n_test, len(names))
        models = {}
        for i, (name, cut) in enumerate(zip(names, cuts, strict=True)):
            null, test = map(mask_of, cut, (facts.n_null, facts.n_test))
            stream = self._all.part(null, test, f"block-{i}")
            training = self._learn(stream)
            if i == own_block(index):
                self._stream, self._tested, self._training = stream, test, training
                self._fit_own(training)
            else:
                n_mixture = stream.n_null + stream.n_test - len(training.null_train)
                models[name] = self._surrogate(training, self._fit(training), n_mixture)
        return models

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram | CellHistogram:
        """Score with everybody's models together; count the ranks of the tested rows."""
        training, local = self._training, self.fitted
        model = self._composite(training, local, models)
        views = views_of(self._all.test.encoder, self.columns)
        self._explainer = Explainer(model, training.null_train, views)
        calibration = self._stream.rank(model, training)
        self._stream.teller("deciding", None)
        self.sketch = Sketch(calibration)
        parts = map(self.sketch.see, self._stream.parts())
        if not self.spec.regime.pools_calibration:
            self.histogram = count_ranks(parts, calibration.size)
            return self.histogram
        self._cells = scale = self._scale(model, training)
        tests = np.zeros(N_CELLS, dtype=np.int64)

        def count_cells(part: pa.Table) -> pa.Table:
            tests[:] += np.bincount(scale.cells(part["score"].to_numpy()), minlength=N_CELLS)
            return part

        self.histogram = count_ranks(map(count_cells, parts), calibration.size)
        known = np.bincount(scale.cells(calibration), minlength=N_CELLS)
        return CellHistogram(known, tests, scale.likely)

    @property
    def fitted(self) -> FittedScorer:
        """The model that ranks the rows, fitted when it is first asked for."""
        return self._own or self._fit_own(self._training)

    def _fit_own(self, training: TrainingSet) -> FittedScorer:
        self._stream.teller("fitting the score model", None)
        return super()._fit_own(training)

    @property
    def n_train(self) -> int:
        """How many known normals train."""
        return len(self._training.null_train)

    def explain(self, limit: int, most: int = MOST_EXPLAINED) -> Reasons:
        """Explain the most novel of the rejected rows; only they are read again.

        Parameters
        ----------
        limit : int
            The largest rejected rank; in the regime `joint` the lowest rejected cell.
        most : int
            How many rows are explained at most.
        """
        assert self._explainer is not None  # noqa: S101  (rows are ranked before)
        chosen, novelty = self._most_novel(limit, most)
        self._stream.teller("explaining", None)
        rows, ids = self._stream.test.rows_at(chosen, self._stream.plan.piece)
        found = Reasons.of(self._explainer, rows, np.arange(chosen.size), ids)
        places = chosen if self._tested is None else np.flatnonzero(self._tested)[chosen]
        return replace(found, rows=places, novelty=novelty)

    def _most_novel(self, limit: int, most: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the places of the most novel rejected rows, and the order of their novelty."""
        rows, ranks = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
        scores = np.zeros(0)
        start = 0
        for part in self._stream.parts():
            own_ranks, own_scores = part["rank"].to_numpy(), part["score"].to_numpy()
            here = np.flatnonzero(self._rejected(own_ranks, own_scores, limit))
            rows = np.append(rows, start + here)
            ranks, scores = np.append(ranks, own_ranks[here]), np.append(scores, own_scores[here])
            kept = np.lexsort((-scores, ranks))[:most]
            rows, ranks, scores = rows[kept], ranks[kept], scores[kept]
            start += part.num_rows
        return most_novel(rows, ranks, scores, most)

    def _rejected(self, ranks: NDArray[np.int64], scores: Vector, limit: int) -> NDArray[np.bool_]:
        if self._cells is None:
            return within_limit(ranks, limit)
        return reaches(self._cells.cells(scores), limit)

    def write_detection(
        self, path: Path, limit: int, reasons: Reasons | None = None, keep_columns: bool = False
    ) -> None:
        """Write the decisions of a site alone, as `conovel.Detection` has them.

        Parameters
        ----------
        path, limit, reasons
            As of :meth:`write`.
        keep_columns : bool
            Whether to write the columns of the test files, too.
        """
        decider = Decider(self.histogram, limit)
        decided = map(self._seen.see, map(decider.decide, self._stream.parts("writing")))
        told = with_reasons(map(self.sketch.draw, decided), reasons)
        if keep_columns:
            told = map(with_originals, told, self._all.test.originals(self._all.plan.piece))
        write_rows(path, told, self._all.work.folder)

    def write(self, path: Path, limit: int, reasons: Reasons | None = None) -> None:
        """Write the decisions piece by piece, as `conovel.SiteResult` has them.

        Parameters
        ----------
        path : Path
            .csv or .parquet, on the disk of the folder.
        limit : int
            The largest rejected rank; in the regime `joint` the lowest rejected cell.
        reasons : Reasons, optional
            Written beside the decisions.
        """
        n_calibration = self.histogram.n_calibration

        def decide(part: pa.Table, tested: NDArray[np.bool_]) -> pa.Table:
            ranks = part["rank"].to_numpy()
            p_values = np.where(tested, ranks / (n_calibration + 1), np.nan)
            rejected = self._rejected(ranks, part["score"].to_numpy(), limit)
            return (
                part.append_column("p_value", pa.array(p_values))
                .append_column("tested", pa.array(tested))
                .append_column("rejected", pa.array(rejected))
            )

        parts = self._stream.parts("writing")
        if self._tested is None:
            told = (decide(part, np.ones(part.num_rows, dtype=np.bool_)) for part in parts)
        else:
            told = (decide(*part) for part in self._with_untested(parts, self._tested))
        seen = map(self._seen.see, told)
        write_rows(path, with_reasons(seen, reasons), self._all.work.folder)

    def _with_untested(
        self, parts: Iterator[pa.Table], tested: NDArray[np.bool_]
    ) -> Iterator[tuple[pa.Table, NDArray[np.bool_]]]:
        """Give all rows in their order, with rank 0 and no score where they were not tested."""
        size, source = self._all.plan.piece, self._all.test
        names = source.names(size) if source.id_column else repeat(None)
        rest = next(parts)
        for start, name in zip(range(0, tested.size, size), names, strict=False):
            here = tested[start : start + size]
            n = int(here.sum())
            while rest.num_rows < n:
                rest = pa.concat_tables([rest, next(parts)])
            scores, ranks = np.full(here.size, np.nan), np.zeros(here.size, dtype=np.int64)
            scores[here] = rest["score"][:n].to_numpy()
            ranks[here] = rest["rank"][:n].to_numpy()
            rest = rest.slice(n)
            columns = {"score": scores, "rank": ranks}
            yield pa.table(columns if name is None else {"id": name, **columns}), here

    @cached_property
    def _seen(self) -> SeenDecisions:
        return SeenDecisions(self._all.looked)

    def findings(self, *known: Finding | None, name: str = "") -> tuple[Finding, ...]:
        """Look for what speaks against the decisions, once they are written.

        Parameters
        ----------
        *known : Finding or None
            What is known already.
        name : str
            The agent; empty for one site alone.
        """
        return self._seen.findings(self.histogram.at_most(1), known, self.work.n_agents, name)

    def close(self) -> None:
        """Remove the folder."""
        self._all.work.clear()

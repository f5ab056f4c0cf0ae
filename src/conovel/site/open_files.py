"""A site whose rows are in files of any size: they are read once, encoded and kept in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from conovel.errors import FileError, InputError, MissingValueError
from conovel.rows.asked import SchemaLike, asks, columns_read, needs_schema, restricted
from conovel.rows.datafiles import are_numbers, not_numbers
from conovel.rows.dialects import AS_FOUND, Reading
from conovel.rows.encoding import Encoder, FeatureMap
from conovel.rows.file_columns import codec_from_files, contents_in_files, infer_from_files
from conovel.rows.pieces import FileSource
from conovel.rows.storage import pick_features
from conovel.rows.stored import store_rows
from conovel.rows.tables import Rows, warn_constant
from conovel.rows.work_folder import WorkFolder
from conovel.scorers.automatic import reads_frames
from conovel.site.engines import Engine, LocalEngine
from conovel.site.memory import DEFAULT_MEMORY, MemoryPlan, as_memory
from conovel.site.site import Site
from conovel.site.stored_blocks import Progress, Store, silent
from conovel.site.work import SiteWork
from conovel.spec.made_from import MadeFrom, require_made_for
from conovel.spec.schema import Schema
from conovel.spec.version import __version__


def open_files_site(
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
    on_progress: Progress = silent,
) -> Site:
    """Read the files of a site once, and return the site; every value is checked.

    What was read is kept in a folder. The same call with the same files goes on from there.

    Parameters
    ----------
    null, test : Path
        Known normals and rows to test: CSV or Parquet files, or folders of them.
    work : SiteWork
    folder : Path
        Where rows, scores and ranks are kept until it is removed: 8 bytes for each feature of a
        row, and 24 for each test row.
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
    on_progress : callable
        Told the stage, how many rows are done and how many there are, if known.
    """
    given = restricted(schema, reading.exclude, columns)
    reading, columns = columns_read(given, reading, columns)
    types = pick_features(null, test, columns, id_column, reading)
    sources = (
        FileSource(null, types=types, reading=reading),
        FileSource(test, id_column=id_column, types=types, reading=reading),
    )
    n_bytes = as_memory(DEFAULT_MEMORY if memory is None else memory)
    size = MemoryPlan.of(n_bytes, len(types.names)).piece
    kinds = None if isinstance(given, Schema) else given
    # Agents send models of features, so that their pipelines get what the features keep.
    whole = work.n_agents == 1 and reads_frames(work.candidates)

    def look() -> FeatureMap:
        on_progress("looking at the columns", 0, None)
        if whole:
            return codec_from_files(sources, size, n_bytes // 8)
        return Encoder(infer_from_files(sources, size, kinds))

    def open_site(encoder: FeatureMap | None) -> Site:
        null, test = (replace(source, encoder=encoder) for source in sources)
        plan = MemoryPlan.of(n_bytes, len(null.features))
        made_of = [__version__, null.digest(), test.digest(), plan.piece, repr(work)]
        key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
        kept = WorkFolder.at(folder, key)
        store = Store(
            kept, n_bytes, memory is not None, plan, engine or LocalEngine(), on_progress
        )
        return _stored_site(null, test, work, store)

    encoder: FeatureMap | None = None
    if isinstance(given, Schema) and not whole:
        encoder = Encoder(given)
        fixed = work.spec.regime.composite_null
        _check_contents(given.made_from, (null, test), reading, size, fixed=fixed)
    elif whole or asks(given) or not are_numbers(types):
        if work.n_agents > 1:
            raise needs_schema(not_numbers(types, null))
        encoder = look()
    try:
        return open_site(encoder)
    except MissingValueError as error:  # known when the numbers are read
        if encoder:
            raise
        if work.n_agents > 1:
            raise needs_schema(error) from None
        return open_site(look())


def _check_contents(
    made: MadeFrom | None, paths: Sequence[Path], reading: Reading, size: int, *, fixed: bool
) -> None:
    """Check that the schema was not made from rows that it must not be made from."""
    if made is not None:
        contents = (contents_in_files(path, reading, made, size) for path in paths)
        require_made_for(made, *contents, fixed=fixed)


def _stored_site(null: FileSource, test: FileSource, work: SiteWork, store: Store) -> Site:
    """Read both samples, or take up what was read."""
    counts = [sample.count_known() for sample in (null, test)]
    total = None if None in counts else sum(filter(None, counts))
    tell, size = store.begin("reading", total), store.plan.piece
    try:
        known = store_rows(null, store.work, "null", size, tell)
        tests = store_rows(test, store.work, "test", size, tell)
        ranges = (np.stack([rows.low, rows.high]) for rows in (known, tests))
        warn_constant(*(Rows(pair, known.columns, encoder=known.encoder) for pair in ranges))
    except (InputError, FileError):
        store.work.clear()  # the same inputs would only fail again
        raise
    return Site(known, tests, work, store)

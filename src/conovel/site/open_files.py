"""A site whose rows are in files of any size: they are read once, encoded and kept in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from conovel.errors import FileError, InputError, MissingValueError
from conovel.rows.columns import Numbers, RawColumn, mixed_with_texts, plain_kinds, read_frame
from conovel.rows.datafiles import are_numbers, not_numbers, open_files
from conovel.rows.dialects import AS_FOUND, ReadingOptions
from conovel.rows.encoding import Encoder, FeatureMap, contents_of_frame
from conovel.rows.frames import ColumnValues, FrameCodec
from conovel.rows.known_files import KnownFile, KnownTable
from conovel.rows.pairs import KnownRows, known_features
from conovel.rows.pieces import FileSource
from conovel.rows.profiles import Profile, compared_profiles
from conovel.rows.schemas import (
    SchemaLike,
    changes_numbers,
    columns_read,
    needs_schema,
    restricted,
    schema_from,
)
from conovel.rows.storage import pick_features
from conovel.rows.stored import store_rows
from conovel.rows.tables import Rows, require_finite, warn_constant
from conovel.rows.work_folder import WorkFolder
from conovel.scorers.argument import reads_frames
from conovel.site.engines import DEFAULT_MEMORY, Engine, LocalEngine, MemoryPlan, as_memory
from conovel.site.site import Site
from conovel.site.stored_blocks import Progress, Store, silent
from conovel.site.work import SiteWork
from conovel.spec.made_from import NOTHING, Contents, MadeFrom, require_made_for
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
    reading: ReadingOptions = AS_FOUND,
    schema: SchemaLike = None,
    memory: int | str | None = None,
    engine: Engine | None = None,
    on_progress: Progress = silent,
    known_file: KnownFile | None = None,
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
    known_file : KnownFile, optional
        Known novelties. They are few, and stay in memory.
    """
    given = restricted(schema, reading.exclude, columns)
    reading, columns = columns_read(given, reading, columns)
    samples = null, test, columns, id_column, reading
    types, reading, novel = (
        (pick_features(*samples), reading, None)
        if known_file is None
        else known_file.pick(*samples)
    )
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
            return codec_from_files(sources, size, n_bytes // 8, novel)
        return Encoder(infer_from_files(sources, size, kinds))

    def open_site(encoder: FeatureMap | None) -> Site:
        null, test = (replace(source, encoder=encoder) for source in sources)
        plan = MemoryPlan.of(n_bytes, len(null.features))
        made_of = [__version__, null.digest(), test.digest(), plan.piece, repr(work)]
        kept = WorkFolder.at(folder, _key(made_of, novel))
        store = Store(
            kept, n_bytes, memory is not None, plan, engine or LocalEngine(), on_progress
        )
        return _stored_site(null, test, work, store)

    encoder: FeatureMap | None = None
    if isinstance(given, Schema) and not whole:
        encoder = Encoder(given)
        fixed = work.columns_fixed
        _check_contents(given.made_from, (null, test), reading, size, fixed=fixed)
    elif whole or changes_numbers(given) or not are_numbers(types):
        if work.n_agents > 1:
            raise needs_schema(not_numbers(types, null))
        encoder = look()
    try:
        site = open_site(encoder)
    except MissingValueError as error:  # known when the numbers are read
        if encoder:
            raise
        if work.n_agents > 1:
            raise needs_schema(error) from None
        site = open_site(look())
    return _with_known(site, novel, given)


def _key(made_of: Sequence[Any], novel: KnownTable | None) -> str:
    """Digest what the work in a folder depends on."""
    known_rows = [] if novel is None else [novel.features.to_pydict()]
    return hashlib.sha256(json.dumps([*made_of, *known_rows], default=str).encode()).hexdigest()


def _with_known(
    site: Site, novel: KnownTable | None, given: Schema | Mapping[str, Any] | None
) -> Site:
    """Give a site its known novelties, in its features."""
    if novel is None:
        return site
    null = site.null
    try:
        if isinstance(null.encoder, FrameCodec):
            frame = nw.from_native(novel.features, eager_only=True)
            values = null.encoder.encode(frame, "X_known").values
        else:
            like = Rows(np.empty((0, null.width)), null.columns, encoder=null.encoder)
            values = known_features(novel.features, like, given)
    except InputError:
        site.close()  # the same inputs would only fail again
        raise
    site.known_rows = KnownRows(values, novel.kinds)
    return site


def _check_contents(
    made: MadeFrom | None,
    paths: Sequence[Path],
    reading: ReadingOptions,
    size: int,
    *,
    fixed: bool,
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
        normals = store_rows(null, store.work, "null", size, tell)
        tests = store_rows(test, store.work, "test", size, tell)
        ranges = (np.stack([rows.low, rows.high]) for rows in (normals, tests))
        warn_constant(*(Rows(pair, normals.columns, encoder=normals.encoder) for pair in ranges))
    except (InputError, FileError):
        store.work.clear()  # the same inputs would only fail again
        raise
    return Site(normals, tests, work, store)


def infer_from_files(
    sources: Sequence[FileSource], size: int, kinds: Mapping[str, Any] | None
) -> Schema:
    """Infer the schema of both samples together, as from rows in memory."""
    profiles = [_profiles(source, size) for source in sources]
    joined = compared_profiles(profiles, [str(source.path) for source in sources])
    return schema_from(joined, kinds, " and ".join(source.path.name for source in sources))


def contents_in_files(
    path: Path, reading: ReadingOptions, made: MadeFrom, size: int
) -> Contents | None:
    """Give the contents of the rows of files, as of rows in memory.

    None where they lack a column that `made` has, or have more rows than it has: they are not
    what the schema was made from.
    """
    files = open_files(path, reading)
    if any(name not in file.schema.names for file in files for name in made.columns):
        return None
    contents = NOTHING
    for part in FileSource(path, columns=made.columns, reading=reading).features_in(size):
        frame = nw.from_native(part.table, eager_only=True)
        contents += contents_of_frame(frame, made.columns) or NOTHING
        if contents.rows > made.whole.rows:
            return None
    return contents


def codec_from_files(
    sources: Sequence[FileSource], size: int, room: int, known_rows: KnownTable | None = None
) -> FrameCodec:
    """Make what turns the rows into a matrix and back into a frame, as from rows in memory."""
    empty = nw.from_native(sources[0].schema.empty_table(), eager_only=True)
    _refuse_mixed(sources)
    kinds = zip(empty.columns, plain_kinds(empty), strict=True)
    values_of_column = {name: ColumnValues(name, kind is not None) for name, kind in kinds}
    for source in sources:
        for part in source.features_in(size):
            frame = nw.from_native(part.table, eager_only=True)
            for name, values in values_of_column.items():
                values.see(frame[name])
            if sum(values.n_bytes for values in values_of_column.values()) > room:
                raise _too_many(max(values_of_column.values(), key=lambda v: v.n_bytes), room)
    if known_rows is not None:
        frame = nw.from_native(known_rows.features, eager_only=True)
        for name, values in values_of_column.items():
            values.see(frame[name])
    return FrameCodec(
        empty.implementation, [values.column() for values in values_of_column.values()]
    )


def _refuse_mixed(sources: Sequence[FileSource]) -> None:
    """Refuse columns that have values of some type in one file and texts in another."""
    files = [file for source in sources for file in source.files]
    for agreed in sources[0].schema:
        held = {file.kind_of_values(agreed.name) for file in files}
        if pa.types.is_string(agreed.type) and None in held and held != {None}:
            raise mixed_with_texts(f"column {agreed.name!r}", set(filter(None, held)))


def _too_many(values: ColumnValues, room: int) -> InputError:
    return InputError(
        f"column {values.name!r} has more than {len(values.values):,} different values, and a"
        f" pipeline that reads them needs all of them in memory, more than {room // 10**6}MB:"
        " raise the memory, or leave the column out with --exclude"
    )


def _profiles(source: FileSource, size: int) -> dict[str, Profile]:
    profiles = {name: Profile() for name in source.schema.names}
    for part in source.features_in(size):
        columns = read_frame(nw.from_native(part.table, eager_only=True))
        with part.located():
            _require_no_infinity(columns, str(part.file.path))
        for name, raw in columns.items():
            profiles[name].join(Profile.of(raw))
    return profiles


def _require_no_infinity(columns: Mapping[str, RawColumn], path: str) -> None:
    numbers = {name: raw.values for name, raw in columns.items() if isinstance(raw, Numbers)}
    if numbers:
        present = np.stack([np.where(np.isnan(v), 0.0, v) for v in numbers.values()], axis=1)
        require_finite(present, list(numbers), path)

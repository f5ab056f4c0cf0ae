"""What features the columns of two samples in files become: one pass over both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from conovel.errors import InputError
from conovel.rows.columns import Numbers, RawColumn, mixed_with_texts, plain_kinds, read_frame
from conovel.rows.contents import contents_of_frame
from conovel.rows.datafiles import open_files
from conovel.rows.dialects import Reading
from conovel.rows.inference import Profile, schema_from
from conovel.rows.original import ColumnValues, FrameCodec
from conovel.rows.pieces import FileSource
from conovel.rows.tables import entirely_missing, require_finite
from conovel.spec.made_from import NOTHING, Contents, MadeFrom
from conovel.spec.schema import Schema


def infer_from_files(
    sources: Sequence[FileSource], size: int, asked: Mapping[str, Any] | None
) -> Schema:
    """Infer the schema of both samples together, as from rows in memory."""
    first, *others = (_profiles(source, size) for source in sources)
    for other in others:
        for name, profile in other.items():
            first[name].join(profile)
    return schema_from(first, asked, " and ".join(source.path.name for source in sources))


def contents_in_files(path: Path, reading: Reading, made: MadeFrom, size: int) -> Contents | None:
    """Give the contents of the rows of files, as of rows in memory.

    None where they lack a column that `made` has, or have more rows than it has: they are not
    what the schema was made from.
    """
    files = open_files(path, reading)
    if any(name not in file.schema.names for file in files for name in made.columns):
        return None
    found = NOTHING
    for part in FileSource(path, columns=made.columns, reading=reading).features_in(size):
        frame = nw.from_native(part.table, eager_only=True)
        found += contents_of_frame(frame, made.columns) or NOTHING
        if found.rows > made.whole.rows:
            return None
    return found


def codec_from_files(sources: Sequence[FileSource], size: int, room: int) -> FrameCodec:
    """Make what turns the rows into a matrix and back into a frame, as from rows in memory."""
    empty = nw.from_native(sources[0].schema.empty_table(), eager_only=True)
    _refuse_mixed(sources)
    kinds = zip(empty.columns, plain_kinds(empty), strict=True)
    found = {name: ColumnValues(name, kind is not None) for name, kind in kinds}
    for source in sources:
        for part in source.features_in(size):
            frame = nw.from_native(part.table, eager_only=True)
            for name, values in found.items():
                values.see(frame[name])
            if sum(values.n_bytes for values in found.values()) > room:
                raise _too_many(max(found.values(), key=lambda v: v.n_bytes), room)
    return FrameCodec(empty.implementation, [values.column() for values in found.values()])


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
    found = {name: Profile() for name in source.schema.names}
    for part in source.features_in(size):
        columns = read_frame(nw.from_native(part.table, eager_only=True))
        with part.located():
            _require_no_infinity(columns, str(part.file.path))
        for name, raw in columns.items():
            found[name].join(Profile.of(raw))
    for name, profile in found.items():
        if profile.n and profile.n == profile.n_missing:
            raise entirely_missing(str(source.path), [f"column {name!r}"], profile.n)
    return found


def _require_no_infinity(columns: Mapping[str, RawColumn], path: str) -> None:
    numbers = {name: raw.values for name, raw in columns.items() if isinstance(raw, Numbers)}
    if numbers:
        present = np.stack([np.where(np.isnan(v), 0.0, v) for v in numbers.values()], axis=1)
        require_finite(present, list(numbers), path)

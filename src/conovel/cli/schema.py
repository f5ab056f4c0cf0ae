"""``conovel schema``: write what the columns of a table are, as a file to edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from conovel.cli.show import require_there, say
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from conovel.spec.schema import Column, Schema

_FEW_ROWS = 10  # a value that fewer rows have may point at a person
_BUCKETS = 32


@with_options(
    "id_column",
    "schema",
    file=typer.Argument(
        help="A table whose rows are in no sample of a run: a file, or a folder of files."
    ),
    null="Instead of that, known normals of an agent...",
    test="... and its rows to test.",
    rare="Write also values that fewer than 10 rows have. They may point at persons.",
    may_be_missing="Let every column have missing values at some agent.",
)
def schema(
    *,
    file: Path | None = None,
    null: Path | None = None,
    test: Path | None = None,
    options: FileOptions,
    rare: bool = False,
    may_be_missing: bool = False,
) -> None:
    """Print what the columns of a table are, for --schema and for agents to agree on.

    Example: `conovel schema --null normal.csv --test today.csv --exclude id > schema.toml`

    Example: `conovel schema last-year.csv --exclude id > schema.toml`

    A schema from known normals alone, or from test rows alone, breaks the guarantee: it knows the
    levels of the one and not those of the other. So give both, or a table that is neither. The
    file keeps a digest of what it was made from, and a run refuses it if that was one of its two
    samples.

    Look at what it prints before you give it to others: it has the values of categories, and a
    typical number of each column with missing values. Values that fewer than 10 rows have are
    left out: at a run they are "a new value", and a column that has no others is put into
    buckets by a hash. Write missing = true where another agent may have missing values, or give
    --may-be-missing.
    """
    first, second = _sources(file, null, test)
    require_there(first, second)
    from conovel.rows.pairs import infer_schema  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import pick_features, read_features  # noqa: PLC0415
    from conovel.spec.schema import Column as AnyColumn  # noqa: PLC0415

    kinds = options.kinds() or None
    reading, columns = columns_read(kinds, options.reading, options.features)
    with named_samples(reading, first, second):
        types = pick_features(first, second or first, columns, None, reading)
        samples = [
            read_features(path, types, None, reading).features for path in (first, second) if path
        ]
        inferred = infer_schema(*samples, kinds=kinds)
        if may_be_missing:
            entries = {c.name: {"kind": c.kind, "missing": True} for c in inferred.used}
            inferred = infer_schema(*samples, kinds={**(kinds or {}), **entries})
    if not rare:
        inferred = _for_others(inferred, samples)
    ignored = (
        AnyColumn(name, "ignore") for name in options.reading.exclude if name not in inferred.names
    )
    for line in replace(inferred, columns=(*inferred, *ignored)).to_toml().splitlines():
        say(line)


def _for_others(inferred: Schema, samples: Sequence[pa.Table]) -> Schema:
    """Leave out values of categories that few rows have, and say so."""
    return replace(inferred, columns=tuple(_frequent(column, samples) for column in inferred))


def _frequent(column: Column, samples: Sequence[pa.Table]) -> Column:
    """Give a column without values that few rows have; buckets, if no others are left."""
    if column.kind != "category" or column.buckets:
        return column
    counts = Counter(str(v) for table in samples for v in table[column.name].to_pylist())
    levels, rare = (
        tuple(value for value in values if counts[value] >= _FEW_ROWS)
        for values in (column.levels, column.rare)
    )
    n_left_out = len(column.levels) + len(column.rare) - len(levels) - len(rare)
    if not n_left_out:
        return column
    buckets = 0 if levels or rare else _BUCKETS
    instead = f"{buckets} buckets take them" if buckets else 'they are "a new value"'
    say(
        f"conovel: {column.name}: {n_left_out:,} values that fewer than {_FEW_ROWS} rows have are"
        f" not written, and {instead}; --rare writes them",
        err=True,
    )
    return replace(column, levels=levels, rare=rare, buckets=buckets)


def _sources(file: Path | None, null: Path | None, test: Path | None) -> tuple[Path, Path | None]:
    """Say what the schema is made from: one table, or both samples."""
    if file is not None and null is None and test is None:
        return file, None
    if file is None and null is not None and test is not None:
        return null, test
    raise InputError(
        "give both --null and --test, or one table that is neither of them: a schema that follows"
        " from one of the two samples breaks the guarantee"
    )

"""``conovel schema``: write what the columns of a table are, as a file to edit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from conovel.cli.show import require_there, say
from conovel.cli.tables import FileOptions, named_samples, with_options
from conovel.errors import InputError


@with_options(
    "id_column",
    "schema",
    file=typer.Argument(
        help="A table whose rows are in no sample of a run: a file, or a folder of files."
    ),
    null="Instead of that, known normals of an agent...",
    test="... and its rows to test.",
)
def schema(
    *,
    file: Path | None = None,
    null: Path | None = None,
    test: Path | None = None,
    options: FileOptions,
) -> None:
    """Print what the columns of a table are, for --schema and for agents to agree on.

    Example: `conovel schema --null normal.csv --test today.csv --exclude id > schema.toml`

    Example: `conovel schema last-year.csv --exclude id > schema.toml`

    A schema from known normals alone, or from test rows alone, breaks the guarantee: it knows the
    levels of the one and not those of the other. So give both, or a table that is neither. The
    file keeps a digest of what it was made from, and a run refuses it if that was one of its two
    samples.

    Look at what it prints before you give it to others: it has the values of categories, and a
    typical number of each column with missing values. Write missing = true where another agent
    may have missing values.
    """
    first, second = _sources(file, null, test)
    require_there(first, second)
    from conovel.rows.pairs import infer_schema  # noqa: PLC0415
    from conovel.rows.schemas import columns_read  # noqa: PLC0415
    from conovel.rows.storage import pick_features, read_features  # noqa: PLC0415
    from conovel.spec.schema import Column  # noqa: PLC0415

    kinds = options.kinds() or None
    reading, columns = columns_read(kinds, options.reading, options.features)
    with named_samples(reading, first, second):
        types = pick_features(first, second or first, columns, None, reading)
        samples = (read_features(path, types, None, reading) for path in (first, second) if path)
        inferred = infer_schema(*(sample.features for sample in samples), kinds=kinds)
    ignored = (
        Column(name, "ignore") for name in options.reading.exclude if name not in inferred.names
    )
    for line in replace(inferred, columns=(*inferred, *ignored)).to_toml().splitlines():
        say(line)


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

"""``conovel schema``: write what the columns of a table are, as a file to edit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conovel.cli.show import require_there, say
from conovel.cli.tables import (
    Decimal,
    Encoding,
    Exclude,
    Kind,
    Na,
    Separator,
    named_samples,
    reading_of,
    schema_of,
)


def schema(
    file: Annotated[Path, typer.Argument(help="Known normals: a file, or a folder of files.")],
    exclude: Exclude = None,
    kind: Kind = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    na: Na = None,
) -> None:
    """Print what the columns of a file are, for --schema and for agents to agree on.

    Example: `conovel schema normal.csv --exclude id > schema.toml`

    Look at what it prints before you give it to others: it has the values of categories, and a
    typical number of each column with missing values. Write missing = true where another agent
    may have missing values.
    """
    require_there(file)
    from conovel.site.asked import columns_read  # noqa: PLC0415
    from conovel.site.pairs import infer_schema  # noqa: PLC0415
    from conovel.site.storage import pick_features, read_sample  # noqa: PLC0415

    kinds = schema_of(kind, None)
    said = reading_of(exclude, separator, decimal, encoding, na)
    reading, _ = columns_read(kinds, said, None)
    with named_samples(reading, file):
        types = pick_features(file, file, None, None, reading)
        found = infer_schema(read_sample(file, types, None, reading).features, kinds=kinds)
    ignored = {name: "ignore" for name in said.exclude}
    for line in type(found).from_dict(found.to_dict() | ignored).to_toml().splitlines():
        say(line)

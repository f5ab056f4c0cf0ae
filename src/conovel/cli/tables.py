"""Options about files and their columns, the same in all commands that read tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conovel.cli.show import split_names

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.site.dialects import Reading

Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns that are no features, such as ids and labels: separated by commas, or one"
        " option each. A name with a comma stands in quotes, '\"a, b\"'."
    ),
]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        help="What a column is: NAME=number, boolean, category, date or ignore; one option each."
        " A date gives its weekday and hour. The others follow from the values."
    ),
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="A file that says what all columns are, as `conovel schema` writes it."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="What stands between the values of a CSV file: a character, or comma, semicolon,"
        " tab, bar or space. Found out if not given."
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(help="The decimal sign of a CSV file, . or , . Found out if not given."),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="The character encoding of a CSV file, such as utf-8 or cp1252. Found out if not"
        " given."
    ),
]
Na = Annotated[
    str | None,
    typer.Option(
        "--na",
        help="Further marks of a missing value, separated by commas, such as -999. An empty value,"
        " ?, NA, NaN and null always are.",
    ),
]


def reading_of(
    exclude: Sequence[str] | None,
    separator: str | None,
    decimal: str | None,
    encoding: str | None,
    na: str | None,
) -> Reading:
    """Read what the options say about files."""
    from conovel.site.dialects import Reading  # noqa: PLC0415

    names = [name for text in exclude or () for name in split_names(text)]
    marks = tuple(split_names(na)) if na else ()
    return Reading(separator, decimal, encoding, marks, tuple(dict.fromkeys(names)))


def add_read_rows(table: Table, read_as: Mapping[str, str]) -> None:
    """Say in a table how files were read."""
    for said in dict.fromkeys(read_as.values()):
        names = ", ".join(Path(path).name for path, how in read_as.items() if how == said)
        table.add_row("read", f"{names} as {said}")


def schema_of(kinds: Sequence[str] | None, file: Path | None) -> Path | Mapping[str, str] | None:
    """Read what the options say about columns."""
    from conovel.errors import InputError  # noqa: PLC0415

    if not kinds:
        return file
    if file is not None:
        raise InputError("--schema says what all columns are: change the file instead of --kind")
    found = {}
    for text in kinds:
        name, equals, kind = text.rpartition("=")
        if not (name and equals and kind):
            raise InputError(f"--kind {text}: write NAME=KIND, such as when=date")
        found[name] = kind
    return found

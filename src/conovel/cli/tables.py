"""Options about files and their columns, the same in all commands that read tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer

from conovel.cli.show import split_names

if TYPE_CHECKING:
    from rich.table import Table

    from conovel.errors import ConovelError
    from conovel.rows.dialects import Reading
    from conovel.spec.schema import Schema

SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema", help="A file that says what all columns are, as `conovel schema` writes it."
    ),
]


@dataclass(frozen=True)
class FileOptions:
    """What the options of a command say about files and their columns."""

    columns: Annotated[
        str | None,
        typer.Option(help="Feature columns, separated by commas; all of them if not given."),
    ] = None
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column that names the rows; never a feature.")
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns that are no features, such as ids and labels: separated by commas, or"
            " one option each. A name with a comma stands in quotes, '\"a, b\"'."
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="What a column is: NAME=number, boolean, category, date or ignore; one option"
            " each. A date gives its weekday and hour. The others follow from the values."
        ),
    ] = None
    schema: SchemaFile = None
    separator: Annotated[
        str | None,
        typer.Option(
            help="What stands between the values of a CSV file: a character, or comma, semicolon,"
            " tab, bar or space. Found out if not given."
        ),
    ] = None
    decimal: Annotated[
        str | None,
        typer.Option(help="The decimal sign of a CSV file, . or , . Found out if not given."),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(
            help="The character encoding of a CSV file, such as utf-8 or cp1252. Found out if not"
            " given."
        ),
    ] = None
    na: Annotated[
        str | None,
        typer.Option(
            "--na",
            help="Further marks of a missing value, separated by commas, such as -999. An empty"
            " value, ?, NA, NaN and null always are.",
        ),
    ] = None

    @property
    def features(self) -> list[str] | None:
        """Names of the feature columns, where they are given."""
        return split_names(self.columns) if self.columns else None

    @property
    def reading(self) -> Reading:
        """How files are read."""
        from conovel.rows.dialects import Reading  # noqa: PLC0415

        marks = tuple(split_names(self.na)) if self.na else ()
        return Reading(self.separator, self.decimal, self.encoding, marks, self._excluded)

    def agreed_schema(self) -> Schema | Mapping[str, Any] | None:
        """Read what the columns are."""
        from conovel.errors import InputError  # noqa: PLC0415
        from conovel.rows.asked import restricted  # noqa: PLC0415

        if not self.kind:
            return restricted(self.schema, self._excluded, self.features)
        if self.schema is not None:
            raise InputError(
                "--schema says what all columns are: change the file instead of --kind"
            )
        return self.kinds()

    def kinds(self) -> Mapping[str, Any]:
        """Read what single columns are."""
        from conovel.errors import InputError  # noqa: PLC0415

        kinds = {}
        for text in self.kind or ():
            name, equals, kind = text.rpartition("=")
            if not (name and equals and kind):
                raise InputError(f"--kind {text}: write NAME=KIND, such as when=date")
            kinds[name] = kind
        return kinds

    @property
    def _excluded(self) -> tuple[str, ...]:
        names = (name for text in self.exclude or () for name in split_names(text))
        return tuple(dict.fromkeys(names))


Command: TypeAlias = Callable[..., None]


def with_file_options(*leave: str) -> Callable[[Command], Command]:
    """Give a command the options of :class:`FileOptions`, in the place of its own `options`.

    `leave` names those that the command does not have.
    """
    hints = get_type_hints(FileOptions, include_extras=True)
    given = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in hints.items()
        if name not in leave
    ]

    def with_options(command: Command) -> Command:
        @wraps(command)
        def call(**values: Any) -> None:
            options = FileOptions(**{one.name: values.pop(one.name) for one in given})
            command(options=options, **values)

        shown: list[Parameter] = []
        for own in signature(command, eval_str=True).parameters.values():
            own_or_given = given if own.name == "options" else [own]
            shown += (one.replace(kind=Parameter.KEYWORD_ONLY) for one in own_or_given)
        call.__signature__ = Signature(shown)  # type: ignore[attr-defined]
        return call

    return with_options


@contextmanager
def named_samples(
    reading: Reading, null: Path | None = None, test: Path | None = None
) -> Iterator[None]:
    """Call samples by their files in errors and warnings, and rows by their lines.

    In memory they are X_null and X_test, which are no words of the command line.
    """
    from conovel.errors import ConovelError  # noqa: PLC0415

    paths = {"X_null": null, "X_test": test}
    files = {name: path for name, path in paths.items() if path is not None}
    show = warnings.showwarning

    def show_named(message: Warning | str, *others: Any, **more: Any) -> None:
        show(_named(str(message), files), *others, **more)

    warnings.showwarning = show_named
    try:
        yield
    except ConovelError as error:
        error.args = (_named(_with_line(error, files, reading), files), *error.args[1:])
        raise
    finally:
        warnings.showwarning = show


def _named(text: str, files: Mapping[str, Path]) -> str:
    both = " and ".join(dict.fromkeys(map(str, files.values())))
    text = text.replace("X_null and X_test", both)
    for name, path in files.items():
        text = text.replace(name, str(path))
    return text


def _with_line(error: ConovelError, files: Mapping[str, Path], reading: Reading) -> str:
    from conovel.rows.datafiles import DataFile, format_of  # noqa: PLC0415
    from conovel.rows.lines import relocated  # noqa: PLC0415

    about = [path for name, path in files.items() if name in str(error)]
    if len(about) != 1 or not about[0].is_file() or format_of(about[0]) != "csv":
        return str(error)
    return relocated(error, about[0], DataFile(about[0], reading).dialect, 0)


def add_read_rows(table: Table, read_as: Mapping[str, str]) -> None:
    """Say in a table how files were read."""
    for said in dict.fromkeys(read_as.values()):
        names = ", ".join(Path(path).name for path, how in read_as.items() if how == said)
        table.add_row("read", f"{names} as {said}")

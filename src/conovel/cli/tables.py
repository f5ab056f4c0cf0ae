"""Options about files and their columns, the same in all commands that read tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

import typer
from typer.models import OptionInfo

from conovel.cli.logs import begin_log
from conovel.cli.show import addressed, split_names
from conovel.cli.sources import local_path
from conovel.errors import ConovelError, InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

    from conovel.rows.dialects import ReadingOptions
    from conovel.rows.known_files import KnownFile
    from conovel.runs.detection import Detection
    from conovel.runs.file_detection import FileDetection
    from conovel.spec.findings import Finding
    from conovel.spec.schema import Schema

# Options that name tables.
TABLES = {"null", "test", "known_file", "data", "file", "unlabelled", "novelties"}
# What options are for, where several commands have them.
_HELP: Mapping[str, Any] = {
    "columns": "Feature columns, separated by commas; all of them if not given. With --no-header,"
    " what all columns of the files are called, in their order.",
    "no_header": "The first line of a CSV file has values and no names. --columns names the"
    " columns; if it is not given, they are x1, x2 and so on.",
    "id_column": typer.Option("--id", help="Column that names the rows; never a feature."),
    "known_file": typer.Option(
        "--known",
        help="Known novelties, confirmed cases: a file with the same columns. The score learns"
        " from them; they are never tested.",
    ),
    "kind_column": "Column of --known that says of which kind a row is, for reasons; `kind` if not"
    " given and there.",
    "exclude": "Columns that are no features, such as ids and labels: separated by commas, or one"
    " option each. A name with a comma stands in quotes, '\"a, b\"'.",
    "kind": "What a column is: NAME=number, boolean, category, date or ignore; one option each. A"
    " date gives its weekday and hour. The others follow from the values.",
    "schema": "A file that says what all columns are, as `conovel schema` writes it.",
    "separator": "What stands between the values of a CSV file: a character, or comma, semicolon,"
    " tab, bar or space. Found out if not given.",
    "decimal": "The decimal sign of a CSV file, . or , . Found out if not given.",
    "encoding": "The character encoding of a CSV file, such as utf-8 or cp1252. Found out if not"
    " given.",
    "na": "Further marks of a missing value, separated by commas, such as -999. An empty value, ?,"
    " NA, NaN and null always are.",
    "level": "Largest tolerated share of false alarms among the flagged rows.",
    "scorer": "As in `conovel detect`; several with commas.",
    "train_fraction": "Share of the known normals used for training; chosen by the numbers of rows"
    " if not given. 0: all calibrate, and the score learns from all rows together; one site only.",
    "max_train_rows": typer.Option(
        min=2,
        help="Largest number of known normals, and of other rows, that the scorer learns from;"
        " further known normals calibrate.",
    ),
    "pi0": "Adapt to the share of normal rows: storey or quantile; plain BH if not given.",
    "seed": typer.Option(min=0, help="Seed of splits and scorers, and of data that is drawn."),
    "engine": "Where the work is done: local, or dask for the machines of a cluster.",
    "scheduler": "Address of the Dask scheduler, such as tcp://host:8786.",
    "json": "Print JSON instead of tables.",
    "log_file": "Append what the command does to this file, line by line. With"
    " CONOVEL_LOG_LEVEL=WARNING in the environment, only what speaks against it.",
}


@dataclass(frozen=True)
class FileOptions:
    """What the options of a command say about files and their columns."""

    columns: str | None = None
    id_column: str | None = None
    exclude: list[str] | None = None
    kind: list[str] | None = None
    schema: Path | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na: str | None = None
    no_header: bool = False

    @property
    def features(self) -> list[str] | None:
        """Names of the feature columns, where they are given."""
        return split_names(self.columns) if self.columns and not self.no_header else None

    def features_with(self, *others: str | None) -> list[str] | None:
        """Name the columns to read, where features are given: other columns are read, too."""
        if self.features is None:
            return None
        return list(dict.fromkeys([*self.features, *filter(None, others)]))

    @property
    def reading(self) -> ReadingOptions:
        """How files are read."""
        from conovel.rows.dialects import ReadingOptions  # noqa: PLC0415

        marks = tuple(split_names(self.na)) if self.na else ()
        return ReadingOptions(
            self.separator,
            self.decimal,
            self.encoding,
            marks,
            self._excluded,
            header=not self.no_header,
            names=tuple(split_names(self.columns or "")) if self.no_header else (),
        )

    def agreed_schema(self) -> Schema | Mapping[str, Any] | None:
        """Read what the columns are."""
        from conovel.rows.schemas import restricted  # noqa: PLC0415

        if not self.kind:
            return restricted(self.schema, self._excluded, self.features)
        if self.schema is not None:
            raise InputError(
                "--schema says what all columns are: change the file instead of --kind"
            )
        return self.kinds()

    def kinds(self) -> Mapping[str, Any]:
        """Read what single columns are."""
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


def with_options(*leave: str, **helps: Any) -> Callable[[Command], Command]:
    """Make a function a command: say what its options are for, by their names.

    A help is a text, or what typer needs to know besides. An option without one has that of other
    commands. In the place of the parameter `options` come the fields of :class:`FileOptions`, but
    for those in `leave`.
    """
    given = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hint)
        for (name, hint), field in zip(
            get_type_hints(FileOptions).items(), fields(FileOptions), strict=True
        )
        if name not in leave
    ]

    log = Parameter("log_file", Parameter.KEYWORD_ONLY, default=None, annotation=Path | None)

    def with_helps(command: Command) -> Command:
        own = signature(command, eval_str=True).parameters.values()
        shown = [part for one in own for part in (given if one.name == "options" else [one])]

        @wraps(command)
        def call(**values: Any) -> None:
            if (path := values.pop("log_file", None)) is not None:
                begin_log(path, command.__name__)
            if len(shown) > len(own):
                for name in TABLES & {key for key, text in values.items() if text is not None}:
                    text = values[name]
                    is_here = text != "-" and "://" not in text
                    values[name] = Path(text) if is_here else local_path(text)
                options = FileOptions(**{one.name: values.pop(one.name) for one in given})
                values["options"] = options
            command(**values)

        tables = TABLES if len(shown) > len(own) else set()
        call.__signature__ = Signature([_explained(one, helps, tables) for one in (*shown, log)])  # type: ignore[attr-defined]
        return call

    return with_helps


def _explained(
    parameter: Parameter, helps: Mapping[str, Any], tables: Collection[str]
) -> Parameter:
    text = helps.get(parameter.name, _HELP.get(parameter.name))
    if isinstance(text, str) and parameter.default is False:  # there is no option to say no
        text = typer.Option(f"--{parameter.name.replace('_', '-')}", help=text)
    elif isinstance(text, str):
        text = typer.Option(help=text)
    kind = parameter.annotation
    if parameter.name in tables:
        if isinstance(text, OptionInfo):
            text.metavar = "<path>"
        kind = str if kind is Path else str | None  # a path would lose a slash of an address
    annotation = Annotated[kind, text]  # type: ignore[valid-type]
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation)


@contextmanager
def named_samples(
    reading: ReadingOptions,
    null: Path | None = None,
    test: Path | None = None,
    known_file: Path | None = None,
) -> Iterator[None]:
    """Call samples by their files in errors and warnings, and rows by their lines.

    In memory they are X_null, X_test and X_known, which are no words of the command line.
    """
    paths = {"X_null": null, "X_test": test, "X_known": known_file}
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
    pair = [str(files[name]) for name in ("X_null", "X_test") if name in files]
    both = " and ".join(dict.fromkeys(pair))
    text = text.replace("X_null and X_test", both)
    for name, path in files.items():
        text = text.replace(name, str(path))
    return text


def _with_line(error: ConovelError, files: Mapping[str, Path], reading: ReadingOptions) -> str:
    from conovel.rows.datafiles import DataFile, format_of  # noqa: PLC0415
    from conovel.rows.dialects import relocated  # noqa: PLC0415

    about = [path for name, path in files.items() if name in str(error)]
    if len(about) != 1 or not about[0].is_file() or format_of(about[0]) != "csv":
        return str(error)
    return relocated(error, about[0], DataFile(about[0], reading).dialect, 0)


def located(finding: Finding, files: Mapping[str, Path], reading: ReadingOptions) -> Finding:
    """Name the line of a file in a finding about a row; `files` by what findings call them."""
    from conovel.rows.datafiles import DataFile, format_of  # noqa: PLC0415
    from conovel.rows.dialects import relocated  # noqa: PLC0415

    about = [path for which, path in files.items() if f"in the {which} (first" in finding.message]
    if finding.kind != "clipped" or not about or not about[0].is_file():
        return finding
    dialect = DataFile(about[0], reading).dialect if format_of(about[0]) == "csv" else None
    place = relocated(finding.message, about[0], dialect, 0)
    return replace(finding, message=place.replace("), taken", f" of {about[0]}), taken"))


def add_read_rows(table: Table, read_as: Mapping[str, str]) -> None:
    """Say in a table how files were read."""
    for dialect in dict.fromkeys(read_as.values()):
        names = ", ".join(Path(path).name for path, how in read_as.items() if how == dialect)
        table.add_row("read", f"{names} as {dialect}")


def as_known_file(known_file: Path | None, kind_column: str | None) -> KnownFile | None:
    """Return the file of known novelties, if there is one."""
    from conovel.rows.known_files import KnownFile  # noqa: PLC0415

    if known_file is None and kind_column is not None:
        raise InputError("--kind-column names a column of --known: give that file, too")
    return None if known_file is None else KnownFile(known_file, kind_column)


def about_known(result: Detection | FileDetection, known_file: Path | None) -> dict[str, Any]:
    """Return what a summary says of known novelties, where there are any."""
    if known_file is None:
        return {}
    about: dict[str, Any] = {"path": addressed(known_file), "n_rows": result.n_known}
    if (choice := result.choices.get("known")) is not None:
        about["choice"] = choice.to_dict()
    return {"known": about}


def add_known_rows(
    table: Table, result: Detection | FileDetection, known_file: Path | None
) -> None:
    """Say in a table how many novelties were known, and how far they counted."""
    if known_file is None:
        return
    table.add_row("known novelties", f"{result.n_known:,}")
    if (choice := result.choices.get("known")) is not None:
        table.add_row("", choice.rule)


def read_labelled_known(
    path: Path, rows: pa.Table, label: str, order: str | None, options: FileOptions
) -> pa.Table:
    """Read known novelties for a labelled table; its label and order are no features of theirs."""
    import pyarrow as pa  # noqa: PLC0415

    from conovel.rows.known_files import KnownFile  # noqa: PLC0415

    left_out = {label, order}
    types = pa.schema([field for field in rows.schema if field.name not in left_out])
    reading = options.reading
    more = tuple(name for name in (label, order) if name is not None)
    reading = replace(reading, ignore=(*reading.ignore, *more))
    return KnownFile(path).read(types, None, reading).features

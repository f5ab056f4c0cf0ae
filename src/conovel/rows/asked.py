"""What a user says about columns: the `schema` argument, and what it means for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from conovel.errors import ColumnError, FileError, InputError
from conovel.rows.dialects import Reading
from conovel.rows.inference import kind_of_column
from conovel.spec.schema import Column, Schema
from conovel.stats.words import listed, not_there

# What users give: a schema, a file of one, or kinds of some columns. The others are inferred.
SchemaLike: TypeAlias = Schema | str | Path | Mapping[str, Any] | None


def as_schema(schema: SchemaLike) -> Schema | Mapping[str, Any] | None:
    """Read the `schema` argument: a path is opened, kinds of some columns stay as they are."""
    if isinstance(schema, str | Path):
        try:
            return Schema.from_toml(Path(schema).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{schema} cannot be read: {error}") from None
        except InputError as error:
            raise InputError(f"{schema}: {error}") from error
    if schema is None or isinstance(schema, Schema | Mapping):
        return schema
    raise InputError(
        f"schema must be a Schema, a file of one, or a dict of columns to kinds, not {schema!r}"
    )


def as_whole_schema(schema: SchemaLike) -> Schema | None:
    """Read a schema that says all: what agents agree on does not follow from one of them."""
    found = as_schema(schema)
    return found if found is None or isinstance(found, Schema) else Schema.from_dict(found)


def columns_of(said: Schema | Mapping[str, Any] | None) -> tuple[list[str] | None, list[str]]:
    """Say which columns must be there, if that is known, and which are left out."""
    if isinstance(said, Schema):
        used = [column.name for column in said.used]
        return used, [name for name in said.names if name not in used]
    return None, [name for name, what in (said or {}).items() if kind_of_column(what) == "ignore"]


def may_be_missing(said: Schema | Mapping[str, Any] | None) -> set[str]:
    """Name the columns that have missing values by what was said, so that all may be missing."""
    if isinstance(said, Schema):
        return {column.name for column in said.used if column.missing}
    told = (said or {}).items()
    return {name for name, what in told if isinstance(what, Mapping) and what.get("missing")}


def restricted(
    schema: SchemaLike, exclude: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Schema | Mapping[str, Any] | None:
    """Give what was said, with columns ignored that are excluded or not among those asked for."""
    said = as_schema(schema)
    if not isinstance(said, Schema) or not (exclude or columns):
        return said
    used = [column.name for column in said.used]
    asked = [name for name in columns or used if name not in exclude]
    if unknown := [name for name in asked if name not in used]:
        raise ColumnError(
            f"the schema does not use the column {listed(unknown, 5)}, so that it is no feature:"
            f" {not_there(unknown[0], used)}"
        )
    if not asked:
        raise ColumnError("no column of the schema is left: exclude fewer of them")
    changed = (c if c.name in asked else Column(c.name, "ignore") for c in said)
    return replace(said, columns=tuple(changed))


def columns_read(
    schema: SchemaLike, reading: Reading, columns: Sequence[str] | None
) -> tuple[Reading, Sequence[str] | None]:
    """Say how files are read for a schema: which columns, and which of them as texts.

    Categories are texts in files, too, so that no digit of a long code is lost.
    """
    said = as_schema(schema)
    wanted, ignored = columns_of(said)
    told = said.to_dict() if isinstance(said, Schema) else (said or {})
    texts = [name for name, what in told.items() if kind_of_column(what) in ("category", "date")]
    is_whole = isinstance(said, Schema) and columns is None
    made = said.made_from if isinstance(said, Schema) else None
    also = [name for name in ignored if made and name in made.columns]
    reading = replace(
        reading,
        ignore=tuple(ignored),
        texts=tuple(texts),
        also=tuple(also),
        missing=tuple(sorted({*may_be_missing(said), *also})),
        is_whole=is_whole,
    )
    if columns is not None:
        columns = [name for name in columns if name not in reading.exclude]
    return reading, columns or wanted


def asks(said: Schema | Mapping[str, Any] | None) -> bool:
    """Tell whether plain numbers are to be anything else than numbers."""
    if isinstance(said, Schema):
        return True
    return any(kind_of_column(what) != "ignore" for what in (said or {}).values())


def needs_schema(error: ColumnError) -> ColumnError:
    """Add to what is wrong with columns that agents can agree on a schema."""
    return type(error)(
        f"{error}. Or give all agents one schema, which says how such columns become numbers:"
        " Network(schema=infer_schema(...)), or --schema with what `conovel schema` wrote, from a"
        " table that no agent tests or calibrates with, or from both samples of one agent"
    )

"""What a user says about columns: the `schema` argument, and what it means for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from conovel.errors import ColumnError, FileError, InputError
from conovel.site.dialects import Reading
from conovel.site.inference import kind_of_column
from conovel.spec.schema import Schema

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
    reading = replace(reading, ignore=tuple(ignored), texts=tuple(texts), is_whole=is_whole)
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
        " Network(schema=infer_schema(X_null)), or --schema with what `conovel schema` wrote"
    )

"""What a user says about columns: the `schema` argument, and what it means for files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from conovel.errors import ColumnError, DataWarning, FileError, InputError
from conovel.rows.dialects import ReadingOptions
from conovel.rows.profiles import Profile
from conovel.rows.spelling import require_one_meaning, spells_number
from conovel.spec.schema import DEFAULT_PARTS, Column, Schema, column_of
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
    whole = as_schema(schema)
    return whole if whole is None or isinstance(whole, Schema) else Schema.from_dict(whole)


def columns_of(given: Schema | Mapping[str, Any] | None) -> tuple[list[str] | None, list[str]]:
    """Say which columns must be there, if that is known, and which are left out."""
    if isinstance(given, Schema):
        used = [column.name for column in given.used]
        return used, [name for name in given.names if name not in used]
    return None, [name for name, what in (given or {}).items() if kind_of_column(what) == "ignore"]


def may_be_missing(given: Schema | Mapping[str, Any] | None) -> set[str]:
    """Name the columns that have missing values by what was given, so that all may be missing."""
    if isinstance(given, Schema):
        return {column.name for column in given.used if column.missing}
    entries = (given or {}).items()
    return {name for name, what in entries if isinstance(what, Mapping) and what.get("missing")}


def restricted(
    schema: SchemaLike, exclude: Sequence[str] = (), columns: Sequence[str] | None = None
) -> Schema | Mapping[str, Any] | None:
    """Give the schema argument; columns that are excluded or not asked for are ignored in it."""
    given = as_schema(schema)
    if not isinstance(given, Schema) or not (exclude or columns):
        return given
    used = [column.name for column in given.used]
    wanted = [name for name in columns or used if name not in exclude]
    if unknown := [name for name in wanted if name not in used]:
        raise ColumnError(
            f"the schema does not use the column {listed(unknown, 5)}, so that it is no feature:"
            f" {not_there(unknown[0], used)}"
        )
    if not wanted:
        raise ColumnError("no column of the schema is left: exclude fewer of them")
    changed = (c if c.name in wanted else Column(c.name, "ignore") for c in given)
    return replace(given, columns=tuple(changed))


def columns_read(
    schema: SchemaLike, reading: ReadingOptions, columns: Sequence[str] | None
) -> tuple[ReadingOptions, Sequence[str] | None]:
    """Say how files are read for a schema: which columns, and which of them as texts.

    Categories are texts in files, too, so that no digit of a long code is lost.
    """
    given = as_schema(schema)
    wanted, ignored = columns_of(given)
    entries = given.to_dict() if isinstance(given, Schema) else (given or {})
    texts = [
        name for name, what in entries.items() if kind_of_column(what) in ("category", "date")
    ]
    is_whole = isinstance(given, Schema) and columns is None
    made = given.made_from if isinstance(given, Schema) else None
    also = [name for name in ignored if made and name in made.columns]
    reading = replace(
        reading,
        ignore=tuple(ignored),
        texts=tuple(texts),
        also=tuple(also),
        missing=tuple(sorted({*may_be_missing(given), *also})),
        is_whole=is_whole,
    )
    if columns is not None:
        columns = [name for name in columns if name not in reading.exclude]
    return reading, columns or wanted


def changes_numbers(given: Schema | Mapping[str, Any] | None) -> bool:
    """Tell whether plain numbers are to be anything else than numbers."""
    if isinstance(given, Schema):
        return True
    return any(kind_of_column(what) != "ignore" for what in (given or {}).values())


def needs_schema(error: ColumnError) -> ColumnError:
    """Add to what is wrong with columns that agents can agree on a schema."""
    return type(error)(
        f"{error}. Or give all agents one schema, which says how such columns become numbers:"
        " Network(schema=infer_schema(...)), or --schema with what `conovel schema` wrote, from a"
        " table that no agent tests or calibrates with, or from both samples of one agent"
    )


MOST_LEVELS = 100  # of a category, besides one for the rare levels
_RARE_ROWS = 10  # fewer rows than this have a rare level
_FEW_TEXTS = 20  # so many different texts are always a category
_BUCKETS = 32  # of a category with more values than a profile keeps
_MOST_NAMED = 5  # how many columns an error spells out
# Such as 3/1/2026, 01.03.2026 10:00 or 2026/03/01 10:00 PM, of which nobody can tell the parts
_OTHER_DATE = re.compile(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}(,?[ T]\d{1,2}:\d{2}.*)?")


def schema_from(
    profiles: Mapping[str, Profile], kinds: Mapping[str, Any] | None = None, name: str = "X"
) -> Schema:
    """Say what each column is.

    Proof: Corollary 4 (docs/theory.md#cor-tables).
    """
    entries = {} if kinds is None else kinds
    ignored = [key for key, given in entries.items() if kind_of_column(given) == "ignore"]
    kinds = {key: given for key, given in entries.items() if key not in ignored}
    if unknown := [key for key in kinds if key not in profiles]:
        instead = not_there(unknown[0], list(profiles))
        raise ColumnError(f"{name} has no column {listed(unknown, _MOST_NAMED)}: {instead}")
    refused: list[str] = []
    columns = []
    for key, profile in profiles.items():
        if key in ignored:
            continue
        require_one_meaning(profile.moments, f"{name}: column {key!r}")
        if key not in kinds and (why := _left_out(key, profile)):
            warnings.warn(f"{name}: {why}", DataWarning, stacklevel=4)
            ignored.append(key)
        elif key not in kinds and (why := _no_feature(key, profile)):
            refused.append(why)
        else:
            if key not in kinds and profile.kind == "category":
                _warn_mixed(name, key, profile)
            columns.append(_column(key, profile, kinds.get(key, profile.kind)))
    if refused:
        more = f"; and {len(refused) - _MOST_NAMED} more" if len(refused) > _MOST_NAMED else ""
        raise ColumnError(f"{name}: {'; '.join(refused[:_MOST_NAMED])}{more}")
    return Schema((*columns, *(Column(key, "ignore") for key in ignored)))


def kind_of_column(given: Any) -> Any:
    """Return the kind in what is said of a column: the kind alone, or a table with it."""
    return given.get("kind") if isinstance(given, Mapping) else given


def _left_out(key: str, profile: Profile) -> str:
    """Say why a column is left out without being asked; nothing if it is not."""
    if profile.n == profile.n_missing:
        return f"{key!r} has no value in any row and is left out"
    in_order = f"(conovel check --order '{key}', or check(X_null, order={key!r}))"
    if profile.kind == "date":
        return (
            f"{key!r} holds dates and is left out, because later rows have later dates even if"
            f" they are normal: ask for its weekday and hour (--kind '{key}=date', or"
            f" schema={{{key!r}: 'date'}}), or see how the columns change in its order {in_order}"
        )
    if profile.kind == "category" and all(_OTHER_DATE.fullmatch(str(v)) for v in profile.counts):
        return (
            f"{key!r} looks like dates and is left out: write them like 2026-03-01 or"
            " 2026-03-01T10:00:00, and they can be asked for"
        )
    return ""


def _no_feature(key: str, profile: Profile) -> str:
    """Say why a column is no feature by itself, and what to do; nothing if it is one."""
    spelled = f"'\"{key}\"'" if "," in key else repr(key)
    leave_out = f"leave it out (--exclude {spelled}, or schema={{{key!r}: 'ignore'}})"
    present = profile.n - profile.n_missing
    n_values = profile.n_values
    if profile.kind == "category" and n_values > max(_FEW_TEXTS, present / 3):
        if strange := _no_numbers(profile):
            return (
                f"{key!r} holds numbers, but also {', '.join(strange)}: mark these as missing"
                f" (--na {strange[0]}), or {leave_out}"
            )
        about = "about " if profile.is_cut else ""
        return (
            f"{key!r} has {about}{n_values:,} different texts in {present:,} rows, as ids and free"
            f" text have: {leave_out}, or take it as a category (--kind '{key}=category')"
        )
    return ""


def _warn_mixed(name: str, key: str, profile: Profile) -> None:
    """Warn of numbers that are read as a category because of a few texts among them."""
    if strange := _no_numbers(profile):
        warnings.warn(
            f"{name}: {key!r} holds numbers, but also {', '.join(strange)}, so that it is taken as"
            f" a category: mark these as missing (--na {strange[0]}), or say that it is one"
            f" (--kind '{key}=category')",
            DataWarning,
            stacklevel=5,
        )


def _no_numbers(profile: Profile) -> list[str]:
    """Give the first texts that are no numbers, if most values are numbers."""
    texts = profile.texts()
    strange = [(text, rows) for text, rows in texts if not spells_number(text)]
    rows = sum(rows for _, rows in strange)
    if 2 * rows >= sum(rows for _, rows in texts):
        return []
    return [repr(text) for text, _ in strange[:3]]


def _column(key: str, profile: Profile, given: Any) -> Column:
    """Complete what was asked for by what the values are."""
    entries = {"kind": given} if isinstance(given, str) else dict(given)
    kind = entries.get("kind")
    if kind == "ignore":
        return column_of(key, entries)
    entries.setdefault("missing", profile.n_missing > 0)
    if kind == "category" and not {"levels", "rare", "buckets"} & set(entries):
        entries |= _levels(profile)
    if kind in ("number", "boolean") and entries["missing"] and not {"fill", "low"} & set(entries):
        entries["fill"] = profile.median() if _spells(profile) else 0.0
    if kind == "date" and "parts" not in entries:
        entries["parts"] = [
            part for part in DEFAULT_PARTS if part != "hour" or _has_hours(profile)
        ]
    return column_of(key, entries)


def _spells(profile: Profile) -> bool:
    return profile.spells_numbers or not profile.has_texts


def _has_hours(profile: Profile) -> bool:
    """Tell whether a date has a time of day: in ISO 8601 it follows the first ten characters."""
    return any(str(value)[10:19].strip("T 0:Z") for value in profile.counts)


def _levels(profile: Profile) -> dict[str, Any]:
    if profile.is_cut:
        return {"buckets": _BUCKETS}
    texts = profile.texts()
    least = min(_RARE_ROWS, max(2, profile.n // 100))
    n_frequent = sum(rows >= least for _, rows in texts[:MOST_LEVELS])
    if n_frequent == 0 or len(texts) == n_frequent + 1:  # one level shares with no other
        n_frequent = min(len(texts), MOST_LEVELS)
    names = [text for text, _ in texts]
    return {"levels": names[:n_frequent], "rare": sorted(names[n_frequent:])}

"""What a user says about columns: the `schema` argument, and what it means for files."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, DataWarning, FileError, InputError
from conovel.rows.columns import Numbers, RawColumn, Texts
from conovel.rows.dialects import ReadingOptions
from conovel.rows.spelling import require_one_meaning, spell_number, spells_number, zone_kind
from conovel.scorers.content import hash_columns
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


MOST_KEPT = 4096  # different values that a profile keeps
MOST_LEVELS = 100  # of a category, besides one for the rare levels
_RARE_ROWS = 10  # fewer rows than this have a rare level
_FEW_TEXTS = 20  # so many different texts are always a category
_BUCKETS = 32  # of a category with more values than a profile keeps
_MOST_NAMED = 5  # how many columns an error spells out


@dataclass(eq=False)
class Profile:
    """What is to be known of a column to say what it is; profiles of parts can be joined.

    Attributes
    ----------
    n, n_missing : int
        Rows, and those without a value.
    counts : dict
        How often each of some values occurs: those with the smallest hashes, whole numbers of
        rows, because a value that is kept in the end was kept whenever it occurred.
    spells_numbers, spells_times, is_date : bool
        What all texts of the column are.
    """

    n: int = 0
    n_missing: int = 0
    counts: dict[Any, tuple[int, int]] = field(default_factory=dict)  # value: (hash, rows)
    is_cut: bool = False
    has_numbers: bool = False
    has_texts: bool = False
    spells_numbers: bool = True
    spells_times: bool = True
    is_bool: bool = True
    moments: frozenset[str] = frozenset()  # with a time zone, without one, or both

    @classmethod
    def of(cls, column: RawColumn) -> Profile:
        """Look at some rows of a column."""
        return _of_numbers(column) if isinstance(column, Numbers) else _of_texts(column)

    def join(self, other: Profile) -> None:
        """Take in what was seen of further rows."""
        for value, (hash_, rows) in other.counts.items():
            self.counts[value] = (hash_, rows + self.counts.get(value, (0, 0))[1])
        self.n, self.n_missing = self.n + other.n, self.n_missing + other.n_missing
        self.is_cut |= other.is_cut
        self.has_numbers |= other.has_numbers
        self.has_texts |= other.has_texts
        self.spells_numbers &= other.spells_numbers
        self.spells_times &= other.spells_times
        self.is_bool &= other.is_bool
        self.moments |= other.moments
        self._cut()

    def _cut(self) -> None:
        if len(self.counts) > MOST_KEPT:
            kept = sorted(self.counts.items(), key=lambda item: (item[1][0], str(item[0])))
            self.counts, self.is_cut = dict(kept[:MOST_KEPT]), True

    @property
    def n_values(self) -> int:
        """How many different values there are; about so many where not all are kept."""
        if not self.is_cut:
            return len(self.counts)
        largest = max(hash_ for hash_, _ in self.counts.values())
        estimate = int((MOST_KEPT - 1) * 2.0**64 / (largest + 1))
        return min(estimate, self.n - self.n_missing)

    @property
    def kind(self) -> str:
        """The kind of the column by its values."""
        if not self.has_texts:
            return "boolean" if self.is_bool else "number"
        if self.spells_numbers:
            return "number"
        return "date" if self.spells_times and not self.has_numbers else "category"

    def median(self) -> float:
        """Give the middle one of the values that are kept, by their rows; a value that occurs."""
        pairs = sorted((float(value), rows) for value, (_, rows) in self.counts.items())
        total, seen = sum(rows for _, rows in pairs), 0
        for value, rows in pairs:
            seen += rows
            if 2 * seen >= total:
                return value
        return 0.0

    def texts(self) -> list[tuple[str, int]]:
        """Give the values as texts with their rows, the most frequent ones first."""
        rows_of: dict[str, int] = {}
        for value, (_, rows) in self.counts.items():
            text = value if isinstance(value, str) else spell_number(value)
            rows_of[text] = rows_of.get(text, 0) + rows
        return sorted(rows_of.items(), key=lambda item: (-item[1], item[0]))


def _of_numbers(column: Numbers) -> Profile:
    present = column.values[~np.isnan(column.values)] + 0.0
    values, rows = np.unique(present, return_counts=True)
    hashes = hash_columns([values], values.size)
    counts, is_cut = _smallest(values.tolist(), hashes, rows)
    n, missing = len(column), len(column) - present.size
    is_bool = column.kind == "bool"
    return Profile(n, missing, counts, is_cut, has_numbers=present.size > 0, is_bool=is_bool)


def _of_texts(column: Texts) -> Profile:
    numbers = column.as_numbers if column.levels else None
    rows = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    digests = (hashlib.blake2b(level.encode(), digest_size=8).digest() for level in column.levels)
    hashes = np.array([int.from_bytes(d, "little") for d in digests], dtype=np.uint64)
    values: Sequence[Any] = column.levels
    spells_times = column.is_date or (numbers is None and column.as_times is not None)
    counts, is_cut = _smallest(values, hashes, rows)
    return Profile(
        len(column),
        int((column.codes < 0).sum()),
        counts,
        is_cut,
        has_texts=bool(column.levels),
        spells_numbers=numbers is not None or not column.levels,
        spells_times=spells_times or not column.levels,
        is_bool=not column.levels,
        moments=frozenset(filter(None, map(zone_kind, column.levels))),
    )


def _smallest(
    values: Sequence[Any], hashes: NDArray[np.uint64], rows: NDArray[np.int64]
) -> tuple[dict[Any, tuple[int, int]], bool]:
    kept = np.argsort(hashes, kind="stable")[:MOST_KEPT].tolist()
    counts = {values[i]: (int(hashes[i]), int(rows[i])) for i in kept}
    return counts, len(values) > MOST_KEPT


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
        if key not in kinds and (why := _no_feature(key, profile)):
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


def _no_feature(key: str, profile: Profile) -> str:
    """Say why a column is no feature by itself, and what to do; nothing if it is one."""
    spelled = f"'\"{key}\"'" if "," in key else repr(key)
    leave_out = f"leave it out (--exclude {spelled}, or schema={{{key!r}: 'ignore'}})"
    if profile.kind == "date":
        return (
            f"{key!r} holds dates: {leave_out}, or ask for its weekday and hour"
            f" (--kind '{key}=date', or schema={{{key!r}: 'date'}})"
        )
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

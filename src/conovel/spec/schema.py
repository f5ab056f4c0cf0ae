"""What the columns of a table are: one frozen record that agents agree on by digest.

A schema says of every column which kind it is and how its values become numbers. The numbers of
a row then follow from the row and the schema alone (:mod:`conovel.rows.encoding`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from conovel.errors import ColumnError, InputError
from conovel.spec.made_from import MadeFrom
from conovel.spec.records import check_fields, read_toml
from conovel.stats.levels import is_finite_number
from conovel.stats.words import briefly

KINDS = ("number", "boolean", "category", "date", "ignore")
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")
# Parts that come back soon: later rows have no other values of them than earlier ones.
DEFAULT_PARTS = ("weekday", "hour")
# Up to so many levels have a feature each. More of them are one feature, because many features
# that are nearly always zero hide the others (docs/decisions/0018-tables.md).
MOST_APART = 8
MAX_COLUMNS = 2000
MAX_BUCKETS = 256
_DIGEST_DIGITS = 8  # hexadecimal
_MAX_DIGESTED = 60_000  # bytes of all names and digests, which every hello carries
_Digits: TypeAlias = Annotated[str, Meta(pattern=rf"\A[0-9a-f]{{{_DIGEST_DIGITS}}}\Z")]
_FIELDS_OF = {  # what may be said of a column of each kind, besides its name
    "number": {"kind", "missing", "fill", "low", "high"},
    "boolean": {"kind", "missing", "fill"},
    "category": {"kind", "missing", "levels", "rare", "buckets"},
    "date": {"kind", "missing", "parts"},
    "ignore": {"kind"},
}


@dataclass(frozen=True)
class Column:
    """One column of a table; values are checked when it is made.

    Attributes
    ----------
    name : str
    kind : {"number", "boolean", "category", "date", "ignore"}
        A column to ignore is never a feature.
    missing : bool
        Whether values may be missing. If so, a feature of its own tells which are.
    fill : float or None
        What stands for a missing number. None is the middle of the bounds, or zero.
    low, high : float or None
        Bounds of a number; a value beyond is moved to the bound.
    levels : tuple of str
        The values of a category, best the most frequent ones first. Up to 8 of them have a feature
        each; more are one feature, the place in this list.
    rare : tuple of str
        Further values of a category, which count as one more level. A value in neither tuple is
        unseen: none of the features of its category, or the last place.
    buckets : int
        Instead of levels: each value is in one of so many buckets by its hash.
    parts : tuple of str
        The numbers that a date gives, of year, month, day, weekday, hour, minute and second;
        weekday and hour if none are given.

    See Also
    --------
    conovel.Schema : All columns of a table.

    Examples
    --------
    >>> Column("size", "category", levels=("L", "M")).features
    ('size=L', 'size=M')
    >>> Column("age", "number", missing=True).features
    ('age', 'age is missing')
    """

    name: str
    kind: Literal["number", "boolean", "category", "date", "ignore"]
    missing: bool = False
    fill: float | None = None
    low: float | None = None
    high: float | None = None
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    buckets: Annotated[int, Meta(ge=0, le=MAX_BUCKETS)] = 0
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _is_text(self.name):
            raise InputError(f"the name of a column must be a text, not {briefly(self.name)}")
        check_fields(self, f"column {self.name!r}")
        for field in ("fill", "low", "high"):
            self._check_number(field)
        for field in ("levels", "rare", "parts"):
            texts = getattr(self, field)
            distinct = len(set(texts)) == len(texts) and all(map(_is_text, texts))
            self._require(distinct, field, "a list of different texts")
        allowed = {"name", *_FIELDS_OF[self.kind]}
        if extra := sorted(set(self._facts) - allowed):
            listed = ", ".join(extra)
            raise InputError(f"column {self.name!r}: the kind {self.kind} has no {listed}")
        self._check_kind()

    def _require(self, holds: bool, field: str, wanted: object) -> None:
        if not holds:
            raise InputError(
                f"column {self.name!r}: {field} must be {wanted}, not"
                f" {briefly(getattr(self, field))}"
            )

    def _check_number(self, field: str) -> None:
        value = getattr(self, field)
        if value is not None:
            self._require(is_finite_number(value), field, "a finite number")
            object.__setattr__(self, field, float(value) + 0.0)  # -0.0 becomes 0.0

    def _check_kind(self) -> None:
        if self.kind == "category":
            self._require(not (self.buckets and (self.levels or self.rare)), "buckets", "alone")
            self._require(bool(self.buckets or self.levels or self.rare), "levels", "given")
            self._require(not set(self.rare) & set(self.levels), "rare", "apart from levels")
        if self.kind == "date":
            self._require(set(self.parts) <= set(PARTS), "parts", f"some of {', '.join(PARTS)}")
            object.__setattr__(self, "parts", self.parts or DEFAULT_PARTS)
        if self.low is not None and self.high is not None:
            self._require(self.low < self.high, "low", f"below high={self.high}")

    @property
    def _facts(self) -> dict[str, Any]:
        """The fields that are not as by default."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return {field.name: value for field, value in values if value != field.default}

    @property
    def neutral(self) -> float:
        """What stands for a missing number."""
        if self.fill is not None:
            return self.fill
        if self.low is not None and self.high is not None:
            return (self.low + self.high) / 2
        return 0.0

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the numbers that the column becomes."""
        if self.kind == "ignore":
            return ()
        names = [self.name]
        if self.kind == "date":
            names = [f"{self.name}: {part}" for part in self.parts]
        if self.kind == "category" and self.has_feature_per_level:
            names = [f"{self.name}={level}" for level in self.levels]
            names += [f"{self.name} is rare"] if self.rare else []
            names += [f"{self.name}: bucket {i}" for i in range(self.buckets)]
        return (*names, missing_feature(self.name)) if self.missing else tuple(names)

    @property
    def has_feature_per_level(self) -> bool:
        """Whether the levels or buckets of a category have a feature each."""
        return max(len(self.levels), self.buckets) <= MOST_APART

    def to_dict(self) -> dict[str, Any]:
        """Give the facts of the column, without its name, as plain JSON types."""
        facts = {k: v for k, v in self._facts.items() if k != "name"}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in facts.items()}

    @cached_property
    def digest(self) -> str:
        """A few digits that stand for all that is said of the column."""
        text = json.dumps([self.name, self.to_dict()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_DIGITS]


@dataclass(frozen=True)
class Schema:
    """All columns of a table, in the order of their features.

    Parameters
    ----------
    columns : sequence of Column
    made_from : MadeFrom or None
        What it was inferred from; None is a written agreement. It is no part of what agents
        agree on.

    See Also
    --------
    conovel.Column : One of them.
    conovel.infer_schema : Makes a schema from a table.

    Examples
    --------
    >>> schema = Schema.from_dict({"age": "number", "id": "ignore"})
    >>> schema.features, schema["age"].kind, Schema.from_toml(schema.to_toml()) == schema
    (('age',), 'number', True)
    """

    columns: tuple[Column, ...]
    made_from: MadeFrom | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not isinstance(self.made_from, MadeFrom | None):
            raise InputError(f"made_from must be a MadeFrom, not {self.made_from!r}")
        if not all(isinstance(column, Column) for column in self.columns):
            raise InputError("a schema is a list of columns")
        if len(set(self.names)) < len(self.columns):
            raise InputError("a schema names each column once")
        if not self.features:
            raise InputError("the schema has no feature: at least one column must not be ignored")

    def require_apart(self, name: str) -> None:
        """Refuse a column of strata that is left out, or whose values are put together."""
        column = next((one for one in self.used if one.name == name), None)
        if column is None:
            ignored = "ignored by the schema" if name in self.names else "not in the schema"
            what = f"is {ignored}: a column of strata is a column of the score, of a kind such as"
            what += " category"
        elif column.kind == "date":
            what = "is a date, of which only parts are used: add a column such as the month"
        elif column.buckets:
            what = "is put into buckets by the schema: give it levels"
        elif column.low is not None or column.high is not None:
            what = "has bounds in the schema, beyond which values are put together: leave them out"
        else:
            return
        raise ColumnError(f"strata: column {name!r} {what}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, ignored ones too."""
        return tuple(column.name for column in self.columns)

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns that are not ignored."""
        return tuple(column for column in self.columns if column.kind != "ignore")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the numbers that a row becomes."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def source(self) -> tuple[str, ...]:
        """For each feature, the name of the column that it comes from."""
        return tuple(column.name for column in self.columns for _ in column.features)

    def __getitem__(self, name: str) -> Column:
        """Return the column of a name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @property
    def digests(self) -> dict[str, str]:
        """For each column the digits that stand for it: what a hello says of the schema."""
        return {column.name: column.digest for column in self.columns}

    def require_small(self) -> None:
        """Check that a hello can carry the digests."""
        if len(self.columns) > MAX_COLUMNS:
            raise InputError(f"the schema of a run has at most {MAX_COLUMNS} columns")
        if len(json.dumps(self.digests)) > _MAX_DIGESTED:
            raise InputError("the names of the columns are too long for a run: shorten them")

    def to_dict(self) -> dict[str, Any]:
        """Give the columns as plain JSON types, by their names."""
        return {column.name: column.to_dict() for column in self.columns}

    @classmethod
    def from_dict(cls, plain: Any) -> Schema:
        """Read what :meth:`to_dict` wrote; the kind alone may stand for a column."""
        if not isinstance(plain, Mapping) or not plain:
            raise InputError("a schema is a table that says of each column what it is")
        return cls(tuple(column_of(name, facts) for name, facts in plain.items()))

    def to_toml(self) -> str:
        """Write the schema as a file that a person can edit."""
        tables = {f"columns.{_toml(column.name)}": column.to_dict() for column in self.columns}
        if self.made_from is not None:
            tables["made_from"] = self.made_from.to_dict()
        return "\n".join(map(_toml_table, tables, tables.values()))

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read what :meth:`to_toml` wrote."""
        plain = read_toml(text, "the schema")
        if set(plain) - {"made_from"} != {"columns"}:
            raise InputError("a schema has the tables [columns] and [made_from], and no other")
        made = MadeFrom.from_dict(plain["made_from"]) if "made_from" in plain else None
        return replace(cls.from_dict(plain["columns"]), made_from=made)


@dataclass(frozen=True)
class SchemaDigest:
    """What a hello says of a schema: the names of the columns, and digits that stand for each."""

    digests: Annotated[dict[str, _Digits], Meta(min_length=1, max_length=MAX_COLUMNS)]

    def __post_init__(self) -> None:
        check_fields(self)

    def __hash__(self) -> int:
        return hash(frozenset(self.digests.items()))

    def to_dict(self) -> dict[str, Any]:
        """Give the digest as plain JSON types."""
        return dict(self.digests)


def column_of(name: Any, facts: Any) -> Column:
    """Read the facts of a column: its kind, or a table with its kind and more."""
    facts = {"kind": facts} if isinstance(facts, str) else facts
    if not isinstance(facts, Mapping) or "kind" not in facts:
        raise InputError(f"column {name!r}: say its kind, one of {', '.join(KINDS)}")
    allowed = {field.name for field in fields(Column)} - {"name"}
    if unknown := sorted(map(str, set(facts) - allowed)):
        raise InputError(f"column {name!r}: a schema says nothing about {', '.join(unknown)}")
    return Column(name, **{str(key): value for key, value in facts.items()})


def missing_feature(name: str) -> str:
    """Name the feature that tells where the values of a column are missing."""
    return f"{name} is missing"


def differing_columns(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Name the columns in which two schemas differ, given their digests."""
    if bool(ours) != bool(theirs):
        return ["only one of the two has a schema of the columns"]
    names = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs:
            names.append(f"the column {name!r} is missing")
        elif name not in ours:
            names.append(f"the column {name!r} is unknown")
        elif ours[name] != theirs[name]:
            names.append(f"the column {name!r} is another")
    if not names and list(ours) != list(theirs):
        names.append("the columns have another order")
    return names


def _is_text(value: Any) -> bool:
    """Tell whether something is a text that UTF-8 can write; halves of a pair are not."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _toml_table(name: str, content: Mapping[str, Any]) -> str:
    lines = [f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in content.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """Write a value as TOML, which is JSON but for how some characters of a text are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)

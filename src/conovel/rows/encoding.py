"""Columns of every kind as numbers: a function of the row and the schema alone.

A number stays as it is. A category of few levels becomes one feature for each of them, and one
that all rare levels share; an unseen level has none of them. A category of many levels becomes
one feature, the place of the level in the schema. Where a value is missing, a neutral number
stands in its place and a feature of its own says so.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError
from conovel.rows.columns import Numbers, RawColumn, Texts, read_frame, read_series
from conovel.rows.spelling import TEXT, number_kind, spell
from conovel.rows.tables import common_kind, within_bounds
from conovel.scorers.base import Matrix, Vector
from conovel.scorers.content import hash_columns
from conovel.spec.made_from import Contents
from conovel.spec.schema import Column, Schema


def pandas_frame(columns: Mapping[Any, Any]) -> Any:
    """Make a pandas frame."""
    import pandas as pd  # noqa: PLC0415  (it takes long, and few need it)

    return pd.DataFrame(dict(columns))


class FeatureMap(ABC):
    """Which features columns become.

    Attributes
    ----------
    features : tuple of str
        Names of the features.
    source : tuple of str
        For each feature, the column that it comes from.
    """

    def __init__(self, features: tuple[str, ...], source: tuple[str, ...]) -> None:
        self.features, self.source = features, source

    def __deepcopy__(self, memo: Any) -> FeatureMap:
        return self  # immutable; scikit-learn copies the parameters of every clone

    @abstractmethod
    def encode_frame(self, frame: nw.DataFrame[Any], name: str) -> list[Vector]:
        """Give the features of the rows of a frame, each as a vector; errors call it `name`."""

    @abstractmethod
    def decode(self, X: Matrix) -> Any:
        """Make a frame of rows of features."""

    @abstractmethod
    def identity(self) -> Any:
        """Give what tells it from others, in plain JSON types."""

    def spell_value(self, column: str, features: Sequence[float]) -> str:
        """Spell the value that a column has where these are its features."""
        return ", ".join(map(spell_number, features))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        return tuple(dict.fromkeys(self.source))

    def constant_columns(self, constant: NDArray[np.bool_]) -> list[str]:
        """Name the columns of which every feature is constant."""
        changing = {name for name, same in zip(self.source, constant, strict=True) if not same}
        return [name for name in self.columns if name not in changing]


class Encoder(FeatureMap):
    """Turns rows of a table into rows of features.

    Parameters
    ----------
    schema : Schema
    """

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema.features, schema.source)
        self.schema = schema

    def encode(self, columns: Mapping[str, RawColumn], name: str) -> list[Vector]:
        """Give the features of some rows, each as a vector."""
        columns = self.completed(columns)
        features: list[Vector] = []
        for column in self.schema.used:
            features += _ENCODERS[column.kind](column, columns[column.name], name)
        return features

    def completed(self, columns: Mapping[str, RawColumn]) -> Mapping[str, RawColumn]:
        """Add the columns that are not there: all their values are missing."""
        absent = [c.name for c in self.schema.used if c.missing and c.name not in columns]
        n = len(next(iter(columns.values()), ()))
        return {**columns, **{name: Numbers(np.full(n, np.nan)) for name in absent}}

    def encode_frame(self, frame: nw.DataFrame[Any], name: str) -> list[Vector]:
        """Give the features of the rows of a frame, each as a vector."""
        return self.encode(read_frame(frame), name)

    def identity(self) -> Any:
        """Give the schema."""
        return self.schema.to_dict()

    def decode(self, X: Matrix) -> Any:
        """Make a pandas frame of rows of features, for pipelines: what the schema kept of a table.

        Rare and unseen levels and buckets have names of their own; parts of dates are numbers.
        """
        columns: dict[str, Any] = {}
        j = 0
        for column in self.schema.used:
            features = X[:, j : j + len(column.features)].T
            j += len(column.features)
            gone = features[-1] > 0 if column.missing else np.zeros(len(X), dtype=np.bool_)
            if column.kind == "category":
                names_of_rows = level_names(column, features)
                names_of_rows[gone] = None
                columns[column.name] = names_of_rows
            else:
                names = column.features[: -1 if column.missing else None]
                values = features[: len(names)]
                columns |= dict(zip(names, np.where(gone, np.nan, values), strict=True))
        return pandas_frame(columns)

    def kinds_to_keep(self, samples: Sequence[Mapping[str, RawColumn]]) -> tuple[str, ...]:
        """Name the types of the features, so that rows that come later are read alike.

        As :meth:`kinds`, but the first feature of a category or a date has the type in which its
        values came, or the word for texts.
        """
        kinds: list[str] = []
        samples = [self.completed(sample) for sample in samples]
        for column in self.schema.used:
            held = [sample[column.name] for sample in samples]
            own = set().union(*(raw.kinds for raw in held))
            first = common_kind(own) if own else TEXT
            if column.kind in ("number", "boolean") and any(isinstance(r, Texts) for r in held):
                first = "float64"
            kinds += [first if i == 0 else "float64" for i in range(len(column.features))]
        return tuple(kinds)

    def kinds_of_columns(self, kept: Sequence[str]) -> dict[str, str]:
        """Give the type of each column from what :meth:`kinds_to_keep` gave."""
        by_column, j = {}, 0
        for column in self.schema.used:
            by_column[column.name] = kept[j]
            j += len(column.features)
            if column.kind == "category" and by_column[column.name] == "float64":
                by_column[column.name] = (
                    TEXT  # detectors of earlier versions tell no type of these
                )
        return by_column

    def kinds(self, columns: Mapping[str, RawColumn]) -> tuple[str, ...]:
        """Name the numeric type in which each feature came."""
        kinds_here: list[str] = []
        columns = self.completed(columns)
        for column in self.schema.used:
            raw = columns[column.name]
            own = raw.kind if column.kind == "number" and isinstance(raw, Numbers) else "float64"
            kinds_here += [own if i == 0 else "float64" for i in range(len(column.features))]
        return tuple(kinds_here)


def _numbers(column: Column, raw: RawColumn, name: str) -> list[Vector]:
    read = raw if isinstance(raw, Numbers) else raw.numbers()
    if isinstance(read, str):
        raise _unfit(column, name, read, "is no number")
    values = within_bounds(np.clip(read.values, column.low, column.high))
    return _filled(column, values, name)


def _booleans(column: Column, raw: RawColumn, name: str) -> list[Vector]:
    read = raw if isinstance(raw, Numbers) else raw.truths()
    if isinstance(read, str):
        raise _unfit(column, name, read, "is not true or false")
    strange = ~np.isnan(read.values) & (read.values != 0) & (read.values != 1)
    if strange.any():
        raise _unfit(column, name, f"{read.values[strange][0]:g}", "is not true or false")
    return _filled(column, read.values, name)


def _filled(column: Column, values: Vector, name: str) -> list[Vector]:
    missing = np.isnan(values)
    indicator = _indicator(column, missing, name)
    filled = np.where(missing, column.neutral, values) if indicator else values
    return [filled + 0.0, *indicator]


def _categories(column: Column, raw: RawColumn, name: str) -> list[Vector]:
    texts = raw.texts()
    n_levels = len(column.levels)
    # Of levels with one spelling, the first counts.
    kind = number_kind(texts.kinds)
    places = [*enumerate(column.levels), *((n_levels, level) for level in column.rare)]
    place = {spell(level, kind): i for i, level in reversed(places)}
    unseen = n_levels + bool(column.rare)
    find = _bucket_of(column.buckets) if column.buckets else lambda text: place.get(text, unseen)
    n_features = column.buckets or unseen
    # The last entry is for missing values, whose code is -1: the first place, or no feature.
    missing = -1 if column.has_feature_per_level else 0
    held = np.array([*map(find, texts.levels), missing], dtype=np.int64)[texts.codes]
    if column.has_feature_per_level:
        indicators = [(held == i).astype(np.float64) for i in range(n_features)]
    else:
        indicators = [held.astype(np.float64)]
    return [*indicators, *_indicator(column, texts.codes < 0, name)]


def spell_number(value: float) -> str:
    """Write a number so that different numbers look different, whole ones without a point.

    Examples
    --------
    >>> spell_number(2026.0), spell_number(0.1)
    ('2026', '0.1')
    """
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def level_names(column: Column, features: Matrix) -> NDArray[Any]:
    """Name the level of each row, given the features of a category."""
    names = [*column.levels, *(["(rare)"] if column.rare else []), "(unseen)"]
    if column.buckets:
        names = [f"bucket {i}" for i in range(column.buckets)]
    held = features[0].astype(np.int64)
    if column.has_feature_per_level:
        levels = features[: -1 if column.missing else None]
        # Without any of its features a row has an unseen level: the last name.
        held = np.where(levels.any(axis=0), levels.argmax(axis=0), len(names) - 1)
    named_levels: NDArray[Any] = np.array(names, dtype=object)[held]
    return named_levels


def _bucket_of(n: int) -> Callable[[str], int]:
    def bucket(level: str) -> int:
        digest = hashlib.blake2b(level.encode(), digest_size=8, person=b"conovel").digest()
        return int.from_bytes(digest, "little") % n

    return bucket


def _dates(column: Column, raw: RawColumn, name: str) -> list[Vector]:
    if isinstance(raw, Numbers):
        if not np.isnan(raw.values).all():
            raise _unfit(column, name, "a number", "is no date")
        raw = Texts(np.full(len(raw), -1), ())
    times = raw.as_times
    if times is None:
        strange = next(t for t in raw.levels if Texts(np.zeros(1, int), (t,)).as_times is None)
        raise _unfit(column, name, strange, "is no date such as 2026-03-01 or 2026-03-01T10:00:00")
    indicator = _indicator(column, raw.codes < 0, name)
    # A missing date has the part zero.
    return [
        np.append(_part(times, part), 0.0)[raw.codes].astype(np.float64) for part in column.parts
    ] + indicator


def _part(times: NDArray[np.datetime64], part: str) -> NDArray[np.int64]:
    """Give one number of each moment; Monday is 0."""
    days, months = times.astype("M8[D]"), times.astype("M8[M]")
    seconds = (times - days).astype("m8[s]").astype(np.int64)
    n_days, n_months = days.astype(np.int64), months.astype(np.int64)
    numbers: dict[str, NDArray[np.int64]] = {
        "year": n_months // 12 + 1970,
        "month": n_months % 12 + 1,
        "day": (days - months.astype("M8[D]")).astype(np.int64) + 1,
        "weekday": (n_days + 3) % 7,  # 1 January 1970 was a Thursday
        "hour": seconds // 3600,
        "minute": seconds // 60 % 60,
        "second": seconds % 60,
    }
    return numbers[part]


def _indicator(column: Column, missing: NDArray[np.bool_], name: str) -> list[Vector]:
    if column.missing:
        return [missing.astype(np.float64)]
    if missing.any():
        raise ColumnError(
            f"{name}: column {column.name!r} has {np.count_nonzero(missing)} missing values (first"
            f" in row {np.flatnonzero(missing)[0]}), and the schema says that it has none: write"
            " missing = true in the schema of every agent"
        )
    return []


def _unfit(column: Column, name: str, value: str, why: str) -> ColumnError:
    return ColumnError(
        f"{name}: {value!r} in column {column.name!r} {why}, and its kind is {column.kind}: mark"
        f" it as missing (--na {value!r}), or say another kind in the schema"
    )


_ENCODERS: Mapping[str, Callable[[Column, RawColumn, str], list[Vector]]] = {
    "number": _numbers,
    "boolean": _booleans,
    "category": _categories,
    "date": _dates,
}


_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def contents_of(columns: Sequence[RawColumn]) -> Contents:
    """Give the contents of some rows, held by their columns.

    Examples
    --------
    >>> texts = Texts.of(np.array([1, 0]), ["1.50", "yes"])
    >>> numbers = Numbers(np.array([1.0, 1.5]))
    >>> contents_of([texts]) == contents_of([numbers])
    True
    """
    n = len(columns[0])
    with np.errstate(over="ignore"):
        hashes = hash_columns(map(_canonical, columns), n)
        return Contents(n, int(hashes.sum(dtype=np.uint64)))


def contents_of_frame(frame: nw.DataFrame[Any], names: Sequence[str]) -> Contents | None:
    """Give the contents of the named columns of a frame; None where it lacks one."""
    places = {str(label): j for j, label in enumerate(frame.columns)}
    if not len(frame) or any(name not in places for name in names):
        return None
    return contents_of([read_series(frame[:, places[name]], name) for name in names])


def contents_of_columns(columns: Mapping[str, RawColumn], names: Sequence[str]) -> Contents | None:
    """Give the contents of the named columns; None where one is not there."""
    if any(name not in columns for name in names):
        return None
    return contents_of([columns[name] for name in names])


def number_of_text(text: str) -> float:
    """Give a whole number that stands for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))


def _canonical(column: RawColumn) -> Vector:
    """Give one number for each value, the same for all spellings and types of it."""
    if isinstance(column, Numbers):
        return _single(column.values)
    numbers = [*map(_number_of_level, column.levels), np.nan]
    return _single(np.array(numbers))[column.codes]


def _single(values: Vector) -> Vector:
    """Round to single precision, in which a file may hold what another holds in double."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = within_bounds(values).astype(np.float32).astype(np.float64)
    rounded[np.isnan(rounded)] = np.nan  # one pattern of bits
    return rounded


def _number_of_level(level: str) -> float:
    alone = Texts(np.zeros(1, dtype=np.int64), (level,))
    for read in (alone.numbers(), alone.truths()):
        if isinstance(read, Numbers):
            return float(read.values[0])
    if _DATE.match(level) and (times := alone.as_times) is not None:
        level = str(times[0])
    return number_of_text(level)

"""The values of a column before they are encoded: numbers, or codes of texts.

Whatever library a column came from, equal values have equal forms here, so that what follows
depends on values alone. Dates are texts in ISO 8601.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from conovel.errors import ValueTypeError
from conovel.site.representation import as_floats, common_kind, kind_of, kinds_of_objects

# Texts that stand for a missing value, in files and in columns of texts.
NA_MARKERS = frozenset(
    {"", "?", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>", "NaT"}
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TRUE, _FALSE = {"true", "t", "yes", "y", "1", "1.0"}, {"false", "f", "no", "n", "0", "0.0"}
_SCALARS = (str, bool, int, float, decimal.Decimal, np.generic, datetime.date, datetime.time)


def spells_number(text: str) -> bool:
    """Tell whether a text is a number."""
    return _NUMBER.fullmatch(text) is not None


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers; NaN is missing. `kind` is the type in which they came."""

    values: NDArray[np.float64]
    kind: str = "float64"

    def __len__(self) -> int:
        return self.values.size

    def texts(self) -> Texts:
        """Give the numbers as texts, whole ones without a point."""
        distinct, codes = np.unique(self.values + 0.0, return_inverse=True)
        missing = np.isnan(distinct)
        names = [repr(value).removesuffix(".0") for value in distinct[~missing].tolist()]
        codes = np.where(np.isnan(self.values), -1, codes)
        return Texts.of(codes, names)


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts: for each row the place of its text among `levels`, or -1.

    Attributes
    ----------
    codes : int array
    levels : tuple of str
        The different texts that occur, in ascending order.
    is_date : bool
        Whether the column came with a type of dates.
    """

    codes: NDArray[np.int64]
    levels: tuple[str, ...]
    is_date: bool = False

    def __len__(self) -> int:
        return self.codes.size

    @classmethod
    def of(cls, codes: NDArray[Any], names: Sequence[str], *, is_date: bool = False) -> Texts:
        """Bring texts to one form: no blanks around them, NA markers missing, in order."""
        stripped = [name.strip() for name in names]
        used = np.zeros(len(names) + 1, dtype=np.bool_)
        used[codes] = True
        kept = {n for n, here in zip(stripped, used, strict=False) if here} - NA_MARKERS
        levels = tuple(sorted(kept))
        place = {level: i for i, level in enumerate(levels)}
        table = np.array([place.get(name, -1) for name in stripped] + [-1], dtype=np.int64)
        return cls(table[codes], levels, is_date)

    @cached_property
    def as_numbers(self) -> NDArray[np.float64] | None:
        """The numbers that the levels spell, if all of them do."""
        if not all(map(spells_number, self.levels)):
            return None
        return np.array([float(level) for level in self.levels])

    @cached_property
    def as_times(self) -> NDArray[np.datetime64] | None:
        """The moments that the levels spell in ISO 8601, if all of them do; in UTC."""
        levels = pa.array(self.levels, pa.string())
        for zone in (None, "UTC"):
            try:
                times = levels.cast(pa.timestamp("us", zone))
            except pa.ArrowInvalid:
                continue
            return np.asarray(times.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False))
        return None

    def numbers(self) -> Numbers | str:
        """Give the numbers that the texts spell, or the first text that spells none."""
        return self._looked_up(lambda text: float(text) if spells_number(text) else None)

    def truths(self) -> Numbers | str:
        """Give 1 for texts such as "yes" and 0 for such as "no", or the first other text."""
        return self._looked_up(
            lambda text: 1.0 if text.lower() in _TRUE else 0.0 if text.lower() in _FALSE else None
        )

    def _looked_up(self, read: Any) -> Numbers | str:
        values = [read(level) for level in self.levels]
        if None in values:
            return self.levels[values.index(None)]
        return Numbers(np.array([*values, np.nan])[self.codes])


RawColumn: TypeAlias = Numbers | Texts


def series_kind(series: nw.Series[Any]) -> str | None:
    """Name the kind of numbers of a column of a frame; None where it holds something else."""
    dtype = series.dtype
    if dtype == nw.Boolean:
        return "bool"
    if dtype == nw.Decimal:
        return "decimal"
    if dtype.is_numeric():
        return str(dtype).lower()
    if dtype == nw.Unknown and series.null_count() < len(series):
        return kind_of(series.to_numpy().dtype)  # numpy's long double, for one
    return None


def plain_kinds(frame: nw.DataFrame[Any]) -> list[str | None]:
    """Name the kind of numbers of each column; None where it holds something else."""
    return [series_kind(frame[:, j]) for j in range(frame.shape[1])]


def read_series(series: nw.Series[Any], label: str) -> RawColumn:
    """Read one column of a frame.

    Raises
    ------
    ValueTypeError
        If it holds lists or other things that are not one value.
    """
    try:
        return _read_series(series, label)
    except UnicodeEncodeError as error:
        raise ValueTypeError(f"{label} holds a text that is not Unicode: {error}") from None


def read_frame(frame: nw.DataFrame[Any]) -> dict[str, RawColumn]:
    """Read all columns of a frame whose names are texts."""
    return {name: read_series(frame[name], f"column {name!r}") for name in frame.columns}


def _read_series(series: nw.Series[Any], label: str) -> RawColumn:
    dtype = series.dtype
    if (kind := series_kind(series)) is not None:
        return Numbers(as_floats(series.to_numpy()), kind)
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return _texts(series.cast(nw.String).to_arrow())
    if dtype.is_temporal():
        return _read_temporal(series.to_arrow())
    if dtype == nw.Object:
        return _read_objects(series.to_list(), label)
    if series.null_count() == len(series):
        return Numbers(np.full(len(series), np.nan))
    raise no_value(label, str(dtype))


def _texts(values: pa.Array | pa.ChunkedArray, *, is_date: bool = False) -> Texts:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    encoded = values.cast(pa.string()).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Texts.of(codes, encoded.dictionary.to_pylist(), is_date=is_date)


def _read_temporal(values: pa.Array | pa.ChunkedArray) -> RawColumn:
    """Read dates as texts, and durations and times of day as seconds."""
    kind = values.type
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        unit = kind.unit
        whole = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        seconds = as_floats(pc.cast(whole, pa.float64()).to_numpy(zero_copy_only=False))
        return Numbers(seconds / {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit])
    zone = getattr(kind, "tz", None)
    # Finer than microseconds is cut off: a date gives parts no finer than seconds.
    moments = pc.cast(values, pa.timestamp("us", zone), safe=False)
    return _texts(moments, is_date=True)


def _read_objects(values: Sequence[Any], label: str) -> RawColumn:
    missing = [plain_missing(value) is None for value in values]
    held = [value for value, gone in zip(values, missing, strict=True) if not gone]
    if strange := [value for value in held if not isinstance(value, _SCALARS)]:
        raise no_value(label, type(strange[0]).__name__)
    if all(isinstance(v, bool | int | float | decimal.Decimal | np.number) for v in held):
        array = np.array([None if m else v for v, m in zip(values, missing, strict=True)], object)
        return Numbers(as_floats(array), common_kind(kinds_of_objects(array)))
    texts = [None if gone else str(v) for v, gone in zip(values, missing, strict=True)]
    is_date = all(isinstance(value, datetime.date) for value in held)
    return _texts(pa.array(texts, pa.string()), is_date=is_date)


def plain_missing(value: Any) -> Any:
    """Give None for every missing value: NaN, and those that pandas has of its own."""
    is_nan = isinstance(value, float) and value != value  # noqa: PLR0124
    return None if is_nan or type(value).__name__ in ("NAType", "NaTType") else value


def no_value(label: str, kind: str) -> ValueTypeError:
    """Say that a column holds lists or other things that are not one value."""
    return ValueTypeError(
        f"{label} holds values of type {kind}, which are no numbers, texts or dates: encode them"
        " as numbers or leave them out"
    )

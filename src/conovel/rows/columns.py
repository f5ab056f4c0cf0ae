"""The values of a column before they are encoded: numbers, or codes of texts.

Whatever library a column came from, equal values have equal forms here, so that what follows
depends on values alone. Texts are spelled as :mod:`conovel.rows.spelling` does; dates are texts.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from conovel.errors import ValueTypeError
from conovel.rows.spelling import (
    DATE,
    DATES,
    DURATION,
    TEXT,
    TIME,
    ZONED,
    number_kind,
    require_one_meaning,
    respell,
    spell_number,
    spells_number,
)
from conovel.rows.tables import as_floats, common_kind, kind_of, kinds_of_objects

_TRUE, _FALSE = {"t", "yes", "y", "1"}, {"f", "no", "n", "0"}
_NUMBER_TYPES = (bool, int, float, decimal.Decimal, np.bool_, np.integer, np.floating)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column of numbers; NaN is missing. `kind` is the type in which they came."""

    values: NDArray[np.float64]
    kind: str = "float64"

    def __len__(self) -> int:
        return self.values.size

    @property
    def kinds(self) -> frozenset[str]:
        """The type in which they came, if there are any."""
        return frozenset() if np.isnan(self.values).all() else frozenset({self.kind})

    def texts(self, kinds: Collection[str] = (), label: str = "the column") -> Texts:
        """Give the numbers as texts; `kinds` and `label` as of :meth:`Texts.texts`."""
        distinct, codes = np.unique(self.values + 0.0, return_inverse=True)
        kind = number_kind({*kinds, *self.kinds})
        names = [spell_number(v, kind) for v in distinct[~np.isnan(distinct)].tolist()]
        codes = np.where(np.isnan(self.values), -1, codes)
        return Texts.of(codes, names, self.kinds)


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts: for each row the place of its text among `levels`, or -1."""

    codes: NDArray[np.int64]
    levels: tuple[str, ...]  # the different texts that occur, in ascending order
    # Types of the values that did not come as texts, such as "date"
    kinds: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return self.codes.size

    @classmethod
    def of(
        cls,
        codes: NDArray[Any],
        names: Sequence[str],
        kinds: Collection[str] = (),
        label: str = "the column",
        *,
        others: Collection[str] = (),
    ) -> Texts:
        """Spell texts in one way, take those that mark a missing value out, and order them."""
        used = np.zeros(len(names) + 1, dtype=np.bool_)
        used[codes] = True
        held = [name if here else "" for name, here in zip(names, used, strict=False)]
        spelled = respell(held, {*kinds, *others}, label)
        levels = tuple(sorted({name for name in spelled if name is not None}))
        place = {level: i for i, level in enumerate(levels)}
        table = np.array([place.get(name, -1) for name in (*spelled, None)], dtype=np.int64)  # type: ignore[arg-type]
        return cls(table[codes], levels, frozenset(kinds))

    @property
    def is_date(self) -> bool:
        """Whether the column came with a type of dates."""
        return bool(self.kinds) and self.kinds <= DATES

    def texts(self, kinds: Collection[str] = (), label: str = "the column") -> Texts:
        """Spell them beside values of other samples."""
        if self.kinds.issuperset(kinds):  # so they are spelled
            return self
        return Texts.of(self.codes, self.levels, self.kinds, label, others=kinds)

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
    """Read one column of a frame."""
    try:
        return _read_series(series, label)
    except UnicodeEncodeError as error:
        raise ValueTypeError(f"{label} holds a text that is not Unicode: {error}") from None


def read_frame(frame: nw.DataFrame[Any]) -> dict[str, RawColumn]:
    """Read all columns of a frame whose names are texts."""
    return {name: read_series(frame[name], f"column {name!r}") for name in frame.columns}


def _read_series(series: nw.Series[Any], label: str) -> RawColumn:
    if series.dtype in (nw.Categorical, nw.Enum):
        series = _decoded(series)
    dtype = series.dtype
    if (kind := series_kind(series)) is not None:
        return Numbers(as_floats(series.to_numpy()), kind)
    if dtype == nw.String:
        return _texts(series.to_arrow(), label=label)
    if dtype.is_temporal():
        return _read_temporal(series.to_arrow())
    if dtype == nw.Object:
        return _read_objects(series.to_list(), label)
    if series.null_count() == len(series):
        return Numbers(np.full(len(series), np.nan))
    raise no_value(label, str(dtype))


def _decoded(series: nw.Series[Any]) -> nw.Series[Any]:
    """Give the values of a categorical column in their own type: numbers, dates or texts."""
    native = series.to_native()
    if isinstance(native, pa.ChunkedArray):
        return nw.from_native(native.cast(native.type.value_type), series_only=True)
    if series.implementation.is_pandas():
        return nw.from_native(native.astype(native.cat.categories.dtype), series_only=True)
    return series.cast(nw.String)


def _texts(
    values: pa.Array | pa.ChunkedArray, kinds: Collection[str] = (), label: str = "the column"
) -> Texts:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    encoded = values.cast(pa.string()).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Texts.of(codes, encoded.dictionary.to_pylist(), kinds, label)


def _read_temporal(values: pa.Array | pa.ChunkedArray) -> RawColumn:
    """Read dates as texts, and durations and times of day as seconds."""
    kind = values.type
    if pa.types.is_duration(kind) or pa.types.is_time(kind):
        unit, is_time = kind.unit, pa.types.is_time(kind)
        whole = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        seconds = as_floats(pc.cast(whole, pa.float64()).to_numpy(zero_copy_only=False))
        seconds = seconds / {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
        return Numbers(seconds, TIME if is_time else DURATION)
    zoned = getattr(kind, "tz", None) is not None
    # Finer than microseconds is cut off: a date gives parts no finer than seconds. The values of
    # a column with a time zone are moments of UTC already.
    moments = pc.cast(values, pa.timestamp("us", "UTC" if zoned else None), safe=False)
    return _texts(moments, {ZONED if zoned else DATE} if moments.null_count < len(moments) else ())


def _read_objects(values: Sequence[Any], label: str) -> RawColumn:
    plain = [plain_missing(value) for value in values]
    held = [value for value in plain if value is not None]
    if all(isinstance(value, _NUMBER_TYPES) for value in held):
        array = np.array(plain, object)
        return Numbers(as_floats(array), common_kind(kinds_of_objects(array)))
    kinds = {_kind_of(value, label) for value in held} - {TEXT}
    require_one_meaning(kinds, label)
    if kinds & {TIME, DURATION} and all(not isinstance(value, str) for value in held):
        seconds = [None if value is None else _seconds(value) for value in plain]
        return Numbers(as_floats(np.array(seconds, object)), *kinds)
    texts = [None if value is None else _spelled(value) for value in plain]
    return _texts(pa.array(texts, pa.string()), kinds, label)


def _kind_of(value: Any, label: str) -> str:
    """Name the kind of one object."""
    if isinstance(value, str):
        return TEXT
    if isinstance(value, _NUMBER_TYPES):
        return next(iter(kinds_of_objects(np.array([value], object))))
    if isinstance(value, datetime.datetime):  # pandas' moments are some, too
        return DATE if value.tzinfo is None else ZONED
    if isinstance(value, datetime.date | np.datetime64):
        return DATE
    if isinstance(value, datetime.time | datetime.timedelta | np.timedelta64):
        return TIME if isinstance(value, datetime.time) else DURATION
    raise no_value(label, type(value).__name__)


def _spelled(value: Any) -> str:
    if isinstance(value, _NUMBER_TYPES):
        [kind] = kinds_of_objects(np.array([value], object))
        return spell_number(float(value), kind)
    if isinstance(value, datetime.time | datetime.timedelta | np.timedelta64):
        return spell_number(_seconds(value))
    return str(value)


def _seconds(value: datetime.time | datetime.timedelta | np.timedelta64) -> float:
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    whole = (value.hour * 60 + value.minute) * 60 + value.second
    return whole + value.microsecond / 1e6


def one_form(types: Collection[type], values: Collection[Any], label: str) -> Callable[[Any], Any]:
    """Say how objects get one form, so that equal ones cannot be told apart by their type."""
    kinds = {_kind_of(value, label) for value in values}
    if TEXT in kinds and kinds != {TEXT}:
        raise mixed_with_texts(label, kinds - {TEXT})
    require_one_meaning(kinds - {TEXT}, label)
    if kinds <= DATES and kinds:
        return _moment if len(types) > 1 or ZONED in kinds else as_it_is
    if TEXT in kinds or kinds & {TIME, DURATION} or set(types) <= {int} or set(types) <= {bool}:
        return as_it_is if len(types) == 1 else str if TEXT in kinds else _seconds
    return _as_float


def as_it_is(value: Any) -> Any:
    """Give a value as it is."""
    return value


def _as_float(value: Any) -> float:
    return float(value) + 0.0


def mixed_with_texts(label: str, kinds: Collection[str]) -> ValueTypeError:
    """Say that a pipeline cannot be given texts and other values in one column."""
    return ValueTypeError(
        f"{label} holds texts and values of type {' and '.join(sorted(kinds))}, and a pipeline"
        " would see two spellings of one value: give it one type in all samples and files"
    )


def _moment(value: Any) -> datetime.datetime:
    """Give a date, a moment of pandas or of numpy as one of Python, in UTC if it has a zone."""
    if isinstance(value, np.datetime64):
        value = value.astype("M8[us]").item()
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime(warn=False)
    if not isinstance(value, datetime.datetime):
        return datetime.datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(datetime.UTC)


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

"""One column in every form in which a library can hold it.

A form reads the values of one sample alone, as a user's own reading does: where a text such as
"other" stands among numbers, the whole sample becomes texts. So the form of a sample depends on
its rows, and the score of a row must not depend on it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

BERLIN = "Europe/Berlin"
UTC = datetime.UTC
OTHER = "other"


@dataclass(frozen=True)
class Form:
    """How a library holds a column.

    Attributes
    ----------
    hold : callable
        Makes a column of values; None is missing.
    write : callable
        Spells a value, where a sample with texts becomes texts as a whole.
    takes_texts : bool
        Whether a text such as "other" can stand among the values.
    has_feature_per_level : bool
        Whether no rule says that its texts are the values of the family, such as "3,5". Beside
        values with a type, they must be refused; beside other texts they are other values.
    """

    hold: Callable[[Sequence[Any]], Any]
    write: Callable[[Any], str] = str
    takes_texts: bool = False
    has_feature_per_level: bool = False

    def column(self, values: Sequence[Any]) -> pa.ChunkedArray | Any:
        """Hold the values of one sample."""
        if OTHER in values and not self.takes_texts:
            return _texts([v if v in (None, OTHER) else self.write(v) for v in values])
        try:
            return self.hold(values)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            raise NotHeldError from error


class NotHeldError(Exception):
    """A type that cannot hold some values, such as missing ones: not the fault of a reader."""


def _texts(values: Sequence[Any]) -> Any:
    return pd.Series(values, dtype="str")


def _apart(write: Callable[[Any], str]) -> Form:
    return Form(_pandas("str", write), takes_texts=True, has_feature_per_level=True)


def _each(read: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    return [v if v is None or v == OTHER else read(v) for v in values]


def _pandas(dtype: str, read: Callable[[Any], Any] = lambda v: v) -> Callable[..., Any]:
    def hold(values: Sequence[Any]) -> Any:
        if dtype == "bool" and None in values:
            raise ValueError("pandas would take a missing value for False")
        return pd.Series(_each(read, values), dtype=dtype)

    return hold


def _polars(dtype: Any, read: Callable[[Any], Any] = lambda v: v) -> Callable[..., Any]:
    return lambda values: pl.Series("c", _each(read, values), dtype=dtype)


def _arrow(kind: pa.DataType, read: Callable[[Any], Any] = lambda v: v) -> Callable[..., Any]:
    return lambda values: pa.chunked_array([pa.array(_each(read, values), kind)])


def _dictionary(kind: pa.DataType, read: Callable[[Any], Any] = lambda v: v) -> Callable[..., Any]:
    return lambda values: pa.chunked_array([_arrow(kind, read)(values).combine_chunks()])[
        :
    ].dictionary_encode()


def _texts_by(write: Callable[[Any], str]) -> dict[str, Form]:
    return {
        "pandas texts": Form(_pandas("str", write), takes_texts=True),
        "pandas objects": Form(_pandas("object", write), takes_texts=True),
        "polars texts": Form(_polars(pl.String, write), takes_texts=True),
        "arrow dictionary of texts": Form(_dictionary(pa.string(), write), takes_texts=True),
    }


def _named(prefix: str, forms: Mapping[str, Form]) -> dict[str, Form]:
    return {f"{name} {prefix}": form for name, form in forms.items()}


def _whole(value: Any) -> str:
    return str(int(value))


def _real(value: Any) -> str:
    return repr(float(value))


_NUMBER_FORMS = {
    "float64": Form(_pandas("float64", float), _real),
    "Float64": Form(_pandas("Float64", float), _real),
    "float objects": Form(_pandas("object", float), _real, takes_texts=True),
    "decimal objects": Form(_pandas("object", lambda v: Decimal(repr(v))), takes_texts=True),
    "category of floats": Form(lambda v: _pandas("float64", float)(v).astype("category"), _real),
    "polars Float64": Form(_polars(pl.Float64, float), _real),
    "polars Float32": Form(_polars(pl.Float32, float), _real),
    "float32": Form(_pandas("float32", float), _real),
    "float32 objects": Form(_pandas("object", np.float32), takes_texts=True),
    "arrow float64": Form(_arrow(pa.float64(), float), _real),
    "arrow dictionary of floats": Form(_dictionary(pa.float64(), float), _real),
    **_named("3.5", _texts_by(_real)),
    "3.50": Form(_pandas("str", lambda v: f"{v:.6f}"), takes_texts=True),
    " 3.5 ": Form(_pandas("str", lambda v: f" {v!r} "), takes_texts=True),
    "3,5": _apart(lambda v: _real(v).replace(".", ",")),
    "3.5e+00": Form(_polars(pl.String, lambda v: f"{v:e}"), takes_texts=True),
}
_WHOLE_FORMS = {
    "int64": Form(_pandas("int64", int), _whole),
    "Int64": Form(_pandas("Int64", int), _whole),
    "uint8": Form(_pandas("uint8", int), _whole),
    "int objects": Form(_pandas("object", int), _whole, takes_texts=True),
    "numpy objects": Form(_pandas("object", np.int16), _whole, takes_texts=True),
    "category of ints": Form(lambda v: _pandas("Int64", int)(v).astype("category"), _whole),
    "polars Int64": Form(_polars(pl.Int64, int), _whole),
    "arrow int8": Form(_arrow(pa.int8(), int), _whole),
    "arrow uint64": Form(_arrow(pa.uint64(), int), _whole),
    "arrow decimal": Form(_arrow(pa.decimal128(9, 2), int), lambda v: f"{v:.2f}"),
    "arrow dictionary of ints": Form(_dictionary(pa.int64(), int), _whole),
    **_named("3", _texts_by(_whole)),
    "003": Form(_pandas("str", lambda v: f"{int(v):03d}"), takes_texts=True),
    "+3": Form(_pandas("str", lambda v: f"{int(v):+d}"), takes_texts=True),
    "bytes": Form(_pandas("object", lambda v: _whole(v).encode())),
}
_BOOLEAN_FORMS = {
    "bool": Form(_pandas("bool", bool)),
    "boolean": Form(_pandas("boolean", bool)),
    "bool objects": Form(_pandas("object", bool), takes_texts=True),
    "category of bools": Form(lambda v: _pandas("boolean", bool)(v).astype("category")),
    "polars Boolean": Form(_polars(pl.Boolean, bool)),
    "arrow bool": Form(_arrow(pa.bool_(), bool), lambda v: str(bool(v)).lower()),
    "int64": Form(_pandas("int64", int), _whole),
    "float64": Form(_pandas("float64", float), _real),
    "int objects": Form(_pandas("object", int), _whole, takes_texts=True),
    **_named("True", _texts_by(lambda v: str(bool(v)))),
    "TRUE": Form(_pandas("str", lambda v: str(bool(v)).upper()), takes_texts=True),
    "true": Form(_polars(pl.String, lambda v: str(bool(v)).lower()), takes_texts=True),
    "1": Form(_pandas("str", _whole), takes_texts=True),
    "yes": _apart(lambda v: "yes" if v else "no"),
}


_LARGE_FORMS = {
    "int64": Form(_pandas("int64")),
    "uint64": Form(_pandas("uint64")),
    "Int64": Form(_pandas("Int64")),
    "int objects": Form(_pandas("object"), takes_texts=True),
    "polars Int64": Form(_polars(pl.Int64)),
    "decimal": Form(_arrow(pa.decimal128(20, 0))),
    **_named("of digits", _texts_by(str)),
}


def _zoned(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=UTC)


def _day(value: datetime.datetime) -> datetime.date:
    return value.date()


_DATE_FORMS = {
    "datetime64": Form(_pandas("datetime64[ns]")),
    "datetime objects": Form(_pandas("object"), takes_texts=True),
    "timestamp objects": Form(
        lambda v: pd.Series(_each(pd.Timestamp, v), dtype="object"), takes_texts=True
    ),
    "date objects": Form(_pandas("object", _day), lambda v: str(v.date()), takes_texts=True),
    "polars Date": Form(_polars(pl.Date, _day), lambda v: str(v.date())),
    "polars Datetime": Form(_polars(pl.Datetime("ms"))),
    "arrow date32": Form(_arrow(pa.date32(), _day), lambda v: str(v.date())),
    "arrow timestamp": Form(_arrow(pa.timestamp("s")), lambda v: v.isoformat()),
    "arrow zoned": Form(_arrow(pa.timestamp("us", "UTC"), _zoned), lambda v: f"{v.isoformat()}Z"),
    "arrow Berlin": Form(
        _arrow(pa.timestamp("us", BERLIN), _zoned), lambda v: _zoned(v).isoformat()
    ),
    "zoned objects": Form(_pandas("object", _zoned), takes_texts=True),
    **_named("2026-01-01", _texts_by(lambda v: str(v.date()))),
    "2026-01-01T00:00:00": Form(_pandas("str", lambda v: v.isoformat()), takes_texts=True),
    "2026-01-01 00:00": Form(_pandas("str", lambda v: f"{v:%Y-%m-%d %H:%M}"), takes_texts=True),
    "2026-01-01T01:00:00+01:00": _apart(
        lambda v: _zoned(v).astimezone(ZoneInfo(BERLIN)).isoformat()
    ),
    "01.01.2026": _apart(lambda v: f"{v:%d.%m.%Y}"),
    "seconds": Form(
        _pandas("int64", lambda v: int(_zoned(v).timestamp())), has_feature_per_level=True
    ),
}
_TIME_FORMS = {
    "polars Time": Form(_polars(pl.Time)),
    "time objects": Form(_pandas("object"), takes_texts=True),
    "arrow time32": Form(_arrow(pa.time32("s"))),
    "arrow time64": Form(_arrow(pa.time64("ns"))),
    "10:00:00": _apart(str),
    "10:00": _apart(lambda v: f"{v:%H:%M}"),
    "seconds": Form(_pandas("int64", lambda v: v.hour * 3600), has_feature_per_level=True),
}
_DURATION_FORMS = {
    "timedelta64": Form(_pandas("timedelta64[ns]")),
    "polars Duration": Form(_polars(pl.Duration("ms"))),
    "arrow duration": Form(_arrow(pa.duration("s"))),
    "timedelta objects": Form(_pandas("object"), takes_texts=True),
    "1:00:00": _apart(str),
    "milliseconds": Form(
        _pandas("int64", lambda v: v // datetime.timedelta(milliseconds=1)),
        has_feature_per_level=True,
    ),
}
_TEXT_FORMS = {
    "string": Form(_pandas("string"), takes_texts=True),
    "category": Form(_pandas("category"), takes_texts=True),
    "category object": Form(lambda v: _pandas("object")(v).astype("category"), takes_texts=True),
    "polars Categorical": Form(_polars(pl.Categorical), takes_texts=True),
    "polars Enum": Form(
        lambda v: pl.Series("c", v, pl.Enum(sorted({x for x in v if x}))), takes_texts=True
    ),
    "arrow string": Form(_arrow(pa.string()), takes_texts=True),
    "arrow large string": Form(_arrow(pa.large_string()), takes_texts=True),
    "arrow view": Form(_arrow(pa.string_view()), takes_texts=True),
    "arrow binary": Form(_arrow(pa.binary(), lambda v: v.encode())),
    "with blanks": Form(_pandas("str", lambda v: f" {v}"), takes_texts=True),
    **_texts_by(str),
}


def _moment(i: int) -> datetime.datetime:
    return datetime.datetime(2026, 1, 1) + datetime.timedelta(days=37 * i)


@dataclass(frozen=True)
class Family:
    """Values and the forms that can hold them; what is asked of the column besides nothing."""

    values: Sequence[Any]
    forms: Mapping[str, Form]
    asked: Sequence[str | None] = (None, "category")


FAMILIES: Mapping[str, Family] = {
    "whole numbers": Family([0, 1, 2, 3, 7], {**_NUMBER_FORMS, **_WHOLE_FORMS}),
    "fractions": Family([-0.0, 0.0, 0.1, 0.25, 1e-05, 123456.7], _NUMBER_FORMS),
    "large numbers": Family(
        [2**53 + 2 * i for i in range(4)],
        _LARGE_FORMS | {"float64": Form(_pandas("float64", float), _real)},
    ),
    "numbers beyond floats": Family([2**53 + i for i in range(4)], _LARGE_FORMS),
    "codes": Family(
        ["007", "7", "7.0", "12e4", "-1"],
        {name: _TEXT_FORMS[name] for name in ("string", "category", "polars Categorical")}
        | {"numbers": Form(_pandas("object", float), lambda v: str(float(v)))},
    ),
    "truths": Family([True, False], _BOOLEAN_FORMS, (None, "category", "boolean")),
    "dates": Family([_moment(i) for i in range(5)], _DATE_FORMS, (None, "category", "date")),
    "times": Family([datetime.time(8 + i) for i in range(4)], _TIME_FORMS),
    "durations": Family([datetime.timedelta(hours=i) for i in range(1, 5)], _DURATION_FORMS),
    "words": Family(["L", "M", "nan", "None", "a b", "#NA", "-nan"], _TEXT_FORMS),
}

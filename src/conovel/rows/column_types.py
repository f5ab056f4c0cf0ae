"""The one type in which a column is read from all files of both samples.

Files that agree on a type are read as they are. Numbers of several types become floats, dates of
several types moments, and all else texts in one spelling (:mod:`conovel.rows.spelling`). What
types the files have between them goes along with a column of texts: by it, a text is spelled or
refused in whichever file it stands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conovel.errors import ValueTypeError
from conovel.rows.columns import Numbers, read_series
from conovel.rows.spelling import (
    DATE,
    DATES,
    DURATION,
    TIME,
    ZONED,
    require_one_meaning,
    spell,
    spells_number,
)
from conovel.rows.tables import as_floats, common_kind, round_to

_FLOATS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}
# What goes along with a feature that is read as texts: the kinds of its values in any file, and
# whether CSV files have several decimal signs.
_KINDS, _DECIMALS = b"conovel kinds", b"conovel decimals"
_COMMA_NUMBER = r"^(\s*[+-]?\d*),(\d+([eE][+-]?\d+)?\s*)$"


def kind_of_numbers(kind: pa.DataType) -> str | None:
    """Name a kind of numbers as `conovel.rows.tables` does; None for anything else."""
    if pa.types.is_null(kind):
        return "null"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_decimal(kind):
        return "decimal"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).name)
    return None


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is one of texts."""
    is_ = pa.types
    return bool(is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind))


def kind_of_values(kind: pa.DataType) -> str | None:
    """Name the kind of values of a type; None for texts, and for what holds no value."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return kind_of_values(kind.value_type)
    if is_.is_null(kind) or is_text(kind):
        return None
    if is_.is_time(kind) or is_.is_duration(kind):
        return TIME if is_.is_time(kind) else DURATION
    if is_.is_temporal(kind):
        return DATE if getattr(kind, "tz", None) is None else ZONED
    return kind_of_numbers(kind)


def common_field(
    name: str, types: Collection[pa.DataType], kinds: Collection[str], decimals: Collection[str]
) -> pa.Field:
    """Give a column one type."""
    if len(kinds) > 1:
        require_one_meaning(kinds, f"column {name!r}")
    if len(types) == 1 and not is_text(only := next(iter(types))):
        return pa.field(name, only)
    number_kinds = {kind_of_numbers(kind) for kind in types}
    if None not in number_kinds:
        return pa.field(name, _FLOATS[common_kind({*filter(None, number_kinds), "float64"})])
    if kinds and not any(map(is_text, types)):
        # Durations and times of day are seconds.
        zone = "UTC" if ZONED in kinds else None
        return pa.field(name, pa.timestamp("us", zone) if set(kinds) & DATES else pa.float64())
    metadata = {_KINDS: "\n".join(sorted(kinds)), _DECIMALS: "".join(sorted(decimals))}
    return pa.field(name, pa.string(), metadata=metadata)


def converted(table: pa.Table, types: pa.Schema, path: object, decimal: str = ".") -> pa.Table:
    """Bring columns to the types agreed on."""
    columns = [
        _as_agreed(column, field, f"{path}: column {field.name!r}", decimal)
        for column, field in zip(table.select(types.names).columns, types, strict=True)
    ]
    return pa.table(columns, schema=types)


def _as_agreed(
    column: pa.ChunkedArray, field: pa.Field, label: str, decimal: str
) -> pa.Array | pa.ChunkedArray:
    if field.metadata and _KINDS in field.metadata:
        return _as_texts(column, field.metadata, label, decimal)
    if column.type == field.type:
        return column
    if pa.types.is_floating(field.type):
        return _as_floats(column, field.type, label)
    # Moments may be finer than they are used.
    return column.cast(field.type, safe=not pa.types.is_timestamp(field.type))


def _as_floats(column: pa.ChunkedArray, kind: pa.DataType, label: str) -> pa.Array:
    read = read_series(_series(column), label) if pa.types.is_temporal(column.type) else None
    values = read.values if isinstance(read, Numbers) else as_floats(column.to_numpy())
    return pa.array(round_to(values, np.dtype(kind.to_pandas_dtype()).name, label))


def _as_texts(
    column: pa.ChunkedArray, metadata: Mapping[bytes, bytes], label: str, decimal: str
) -> pa.Array | pa.ChunkedArray:
    kinds = {kind for kind in metadata[_KINDS].decode().split("\n") if kind}
    if is_text(column.type):
        column = _with_points(column.cast(pa.string()), metadata[_DECIMALS], label, decimal)
        if not kinds:
            return column
    texts = read_series(_series(column), label).texts(kinds, label)
    codes = pa.array(texts.codes, mask=texts.codes < 0)
    levels = pa.array(texts.levels, pa.string())
    return pa.DictionaryArray.from_arrays(codes, levels).cast(pa.string())


def _with_points(
    column: pa.ChunkedArray, decimals: bytes, label: str, decimal: str
) -> pa.ChunkedArray:
    """Write the numbers of a file with decimal commas with points."""
    if decimal == ",":
        return pc.replace_substring_regex(column, _COMMA_NUMBER, r"\1.\2")
    if b"," in decimals and pc.any(pc.match_substring_regex(column, _COMMA_NUMBER)).as_py():
        raise ValueTypeError(
            f"{label} has numbers with a comma, and other files have decimal commas where this one"
            " has decimal points: say which sign all files have (--decimal)"
        )
    return column


def without_marked(column: pa.ChunkedArray, markers: Collection[str]) -> pa.ChunkedArray:
    """Make the values that are marked as missing null, in whatever spelling they stand."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    marks = {spell(mark) for mark in markers} - {None}
    if is_text(column.type):
        held = column.unique().to_pylist()
        marked = [text for text in held if text is not None and spell(text) in marks]
        gone = pc.is_in(column, pa.array(marked, column.type))
    elif kind_of_numbers(column.type) is not None:
        numbers = pa.array([float(mark) for mark in marks if mark and spells_number(mark)])
        gone = pc.is_in(pc.cast(column, pa.float64(), safe=False), numbers.cast(pa.float64()))
    else:
        return column
    return pc.if_else(gone, pa.scalar(None, column.type), column)


def _series(column: pa.ChunkedArray) -> nw.Series[pa.ChunkedArray]:
    return nw.from_native(column, series_only=True)

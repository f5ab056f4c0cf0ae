"""Units of features that everybody knows: they follow from the schema and from no row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conovel.scorers.reading import Vector
from conovel.spec.schema import Column, Schema, SchemaDigest

_PARTS = {  # least and largest number that a part of a date has; a missing date has the part 0
    "month": (0.0, 12.0),
    "day": (0.0, 31.0),
    "weekday": (0.0, 6.0),
    "hour": (0.0, 23.0),
    "minute": (0.0, 59.0),
    "second": (0.0, 59.0),
}
_UNKNOWN = (np.nan, np.nan)
# Units in a range. Bounds of a number leave room: most values are within the middle quarter or
# two. Yes or no, places in a list and hours take all values of their range.
_OF_NUMBERS, _OF_OTHERS = 8, 4


class Units(NamedTuple):
    """The middle and the unit of each feature; NaN where it is not known."""

    centre: Vector
    unit: Vector


def public_units(schema: Schema | SchemaDigest | None, n_features: int) -> Units:
    """Return what is publicly known of the middles and units of all features.

    Parameters
    ----------
    schema : Schema or None
        Without one, nothing is known.
    n_features : int

    Examples
    --------
    >>> columns = {"age": {"kind": "number", "low": 0, "high": 120}, "ill": "boolean"}
    >>> public_units(Schema.from_dict(columns), 2).unit
    array([15.  ,  0.25])
    """
    found = [_UNKNOWN] * n_features
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        found = [unit for column in schema.used for unit in _units_of(column)]
    return Units(*np.array(found, dtype=np.float64).reshape(n_features, 2).T)


def _units_of(column: Column) -> list[tuple[float, float]]:
    """Return the middle and the unit of each feature of a column."""
    n = len(column.features) - column.missing
    yes_or_no = _unit(0.0, 1.0)
    found = [yes_or_no] * n
    if column.kind == "number":
        bounded = column.low is not None and column.high is not None
        low, high = column.low or 0.0, column.high or 0.0
        found = [_unit(low, high, _OF_NUMBERS) if bounded else _UNKNOWN]
    elif column.kind == "date":
        found = [_unit(*_PARTS[part]) if part in _PARTS else _UNKNOWN for part in column.parts]
    elif column.kind == "category" and not column.is_apart:
        last = column.buckets - 1 if column.buckets else len(column.levels) + bool(column.rare)
        found = [_unit(0.0, float(last))]
    return found + [yes_or_no] * column.missing


def _unit(low: float, high: float, n_units: int = _OF_OTHERS) -> tuple[float, float]:
    return (low + high) / 2, (high - low) / n_units

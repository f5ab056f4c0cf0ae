"""Ranges of features that everybody knows: they follow from the schema and from no row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conovel.scorers.base import Vector
from conovel.spec.schema import Column, Schema, SchemaDigest

_PARTS = {  # least and largest number that a part of a date has; a missing date has the part 0
    "month": (0, 12),
    "day": (0, 31),
    "weekday": (0, 6),
    "hour": (0, 23),
    "minute": (0, 59),
    "second": (0, 59),
}
_UNKNOWN = (np.nan, np.nan)


class Ranges(NamedTuple):
    """Least and largest value of each feature; NaN where the schema does not say."""

    low: Vector
    high: Vector


def public_ranges(schema: Schema | SchemaDigest | None, n_features: int) -> Ranges:
    """Return what is publicly known of the ranges of all features.

    Examples
    --------
    >>> columns = {"age": {"kind": "number", "low": 0, "high": 120}, "ill": "boolean"}
    >>> public_ranges(Schema.from_dict(columns), 2).high
    array([120.,   1.])
    """
    found = [_UNKNOWN] * n_features
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        found = [pair for column in schema.used for pair in _ranges_of(column)]
    low, high = np.array(found, dtype=np.float64).reshape(n_features, 2).T
    return Ranges(low, high)


def _ranges_of(column: Column) -> list[tuple[float, float]]:
    n = len(column.features) - column.missing
    found: list[tuple[float, float]] = [(0.0, 1.0)] * n
    if column.kind == "number":
        bounded = column.low is not None and column.high is not None
        found = [(column.low or 0.0, column.high or 0.0) if bounded else _UNKNOWN]
        if bounded and column.missing:  # what stands for a missing number may be any number
            found = [(min(found[0][0], column.neutral), max(found[0][1], column.neutral))]
    elif column.kind == "date":
        found = [_PARTS.get(part, _UNKNOWN) for part in column.parts]
    elif column.kind == "category" and not column.is_apart:
        last = column.buckets - 1 if column.buckets else len(column.levels) + bool(column.rare)
        found = [(0.0, float(last))]
    return found + [(0.0, 1.0)] * column.missing

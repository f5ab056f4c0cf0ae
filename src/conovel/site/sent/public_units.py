"""Units of features that everybody knows: they follow from the schema and from no row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conovel.scorers.base import Vector
from conovel.site.sent.public_ranges import public_ranges
from conovel.spec.schema import Schema, SchemaDigest

# Units in a range. Bounds of a number leave room: most values are within the middle quarter or
# two. Yes or no, places in a list and hours take all values of their range.
_OF_NUMBERS, _OF_OTHERS = 8, 4


class Units(NamedTuple):
    """The middle and the unit of each feature; NaN where it is not known."""

    centre: Vector
    unit: Vector


def public_units(schema: Schema | SchemaDigest | None, n_features: int) -> Units:
    """Return what is publicly known of the middles and units of all features.

    Examples
    --------
    >>> columns = {"age": {"kind": "number", "low": 0, "high": 120}, "ill": "boolean"}
    >>> public_units(Schema.from_dict(columns), 2).unit
    array([15.  ,  0.25])
    """
    low, high = public_ranges(schema, n_features)
    n_units = np.full(n_features, _OF_OTHERS)
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        # The feature of a number has the name of its column, that of missing values has not.
        numbers = {column.name for column in schema if column.kind == "number"}
        named = zip(schema.features, schema.source, strict=True)
        n_units[[name == own and own in numbers for name, own in named]] = _OF_NUMBERS
    return Units((low + high) / 2, (high - low) / n_units)

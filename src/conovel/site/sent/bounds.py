"""Bounds of the features of what is sent: agreed ones, or from quantiles, never from extremes.

A model that a peer receives says something about the rows behind it. Two rules keep single rows
out of it (docs/privacy.md):

* grids span bounds that no single row decides. A range that follows from the schema is taken. For
  other features, bounds follow from quantiles of null_train with at least five rows beyond them;
* values beyond the bounds are moved to them before anything that is sent is learnt. A known normal
  with several values beyond, more than are usual, is left out.

The score that ranks the site's own rows is learnt from the rows as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from conovel.models.quantized.grids import Lattice
from conovel.scorers.base import Matrix, Mixture, TrainingSet, Vector
from conovel.spec.schema import Column, Schema, SchemaDigest

# Which scorer is imitated follows from rows that are clipped further: moments say much about one
# row that is four standard deviations away.
SHAPE_REACH = 3.0
REACH = 4.0  # bounds of a Gaussian feature lie so many standard deviations from its median
_SHARE_BEYOND = 0.1  # of null_train, on either side of the quantiles that give the bounds,
_FEWEST_BEYOND = 5  # but no fewer rows than these,
_USUAL = 0.9  # of the rows of null_train have no more values beyond the bounds than is usual
_LARGEST_SHARE = 0.25  # and no more than this share


@dataclass(frozen=True, eq=False)
class Bounds:
    """The least and the greatest value that each feature has in what is sent."""

    low: Vector
    high: Vector

    def clip(self, rows: Matrix) -> Matrix:
        """Move values beyond the bounds to them."""
        return np.asarray(np.clip(rows, self.low, self.high))

    def clip_training(self, training: TrainingSet) -> TrainingSet:
        """Return a training set with no value beyond the bounds.

        A row of null_train is left out if more of its values lie beyond than of nine tenths of the
        rows, and at least two. Rows of the mixture stay: among them are the novelties.

        Examples
        --------
        >>> bounds = Bounds(np.array([-1.0]), np.array([1.0]))
        >>> rows = np.array([[0.5], [7.0], [9.0]])
        >>> clipped = bounds.clip_training(TrainingSet(rows, Mixture.of(rows)))
        >>> clipped.null_train.ravel().tolist(), clipped.mixture.rows.ravel().tolist()
        ([0.5, 1.0, 1.0], [0.5, 1.0, 1.0])
        """
        rows = training.null_train
        n_beyond = ((rows < self.low) | (rows > self.high)).sum(axis=1)
        usual = max(1.0, float(np.quantile(n_beyond, _USUAL)))
        mixture = Mixture.of(self.clip(training.mixture.rows))
        return TrainingSet(self.clip(rows[n_beyond <= usual]), mixture)

    def lattice(self, feature: int, bits: int) -> Lattice:
        """Return the lattice of a feature's thresholds."""
        return Lattice.over([self.low[feature], self.high[feature]], bits)


def find_bounds(null_train: Matrix, agreed: Ranges | None = None, reach: float = REACH) -> Bounds:
    """Return the agreed range of each feature, or bounds from quantiles of null_train.

    On each side of the median m the bound is m + (q − m) · 4 / z. Here q is the quantile that the
    share p of null_train lies beyond, and z is the same quantile of the standard normal
    distribution; p is 0.1, or more if that would be fewer than five rows. A side without width
    has that of the other side. Bounds of whole numbers are whole numbers.

    Examples
    --------
    >>> rows = np.append(np.random.default_rng(0).normal(size=999), 1e6)[:, np.newaxis]
    >>> bounds = find_bounds(rows)
    >>> bool(-4.5 < bounds.low[0] < -3.5), bool(3.5 < bounds.high[0] < 4.5)
    (True, True)
    >>> find_bounds(rows, Ranges(np.array([-9.0]), np.array([9.0]))).high
    array([9.])
    """
    beyond = min(max(_SHARE_BEYOND, _FEWEST_BEYOND / len(null_train)), _LARGEST_SHARE)
    lower, middle, upper = np.quantile(null_train, [beyond, 0.5, 1 - beyond], axis=0)
    factor = reach / float(ndtri(1 - beyond))
    below, above = _with_width((middle - lower) * factor, (upper - middle) * factor, middle)
    low, high = middle - below, middle + above
    whole = (null_train == np.rint(null_train)).all(axis=0)
    low, high = np.where(whole, np.floor(low), low), np.where(whole, np.ceil(high), high)
    if agreed is not None:
        is_agreed = np.isfinite(agreed.low) & np.isfinite(agreed.high)
        low, high = np.where(is_agreed, agreed.low, low), np.where(is_agreed, agreed.high, high)
    return Bounds(low, high)


def _with_width(
    below: Vector, above: Vector, middle: Vector
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give a side without width that of the other side, or |middle|, or 1."""
    usual = np.where(middle != 0, np.abs(middle), 1.0)
    widest = np.maximum(below, above)
    widest = np.where(widest > 0, widest, usual)
    return np.where(below > 0, below, widest), np.where(above > 0, above, widest)


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
    ranges = [_UNKNOWN] * n_features
    if isinstance(schema, Schema) and len(schema.features) == n_features:
        ranges = [pair for column in schema.used for pair in _ranges_of(column)]
    low, high = np.array(ranges, dtype=np.float64).reshape(n_features, 2).T
    return Ranges(low, high)


def _ranges_of(column: Column) -> list[tuple[float, float]]:
    n = len(column.features) - column.missing
    ranges: list[tuple[float, float]] = [(0.0, 1.0)] * n
    if column.kind == "number":
        bounded = column.low is not None and column.high is not None
        ranges = [(column.low or 0.0, column.high or 0.0) if bounded else _UNKNOWN]
        if bounded and column.missing:  # what stands for a missing number may be any number
            ranges = [(min(ranges[0][0], column.neutral), max(ranges[0][1], column.neutral))]
    elif column.kind == "date":
        ranges = [_PARTS.get(part, _UNKNOWN) for part in column.parts]
    elif column.kind == "category" and not column.has_feature_per_level:
        last = column.buckets - 1 if column.buckets else len(column.levels) + bool(column.rare)
        ranges = [(0.0, float(last))]
    return ranges + [(0.0, 1.0)] * column.missing


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

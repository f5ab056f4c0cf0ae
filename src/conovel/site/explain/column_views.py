"""The columns of a table as an analyst knows them, read from the features that they became.

A column has one feature or several (:mod:`conovel.rows.encoding`). Here its values are written as
values of the column again, compared with those of known normals, and put into words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from conovel.rows.encoding import Encoder, FeatureMap
from conovel.rows.original import FrameCodec
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, Vector
from conovel.spec.schema import Column

_RANGE = 0.01, 0.99  # quantiles of null_train between which a value is usual
_RATHER = 0.1, 0.9  # beyond these, a value within the range is rather low or rather high
_RARE = 0.05  # a level that fewer of the known normals have
_SHOWN = 3  # levels of a category that are named as usual
MISSING = "missing"
IN_RANGE, COMMON = "in range", "common"
# Words for values that are usual by themselves.
USUAL = frozenset({IN_RANGE, COMMON, "rather high", "rather low"})


@dataclass(frozen=True, eq=False)
class ColumnView:
    """One column of a table.

    Attributes
    ----------
    name : str or int
        Its name; its position in an array.
    features : int array
        Which features it became.
    column : Column or None
        What the schema says of it; None is a plain number, or a place among `levels`.
    levels : tuple of str or None
        The values of which its one feature is the place; -1 is a missing value.
    """

    name: str | int
    features: NDArray[np.intp]
    column: Column | None = None
    levels: tuple[str, ...] | None = None

    @property
    def is_number(self) -> bool:
        """Whether the values are numbers; NaN is missing."""
        return self.levels is None and (self.column is None or self.column.kind == "number")

    def values(self, X: Matrix) -> NDArray[Any]:
        """Give the values of some rows: numbers, or texts."""
        first = X[:, self.features[0]]
        missing = self._missing(X)
        if self.is_number:
            return np.where(missing, np.nan, first)
        texts = self._texts(X[:, self.features])
        return np.array([MISSING if m else t for m, t in zip(missing, texts, strict=True)], object)

    def _missing(self, X: Matrix) -> NDArray[np.bool_]:
        if self.levels is not None:
            return np.asarray(X[:, self.features[0]] < 0)
        if self.column is None or not self.column.missing:
            return np.zeros(len(X), dtype=np.bool_)
        return np.asarray(X[:, self.features[-1]] == 1)

    def _texts(self, own: Matrix) -> list[str]:
        if self.levels is not None:
            known = (*self.levels, MISSING)
            return [known[place] for place in own[:, 0].astype(np.intp).tolist()]
        column = self.column
        assert column is not None  # noqa: S101  (numbers have no texts)
        if column.kind == "boolean":
            return [str(value == 1).lower() for value in own[:, 0]]
        if column.kind == "date":
            return [
                ", ".join(
                    f"{part} {value:.0f}" for part, value in zip(column.parts, row, strict=False)
                )
                for row in own
            ]
        names = [*column.levels, *(["a rare value"] if column.rare else [])]
        names += [f"bucket {i}" for i in range(column.buckets)]
        unseen = [*names, "a new value"]
        if column.is_apart:
            held = own[:, : len(names)]
            places = np.where(held.any(axis=1), held.argmax(axis=1), len(names))
        else:
            places = own[:, 0].astype(np.intp)
        return [unseen[min(place, len(names))] for place in places.tolist()]

    def usual(self, null_train: Matrix) -> tuple[Any, Any]:
        """Return the usual range of a number, or the commonest values and an empty text."""
        if self.is_number:
            low, high = self._quantiles(null_train, _RANGE)
            return float(low[0]), float(high[0])
        counts = Counter(self.values(null_train).tolist())
        shown = [f"{value} {n / len(null_train):.0%}" for value, n in counts.most_common(_SHOWN)]
        return ", ".join(shown), ""

    def how(self, X: Matrix, null_train: Matrix) -> NDArray[Any]:
        """Say how the value of each row compares with those of null_train, in a word or two."""
        if self.is_number:
            words = self._compared(X, null_train)[:, 0]
        elif self.column is not None and self.column.kind == "date":
            words = self._of_parts(X, null_train)
        else:
            counts = Counter(map(bytes, np.ascontiguousarray(null_train[:, self.features])))
            own = map(bytes, np.ascontiguousarray(X[:, self.features]))
            shares = np.array([counts[key] / len(null_train) for key in own])
            words = np.select([shares == 0, shares < _RARE], ["new", "rare"], COMMON)
        return np.where(self._missing(X), MISSING, words.astype(object))

    def _of_parts(self, X: Matrix, null_train: Matrix) -> NDArray[Any]:
        """Name the part of a date that is furthest from the usual ones."""
        assert self.column is not None  # noqa: S101  (only dates have parts)
        compared = self._compared(X, null_train)
        strangeness = np.select(
            [np.isin(compared, ["high", "low"]), compared == IN_RANGE], [2, 0], 1
        )
        part = strangeness.argmax(axis=1)
        return np.array(
            [
                f"{self.column.parts[p]} {compared[i, p]}" if strangeness[i, p] else IN_RANGE
                for i, p in enumerate(part.tolist())
            ],
            dtype=object,
        )

    def _compared(self, X: Matrix, null_train: Matrix) -> NDArray[Any]:
        own = X[:, self.features]
        low, high = self._quantiles(null_train, _RANGE)
        rather_low, rather_high = self._quantiles(null_train, _RATHER)
        return np.select(
            [high < own, low > own, rather_high < own, rather_low > own],
            ["high", "low", "rather high", "rather low"],
            IN_RANGE,
        )

    def _quantiles(self, null_train: Matrix, at: tuple[float, float]) -> tuple[Vector, Vector]:
        known = null_train[~self._missing(null_train)][:, self.features]
        known = known if len(known) else null_train[:, self.features]
        low, high = np.quantile(known, at, axis=0, method="inverted_cdf")
        return low, high


def views_of(encoder: FeatureMap | None, names: Sequence[str | int]) -> list[ColumnView]:
    """Return the columns that features came from; without an encoder, a column for each name."""
    if encoder is None:
        return plain_views(names)
    said: list[tuple[Column | None, tuple[str, ...] | None]]
    if isinstance(encoder, Encoder):
        said = [(column, None) for column in encoder.schema.used]
    else:
        said = [
            (None, levels) if levels is not None else (Column(name, "number", missing), None)
            for name, missing, levels in cast(FrameCodec, encoder).described()
        ]
    found, start = [], 0
    for name, (column, levels) in zip(encoder.columns, said, strict=True):
        stop = start + (1 if column is None else len(column.features))
        found.append(ColumnView(name, np.arange(start, stop), column, levels))
        start = stop
    return found


def plain_views(names: Sequence[str | int]) -> list[ColumnView]:
    """Return columns of plain numbers."""
    return [ColumnView(name, np.array([j])) for j, name in enumerate(names)]


def written_values(rows: Rows, view: ColumnView, at: NDArray[np.intp]) -> NDArray[Any]:
    """Give the values of a column at some rows; texts as they came, where there is a frame."""
    values = view.values(rows.values[at])
    if view.is_number or rows.frame is None:
        return values
    column = [str(name) for name in rows.frame.columns].index(str(view.name))
    came = rows.frame[at.tolist(), column].to_list()
    return np.array(
        [v if v == MISSING else str(c) for v, c in zip(values, came, strict=True)], object
    )

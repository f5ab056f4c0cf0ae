"""Why a row was flagged: the columns that made its score high, and what is usual there.

An explanation is made after the decision, from the fitted score and null_train alone, and
changes nothing. A row's reasons are its columns by their share of the score, largest first. Where
two columns are usual by themselves but hardly ever occur together, they form one reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from conovel.rows.encoding import Encoder, FeatureMap
from conovel.rows.frames import FrameCodec
from conovel.rows.pairs import KnownRows
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, ScoreModel, Vector
from conovel.site.explain.shares import contributions
from conovel.spec.schema import Column

MOST_REASONS = 10
_BACKGROUND = 8  # known normals over which exact contributions are averaged
_NEAREST = 8
POOL = 2_000  # known normals among which the nearest are sought
_ROWS = 1_000  # explained at a time
# Two columns form one reason where known normals near both values are fewer than this share of
# what independent columns would give.
_SELDOM = 0.25
_NEAR = 0.1  # in quantiles, to either side
_CANDIDATES = 4  # columns among which a pair is sought
_LEAST_SHARE_OF_PAIR = 0.3


class Explained(NamedTuple):
    """The reasons of some rows, by columns of a table."""

    # Of shape (n, k); columns of each row by share, the largest first; those of a pair first
    order: NDArray[np.intp]
    # Of shape (n, k); what part each of them has in all contributions that raise the score
    share: NDArray[np.float64]
    paired: NDArray[np.bool_]  # of shape (n,); whether the first two columns are one reason
    nearest: NDArray[np.intp]  # of shape (n,); which row of null_train is nearest
    # Of shape (n,); how many times as far the row is from it as known normals from their nearest
    far: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Explainer:
    """What explains the rows of one site. It stays at the site and is never written."""

    model: ScoreModel  # what ranked the rows
    null_train: Matrix  # of shape (k, d); known normals from which it learnt
    views: Sequence[ColumnView]  # the columns of the table
    known_rows: KnownRows | None = None  # known novelties, where there are any

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table; those of an array by position."""
        return tuple(str(view.name) for view in self.views)

    @property
    def columns(self) -> list[NDArray[np.intp]]:
        """The features of each column."""
        return [view.features for view in self.views]

    def explain(self, X: Matrix) -> Explained:
        """Find the reasons of some rows."""
        parts = [self._explain(X[at : at + _ROWS]) for at in range(0, len(X), _ROWS)]
        if not parts:
            parts = [self._explain(X)]
        return Explained(*map(np.concatenate, zip(*parts, strict=True)))

    def _explain(self, X: Matrix) -> Explained:
        k = min(MOST_REASONS, len(self.views))
        if not len(X):
            none = np.zeros((0, k))
            return Explained(
                none.astype(np.intp), none, np.zeros(0, bool), np.zeros(0, np.intp), np.zeros(0)
            )
        places = self.places(X)
        near, distance = self._nearest(places)
        moved = contributions(self.model, X, self._background, self.null_train[near], self.columns)
        share = _shares(moved)
        order = np.argsort(-moved, axis=1, kind="stable")
        paired = self._put_pairs_first(order, share, self.how(X), places)
        order = order[:, :k]
        share = np.take_along_axis(share, order, axis=1)
        return Explained(order, share, paired, near[:, 0], distance / self._usual_distance)

    @cached_property
    def _background(self) -> Matrix:
        """Known normals at even distances in the order of their scores."""
        n = min(_BACKGROUND, len(self.null_train))
        order = np.argsort(self.model.score(self.null_train), kind="stable")
        return self.null_train[order[(2 * np.arange(n) + 1) * len(order) // (2 * n)]]

    @cached_property
    def _sorted(self) -> Matrix:
        """Each feature of the pool, ascending, one in each line."""
        return np.asarray(np.sort(self.null_train[:POOL].T, axis=1))

    def places(self, X: Matrix) -> Matrix:
        """Give every value its place among those of the pool, from 0 to 1; ties in the middle."""
        n = self._sorted.shape[1]
        places = [
            np.searchsorted(values, column, "left") + np.searchsorted(values, column, "right")
            for values, column in zip(self._sorted, X.T, strict=True)
        ]
        return np.asarray(np.stack(places, axis=1) / (2 * n))

    @cached_property
    def _pool(self) -> Matrix:
        return self.places(self.null_train[:POOL])

    @cached_property
    def _usual_distance(self) -> float:
        """The median distance of known normals to their nearest other, by places."""
        if len(self._pool) < 2:
            return np.inf
        squares = _squares(self._pool, self._pool)
        np.fill_diagonal(squares, np.inf)
        return float(np.sqrt(np.median(squares.min(axis=1)))) or np.inf

    def _nearest(self, places: Matrix) -> tuple[NDArray[np.intp], Vector]:
        """Find the nearest known normals of each row, and the distance of the first of them.

        Distances are by places: outliers count no more.
        """
        squares = _squares(places, self._pool)
        k = min(_NEAREST, len(self._pool))
        first = np.argpartition(squares, k - 1, axis=1)[:, :k]
        by_distance = np.argsort(np.take_along_axis(squares, first, axis=1), axis=1, kind="stable")
        near = np.take_along_axis(first, by_distance, axis=1)
        return near, np.sqrt(np.take_along_axis(squares, near[:, :1], axis=1)[:, 0])

    def _put_pairs_first(
        self, order: NDArray[np.intp], share: Matrix, how: NDArray[Any], places: Matrix
    ) -> NDArray[np.bool_]:
        """Move the columns of a pair to the front, in place; say which rows have one."""
        paired = np.zeros(len(how), dtype=np.bool_)
        usual = np.isin(how, list(USUAL))
        n_candidates = min(_CANDIDATES, order.shape[1])
        for i in range(len(how)):
            tops = order[i, :n_candidates]
            pairs = sorted(combinations(tops.tolist(), 2), key=lambda p: -share[i, list(p)].sum())
            for pair in pairs:
                together = share[i, list(pair)].sum()
                if together < max(_LEAST_SHARE_OF_PAIR, share[i, tops[0]]):
                    break
                if usual[i, list(pair)].all() and self._is_seldom(places[i], pair):
                    paired[i] = True
                    order[i] = [*sorted(pair), *(j for j in order[i].tolist() if j not in pair)]
                    break
        return paired

    def _is_seldom(self, place: Vector, pair: tuple[int, ...]) -> bool:
        """Return whether few known normals are near the values of both columns."""
        first, second = (self.is_near(place, self.views[j], self._pool) for j in pair)
        expected = first.mean() * second.mean()
        return bool((first & second).mean() < _SELDOM * expected)

    def is_near(self, place: Vector, view: ColumnView, rows: Matrix) -> NDArray[np.bool_]:
        """Return which rows, given by places, have nearly the same number, or the same value."""
        own, others = place[view.features], rows[:, view.features]
        if not view.is_number:
            return np.asarray((others == own).all(axis=1))
        return np.asarray((np.abs(others - np.clip(own, _NEAR, 1 - _NEAR)) <= _NEAR).all(axis=1))

    def how(self, X: Matrix) -> NDArray[Any]:
        """Say how each column of each row compares with null_train, in a word or two."""
        return np.stack([view.how(X, self.null_train) for view in self.views], axis=1)


def _squares(rows: Matrix, pool: Matrix) -> Matrix:
    """Return the squared distances of rows from those of the pool."""
    squares = (rows**2).sum(axis=1)[:, np.newaxis] + (pool**2).sum(axis=1) - 2 * rows @ pool.T
    return np.asarray(np.maximum(squares, 0))


def _shares(moved: Matrix) -> Matrix:
    """Return each contribution as a part of all those that raise the score of its row.

    Where none does, because the known normals in the comparison score as high as the row, the
    contributions are compared with the smallest one.
    """
    raised = np.maximum(moved, 0)
    above = moved - moved.min(axis=1, keepdims=True)
    above = np.where(above.any(axis=1, keepdims=True), above, 1.0)
    raised = np.where(raised.any(axis=1, keepdims=True), raised, above)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


_RANGE = 0.01, 0.99  # quantiles of null_train between which a value is usual
_RATHER = 0.1, 0.9  # beyond these, a value within the range is rather low or rather high
_RARE = 0.05  # a level that fewer of the known normals have
_MOST_LEVELS = 3  # levels of a category that are named as usual
MISSING = "missing"
IN_RANGE, COMMON = "in range", "common"
# Words for values that are usual by themselves.
USUAL = frozenset({IN_RANGE, COMMON, "rather high", "rather low"})


@dataclass(frozen=True, eq=False)
class ColumnView:
    """One column of a table."""

    name: str | int  # its name; its position in an array
    features: NDArray[np.intp]  # which features it became
    # What the schema says of it; None is a plain number, or a place among `levels`
    column: Column | None = None
    # The values of which its one feature is the place; -1 is a missing value
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
            values = (*self.levels, MISSING)
            return [values[place] for place in own[:, 0].astype(np.intp).tolist()]
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
        if column.has_feature_per_level:
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
        shown = [
            f"{value} {n / len(null_train):.0%}" for value, n in counts.most_common(_MOST_LEVELS)
        ]
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
        present = null_train[~self._missing(null_train)][:, self.features]
        present = present if len(present) else null_train[:, self.features]
        low, high = np.quantile(present, at, axis=0, method="inverted_cdf")
        return low, high


def views_of(encoder: FeatureMap | None, names: Sequence[str | int]) -> list[ColumnView]:
    """Return the columns that features came from; without an encoder, a column for each name."""
    if encoder is None:
        return plain_views(names)
    columns: list[tuple[Column | None, tuple[str, ...] | None]]
    if isinstance(encoder, Encoder):
        columns = [(column, None) for column in encoder.schema.used]
    else:
        columns = [
            (None, levels) if levels is not None else (Column(name, "number", missing), None)
            for name, missing, levels in cast(FrameCodec, encoder).described()
        ]
    views, start = [], 0
    for name, (column, levels) in zip(encoder.columns, columns, strict=True):
        stop = start + (1 if column is None else len(column.features))
        views.append(ColumnView(name, np.arange(start, stop), column, levels))
        start = stop
    return views


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

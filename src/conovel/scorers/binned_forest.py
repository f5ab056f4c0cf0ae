"""Forests on binned columns: random forests and extra-trees, with weights and votes out of bag.

A bin is a range of values of one column, and a split of a tree falls between two bins. Bins are
a function of the rows as a multiset: neither their order nor the role of a row matters. They
are narrow in the tails, where novelties lie, and a value that many rows share has a bin of its
own.

Weights are whole multiples of a small unit and leaf values whole multiples of 2⁻³⁰, so that all
sums are exact: no bit depends on the order of the rows in a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from conovel.errors import InputError
from conovel.models.forest import Forest
from conovel.scorers.base import Matrix, Vector
from conovel.stats.levels import as_whole

MOST_BINS = 255
_NO_LIMIT = 1 << 20
_SPACE = 1 << 18  # nodes that are written before they are copied


@dataclass(frozen=True, eq=False)
class Bins:
    """The rows of a training set in bins, computed once for all fits on the same rows."""

    # Increasing edges of each column. A value is in bin c if c edges lie below it.
    edges: tuple[Vector, ...]
    columns: NDArray[np.uint8]  # (d, n): the bin of each value
    # (d, 256): where on its axis each bin stands, for thresholds that are drawn: its least value
    places: Matrix

    @classmethod
    def of(cls, rows: Matrix, most: int = MOST_BINS) -> Bins:
        """Put rows of finite numbers in bins, at most `most` for a column, from 2 to 255."""
        most = as_whole(most, "most", 2, MOST_BINS)
        n, d = rows.shape
        edges, places, codes = [], np.zeros((d, MOST_BINS + 1)), np.empty((d, n), np.uint8)
        columns = np.ascontiguousarray(rows.T, dtype=np.float64)
        if n <= most:
            return cls(_bins_of_few(columns, codes, places), codes, places)
        lengths, numbers = _lengths(n), np.arange(MOST_BINS + 1, dtype=np.uint8)
        for column, axis, values in zip(codes, places, columns, strict=True):
            order = np.argsort(values)
            inner, lowest, bounds = _bins_of_column(values[order], most, lengths)
            edges.append(inner)
            size = lowest.size
            column[order] = np.repeat(numbers[:size], bounds[1:] - bounds[:-1])
            axis[:size] = lowest
        return cls(tuple(edges), codes, places)

    def thresholds(self, feature: NDArray[np.integer], cut: NDArray[np.integer]) -> Vector:
        """Return the edge above bin `cut` of each split; 0 at a leaf, whose feature is -1."""
        starts = np.cumsum([0, *map(len, self.edges)])[:-1]
        inner = feature >= 0
        threshold = np.zeros(feature.size)
        threshold[inner] = np.concatenate(self.edges)[starts[feature[inner]] + cut[inner]]
        return threshold


def _bins_of_few(columns: Matrix, codes: NDArray[np.uint8], places: Matrix) -> tuple[Vector, ...]:
    """Give each value a bin, all columns together; return the edges, and fill the other arrays."""
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    highest, lowest = ordered[:, :-1], ordered[:, 1:]
    new = lowest != highest
    number = np.zeros(order.shape, np.intp)
    np.cumsum(new, axis=1, out=number[:, 1:])
    np.put_along_axis(codes, order, number.astype(np.uint8), axis=1)
    np.put_along_axis(places, number, ordered, axis=1)
    edges = highest / 2 + lowest / 2
    edges = np.where(edges >= lowest, highest, edges)
    return tuple(np.split(edges[new], np.cumsum(new.sum(axis=1))[:-1]))


def _lengths(n: int) -> Vector:
    """Return which share of the bins the first rows of a column fill, for 0 to n of them.

    Half of the bins hold equally many rows; the other half become shorter towards both ends,
    as 1 / (rows up to the end).
    """
    tails = 1 / np.minimum(np.arange(1, n + 1), np.arange(n, 0, -1))
    filled = np.cumsum(tails)
    both = (np.arange(1, n + 1) / n + filled / filled[-1]) / 2
    return np.concatenate([[0.0], both])


def _bins_of_column(
    ordered: Vector, most: int, lengths: Vector
) -> tuple[Vector, Vector, NDArray[np.intp]]:
    """Return the edges, the least value of each bin, and how many rows are before it."""
    n = ordered.size
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1  # of all distinct values but one
    if starts.size >= most:
        length = np.empty(starts.size + 1)
        length[:-1] = lengths[starts]
        length[-1] = 1.0
        length[1:] -= length[:-1].copy()
        # What would fill several bins is one.
        end = np.cumsum(np.minimum(length, 1 / most))
        middle = end[1:] + end[:-1]
        number = (middle * (most / 2 / end[-1])).astype(np.int64)
        new = np.empty(starts.size, np.bool_)
        new[0] = number[0] > 0
        new[1:] = number[1:] != number[:-1]
        starts = starts[new]
    lowest, highest = ordered[starts], ordered[starts - 1]
    edges = highest / 2 + lowest / 2
    edges = np.where(edges >= lowest, highest, edges)
    bounds = np.concatenate([[0], starts, [n]])
    return edges, ordered[bounds[:-1]], bounds


def as_integers(weights: Vector | None, n: int, largest: int = 2**31) -> NDArray[np.int64]:
    """Return weights as whole multiples of a power of two, so that their sums are exact.

    The unit is the smallest with which n of the largest weights add up to less than `largest`.
    A positive weight stays positive.
    """
    if weights is None:
        return np.ones(n, dtype=np.int64)
    scaled = np.rint(scaled_weights(weights, n, largest))
    return np.where(np.asarray(weights) > 0, np.maximum(scaled, 1), 0).astype(np.int64)


def scaled_weights(weights: Vector | None, n: int, largest: int = 2**31) -> Vector:
    """Return weights times the largest power of two with which n of them stay below `largest`."""
    weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if weights.shape != (n,) or not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        raise InputError(f"weights must be {n} finite numbers, none below 0")
    top = float(weights.max(initial=0))
    if not top:
        raise InputError("weights are all 0: at least one row must count")
    _, exponent = np.frexp(largest / n / 2)
    _, of_top = np.frexp(top)
    return np.asarray(np.ldexp(weights, int(exponent - of_top)))


@dataclass(frozen=True, eq=False)
class GrownForest:
    """A forest, and what its trees say about rows that they did not see."""

    forest: Forest
    votes: Vector  # (n,): for each row, the sum of the scores by the trees that did not see it
    times: NDArray[np.int64]  # (n,): how many trees did not see it

    @property
    def unseen_scores(self) -> Vector:
        """The mean score of each row by the trees that did not see it; NaN if all saw it."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.votes / self.times)


@dataclass(frozen=True, eq=False)
class BinnedForest:
    """A random forest or extra-trees on binned columns.

    The trees are Breiman's, as in scikit-learn: Gini's criterion, features drawn for each node
    until enough were tried and one of them varies, leaves that hold the share of class 1.
    """

    n_trees: int = 100
    max_depth: int | None = None
    # Features tried at each node; None is the square root of their number
    max_features: int | None = None
    min_rows_per_leaf: int = 1  # rows of a leaf, counted once each however often they were drawn
    # The best cut of each feature that is tried, or one that is drawn between its least and its
    # largest value in the node (extra-trees)
    splitter: Literal["best", "random"] = "best"
    # Whether each tree draws its rows with replacement; None does so for the best cuts
    bootstrap: bool | None = None
    random_state: int | None = None

    def grow(
        self, bins: Bins, y: NDArray[np.integer], weights: Vector | None = None
    ) -> GrownForest:
        """Grow the forest on rows of the classes 0 and 1; rows of weight 0 are seen by no tree.

        Weights are rounded to whole multiples of about n times the largest weight / 2³¹.
        """
        d, n = bins.columns.shape
        if y.shape != (n,) or not np.isin(y, (0, 1)).all():
            raise InputError(f"y must be {n} labels 0 or 1, one for each row")
        if self.splitter not in ("best", "random"):
            raise InputError(f"splitter must be 'best' or 'random', not {self.splitter!r}")
        limits = (
            _NO_LIMIT if self.max_depth is None else as_whole(self.max_depth, "max_depth"),
            max(int(d**0.5), 1) if self.max_features is None else int(self.max_features),
            as_whole(self.min_rows_per_leaf, "min_rows_per_leaf", 1),
            self.splitter == "random",
        )
        bootstrap = not limits[-1] if self.bootstrap is None else self.bootstrap
        seeds = np.random.SeedSequence(self.random_state).generate_state(self.n_trees, np.uint64)
        whole, labels = as_integers(weights, n), y.astype(np.uint8)
        nodes, votes, times = _grow(bins, labels, whole, limits, bootstrap, seeds)
        feature, cut, left, value, roots = nodes
        threshold = bins.thresholds(feature, cut)
        forest = Forest(feature, threshold, left, value, roots, d, single=False)
        return GrownForest(forest, votes, times)


def _grow(
    bins: Bins,
    y: NDArray[np.uint8],
    weights: NDArray[np.int64],
    limits: tuple[int, int, int, bool],
    bootstrap: bool,
    seeds: NDArray[np.unsignedinteger[Any]],
) -> tuple[list[NDArray[Any]], Vector, NDArray[np.int64]]:
    """Return feature, cut, left, value and roots; the votes for unseen rows; their number."""
    from conovel.scorers.tree_loops import grow  # noqa: PLC0415  (loads numba)

    d, n = bins.columns.shape
    used = np.flatnonzero(weights > 0).astype(np.uint32)
    m = used.size
    most = min(2 * max(m // limits[2], 1), 2 << min(limits[0], 30))
    space = (
        *(np.empty(most, dtype) for dtype in (np.int32, np.int32, np.int32, np.int64, np.uint64)),
        np.empty(m, np.uint32),
        np.arange(d),
        np.empty(d, np.int64),
        np.empty(m, np.uint8),
        np.empty(m, np.int64),
        np.empty((256, 2), np.int64),
    )
    size = max(min(most * seeds.size, _SPACE), most)
    nodes = tuple(np.empty(size, dtype) for dtype in (np.int32, np.int32, np.int32, np.float64))
    seen = np.empty(n, np.int64), np.empty(m + 1, np.uint32)
    votes, times = np.zeros(n), np.zeros(n, np.int64)
    parts, done, before = [], 0, 0
    while done < seeds.size:
        roots = np.empty(seeds.size - done, np.int32)
        given = bins.columns, bins.places, weights, y, used, limits, bootstrap, seeds[done:]
        n_trees, used_size = grow(*given, space, nodes, seen, votes, times, roots)
        feature, cut, left, value = (part[:used_size].copy() for part in nodes)
        parts.append((feature, cut, left + before, value, roots[:n_trees] + before))
        done, before = done + n_trees, before + used_size
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)], votes, times


@dataclass(eq=False, repr=False)
class RandomisedTrees(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Extra-trees of :class:`conovel.scorers.binned_forest.BinnedForest`, with sample weights."""

    by_row = True  # as its forest
    is_plain = True

    n_trees: int = 40
    max_depth: int = 8
    min_rows_per_leaf: int = 2
    random_state: int | None = None

    def fit(
        self, X: Matrix, y: NDArray[np.integer], sample_weight: Vector | None = None
    ) -> RandomisedTrees:
        """Grow the trees."""
        forest = BinnedForest(
            self.n_trees,
            self.max_depth,
            min_rows_per_leaf=self.min_rows_per_leaf,
            splitter="random",
            random_state=self.random_state,
        )
        labels = np.asarray(y, dtype=np.int64)
        self.flat_ = forest.grow(Bins.of(X), labels, sample_weight).forest
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        """Say how likely each row is of class 0 and of class 1."""
        novel = self.flat_.score(X)
        return np.column_stack([1 - novel, novel])

"""Why a row was flagged: the columns that made its score high, and what is usual there.

An explanation is made after the decision, from the fitted score and null_train alone, and
changes nothing. A row's reasons are its columns by their share of the score, largest first. Where
two columns are usual by themselves but hardly ever occur together, they form one reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import Matrix, ScoreModel, Vector
from conovel.site.explain.column_views import USUAL, ColumnView
from conovel.site.explain.shares import contributions

MOST_REASONS = 10
_BACKGROUND = 8  # known normals over which exact contributions are averaged
_NEAREST = 8
_POOL = 2_000  # known normals among which the nearest are sought
_ROWS = 1_000  # explained at a time
# Two columns form one reason where known normals near both values are fewer than this share of
# what independent columns would give.
_SELDOM = 0.25
_NEAR = 0.1  # in quantiles, to either side
_CANDIDATES = 4  # columns among which a pair is sought
_LEAST_SHARE_OF_PAIR = 0.3


class Explained(NamedTuple):
    """The reasons of some rows, by columns of a table.

    Attributes
    ----------
    order : int array of shape (n, k)
        Columns of each row by share, the largest first; those of a pair first.
    share : float array of shape (n, k)
        What part each of them has in all contributions that raise the score.
    paired : bool array of shape (n,)
        Whether the first two columns are one reason.
    nearest : int array of shape (n,)
        Which row of null_train is nearest.
    """

    order: NDArray[np.intp]
    share: NDArray[np.float64]
    paired: NDArray[np.bool_]
    nearest: NDArray[np.intp]


@dataclass(frozen=True, eq=False, repr=False)
class Explainer:
    """What explains the rows of one site. It stays at the site and is never written.

    Parameters
    ----------
    model : ScoreModel
        What ranked the rows.
    null_train : array of shape (k, d)
        Known normals from which it learnt.
    views : sequence of ColumnView
        The columns of the table.
    """

    model: ScoreModel
    null_train: Matrix
    views: Sequence[ColumnView]

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
            return Explained(none.astype(np.intp), none, np.zeros(0, bool), np.zeros(0, np.intp))
        places = self._places(X)
        near = self._nearest(places)
        moved = contributions(self.model, X, self._background, self.null_train[near], self.columns)
        share = _shares(moved)
        order = np.argsort(-moved, axis=1, kind="stable")
        paired = self._put_pairs_first(order, share, self.how(X), places)
        order = order[:, :k]
        return Explained(order, np.take_along_axis(share, order, axis=1), paired, near[:, 0])

    @cached_property
    def _background(self) -> Matrix:
        """Known normals at even distances in the order of their scores."""
        n = min(_BACKGROUND, len(self.null_train))
        order = np.argsort(self.model.score(self.null_train), kind="stable")
        return self.null_train[order[(2 * np.arange(n) + 1) * len(order) // (2 * n)]]

    @cached_property
    def _sorted(self) -> Matrix:
        """Each feature of the pool, ascending, one in each line."""
        return np.asarray(np.sort(self.null_train[:_POOL].T, axis=1))

    def _places(self, X: Matrix) -> Matrix:
        """Give every value its place among those of the pool, from 0 to 1; ties in the middle."""
        n = self._sorted.shape[1]
        found = [
            np.searchsorted(values, column, "left") + np.searchsorted(values, column, "right")
            for values, column in zip(self._sorted, X.T, strict=True)
        ]
        return np.asarray(np.stack(found, axis=1) / (2 * n))

    @cached_property
    def _pool(self) -> Matrix:
        return self._places(self.null_train[:_POOL])

    def _nearest(self, places: Matrix) -> NDArray[np.intp]:
        """Find the nearest known normals of each row, by places: outliers count no more."""
        pool = self._pool
        squares = (pool**2).sum(axis=1) - 2 * places @ pool.T
        k = min(_NEAREST, len(pool))
        first = np.argpartition(squares, k - 1, axis=1)[:, :k]
        by_distance = np.argsort(np.take_along_axis(squares, first, axis=1), axis=1, kind="stable")
        return np.take_along_axis(first, by_distance, axis=1)

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
        first, second = (self._is_near(place, self.views[j]) for j in pair)
        expected = first.mean() * second.mean()
        return bool((first & second).mean() < _SELDOM * expected)

    def _is_near(self, place: Vector, view: ColumnView) -> NDArray[np.bool_]:
        """Return which of the pool have nearly the same number, or the same value."""
        own, others = place[view.features], self._pool[:, view.features]
        if not view.is_number:
            return np.asarray((others == own).all(axis=1))
        return np.asarray((np.abs(others - np.clip(own, _NEAR, 1 - _NEAR)) <= _NEAR).all(axis=1))

    def how(self, X: Matrix) -> NDArray[Any]:
        """Say how each column of each row compares with null_train, in a word or two."""
        return np.stack([view.how(X, self.null_train) for view in self.views], axis=1)


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

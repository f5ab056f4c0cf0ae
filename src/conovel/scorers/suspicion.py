"""How suspicious known normals are: far from the others, like test rows, like judged novelties.

The order of the rows does not matter, and no row is told apart from others but by its values and
by verdicts "novel": a row that was judged normal teaches nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import NearestNeighbors

from conovel.scorers.base import Matrix, Vector
from conovel.scorers.blend import MahalanobisDistance

_POOL = 4096  # rows among which neighbours are sought, and that a tree learns from
_NEIGHBOURS = 15  # one row in so many is a neighbour
_FEWEST_NEIGHBOURS = 5
_TREES = 100
_LESS = 0.02  # of all rows: so much less counts the rest beside likeness to judged novelties


def suspicion(
    rows: Matrix, tests: Matrix | None, is_novel: NDArray[np.bool_], seed: int
) -> Vector:
    """Return how suspicious each row is, from 0 to 1; higher is more suspicious.

    `is_novel` marks the rows that were judged novel so far.
    """
    order = np.lexsort(rows.T[::-1])
    rows, is_novel = rows[order], is_novel[order]
    parts = [_surprise(_distance(rows)), _surprise(_far_from_neighbours(rows))]
    if tests is not None:
        tests = tests[np.lexsort(tests.T[::-1])]
        both, label = np.concatenate([rows, tests]), np.arange(len(rows) + len(tests)) >= len(rows)
        parts.append(2 * _surprise(_out_of_bag(both, label, seed)[: len(rows)]))
    sure = _shares(np.sum(parts, axis=0))
    if is_novel.any() and not is_novel.all():
        alike = _shares(_out_of_bag(rows, is_novel, seed))
        sure = np.maximum(alike, sure - _LESS)
    back = np.empty(len(order))
    back[order] = sure
    return back


def _shares(values: Vector) -> Vector:
    """Return which share of all values each is not below; equal values share a place."""
    return np.asarray(rankdata(values) / len(values), dtype=np.float64)


def _surprise(values: Vector) -> Vector:
    """Return -log of the share of values that are at least as high: few are far ahead."""
    return np.asarray(-np.log(_shares(-values)), dtype=np.float64)


def _distance(rows: Matrix) -> Vector:
    """Return the distance from the centre, by the covariance of all rows."""
    return MahalanobisDistance().fit(rows).score_samples(rows)


def _far_from_neighbours(rows: Matrix) -> Vector:
    """Return the distance of each row from its k-th neighbour, in standardised columns."""
    spread = rows.std(axis=0)
    standard = (rows - np.median(rows, axis=0)) / np.where(spread > 0, spread, 1.0)
    pool = standard[:: -(-len(rows) // _POOL)]
    k = min(len(pool), max(_FEWEST_NEIGHBOURS, len(pool) // _NEIGHBOURS) + 1)
    distances, _ = NearestNeighbors(n_neighbors=k).fit(pool).kneighbors(standard)
    return np.asarray(distances[:, -1], dtype=np.float64)


def _out_of_bag(rows: Matrix, label: NDArray[np.bool_], seed: int) -> Vector:
    """Return how much each row looks like the labelled ones to trees that have not seen it."""
    forest = RandomForestClassifier(
        n_estimators=_TREES,
        min_samples_leaf=2,
        class_weight="balanced_subsample",
        max_samples=min(len(rows), _POOL),
        random_state=seed,
    )
    forest.fit(rows, label)
    total, times = np.zeros(len(rows)), np.zeros(len(rows))
    for tree, sample in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        unseen = np.ones(len(rows), dtype=np.bool_)
        unseen[sample] = False
        places = np.flatnonzero(unseen)
        shares = tree.predict_proba(rows[places].astype(np.float32))
        if 1.0 in tree.classes_:
            total[places] += shares[:, list(tree.classes_).index(1.0)]
        times[places] += 1
    return total / np.maximum(times, 1)

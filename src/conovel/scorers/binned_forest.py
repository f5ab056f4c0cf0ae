"""Forests on binned columns: random forests and extra-trees, with weights and votes out of bag.

Weights are whole multiples of a small unit and leaf values whole multiples of 2⁻³⁰, so that all
sums are exact: no bit depends on the order of the rows in a node, on threads, or on whether
numba compiled the loops.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.models.forest import Forest
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector
from conovel.scorers.bins import Bins, Places, as_integers, balanced
from conovel.scorers.compiled_forest import available
from conovel.stats.levels import as_whole

_NO_LIMIT = 1 << 20
_SPACE = 1 << 18  # nodes that are written before they are copied


@dataclass(frozen=True, eq=False)
class GrownForest:
    """A forest, and what its trees say about rows that they did not see.

    Attributes
    ----------
    forest : Forest
    votes : array of shape (n,)
        For each row, the sum of the scores by the trees that did not see it.
    times : int array of shape (n,)
        How many trees did not see it.
    """

    forest: Forest
    votes: Vector
    times: NDArray[np.int64]

    @property
    def unseen_scores(self) -> Vector:
        """The mean score of each row by the trees that did not see it; NaN if all saw it."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.votes / self.times)


@dataclass(frozen=True, eq=False)
class BinnedForest(Scorer):
    """A random forest or extra-trees on binned columns.

    The trees are Breiman's, as in scikit-learn: Gini's criterion, features drawn for each node
    until enough were tried and one of them varies, leaves that hold the share of class 1.

    Parameters
    ----------
    n_trees : int
    max_depth : int or None
    max_features : int or None
        Features tried at each node; None is the square root of their number.
    min_rows_per_leaf : int
        Rows of a leaf, counted once each however often they were drawn.
    splitter : {"best", "random"}
        The best cut of each feature that is tried, or one that is drawn between its least and
        its largest value in the node (extra-trees).
    bootstrap : bool or None
        Whether each tree draws its rows with replacement; None does so for the best cuts.
    class_weight : {"balanced", None}
        Whether both classes count equally.
    places : {"value", "normal", "bin"}
        The axis on which cuts are drawn, see :meth:`conovel.scorers.bins.Bins.of`.
    random_state : int or None
    n_jobs : int or None
        Threads, -1 for one on each core. They change no bit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(600, 4)), np.arange(600) % 2
    >>> X[y == 1, 0] += 2
    >>> grown = BinnedForest(50, min_rows_per_leaf=3, random_state=0).grow(Bins.of(X), y)
    >>> bool(np.mean((grown.unseen_scores > 0.5) == y) > 0.8)
    True

    A cross-fit gives the rows of the fold that is left out the weight 0:

    >>> fold = np.arange(600) % 3 == 0
    >>> grown = BinnedForest(50, min_rows_per_leaf=3, splitter="random", random_state=0).grow(
    ...     Bins.of(X), y, np.where(fold, 0.0, 1.0)
    ... )
    >>> bool(np.mean((grown.unseen_scores[fold] > 0.5) == y[fold]) > 0.75)
    True
    """

    n_trees: int = 100
    max_depth: int | None = None
    max_features: int | None = None
    min_rows_per_leaf: int = 1
    splitter: Literal["best", "random"] = "best"
    bootstrap: bool | None = None
    class_weight: Literal["balanced"] | None = None
    places: Places = "value"
    random_state: int | None = None
    n_jobs: int | None = None

    @property
    def label(self) -> str:
        """The scorer in a word."""
        return "extra-trees" if self.splitter == "random" else "random forest"

    def with_seed(self, seed: int) -> Scorer:
        """Fix the random state, unless it is fixed already."""
        return self if self.random_state is not None else replace(self, random_state=seed)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit null_train (0) against the mixture (1)."""
        rows, labels = training.labelled()
        forest = self.grow(self.bin(rows), labels).forest
        return FittedScorer(self, forest.score, "probability", forest)

    def bin(self, rows: Matrix) -> Bins:
        """Put rows in bins, for any number of calls of :meth:`grow`."""
        return Bins.of(rows, places=self.places)

    def grow(
        self, bins: Bins, y: NDArray[np.integer], weights: Vector | None = None
    ) -> GrownForest:
        """Grow the forest on rows of two classes.

        Parameters
        ----------
        bins : Bins
            The rows.
        y : int array of shape (n,)
            0 or 1.
        weights : array of shape (n,), optional
            What each row counts for; those of weight 0 are seen by no tree. They are rounded
            to whole multiples of about n times the largest weight / 2³¹.

        Returns
        -------
        GrownForest
        """
        n, d = bins.n_rows, bins.n_columns
        if y.shape != (n,) or not np.isin(y, (0, 1)).all():
            raise InputError(f"y must be {n} labels 0 or 1, one for each row")
        if self.splitter not in ("best", "random"):
            raise InputError(f"splitter must be 'best' or 'random', not {self.splitter!r}")
        if self.class_weight is not None:
            weights = balanced(y, weights)
        whole = as_integers(weights, n)
        limits = (
            _NO_LIMIT if self.max_depth is None else as_whole(self.max_depth, "max_depth"),
            max(int(d**0.5), 1) if self.max_features is None else int(self.max_features),
            as_whole(self.min_rows_per_leaf, "min_rows_per_leaf", 1),
            self.splitter == "random",
        )
        bootstrap = not limits[-1] if self.bootstrap is None else self.bootstrap
        seeds = np.random.SeedSequence(self.random_state).generate_state(self.n_trees, np.uint64)
        labels = y.astype(np.uint8)
        if available():
            grow = _grow_compiled
        else:
            from conovel.scorers.binned_forest_numpy import grow  # noqa: PLC0415
        threads = Parallel(self.n_jobs, require="sharedmem")
        n_parts = max(min(threads.n_jobs if self.n_jobs else 1, self.n_trees), 1)
        parts = threads(
            delayed(grow)(bins, labels, whole, limits, bootstrap, some)
            for some in np.array_split(seeds, n_parts)
        )
        return _join(parts, bins)


def _grow_compiled(
    bins: Bins,
    y: NDArray[np.uint8],
    weights: NDArray[np.int64],
    limits: tuple[int, int, int, bool],
    bootstrap: bool,
    seeds: NDArray[np.uint64],
) -> tuple[NDArray[Any], ...]:
    """Return feature, cut, left, value and roots, the votes for unseen rows and their number."""
    from conovel.scorers.binned_forest_loops import grow  # noqa: PLC0415

    n, d = bins.n_rows, bins.n_columns
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
        n_trees, used_size = grow(
            bins.columns,
            bins.places,
            weights,
            y,
            used,
            limits,
            bootstrap,
            seeds[done:],
            space,
            nodes,
            seen,
            votes,
            times,
            roots,
        )
        feature, cut, left, value = (part[:used_size].copy() for part in nodes)
        parts.append((feature, cut, left + before, value, roots[:n_trees] + before))
        done, before = done + n_trees, before + used_size
    return *map(np.concatenate, zip(*parts, strict=True)), votes, times


def _join(parts: list[tuple[NDArray[Any], ...]], bins: Bins) -> GrownForest:
    """Put trees that count their nodes from 0 one behind the other."""
    sizes = [len(part[0]) for part in parts]
    before = np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.int64)
    joined = [np.concatenate(arrays) for arrays in list(zip(*parts, strict=True))[:5]]
    feature, cut, left, value, roots = joined
    forest = Forest(
        feature,
        bins.thresholds(feature, cut),
        left + np.repeat(before, sizes),
        value,
        roots + np.repeat(before, [len(part[4]) for part in parts]),
        bins.n_columns,
        single=False,
    )
    votes = np.sum([part[5] for part in parts], axis=0)
    return GrownForest(forest, votes, np.sum([part[6] for part in parts], axis=0))

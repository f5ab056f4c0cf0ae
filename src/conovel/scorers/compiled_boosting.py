"""Gradient boosting of two classes on shared bins, straight into a flat model.

Log loss with second-order gains, trees grown leaf by leaf, as in LightGBM and scikit-learn's
histogram boosting. Gradients are rounded to whole multiples of a small unit, so that all sums
are exact: no bit depends on the order of the rows, on threads, or on whether numba compiled the
loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.models.forest import Forest
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector
from conovel.scorers.bins import Bins, as_integers, balanced, scaled_weights
from conovel.scorers.compiled_forest import available
from conovel.stats.arguments import as_whole


@dataclass(frozen=True, eq=False)
class Boosted:
    """What was boosted.

    Attributes
    ----------
    forest : Forest
    raw : array of shape (n,)
        The log-odds of all rows, those of weight 0 included: ``forest.score`` is the logistic
        function of them.
    stages : array of shape (n_trees, n)
        The log-odds after each tree, if they were asked for; otherwise empty.
    """

    forest: Forest
    raw: Vector
    stages: Matrix

    def first(self, n_trees: int) -> Forest:
        """Return the model after so many trees."""
        n_trees = as_whole(n_trees, "n_trees", 1, self.forest.n_trees)
        end = np.append(self.forest.roots, self.forest.feature.size)[n_trees]
        arrays = ("feature", "threshold", "left", "value")
        nodes = {name: getattr(self.forest, name)[:end] for name in arrays}
        return replace(self.forest, roots=self.forest.roots[:n_trees], **nodes)


@dataclass(frozen=True, eq=False)
class CompiledBoosting(Scorer):
    """Gradient boosting as a scorer.

    Parameters
    ----------
    n_trees : int
    max_leaves : int
    learning_rate : float
    min_rows_per_leaf : int
    l2 : float
        Added to the curvature of each leaf.
    class_weight : {"balanced", None}
        Whether both classes count equally.
    most_bins : int
        Largest number of bins of a column, up to 255; only for :meth:`bin`.
    patience : int
        Trees without a smaller error on the watched rows after which to stop.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(900, 4)), np.arange(900) % 2
    >>> X[y == 1, 0] += 2
    >>> boosting = CompiledBoosting(40, max_leaves=8)
    >>> fold = np.arange(900) % 3 == 0
    >>> boosted = boosting.boost(boosting.bin(X), y, np.where(fold, 0.0, 1.0))
    >>> bool(np.mean((boosted.raw[fold] > 0) == y[fold]) > 0.8)
    True
    """

    n_trees: int = 100
    max_leaves: int = 8
    learning_rate: float = 0.1
    min_rows_per_leaf: int = 20
    l2: float = 0.0
    class_weight: Literal["balanced"] | None = None
    most_bins: int = 128
    patience: int = 10

    @property
    def label(self) -> str:
        """The scorer in a word."""
        return "boosting"

    def with_seed(self, seed: int) -> Scorer:
        """Return the scorer itself: nothing is drawn."""
        return self

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Fit null_train (0) against the mixture (1)."""
        rows, labels = training.labelled()
        forest = self.boost(self.bin(rows), labels).forest
        return FittedScorer(self, forest.score, "probability", forest)

    def bin(self, rows: Matrix) -> Bins:
        """Put rows in bins, for any number of calls of :meth:`boost`."""
        return Bins.of(rows, self.most_bins)

    def boost(
        self,
        bins: Bins,
        y: NDArray[np.integer],
        weights: Vector | None = None,
        watch: NDArray[np.bool_] | None = None,
        stages: bool = False,
    ) -> Boosted:
        """Boost on rows of two classes.

        Parameters
        ----------
        bins : Bins
            The rows.
        y : int array of shape (n,)
            0 or 1.
        weights : array of shape (n,), optional
            What each row counts for; those of weight 0 are scored only.
        watch : bool array of shape (n,), optional
            Rows on which the squared error decides how many trees are kept.
        stages : bool
            Whether to return the log-odds of all rows after each tree.

        Returns
        -------
        Boosted
        """
        n = bins.n_rows
        if y.shape != (n,) or not np.isin(y, (0, 1)).all():
            raise InputError(f"y must be {n} labels 0 or 1, one for each row")
        if watch is not None and (watch.shape != (n,) or not watch.any()):
            raise InputError(f"watch must mark at least one of {n} rows")
        if self.class_weight is not None:
            weights = balanced(y, weights)
        scaled = scaled_weights(weights, n)
        heaviest = int(np.argmax(scaled))
        factor = scaled[heaviest] / (1.0 if weights is None else float(weights[heaviest]))
        base = _log_odds_of_class_1(as_integers(weights, n), y)
        limits = self._limits(float(factor))
        n_trees = as_whole(self.n_trees, "n_trees", 1)
        patience = as_whole(self.patience, "patience", 1)
        watched = np.flatnonzero(np.zeros(n, bool) if watch is None else watch)
        raw = np.full(n, base)
        steps = np.empty((n_trees if stages else 0, n))
        if available():
            boost = _boost_compiled
        else:
            from conovel.scorers.compiled_boosting_numpy import boost  # noqa: PLC0415
        labels = y.astype(np.uint8)
        feature, cut, left, value, roots = boost(
            bins, scaled, labels, watched, limits, patience, raw, steps, n_trees
        )
        forest = Forest(
            feature,
            bins.thresholds(feature, cut),
            left,
            value,
            roots,
            bins.n_columns,
            "logistic",
            base,
            single=False,
        )
        return Boosted(forest, raw, steps[: roots.size])

    def _limits(self, factor: float) -> tuple[int, int, float, float]:
        """Check the settings; the sums are in units of 1 / factor, and so is `l2`."""
        if not 0 <= self.l2 < np.inf or not 0 < self.learning_rate < np.inf:
            raise InputError("l2 must be at least 0 and learning_rate above 0, both finite")
        return (
            as_whole(self.max_leaves, "max_leaves", 1),
            as_whole(self.min_rows_per_leaf, "min_rows_per_leaf", 1),
            self.l2 * factor,
            float(self.learning_rate),
        )

    def boost_each(
        self, bins: Bins, y: Sequence[NDArray[np.integer]], weights: Sequence[Vector]
    ) -> list[Boosted]:
        """Boost several targets or folds on the same bins."""
        return [self.boost(bins, *one) for one in zip(y, weights, strict=True)]


def _log_odds_of_class_1(weights: NDArray[np.int64], y: NDArray[np.integer]) -> float:
    """Return the log-odds of class 1, as if half a row of a missing class were there."""
    closest = 1 / (2 * np.count_nonzero(weights))
    share = float(weights[y == 1].sum() / weights.sum())
    share = min(max(share, closest), 1 - closest)
    return float(np.log(share / (1 - share)))


def _boost_compiled(
    bins: Bins,
    weights: Vector,
    y: NDArray[np.uint8],
    watched: NDArray[np.intp],
    limits: tuple[int, int, float, float],
    patience: int,
    raw: Vector,
    stages: Matrix,
    n_trees: int,
) -> tuple[NDArray[Any], ...]:
    """Return feature, cut, left, value and roots; `raw` and `stages` are written."""
    from conovel.scorers.compiled_boosting_loops import boost  # noqa: PLC0415

    n, most = bins.n_rows, 2 * limits[0] - 1
    used = np.flatnonzero(weights > 0).astype(np.uint32)
    unused = np.flatnonzero(weights == 0).astype(np.uint32)
    starts = np.cumsum([0, *(len(edges) + 1 for edges in bins.edges)])
    space = (
        *(np.empty(most, np.int64) for _ in range(4)),
        np.empty(most),
        np.empty((most, 4), np.int64),
        np.empty(used.size, np.uint32),
        np.empty(used.size, np.int64),
        np.empty((limits[0], starts[-1], 2), np.int64),
    )
    dtypes = np.int32, np.int32, np.int32, np.float64
    nodes = tuple(np.empty(most * n_trees, dtype) for dtype in dtypes)
    roots = np.empty(n_trees, np.int32)
    slopes, kept_raw = np.empty(n, np.int64), np.empty(n)
    arrays = np.empty(used.size, np.uint32), unused, np.empty(n), slopes, kept_raw
    kept, size = boost(
        bins.columns,
        starts,
        weights,
        y,
        used,
        watched,
        limits,
        patience,
        space,
        arrays,
        nodes,
        roots,
        raw,
        stages,
    )
    return *(part[:size] for part in nodes), roots[:kept]

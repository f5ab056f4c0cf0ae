"""Three forests that learn from the whole mixture, and more from its likely novelties.

1. Search. Three forests score every row by the trees that did not see it; distances from
   null_train score it, too. Forests and distances each say how likely the rows of the mixture are
   novel, and the answers are averaged in proportion to how much each of them found.
2. Learn. The forests tell null_train from the mixture, where a row counts a tenth, and more the
   likelier it is novel.

The first forest draws its cuts on the values. The second draws them on values with the tails
drawn in, and tries three times as many columns at each node. The third, half as large, takes the
best cut of as many columns. The score is a function of (row, null_train, mixture as a multiset).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from conovel.models.forest import Forest
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector
from conovel.scorers.binned_forest import BinnedForest, Bins
from conovel.scorers.content import content_hash
from conovel.scorers.cross_fit import likely_novel
from conovel.scorers.estimators import WEIGHT_OF_ALL
from conovel.scorers.likeness import Likeness

_NEIGHBOURS = 5
_MOST_REFERENCES = 2000  # normals that neighbours are searched among
_SMALLEST = 1e-9
_LARGEST_SHARE = 0.99  # of a distance that a row itself may explain


def middle_and_scale(rows: Matrix) -> tuple[Vector, Vector]:
    """Return the median of each column, and the median distance from it of other values.

    Where most values of a column are equal, the median distance of all of them would be 0.
    """
    middle = np.median(rows, axis=0)
    away = np.abs(rows - middle)
    away[away == 0] = np.nan
    varied = np.isfinite(away).any(axis=0)
    scale = np.ones(rows.shape[1])
    scale[varied] = np.nanmedian(away[:, varied], axis=0)
    return middle, scale


def distances(rows: Matrix, n_train: int) -> Iterator[tuple[str, Vector]]:
    """Yield scores of all rows, larger for those further from the first `n_train`, by name."""
    if n_train < 3:  # no shape, and no neighbour of a neighbour
        return
    middle, scale = middle_and_scale(rows)
    drawn_in = _standardised(np.arcsinh((rows - middle) / scale), n_train)
    # The bits of a matrix product depend on how many threads share it.
    with threadpool_limits(1):
        yield "distance", mahalanobis(_standardised(rows, n_train), n_train)
        yield "distance, tails drawn in", mahalanobis(drawn_in, n_train)
        yield "neighbours", neighbour_distance(drawn_in, n_train)


def mahalanobis(rows: Matrix, n_train: int) -> Vector:
    """Return the distance from the first rows, each of these left out where it is measured."""
    centred = rows - rows[:n_train].mean(axis=0)
    covariance, shrinkage = ledoit_wolf(centred[:n_train], assume_centered=True)
    inverse = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True)
    square: Vector = np.einsum("ij,ij->i", centred @ inverse, centred)
    # Without row i the covariance has the inverse of Sherman and Morrison's formula.
    share = np.minimum((1 - shrinkage) * square[:n_train] / n_train, _LARGEST_SHARE)
    square[:n_train] /= 1 - share
    return square


def neighbour_distance(rows: Matrix, n_train: int) -> Vector:
    """Return the distance from the fifth nearest of the first rows, itself not counted."""
    step = -(-n_train // _MOST_REFERENCES)
    reference = rows[:n_train:step]
    k = min(_NEIGHBOURS, len(reference) - 1)
    to_neighbours, _ = (
        NearestNeighbors(n_neighbors=k + 1, n_jobs=1).fit(reference).kneighbors(rows)
    )
    distance: Vector = to_neighbours[:, k - 1].copy()
    distance[:n_train:step] = to_neighbours[:n_train:step, k]
    return distance


def _standardised(rows: Matrix, n_train: int) -> Matrix:
    """Bring columns to the mean 0 and the spread 1 of the first rows."""
    spread, of_all = rows[:n_train].std(axis=0), rows.std(axis=0)
    spread = np.where(spread > _SMALLEST * of_all, spread, np.where(of_all > 0, of_all, 1.0))
    return np.asarray((rows - rows[:n_train].mean(axis=0)) / spread)


_SEARCH_TREES = 0.75  # as a share of those that score
_MORE_COLUMNS = 3
_ROWS_PER_LEAF = 5


@dataclass(frozen=True, eq=False)
class WeightedForests(Scorer):
    """Forests that learn most from likely novelties."""

    n_trees: int = 100  # trees of the first and of the second forest
    random_state: int | None = None

    label = "forests"

    def with_seed(self, seed: int) -> Scorer:
        """Fix the random state, unless it is fixed already."""
        return self if self.random_state is not None else replace(self, random_state=seed)

    def fit(self, training: TrainingSet) -> FittedScorer:
        """Search, then learn."""
        rows, labels = training.labelled()
        n_train = len(training.null_train)
        axes = axes_of(rows)
        likely = average(*self.search(rows, labels, axes, n_train).values())
        weights = np.concatenate([np.ones(n_train), WEIGHT_OF_ALL + likely])
        return self._learn(rows, labels, weights, axes, slice(n_train, None))

    def fit_known(self, training: TrainingSet, likeness: Likeness) -> FittedScorer:
        """Learn, with known novelties among the likely ones; the search is done."""
        rows, labels, weights = likeness.labelled(training, WEIGHT_OF_ALL)
        of_mixture = slice(len(training.null_train), len(rows) - len(likeness.rows))
        return self._learn(rows, labels, weights, axes_of(rows), of_mixture)

    def _learn(
        self,
        rows: Matrix,
        labels: NDArray[np.int64],
        weights: Vector,
        axes: tuple[Bins, Bins, Bins],
        of_mixture: slice,
    ) -> FittedScorer:
        forest = grow_joined(self.scoring(rows), axes, labels, weights)
        return FittedScorer(self, forest.score, "probability", forest, weights[of_mixture])

    def search(
        self, rows: Matrix, labels: NDArray[np.int64], axes: tuple[Bins, Bins, Bins], n_train: int
    ) -> dict[str, Vector]:
        """Say how likely the rows of the mixture are novel, by what says so."""
        unseen = vote(self.searching(rows), axes, labels)
        by_name = {"forests": over_equal_rows(unseen, rows)}
        by_name.update(distances(rows, n_train))
        return {
            name: likely_novel(*np.split(scores, [n_train])) for name, scores in by_name.items()
        }

    def searching(self, rows: Matrix, per_leaf: int = _ROWS_PER_LEAF) -> tuple[BinnedForest, ...]:
        """Return forests whose trees leave rows out, one for each of :func:`axes_of`."""
        n_trees = max(int(_SEARCH_TREES * self.n_trees), 1)
        forests = self._forests(n_trees, rows, per_leaf)
        return tuple(replace(forest, bootstrap=True) for forest in forests)

    def scoring(self, rows: Matrix, per_leaf: int = _ROWS_PER_LEAF) -> tuple[BinnedForest, ...]:
        """Return the forests that score, one for each of :func:`axes_of`."""
        return self._forests(self.n_trees, rows, per_leaf)

    def _forests(self, n_trees: int, rows: Matrix, per_leaf: int) -> tuple[BinnedForest, ...]:
        seed, d = 0 if self.random_state is None else self.random_state, rows.shape[1]
        few = max(round(d**0.5), 1)
        first = BinnedForest(
            n_trees,
            max_depth=12,
            max_features=few,
            min_rows_per_leaf=per_leaf,
            splitter="random",
            bootstrap=False,
            random_state=seed,
        )
        second = replace(first, max_features=min(_MORE_COLUMNS * few, d))
        third = replace(second, n_trees=-(-n_trees // 2), splitter="best", bootstrap=True)
        return first, second, third


def average(*scores: Vector) -> Vector:
    """Average weights in proportion to their sums: what finds nothing changes nothing."""
    sums = np.array([one.sum() for one in scores])
    if not sums.any():
        return np.zeros(scores[0].size)
    total = np.zeros(scores[0].size)
    for share, one in zip(sums / sums.sum(), scores, strict=True):
        total += share * one
    return total


def vote(
    forests: Sequence[BinnedForest],
    axes: Sequence[Bins],
    labels: NDArray[np.int64],
    weights: Vector | None = None,
) -> Vector:
    """Add up what forests say of each row, by their trees that did not see it."""
    votes = np.zeros(labels.size)
    for forest, bins in zip(forests, axes, strict=True):
        scores = forest.grow(bins, labels, weights).unseen_scores
        votes += np.where(np.isnan(scores), labels.mean(), scores)
    return votes


def grow_joined(
    forests: Sequence[BinnedForest],
    axes: Sequence[Bins],
    labels: NDArray[np.int64],
    weights: Vector,
) -> Forest:
    """Grow forests on the same rows, and join them."""
    pairs = zip(forests, axes, strict=True)
    return _joined([forest.grow(bins, labels, weights).forest for forest, bins in pairs])


def over_equal_rows(scores: Vector, rows: Matrix) -> Vector:
    """Average scores over rows of equal content.

    A tree may have seen one of them and not the other; which one must not matter.
    """
    _, content, times = np.unique(content_hash(rows), return_inverse=True, return_counts=True)
    return np.asarray((np.bincount(content, scores) / times)[content])


def axes_of(rows: Matrix) -> tuple[Bins, Bins, Bins]:
    """Bin the rows; the second forest draws its cuts on values with the tails drawn in."""
    bins = Bins.of(rows)
    middle, scale = middle_and_scale(rows)
    places = np.arcsinh((bins.places - middle[:, np.newaxis]) / scale[:, np.newaxis])
    return bins, replace(bins, places=places), bins


def _joined(parts: list[Forest]) -> Forest:
    """Join forests: the score is the mean over all trees."""
    before = np.cumsum([0, *(part.feature.size for part in parts[:-1])])
    placed = list(zip(parts, before, strict=True))
    return replace(
        parts[0],
        feature=np.concatenate([part.feature for part in parts]),
        threshold=np.concatenate([part.threshold for part in parts]),
        left=np.concatenate([part.left + at for part, at in placed]),
        value=np.concatenate([part.value for part in parts]),
        roots=np.concatenate([part.roots + at for part, at in placed]),
    )

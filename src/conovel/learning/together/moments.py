"""Discriminants from summed moments: how far a row is from its agent's normals, and on which side.

Rows are in standard units z (:class:`conovel.learning.together.bins.Bins`), clipped and rounded to
multiples of 1/1024, so that all sums are sums of whole numbers. With the within-agent covariance W
of null_train and the centre c_j of agent j's normals,

    distance   q(z) = (z - c_j)' W^-1 (z - c_j),
    relative   r(z) = q(z)/2 - |z - c_j - a|²/2,   in the metric W^-1,
    common     s(z) = q(z)/2 - |z - b|²/2.

a is the mean of likely novelties relative to the centres of their agents, b their mean as they
are. The centres of thin agents are shrunken towards the common centre, in those directions in
which agents differ by more than chance (an empirical Bayes estimate, after Efron and Morris 1973).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.learning.together.loops import cholesky, forms, inverse_of, symmetric_eigen
from conovel.scorers.base import Matrix, Vector

UNIT = 1024  # a standard unit, in whole numbers
LIMIT = 8 * UNIT  # values beyond eight units are clipped
# Cells in which rows are counted by a discriminant, about 1/12 wide near zero.
CELLS = np.sinh(np.arange(-119, 120) / 24) * 2
_STEP = UNIT // 16
_MOST_BY_CHANCE = 30.0  # of Jarque and Bera's statistic: more once in 3 million Gaussian columns
_RIDGE = 1e-3
_LEAST_WEIGHT = 0.05  # rows that are less likely novelties than this do not count
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Centres:
    """What the centre of an agent's normals follows from: a common centre and a shrinkage."""

    grand: Vector
    root: Matrix  # L with L L' = the within-agent covariance
    axes: Matrix  # columns: directions in which agents differ, in the units of `root`
    between: Vector  # variance of agents' centres along the axes

    def of_agent(self, total: Whole, n_rows: int) -> Whole:
        """Return the centre of an agent, from the sum of its rows of null_train."""
        if n_rows == 0:
            return np.rint(self.grand).astype(np.int64)
        deviation = forward(self.root, total / n_rows - self.grand)
        kept = self.between / (self.between + 1 / n_rows)
        along = _times(self.axes.T, deviation) * kept
        return np.rint(self.grand + _times(self.root, _times(self.axes, along))).astype(np.int64)


def packed(matrix: Whole) -> Whole:
    """Return the upper triangle of a symmetric matrix as a list."""
    return matrix[np.triu_indices(len(matrix))]


def unpacked(values: NDArray[np.float64], size: int) -> Matrix:
    """Return the symmetric matrix of an upper triangle."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = values
    return matrix + np.triu(matrix, 1).T


def sums_of(rows: Whole) -> Whole:
    """Return what an agent sends of its rows of null_train, once.

    1, n, n², the sums s, the cross products, and s s'/n rounded down.
    """
    n_rows, size = rows.shape
    total = rows.sum(axis=0)
    crossed = rows.T @ rows
    between = np.zeros((size, size), dtype=np.int64)
    if n_rows:
        between = np.array([[int(a) * int(b) // n_rows for b in total] for a in total])
    head = np.array([int(n_rows > 0), n_rows, n_rows**2], dtype=np.int64)
    return np.concatenate([head, total, packed(crossed), packed(between)])


def n_sums(size: int) -> int:
    """Return how many numbers :func:`sums_of` gives."""
    return 3 + size + size * (size + 1)


def centres_from(totals: Whole, size: int) -> Centres:
    """Estimate the common centre, the within-agent covariance and how agents differ."""
    n_agents, n_rows, squares = (int(n) for n in totals[:3])
    triangle = size * (size + 1) // 2
    grand = totals[3 : 3 + size] / max(n_rows, 1)
    crossed = unpacked(totals[3 + size : 3 + size + triangle].astype(np.float64), size)
    agents = unpacked(totals[3 + size + triangle :].astype(np.float64), size)
    within = _with_ridge((crossed - agents) / max(n_rows - n_agents, 1))
    root = cholesky(within)
    apart = agents - np.multiply.outer(grand, grand) * n_rows
    white = forward(root, forward(root, apart).T)
    values, axes = symmetric_eigen((white + white.T) / 2)
    spread = max(n_rows - squares / max(n_rows, 1), 1e-9)
    # Without differences between agents, n_agents - 1 is expected along each axis, and at most
    # (n_agents - 1)(1 + sqrt(size/(n_agents - 1)))² (Marchenko and Pastur 1967).
    chance = n_agents - 1
    most = chance * (1 + np.sqrt(size / max(chance, 1))) ** 2
    between = np.where(values > most, (values - chance) / spread, 0.0)
    return Centres(grand, root, axes, between)


def covariance_from(totals: Whole, size: int) -> Matrix:
    """Return W^-1 from the number of rows of null_train and their cross products about centres."""
    n_rows = max(int(totals[0]), 1)
    share = 0.01 + size / n_rows * 0.1
    inverse: Matrix = inverse_of(_with_ridge(unpacked(totals[1:] / n_rows, size), share))
    return inverse


def powers_of(about: Whole) -> Whole:
    """Return the sums of the first four powers of each column, in sixteenths of a unit.

    Values beyond eight units are clipped: 2^31 rows have sums below 2^60.
    """
    steps = np.clip(np.rint(about / _STEP), -LIMIT // _STEP, LIMIT // _STEP).astype(np.int64)
    return np.concatenate([(steps**power).sum(axis=0) for power in range(1, 5)])


def look_gaussian(totals: Whole, n_rows: int) -> bool:
    """Tell whether all columns of null_train may be Gaussian, from sums of their powers.

    By Jarque and Bera's statistic (1987), n/6 (skewness² + (kurtosis - 3)²/4), of each column that
    varies.
    """
    means = totals.reshape(4, -1) / max(n_rows, 1)
    varies = means[1] - means[0] * means[0] > 1e-9
    mean, second, third, fourth = means[:, varies]
    square = mean * mean
    variance = second - square
    skewness = (third - 3 * mean * second + 2 * mean * square) / (variance * np.sqrt(variance))
    powers = fourth - 4 * mean * third + 6 * square * second - 3 * square * square
    excess = powers / (variance * variance) - 3
    statistic = n_rows / 6 * (skewness * skewness + excess * excess / 4)
    return bool(np.all(statistic <= _MOST_BY_CHANCE))


@dataclass(frozen=True, eq=False)
class Discriminants:
    """The three columns that moments add to a row; a direction that is not known yet is None."""

    inverse: Matrix
    relative: Vector | None = None
    common: Vector | None = None

    def columns(self, rows: Whole, centre: Whole) -> Matrix:
        """Return distance, relative and common of each row, in the logarithm's units."""
        about = (rows - centre).astype(np.float64)
        distance = forms(about, self.inverse) / 2
        columns = [distance - rows.shape[1] / 2]
        if self.relative is not None:
            columns.append(distance - forms(about - self.relative, self.inverse) / 2)
        if self.common is not None:
            columns.append(distance - forms(rows - self.common, self.inverse) / 2)
        return np.stack(columns, axis=1)


def cells_of(scores: Vector) -> Whole:
    """Return the cell of each value of a discriminant."""
    return np.searchsorted(CELLS, scores, side="right").astype(np.int64)


def weights_of(null: Whole, mixture: Whole) -> Whole:
    """Return how likely rows of each cell are novelties, in 1/1024.

    Of M mixture rows, M (1 + n)/(1 + N) with so high a cell are expected to be normal, where n of
    N rows of null_train have one. The weight does not fall from one cell to the next.
    """
    n_null, n_mixture = int(null.sum()), int(mixture.sum())
    null_above, above = (np.cumsum(counts[::-1])[::-1] for counts in (null, mixture))
    expected = (null_above + 1) / (n_null + 1) * n_mixture
    weight = np.maximum.accumulate(np.clip(1 - expected / np.maximum(above, 1), 0, 1))
    weight[weight <= _LEAST_WEIGHT] = 0
    if float((weight * mixture).sum()) < 2:  # nothing stands out: the highest rows, all alike
        weight = np.where(above <= max(3, n_mixture // 100), 1.0, weight)
    in_units: Whole = np.rint(weight * UNIT).astype(np.int64)
    return in_units


def forward(root: Matrix, right: Matrix) -> Matrix:
    """Solve L x = right for a lower triangular L, in a fixed order of operations."""
    solution: Matrix = np.array(right, dtype=np.float64)
    for i in range(len(root)):
        for k in range(i):
            solution[i] -= root[i, k] * solution[k]
        solution[i] /= root[i, i]
    return solution


def _times(matrix: Matrix, vector: Vector) -> Vector:
    """Multiply in a fixed order of operations: no numerical library decides about bits."""
    product: Vector = np.zeros(len(matrix))
    for k in range(vector.size):
        product += matrix[:, k] * vector[k]
    return product


def _with_ridge(matrix: Matrix, share: float = _RIDGE) -> Matrix:
    """Add a share of the mean variance, so that columns that do not vary have an inverse."""
    mean = sum(matrix[i, i] for i in range(len(matrix))) / len(matrix)
    ridge: Matrix = np.eye(len(matrix)) * (share * mean + 1.0)
    return matrix + ridge

"""Shrunken logistic regressions of several folds or targets on the same columns.

Newton's method, each step by conjugate gradients. The columns are standardised once, every fit
starts from one on all folds, and all sums have a fixed order: no bit depends on BLAS, on
threads, on which fits are made together (but for their common start), or on whether numba
compiled the loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.models.linear import Linear
from conovel.models.portable_math import expit
from conovel.scorers.base import Matrix, Vector, mean_of
from conovel.scorers.compiled_forest import available

_MOST_STEPS = 50
_TOLERANCE = 1e-6  # largest slope of the mean loss at which a fit ends
_FORCING = 0.02  # residual of a Newton step, as a share of the slope


@dataclass(frozen=True, eq=False)
class LinearFolds:
    """Fits of several folds.

    Attributes
    ----------
    models : tuple of Linear
        One for each fit, the standardisation included.
    log_odds : array of shape (n_fits, n)
        Of all rows by each of them, those of weight 0 included: ``models[t].score`` is the
        logistic function of them.
    """

    models: tuple[Linear, ...]
    log_odds: Matrix


def fit_folds(
    rows: Matrix,
    y: NDArray[np.integer],
    weights: Matrix,
    C: float = 0.03,
    *,
    standardise: bool = True,
) -> LinearFolds:
    """Fit shrunken logistic regressions on standardised columns.

    Each minimises Σ w_i loss_i + |coef|² / (2 C), as scikit-learn does; the intercept is free.

    Parameters
    ----------
    rows : array of shape (n, d)
        Finite numbers.
    y : int array of shape (n,) or (n_fits, n)
        0 or 1, the same for all fits or for each.
    weights : array of shape (n_fits, n)
        What each row counts for in each fit; a fold that is left out has weight 0.
    C : float
        The smaller, the more the coefficients are shrunk.
    standardise : bool
        Whether columns are first brought to mean 0 and standard deviation 1.

    Returns
    -------
    LinearFolds

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(300, 3)), np.arange(300) % 2
    >>> X[y == 1, 0] += 3
    >>> fold = np.arange(300) // 2 % 4
    >>> fits = fit_folds(X, y, (fold != np.arange(4)[:, None]).astype(float))
    >>> out_of_fold = fits.log_odds[fold, np.arange(300)]
    >>> bool(np.mean((out_of_fold > 0) == y) > 0.9)
    True
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != len(rows):
        raise InputError(f"weights must have a column for each of {len(rows)} rows")
    targets = np.array(np.broadcast_to(np.asarray(y, dtype=np.float64), weights.shape))
    if not 0 < C < np.inf:
        raise InputError(f"C must be a positive number, not {C!r}")
    for number, (target, weight) in enumerate(zip(targets, weights, strict=True)):
        if not (weight[target == 0].any() and weight[target == 1].any()):
            raise InputError(f"fit {number} has rows of one class only: give it fewer folds")
    n_columns = rows.shape[1]
    centre, scale = _standard(rows) if standardise else (np.zeros(n_columns), np.ones(n_columns))
    z = np.ascontiguousarray((rows - centre) / scale)
    solver = _Solver(z, np.ascontiguousarray(z.T), 1 / C)
    start = np.zeros(z.shape[1] + 1)
    if len(weights) > 1:
        start, _ = solver.solve(mean_of(targets), mean_of(weights), start)
    fits = [solver.solve(*one, start) for one in zip(targets, weights, strict=True)]
    models = tuple(Linear(beta[:-1], float(beta[-1]), centre, scale) for beta, _ in fits)
    return LinearFolds(models, np.stack([log_odds for _, log_odds in fits]))


def _standard(rows: Matrix) -> tuple[Vector, Vector]:
    """Return the mean and the standard deviation of each column; 1 for a constant one."""
    columns = np.ascontiguousarray(rows, dtype=np.float64)
    largest = np.max(np.abs(columns), axis=0, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)  # squares do not overflow
    centre = _sum_of_rows(columns / unit) / len(columns)
    away = columns / unit - centre
    spread = np.sqrt(_sum_of_rows(away * away) / len(columns))
    varied = (columns != columns[:1]).any(axis=0) & (spread > 0)
    return centre * unit, np.where(varied, spread * unit, 1.0)


def _sum_of_rows(rows: Matrix) -> Vector:
    """Add rows, the first one first."""
    # numpy adds whole rows one after the other, if a row has more than one number.
    padded = np.column_stack([rows, np.zeros(len(rows))]) if rows.shape[1] == 1 else rows
    return np.asarray(np.add.reduce(padded, axis=0)[: rows.shape[1]] + 0.0)


@dataclass(frozen=True, eq=False)
class _Solver:
    """Newton's method on one matrix, stored both ways; parameters end with the intercept."""

    rows: Matrix
    columns: Matrix
    ridge: float

    def solve(self, y: Vector, weights: Vector, start: Vector) -> tuple[Vector, Vector]:
        """Return coefficients and intercept, and the log-odds of all rows."""
        beta = start.copy()
        enough = _TOLERANCE * float(np.add.accumulate(weights)[-1])
        slope, curve, log_odds = self._slope(beta, y, weights)
        for _ in range(_MOST_STEPS):
            if np.max(np.abs(slope)) <= enough:
                break
            step = self._newton_step(slope, curve)
            before = _dot(slope, step)
            if not before < 0:  # rounding leaves nothing to gain
                break
            while True:
                tried = beta + step
                new = self._slope(tried, y, weights)
                # Along the step the loss is convex: a steep rise at its end means too far.
                if _dot(new[0], step) <= -0.5 * before or np.array_equal(tried, beta):
                    break
                step, before = step / 2, before / 2
            beta = tried
            slope, curve, log_odds = new
        return beta, log_odds

    def _slope(self, beta: Vector, y: Vector, weights: Vector) -> tuple[Vector, Vector, Vector]:
        """Return the slope of the loss, the curvature of each row and its log-odds."""
        if available():
            from conovel.scorers import linear_folds_loops as loops  # noqa: PLC0415

            log_odds, residual, curve = np.empty((3, len(self.rows)))
            slope = np.empty(beta.size)
            loops.push(self.columns, beta, log_odds)
            loops.slopes(log_odds, y, weights, residual, curve)
            loops.pull(self.rows, residual, slope)
        else:
            log_odds = _push(self.columns, beta)
            p = expit(log_odds)
            curve = p * (1.0 - p) * weights
            slope = _pull(self.rows, (p - y) * weights)
        slope[:-1] += self.ridge * beta[:-1]
        return slope, curve, log_odds

    def _bend(self, curve: Vector, direction: Vector) -> Vector:
        """Return the second derivative of the loss times a direction."""
        if available():
            from conovel.scorers import linear_folds_loops as loops  # noqa: PLC0415

            bent, space = np.empty(direction.size), np.empty(len(self.rows))
            loops.bend(self.rows, self.columns, curve, direction, space, bent)
        else:
            bent = _pull(self.rows, _push(self.columns, direction) * curve)
        bent[:-1] += self.ridge * direction[:-1]
        return bent

    def _newton_step(self, slope: Vector, curve: Vector) -> Vector:
        """Solve for the step by conjugate gradients, up to a share of the slope."""
        step, residual = np.zeros(slope.size), -slope
        direction, square = residual, _dot(residual, residual)
        enough = _FORCING * _FORCING * square
        for _ in range(2 * slope.size):
            bent = self._bend(curve, direction)
            bend = _dot(direction, bent)
            if not bend > 0:  # flat up to rounding
                break
            length = square / bend
            step = step + length * direction
            residual = residual - length * bent
            square, last = _dot(residual, residual), square
            if square <= enough:
                break
            direction = residual + (square / last) * direction
        return step


def _dot(a: Vector, b: Vector) -> float:
    """Add up products from the first to the last."""
    return float(np.add.accumulate(a * b)[-1])


def _push(columns: Matrix, coef: Vector) -> Vector:
    """Return the sum of the columns times the coefficients, the intercept last."""
    out = np.zeros(columns.shape[1])
    for column, weight in zip(columns, coef[:-1], strict=True):
        out += column * weight
    return np.asarray(out + coef[-1])


def _pull(rows: Matrix, residual: Vector) -> Vector:
    """Return the sum of the rows times the residuals, that of the residuals last."""
    total = np.add.accumulate(residual)[-1] + 0.0
    return np.append(_sum_of_rows(rows * residual[:, np.newaxis]), total)

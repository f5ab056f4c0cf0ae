"""The compiled loops that fit logistic regressions; importing this loads numba.

Sums are added from the first row or column to the last: no bit depends on a numerical library.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.linear import INVERSE_LN2, LARGEST, LN2_HIGH, LN2_LOW, TAYLOR
from conovel.models.loops import jit

_MOST_STEPS = 50
_TOLERANCE = 1e-6  # largest slope of the mean loss at which a fit ends
_FORCING = 0.02  # residual of a Newton step, as a share of the slope
_POWERS = np.ldexp(1.0, -np.arange(1100))
_COEFFICIENTS = tuple(TAYLOR)


@jit
def expit(x: Any) -> Any:
    """Return what :func:`conovel.models.linear.expit` does, for one number."""
    down = -min(abs(x), LARGEST)
    k = np.rint(down * INVERSE_LN2)
    r = (down - k * LN2_HIGH) - k * LN2_LOW
    total = 0.0
    for coefficient in _COEFFICIENTS:
        total = total * r + coefficient
    z = total * _POWERS[np.int64(-k)]
    return (1.0 if x >= 0 else z) / (1.0 + z)


@jit
def push(columns: Any, coef: Any, out: Any) -> None:
    """Write the sum of the columns times the coefficients, the intercept last."""
    d, n = columns.shape
    for i in range(n):
        out[i] = 0.0
    for j in range(d):
        c = coef[j]
        column = columns[j]
        for i in range(n):
            out[i] += column[i] * c
    for i in range(n):
        out[i] += coef[d]


@jit
def pull(rows: Any, residual: Any, out: Any) -> None:
    """Write the sum of the rows times the residuals, that of the residuals last."""
    n, d = rows.shape
    total = 0.0
    for j in range(d + 1):
        out[j] = 0.0
    for i in range(n):
        r = residual[i]
        row = rows[i]
        for j in range(d):
            out[j] += row[j] * r
        total += r
    out[d] += total


@jit
def slopes(
    rows: Any, columns: Any, y: Any, weights: Any, ridge: Any, beta: Any, log_odds: Any
) -> Any:
    """Write the log-odds of all rows; return the slope of the loss and the curvature by row."""
    n = log_odds.size
    residual, curve, slope = np.empty(n), np.empty(n), np.empty(beta.size)
    push(columns, beta, log_odds)
    for i in range(n):
        p = expit(log_odds[i])
        residual[i] = (p - y[i]) * weights[i]
        curve[i] = p * (1.0 - p) * weights[i]
    pull(rows, residual, slope)
    for j in range(beta.size - 1):
        slope[j] += ridge * beta[j]
    return slope, curve


@jit
def dot(a: Any, b: Any) -> Any:
    """Add up products from the first to the last."""
    total = a[0] * b[0]
    for j in range(1, a.size):
        total += a[j] * b[j]
    return total


@jit
def newton_step(rows: Any, columns: Any, ridge: Any, slope: Any, curve: Any) -> Any:
    """Solve for a step by conjugate gradients, up to a share of the slope."""
    step, residual = np.zeros(slope.size), -slope
    bent, space = np.empty(slope.size), np.empty(curve.size)
    direction, square = residual, dot(residual, residual)
    enough = _FORCING * _FORCING * square
    for _ in range(2 * slope.size):
        push(columns, direction, space)
        for i in range(space.size):
            space[i] *= curve[i]
        pull(rows, space, bent)
        for j in range(slope.size - 1):
            bent[j] += ridge * direction[j]
        bend = dot(direction, bent)
        if not bend > 0:  # flat up to rounding
            break
        length = square / bend
        step = step + length * direction
        residual = residual - length * bent
        last = square
        square = dot(residual, residual)
        if square <= enough:
            break
        direction = residual + (square / last) * direction
    return step


@jit
def solve(
    rows: Any, columns: Any, y: Any, weights: Any, ridge: Any, beta: Any, log_odds: Any
) -> Any:
    """Minimise the log loss by Newton's method; return the parameters, the intercept last.

    `rows` and `columns` are one matrix, stored both ways. The log-odds of all rows are written.
    """
    total = 0.0
    for i in range(weights.size):
        total += weights[i]
    enough = _TOLERANCE * total
    slope, curve = slopes(rows, columns, y, weights, ridge, beta, log_odds)
    for _ in range(_MOST_STEPS):
        if np.abs(slope).max() <= enough:
            break
        step = newton_step(rows, columns, ridge, slope, curve)
        before = dot(slope, step)
        if not before < 0:  # rounding leaves nothing to gain
            break
        while True:
            tried = beta + step
            slope, curve = slopes(rows, columns, y, weights, ridge, tried, log_odds)
            # Along the step the loss is convex: a steep rise at its end means too far.
            if dot(slope, step) <= -0.5 * before or (tried == beta).all():
                break
            step, before = step / 2, before / 2
        beta = tried
    return beta

"""The compiled loops of :mod:`conovel.scorers.linear_folds`; importing this needs numba.

The sums are added in the order in which numpy adds them there: over columns from the first to the
last, over rows likewise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conovel.models.kernel_loops import jit
from conovel.models.portable_math import (
    INVERSE_LN2,
    LARGEST,
    LN2_HIGH,
    LN2_LOW,
    TAYLOR,
)

_POWERS = np.ldexp(1.0, -np.arange(1100))
_COEFFICIENTS = tuple(TAYLOR)


def _expit(x: Any) -> Any:
    """Return what :func:`conovel.models.portable_math.expit` does, for one number."""
    down = -min(abs(x), LARGEST)
    k = np.rint(down * INVERSE_LN2)
    r = (down - k * LN2_HIGH) - k * LN2_LOW
    total = 0.0
    for coefficient in _COEFFICIENTS:
        total = total * r + coefficient
    z = total * _POWERS[np.int64(-k)]
    return (1.0 if x >= 0 else z) / (1.0 + z)


expit = jit(_expit)


def _push(columns: Any, coef: Any, out: Any) -> None:
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


push = jit(_push)


def _pull(rows: Any, residual: Any, out: Any) -> None:
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


pull = jit(_pull)


def _slopes(log_odds: Any, y: Any, weights: Any, slope: Any, curve: Any) -> None:
    """Write both derivatives of the log loss of each row."""
    for i in range(log_odds.size):
        p = expit(log_odds[i])
        slope[i] = (p - y[i]) * weights[i]
        curve[i] = p * (1.0 - p) * weights[i]


slopes = jit(_slopes)


def _bend(rows: Any, columns: Any, curve: Any, coef: Any, space: Any, out: Any) -> None:
    """Write the second derivative of the loss times a direction."""
    push(columns, coef, space)
    for i in range(space.size):
        space[i] *= curve[i]
    pull(rows, space, out)


bend = jit(_bend)

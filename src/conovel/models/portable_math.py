"""Logistic function and hyperbolic tangent that give the same bits on every machine.

The library functions may differ in the last bit from one C library to the next, and peers
must agree on scores exactly. These use additions, multiplications, divisions, rounding to
an integer and scaling by a power of two: operations that IEEE 754 fixes to the last bit,
in the order written in `docs/wire.md`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# ln 2 in two parts, the first with 32 bits so that its multiples stay exact.
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
TAYLOR = [1.0 / math.factorial(n) for n in range(13, -1, -1)]
LARGEST = 708.0  # exp(-708) is still a normal number


def _decay(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(-x) for x >= 0, cut off at x = 708."""
    x = -np.minimum(x, LARGEST)
    k = np.rint(x * INVERSE_LN2)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = np.zeros_like(r)
    for coefficient in TAYLOR:
        total = total * r + coefficient
    return np.ldexp(total, k.astype(np.int32))


def expit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)).

    Examples
    --------
    >>> expit(np.array([0.0, -800.0, 800.0])).round(3)
    array([0.5, 0. , 1. ])
    """
    z = _decay(np.abs(x))
    return np.where(x >= 0, 1.0, z) / (1.0 + z)


def tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hyperbolic tangent.

    Examples
    --------
    >>> tanh(np.array([0.0, -1.0])).round(6)
    array([ 0.      , -0.761594])
    """
    z = _decay(2.0 * np.abs(x))
    return np.where(x >= 0, 1.0, -1.0) * ((1.0 - z) / (1.0 + z))

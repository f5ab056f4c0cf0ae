"""Logistic regression as flat arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ModelError
from conovel.models.forest import Described, check_rows, freeze


def freeze_scaler(
    centre: ArrayLike | None, scale: ArrayLike | None, n_features: int
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Freeze a scaler, which maps rows to ``(rows - centre) / scale``; each part may be None."""
    if centre is not None:
        centre = freeze(centre, np.float64, "centre")
    if scale is not None:
        scale = freeze(scale, np.float64, "scale")
        if np.any(scale <= 0):
            raise ModelError("scale must be positive")
    for part in (centre, scale):
        if part is not None and part.shape != (n_features,):
            raise ModelError(f"a scaler needs {n_features} numbers, got an array {part.shape}")
    return centre, scale


def logistic(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / (1 + exp(-raw)), and 1/2 where sums overflowed to NaN.

    This is scipy's function, which scikit-learn uses too: scores have the same bits as those
    of the scikit-learn model.
    """
    # Imported here, so that `import conovel` is fast.
    from scipy.special import expit  # noqa: PLC0415

    return np.asarray(expit(np.nan_to_num(raw, nan=0.0, posinf=np.inf, neginf=-np.inf)))


def standardise(
    rows: NDArray[np.float64],
    centre: NDArray[np.float64] | None,
    scale: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return ``(rows - centre) / scale``, the operations of scikit-learn's scalers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if centre is not None:
            rows = rows - centre
        if scale is not None:
            rows = rows / scale
    return rows


def affine(
    rows: NDArray[np.float64], weight: NDArray[np.float64], bias: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return ``rows @ weight + bias``, summed over the inputs from the first to the last.

    A matrix product of BLAS sums in an order that depends on the number of rows, which
    would make the score of a row depend on the rows scored with it.


    Examples
    --------
    >>> affine(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), 0.5)
    array([[11.5]])
    """
    sums = np.zeros((len(rows), weight.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for column, outgoing in zip(rows.T, weight, strict=True):
            sums += column[:, np.newaxis] * outgoing
        sums += bias
    return sums


def affine_by_row(
    rows: NDArray[np.float64], weights: NDArray[np.float64], bias: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return the sum of each row times weights of its own, with the bits of :func:`affine`.

    Examples
    --------
    >>> affine_by_row(np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]), 0.5)
    array([11.5,  2.5])
    """
    sums = np.zeros(len(rows))
    with np.errstate(over="ignore", invalid="ignore"):
        for column in (rows * weights).T:
            sums += column
        sums += bias
    return sums


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
    """1 / (1 + exp(-x))."""
    z = _decay(np.abs(x))
    return np.where(x >= 0, 1.0, z) / (1.0 + z)


def tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hyperbolic tangent."""
    z = _decay(2.0 * np.abs(x))
    return np.where(x >= 0, 1.0, -1.0) * ((1.0 - z) / (1.0 + z))


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Described):
    """An immutable logistic regression, and its scaler if it has one.

    The score of a row x is ``logistic(coef · z + intercept)`` with
    ``z = (x - centre) / scale``. The terms are added feature after feature, so the score
    has the same bits whatever rows it is computed with.
    """

    coef: NDArray[np.float64]  # (n_features,): one coefficient per feature
    intercept: float  # added to the sum
    centre: NDArray[np.float64] | None = None  # the scaler; either part may be missing
    scale: NDArray[np.float64] | None = None  # the scaler; either part may be missing

    def __post_init__(self) -> None:
        coef = freeze(self.coef, np.float64, "coef")
        if coef.ndim != 1 or not len(coef):
            raise ModelError(f"coef must be a list with one entry per feature, got {coef.shape}")
        if not np.isfinite(self.intercept):
            raise ModelError(f"intercept must be finite, got {self.intercept}")
        centre, scale = freeze_scaler(self.centre, self.scale, len(coef))
        object.__setattr__(self, "coef", coef)
        object.__setattr__(self, "intercept", float(self.intercept))
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "scale", scale)

    @property
    def n_features(self) -> int:
        """Number of columns a row must have."""
        return len(self.coef)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each row is novel."""
        rows = standardise(check_rows(X, self.n_features), self.centre, self.scale)
        return logistic(affine(rows, self.coef[:, np.newaxis], self.intercept)[:, 0])


Activation = Literal["relu", "tanh", "logistic", "identity"]


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Described):
    """An immutable perceptron with one logistic output, and its scaler if it has one.

    With ``z = (x - centre) / scale``, each layer is ``z @ weight + bias``; ``activation``
    follows every layer but the last, the logistic function the last. The products are
    added input after input, so the score of a row has the same bits whatever rows it is
    computed with.
    """

    # (n_inputs, n_outputs): one per layer; the last has one output
    weights: tuple[NDArray[np.float64], ...]
    biases: tuple[NDArray[np.float64], ...]  # (n_outputs,): one per layer
    activation: Activation  # what follows the hidden layers
    centre: NDArray[np.float64] | None = None  # the scaler; either part may be missing
    scale: NDArray[np.float64] | None = None  # the scaler; either part may be missing

    def __post_init__(self) -> None:
        weights = tuple(freeze(weight, np.float64, "weights") for weight in self.weights)
        biases = tuple(freeze(bias, np.float64, "biases") for bias in self.biases)
        if not weights or any(weight.ndim != 2 or not weight.size for weight in weights):
            raise ModelError("a network needs at least one layer, each a matrix of weights")
        if any(before.shape[1] != after.shape[0] for before, after in pairwise(weights)):
            raise ModelError("every layer must take as many inputs as the one before gives")
        if weights[-1].shape[1] != 1:
            raise ModelError("the last layer must have one output")
        if [bias.shape for bias in biases] != [weight.shape[1:] for weight in weights]:
            raise ModelError("every layer needs one bias per output")
        if self.activation not in _ACTIVATIONS:
            raise ModelError(
                f"activation must be one of {', '.join(_ACTIVATIONS)}, got {self.activation!r}"
            )
        centre, scale = freeze_scaler(self.centre, self.scale, len(weights[0]))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "biases", biases)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "scale", scale)

    @property
    def n_features(self) -> int:
        """Number of columns a row must have."""
        return len(self.weights[0])

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability that each row is novel."""
        signal = standardise(check_rows(X, self.n_features), self.centre, self.scale)
        *hidden, last = zip(self.weights, self.biases, strict=True)
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, bias in hidden:
                signal = _ACTIVATIONS[self.activation](affine(signal, weight, bias))
        return logistic(affine(signal, *last)[:, 0])


_ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "relu": lambda raw: np.maximum(raw, 0),
    "tanh": np.tanh,
    "logistic": logistic,
    "identity": lambda raw: raw,
}

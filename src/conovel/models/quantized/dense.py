"""Linear models and small dense networks with weights of a few bits.

A linear model is a network of one layer. Standardisation is rounded: a feature is divided
by the power of two nearest to its scale, and in a network of several layers shifted by a
multiple of 1/16. The weights and biases of the first layer make up for the rounding, so
features of any unit share one grid and cost a few bits each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.models.forest import Described, check_rows
from conovel.models.linear import Activation, Dense, Linear, affine, expit, tanh
from conovel.models.quantized.grids import Uniform

MAX_EXPONENT = 128
MAX_SHIFT = 1 << 24
_SHIFTS = 16  # shifts are multiples of 1/16
_SQRT_HALF = 0.7071067811865476
_LARGEST = 2.0**64  # inputs of a layer are cut off here, so that no sum can overflow

Arrays = list[NDArray[np.float64]]


class Coded(NamedTuple):
    """An array of numbers as codes on a grid of its own."""

    codes: NDArray[np.int64]
    grid: Uniform

    @classmethod
    def of(cls, numbers: NDArray[np.float64], bits: int) -> Coded:
        """Put numbers on their min-max grid."""
        grid = Uniform.over(numbers, bits)
        codes = grid.codes(numbers)
        codes.setflags(write=False)
        return cls(codes, grid)

    def numbers(self) -> NDArray[np.float64]:
        """Return the numbers that the codes stand for."""
        return self.grid.values()[self.codes]


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedDense(Described):
    """An immutable network whose last layer has one output, the logit of the score."""

    exponents: tuple[int, ...]  # feature f is divided by 2 ** exponents[f] …
    shifts: tuple[int, ...]  # … and reduced by shifts[f] / 16
    weights: tuple[Coded, ...]  # (n_in, n_out) for each layer
    biases: tuple[Coded, ...]  # (n_out,) for each layer
    activation: Activation = "identity"  # between layers

    @property
    def n_features(self) -> int:
        """Number of columns a row must have."""
        return len(self.exponents)

    def score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the score of each row: higher is more novel.

        Products are added in the order of the inputs, one rounding at a time, so the
        result is the same to the last bit on every machine.
        """
        with np.errstate(over="ignore"):
            z = np.ldexp(check_rows(X, self.n_features), -np.array(self.exponents))
        z -= np.array(self.shifts) / _SHIFTS
        for number, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            if number:
                z = _ACTIVATIONS[self.activation](z)
            z = affine(np.clip(z, -_LARGEST, _LARGEST), weights.numbers(), biases.numbers())
        return expit(z[:, 0])


def layers_of(model: Linear | Dense) -> tuple[Arrays, Arrays]:
    """Return the weights and the biases of each layer."""
    if isinstance(model, Linear):
        return [model.coef[:, np.newaxis]], [np.array([model.intercept])]
    return list(model.weights), list(model.biases)


def quantize_layers(model: Linear | Dense, bits: int) -> QuantizedDense:
    """Put the weights and the biases of each layer on min-max grids of `bits` bits."""
    weights, biases = layers_of(model)
    exponents = shifts = np.zeros(model.n_features, dtype=np.int64)
    if model.scale is not None:
        mantissa, power = np.frexp(model.scale)
        exponents = np.clip(power - (mantissa < _SQRT_HALF), -MAX_EXPONENT, MAX_EXPONENT)
        weights[0] = weights[0] * (np.ldexp(1.0, exponents) / model.scale)[:, np.newaxis]
    coded = tuple(Coded.of(weight, bits) for weight in weights)
    if model.centre is not None:
        middle = np.ldexp(model.centre, -exponents)
        if len(weights) > 1:  # the single bias of a linear model is exact: it needs no shift
            shifts = np.clip(np.rint(middle * _SHIFTS), -MAX_SHIFT, MAX_SHIFT).astype(np.int64)
        # The bias makes up for the rest, computed with the weights that are sent.
        rest = (middle - shifts / _SHIFTS)[np.newaxis]
        biases[0] = biases[0] - affine(rest, coded[0].numbers(), 0.0)[0]
    return QuantizedDense(
        tuple(exponents.tolist()),
        tuple(shifts.tolist()),
        coded,
        tuple(Coded.of(bias, bits) for bias in biases),
        model.activation if isinstance(model, Dense) and len(weights) > 1 else "identity",
    )


# With operations that give the same bits everywhere.
_ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": tanh,
    "logistic": expit,
    "identity": lambda x: x,
}

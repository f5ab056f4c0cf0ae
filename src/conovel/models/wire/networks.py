"""Linear models and dense networks in a payload, on grids or in full precision.

A linear model is a network of one layer. `given` is what is written. A reader passes None.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from conovel.errors import HeaderError, LimitError, ModelError, StructureError
from conovel.models.linear import Activation, Dense, Linear
from conovel.models.quantized.dense import (
    MAX_EXPONENT,
    MAX_SHIFT,
    Coded,
    QuantizedDense,
    layers_of,
)
from conovel.models.quantized.grids import Uniform
from conovel.models.wire.header import NETWORK, Header
from conovel.models.wire.numbers import STREAM, code_float, code_floats, code_uniform
from conovel.models.wire.range_coder import Coder, FrequencyTable, integer, signed, symbol

MAX_LAYERS = 8
ACTIVATIONS: tuple[Activation, ...] = ("identity", "relu", "logistic", "tanh")
ACTIVATION, CENTRED, SCALED = 3, 4, 8  # the flags; the activation takes two bits

Shapes = Sequence[tuple[int, ...]]


def network_header(model: Linear | Dense | QuantizedDense) -> Header:
    """Return the header of a network."""
    flags, bits = 0, 0
    if isinstance(model, QuantizedDense):
        bits = model.weights[0].grid.bits
        shapes = [weight.codes.shape for weight in model.weights]
    else:
        shapes = [weight.shape for weight in layers_of(model)[0]]
        flags = CENTRED * (model.centre is not None) | SCALED * (model.scale is not None)
    if len(shapes) > MAX_LAYERS:
        raise ModelError(f"{len(shapes)} layers are more than the {MAX_LAYERS} that can be sent")
    if not isinstance(model, Linear) and len(shapes) > 1:
        flags |= ACTIVATIONS.index(model.activation)
    n_weights = sum((n_in + 1) * n_out for n_in, n_out in shapes)
    return Header(NETWORK, flags, bits, bits, shapes[0][0], len(shapes), n_weights)


def check_network(header: Header) -> None:
    """Raise unless flags and counts are those of some network."""
    if header.flags & ~(ACTIVATION | (CENTRED | SCALED if header.exact else 0)):
        raise HeaderError(f"flags {header.flags:#x} do not belong to a network")
    if header.input_bits != header.output_bits:
        raise HeaderError("the weights of a network must all have the same width")
    if header.n_parts == 1 and header.flags & ACTIVATION:
        raise HeaderError("a network of one layer has no activation")
    if header.n_parts > MAX_LAYERS:
        raise LimitError(f"{header.n_parts} layers are more than the {MAX_LAYERS} of a network")


def code_quantized(coder: Coder, header: Header, given: QuantizedDense | None) -> QuantizedDense:
    """Code a quantized network and return it."""
    zeros, bits = (0,) * header.n_features, header.input_bits
    exponents = _code_small(coder, given.exponents if given else zeros, MAX_EXPONENT)
    shifts = _code_small(coder, given.shifts if given else zeros, MAX_SHIFT)
    shapes = _code_shapes(coder, header, [w.codes.shape for w in given.weights] if given else [])
    table = FrequencyTable("weight", bits)
    weights, biases = [], []
    for i, shape in enumerate(shapes):
        weight, bias = (given.weights[i], given.biases[i]) if given else (None, None)
        weights.append(_code_array(coder, table, weight, shape, bits))
        biases.append(_code_array(coder, table, bias, shape[1:], bits))
    return QuantizedDense(exponents, shifts, tuple(weights), tuple(biases), _activation(header))


def code_exact(coder: Coder, header: Header, given: Linear | Dense | None) -> Linear | Dense:
    """Code an exact network and return it."""
    weights, biases = layers_of(given) if given else ([], [])
    shapes = _code_shapes(coder, header, [weight.shape for weight in weights])

    def code(array: NDArray[np.float64] | None, shape: tuple[int, ...]) -> NDArray[np.float64]:
        numbers = [] if array is None else array.ravel().tolist()
        return np.array(code_floats(coder, numbers, prod(shape))).reshape(shape)

    centre = scale = None
    if header.flags & CENTRED:
        centre = code(given.centre if given else None, (header.n_features,))
    if header.flags & SCALED:
        scale = code(given.scale if given else None, (header.n_features,))
    weights = [code(weights[i] if given else None, shape) for i, shape in enumerate(shapes)]
    biases = [code(biases[i] if given else None, shape[1:]) for i, shape in enumerate(shapes)]
    if len(shapes) == 1:
        return Linear(weights[0][:, 0], float(biases[0][0]), centre, scale)
    return Dense(tuple(weights), tuple(biases), _activation(header), centre, scale)


def _activation(header: Header) -> Activation:
    return ACTIVATIONS[header.flags & ACTIVATION]


def _code_shapes(coder: Coder, header: Header, given: Shapes) -> list[tuple[int, int]]:
    """Code the widths between layers, and return inputs and outputs of each layer."""
    table, left = FrequencyTable(STREAM), header.n_items
    shapes, n_in = [], header.n_features
    for i in range(header.n_parts):
        last = i == header.n_parts - 1
        n_out = 1 if last else 1 + integer(coder, table, given[i][1] - 1 if given else 0)
        left -= (n_in + 1) * n_out
        if left < 0:
            break
        shapes.append((n_in, n_out))
        n_in = n_out
    if left != 0:
        raise StructureError("the layers do not have the announced number of weights")
    return shapes


def _code_small(coder: Coder, given: Sequence[int], limit: int) -> tuple[int, ...]:
    """Code a small number for each feature."""
    table = FrequencyTable(STREAM)
    result = tuple(signed(coder, table, number) for number in given)
    if max(map(abs, result)) > limit:
        raise StructureError(f"a feature is scaled or shifted by more than {limit}")
    return result


def _code_array(
    coder: Coder, table: FrequencyTable, given: Coded | None, shape: tuple[int, ...], bits: int
) -> Coded:
    """Code an array: the ends of its grid, or its only number, and then the codes."""
    count = prod(shape)
    given_grid = given.grid if given else Uniform(0.0, 0.0, bits)
    if count > 1:
        grid = code_uniform(coder, given_grid, bits)
    else:
        only = code_float(coder, given_grid.low, 32)
        grid = Uniform(only, only, bits)
    codes = np.array(given.codes.ravel() if given else np.zeros(count), dtype=np.int64)
    if grid.n_codes > 1:
        codes[:] = [symbol(coder, table, code, bits) for code in codes.tolist()]
    return Coded(codes.reshape(shape), grid)

"""A small neural network as flat arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ModelError
from conovel.models.arrays import (
    Described,
    affine,
    check_rows,
    freeze,
    freeze_scaler,
    logistic,
    standardise,
)

Activation = Literal["relu", "tanh", "logistic", "identity"]


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Described):
    """An immutable perceptron with one logistic output, and its scaler if it has one.

    With ``z = (x - centre) / scale``, each layer is ``z @ weight + bias``; ``activation``
    follows every layer but the last, the logistic function the last. The products are
    added input after input, so the score of a row has the same bits whatever rows it is
    computed with.

    Parameters
    ----------
    weights : sequence of arrays of shape (n_inputs, n_outputs)
        One per layer; the last has one output.
    biases : sequence of arrays of shape (n_outputs,)
        One per layer.
    activation : {"relu", "tanh", "logistic", "identity"}
        What follows the hidden layers.
    centre, scale : arrays of shape (n_features,), optional
        The scaler; either part may be missing.

    Examples
    --------
    >>> xor = Dense(([[1, 1], [1, 1]], [[9], [-18]]), ([0, -1], [-4.5]), "relu")
    >>> xor.score([[0, 0], [0, 1], [1, 0], [1, 1]]).round(2)
    array([0.01, 0.99, 0.99, 0.01])
    """

    weights: tuple[NDArray[np.float64], ...]
    biases: tuple[NDArray[np.float64], ...]
    activation: Activation
    centre: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None

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
        """Return the probability that each row is novel.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Finite numbers.

        Returns
        -------
        array of shape (n,)
            Probabilities in [0, 1].
        """
        signal = standardise(check_rows(X, self.n_features), self.centre, self.scale)
        *hidden, last = zip(self.weights, self.biases, strict=True)
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, bias in hidden:
                signal = _ACTIVATIONS[self.activation](affine(signal, weight, bias))
        return logistic(affine(signal, *last)[:, 0])


def _relu(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(raw, 0)


def _tanh(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.tanh(raw)


def _identity(raw: NDArray[np.float64]) -> NDArray[np.float64]:
    return raw


_ACTIVATIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "relu": _relu,
    "tanh": _tanh,
    "logistic": logistic,
    "identity": _identity,
}

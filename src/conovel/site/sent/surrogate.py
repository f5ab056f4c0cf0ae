"""From a fitted model to the bytes a peer receives.

``bits`` says how: None sends the model in float64, an integer is the paper's uniform
quantizer, and ``"compact"`` grows a small forest that imitates the model and sends that;
``"compact:300"`` sends the best one of at most 300 bytes. A model that is not made of numbers
which can be sent (a blend, nearest neighbours, a one-class model), or of too many, is imitated by
a forest of 100 trees with at most 20 leaves, and that forest is sent in float64 or quantized.

What imitates learns from a model that was fitted again, on rows without values beyond the bounds
of the features (:mod:`conovel.site.sent.compact`). A model that is sent itself at a stated
precision was fitted on the rows as they are: docs/privacy.md says what that gives away.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.covariance import ledoit_wolf

from conovel.errors import InputError, ModelError
from conovel.models import wire
from conovel.models.linear import Dense, Linear, standardise
from conovel.models.wire import NO_SCHEMA, decode
from conovel.scorers.automatic import Automatic, normality
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, Vector, fit_best
from conovel.scorers.from_sklearn import Flat, to_flat
from conovel.site.sent.compact import SHAPE_REACH, Bounds, encode_compact, find_bounds, imitate
from conovel.spec.settings import Bits, as_bits

__all__ = ["decode", "encode", "flat_of", "make_surrogate"]


def encode(model: Any, *, bits: int | None = None, schema: bytes = NO_SCHEMA) -> bytes:
    """Turn a fitted model into bytes for a peer.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, X[:, 0] > 0)
    >>> surrogate = decode(encode(model))
    >>> bool((surrogate.score(X) == model.predict_proba(X)[:, 1]).all())
    True
    """
    if isinstance(as_bits(bits), str):
        raise InputError(
            f"encode cannot make a {bits!r} model: it would imitate this one on its rows, and"
            " encode has no rows. Use Network(bits=...), or bits from 1 to 16 or None here"
        )
    try:
        flat = to_flat(model)
    except ModelError as error:
        raise ModelError(
            f"{error}. Network(agents, scorer=..., bits=...) sends any model: a forest imitates"
            " it on the agent's rows, which encode does not have"
        ) from error
    return wire.encode(flat, bits=bits, schema=schema)


def flat_of(
    local: FittedScorer,
    training: TrainingSet,
    seed: int,
    *,
    candidates: Sequence[Scorer],
    bounds: Bounds | None = None,
) -> Flat:
    """Return the local model as numbers, or a forest that imitates it where it has no such form.

    Parameters are those of :func:`make_surrogate`.
    """
    if local.flat is not None:
        return local.flat
    return imitate(*fit_imitated(training, seed, candidates, bounds))


class Imitated(NamedTuple):
    """A model fitted on clipped rows, what it was fitted on, and what a forest needs besides."""

    model: FittedScorer
    training: TrainingSet
    seed: int
    bounds: Bounds


def fit_imitated(
    training: TrainingSet, seed: int, candidates: Sequence[Scorer], bounds: Bounds | None
) -> Imitated:
    """Clip the rows, and fit the model that is imitated on them."""
    bounds = bounds or find_bounds(training.null_train)
    clipped = bounds.clip_training(training)
    settled = [_settle(one, clipped.null_train) for one in candidates]
    return Imitated(fit_best(settled, clipped), clipped, seed, bounds)


def _settle(scorer: Scorer, null_train: Matrix) -> Scorer:
    """Let rows that are clipped further choose, where a scorer is chosen by their shape."""
    if not isinstance(scorer, Automatic):
        return scorer
    tight = find_bounds(null_train, reach=SHAPE_REACH).clip(null_train)
    return replace(scorer, shape=normality(tight))


def make_surrogate(
    bits: Bits,
    local: FittedScorer | None,
    training: TrainingSet,
    seed: int,
    schema: bytes = NO_SCHEMA,
    *,
    candidates: Sequence[Scorer],
    bounds: Bounds | None = None,
) -> bytes:
    """Make what a peer receives from the model fitted on a training set."""
    if not isinstance(bits, str) and local is not None and local.flat is not None:
        with suppress(ModelError):  # more numbers than a message may hold
            return wire.encode(local.flat, bits=bits, schema=schema)
    imitation = fit_imitated(training, seed, candidates, bounds)
    if not isinstance(bits, str):
        return wire.encode(imitate(*imitation), bits=bits, schema=schema)
    _, _, budget = bits.partition(":")
    return encode_compact(
        imitation.model,
        imitation.training,
        seed,
        bounds=imitation.bounds,
        budget=int(budget) if budget else None,
        schema=schema,
    )


CONFORMS = 2.0  # standard units up to which a row is taken for normal
_EXCEEDED = 0.975  # the quantile at that place
_FEWEST = 10  # rows of null_train that have a shape
_NEVER_NORMAL = 40.0
_KNOTS = np.array([0.0, 1.0, 2.0, 4.0])
_SLOPES = np.array([1.0, 2.0, 3.0, 6.0])  # by how much the slope grows at each knot
_MOST_AXES = 64
_SMALLEST = 1e-9  # variance along an axis, as a share of the largest


def distance_model(null_train: Matrix) -> Dense | Linear:
    """Fit the network to the rows of null_train.

    With fewer than 10 rows nothing is known of the agent's normals. No row is near them then: the
    model takes every row for novel, and leaves the decision to the other agents.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> model = distance_model(rng.normal(size=(500, 4)))
    >>> (model.score(np.array([[0, 0, 0, 0.0], [6, 0, 0, 0]])) > 0.88).tolist()
    [False, True]
    """
    if len(null_train) < _FEWEST:
        return Linear(np.zeros(null_train.shape[1]), _NEVER_NORMAL)
    left_out = []  # distances of rows from a shape that was fitted without them
    for own, other in ((0, 1), (1, 0)):
        left_out.append(_raw(_network(null_train[own::2], 0.0, 1.0), null_train[other::2]))
    middle, far = np.quantile(np.concatenate(left_out), [0.5, _EXCEEDED]).tolist()
    return _network(null_train, middle, CONFORMS / ((far - middle) or 1.0))


def _network(rows: Matrix, middle: float, factor: float) -> Dense:
    """Return the network whose output is factor · (sum of hinges - middle)."""
    centre, spread = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    covariance, _ = ledoit_wolf((rows - centre) / scale, assume_centered=True)
    variances, axes = np.linalg.eigh(covariance)
    kept = (variances > variances.max() * _SMALLEST).nonzero()[0][-_MOST_AXES:]
    whitening = axes[:, kept] / np.sqrt(variances[kept])
    hidden = np.hstack([sign * whitening for _ in _KNOTS for sign in (1, -1)])
    biases = -np.repeat(_KNOTS, 2 * kept.size)
    slopes = factor * np.repeat(_SLOPES, 2 * kept.size)
    last = np.array([-factor * middle])
    return Dense((hidden, slopes[:, np.newaxis]), (biases, last), "relu", centre, scale)


def _raw(network: Dense, rows: Matrix) -> Vector:
    """Return the sum of hinges of a network with middle 0 and factor 1."""
    (hidden, slopes), (biases, _) = network.weights, network.biases
    white = standardise(rows, network.centre, network.scale)
    return np.asarray((np.maximum(white @ hidden + biases, 0) @ slopes)[:, 0])

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

from conovel.errors import InputError, ModelError
from conovel.models import wire
from conovel.models.wire import NO_SCHEMA, decode
from conovel.scorers.automatic import Automatic, normality
from conovel.scorers.base import FittedScorer, Matrix, Scorer, TrainingSet, fit_best
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

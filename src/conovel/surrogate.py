"""From a fitted model to the bytes a peer receives.

``bits`` says how: None sends the model in float64, an integer is the paper's uniform
quantizer, and ``"compact"`` trains a small forest on the same rows and sends that.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast

from sklearn.ensemble import RandomForestClassifier

from conovel import wire
from conovel.convert import to_flat
from conovel.errors import InputError
from conovel.forest import Forest
from conovel.grids import check_bits
from conovel.quantize import per_feature
from conovel.scoring import FittedScorer, Matrix, Mixture, fit_scorer
from conovel.wire import NO_SCHEMA, Surrogate, decode

__all__ = ["Bits", "as_bits", "decode", "encode", "make_surrogate"]

Bits: TypeAlias = int | Literal["compact"] | None


def as_bits(bits: Bits) -> Bits:
    """Check a precision: None, an integer from 1 to 16, or "compact"."""
    if bits is None or bits == "compact":
        return bits
    if isinstance(bits, str):
        raise InputError(f"bits must be None, an integer from 1 to 16 or 'compact', not {bits!r}")
    return check_bits(bits)


def encode(model: Any, *, bits: int | None = None, schema: bytes = NO_SCHEMA) -> bytes:
    """Turn a fitted model into bytes for a peer.

    Parameters
    ----------
    model : fitted scikit-learn or LightGBM classifier, or a flat model
    bits : int or None
        Precision of thresholds and values; None is float64.
    schema : bytes
        Digest of the columns it was made for, see :func:`conovel.wire.schema_digest`.

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
    return wire.encode(to_flat(model), bits=bits, schema=schema)


def make_surrogate(
    bits: Bits,
    local: FittedScorer,
    null_train: Matrix,
    mixture: Mixture,
    seed: int,
    schema: bytes = NO_SCHEMA,
) -> bytes:
    """Make what a peer receives from (null_train, mixture) and the model fitted on them."""
    if bits == "compact":
        return wire.encode(fit_compact(null_train, mixture, seed), schema=schema)
    return encode(local.estimator, bits=bits, schema=schema)


def fit_compact(null_train: Matrix, mixture: Mixture, seed: int) -> Surrogate:
    """Train the small forest that is sent by default: 100 trees of 4 leaves."""
    small = RandomForestClassifier(100, max_leaf_nodes=4, random_state=seed)
    flat = cast(Forest, to_flat(fit_scorer(small, null_train, mixture).estimator))
    return per_feature(flat, threshold_bits=4, leaf_bits=3)

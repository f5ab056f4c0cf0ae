"""Models as bytes, as `docs/wire.md` specifies.

Whatever bytes a peer sends, `decode` returns a model in canonical form or raises a `WireError`.
"""

from __future__ import annotations

from typing import Any

from conovel.errors import HeaderError, InputError, ModelError, NonCanonicalError, StructureError
from conovel.models.forest import Forest
from conovel.models.linear import Dense, Linear
from conovel.models.quantized.dense import QuantizedDense
from conovel.models.quantized.forest import LEAF, QuantizedForest, depth, uniform
from conovel.models.wire import forests, header, networks
from conovel.models.wire.header import NO_SCHEMA, Header, schema_digest
from conovel.models.wire.range_coder import BitCounter, Coder, Decoder, Encoder
from conovel.spec.fields import MAX_MODEL_BYTES as MAX_BYTES

__all__ = [
    "FAMILIES",
    "MAX_BYTES",
    "NO_SCHEMA",
    "Surrogate",
    "decode",
    "describe",
    "encode",
    "family_of",
    "n_nodes_of",
    "paper_bits",
    "schema_digest",
    "write",
]

Surrogate = Forest | Linear | Dense | QuantizedForest | QuantizedDense
FAMILIES = ("forest", "linear", "dense")
_SIDE_BITS = 2.33  # bits for feature and structure that the paper counts for each number


def encode(model: Surrogate, *, bits: int | None = None, schema: bytes = NO_SCHEMA) -> bytes:
    """Return a model as bytes: the same bytes for the same model, on every machine.

    `bits` quantizes with `conovel.models.quantized.forest.uniform` first; by default the model is
    sent as it is. `schema` is `schema_digest` of the columns that the model was made for. The
    bytes are a header of 28 bytes and the payload.
    """
    if bits is not None:
        if isinstance(model, QuantizedForest | QuantizedDense):
            raise InputError("the model is quantized already: leave bits out")
        model = uniform(model, bits)
    coder = Encoder()
    about = write(coder, model)
    return header.join(about._replace(schema=schema), coder.finish())


def decode(message: bytes, *, schema: bytes | None = None) -> Surrogate:
    """Return the model in a message.

    Nothing is executed and nothing is allocated before its size has been checked. The
    message has to be what `encode` makes of the model, byte for byte.

    Parameters
    ----------
    message : bytes
        What a peer sent.
    schema : bytes, optional
        The digest that the message has to carry; by default it may carry any.

    Returns
    -------
    Forest, Linear, Dense, QuantizedForest or QuantizedDense
        The model.

    Raises
    ------
    WireError
        If the bytes are not a model; each malformation has a class of its own.

    See Also
    --------
    conovel.encode : Makes such bytes from a fitted model.
    """
    if schema is not None:
        header.check_schema(schema)
    try:
        message = bytes(memoryview(message))
    except TypeError:
        raise InputError(f"a model is bytes, not {type(message).__name__}") from None
    about, payload = header.split(message, schema)
    coder = Decoder(payload)
    try:
        model = _read(coder, about)
        coder.finish()
        canonical = encode(model, schema=about.schema)
    except ModelError as error:  # the numbers are not those of a model, or the model is too large
        raise StructureError(str(error)) from error
    if canonical != message:
        raise NonCanonicalError("the bytes are not the canonical form of their model")
    return model


def write(coder: Coder, model: Surrogate) -> Header:
    """Write a model to any coder and return its header."""
    if isinstance(model, Forest):
        listing = forests.list_numbers(model)
        about = header.refuse_large(forests.exact_header(model, listing))
        forests.code_exact(coder, about, listing)
        return about
    if isinstance(model, QuantizedForest):
        about = header.refuse_large(forests.quantized_header(model))
        forests.code_quantized(coder, about, model)
        return about
    if not isinstance(model, Linear | Dense | QuantizedDense):
        raise ModelError(f"{type(model).__name__} has no wire format")
    about = header.refuse_large(networks.network_header(model))
    if isinstance(model, QuantizedDense):
        networks.code_quantized(coder, about, model)
    else:
        networks.code_exact(coder, about, model)
    return about


def _read(coder: Coder, about: Header) -> Surrogate:
    if about.kind == header.FOREST:
        forests.check_forest(about)
        if about.exact:
            return forests.read_exact(coder, about)
        return forests.code_quantized(coder, about, None)
    if about.kind == header.NETWORK:
        networks.check_network(about)
        if about.exact:
            return networks.code_exact(coder, about, None)
        return networks.code_quantized(coder, about, None)
    raise HeaderError(f"models of kind {about.kind} are not known to this release")


def describe(model: Surrogate) -> dict[str, Any]:
    """Return the parts of a model, and the bits and bytes that each takes; None bits are exact."""
    counter = BitCounter()
    about = write(counter, model)
    message = encode(model)
    if isinstance(model, Forest | QuantizedForest):
        shape, item = _forest_shape(about, model), "node"
    else:
        shape, item = _network_shape(about), "weight"
    return {
        **shape,
        "bits": None if about.exact else (about.input_bits, about.output_bits),
        "features": about.n_features,
        f"bits_per_{item}": {name: bits / about.n_items for name, bits in counter.bits.items()},
        "bytes": {"header": header.SIZE, "payload": len(message) - header.SIZE},
        "paper_bytes": paper_bits(message) / 8,
    }


def family_of(message: bytes) -> tuple[str, bool]:
    """Return the family of the model in a message, and whether its numbers are exact (float64)."""
    about, _ = header.split(message)
    family = "forest" if about.kind == header.FOREST else _network_shape(about)["kind"]
    return family, about.exact


def n_nodes_of(message: bytes) -> int:
    """Return the number of nodes of the forest in a message, or of weights of a network.

    Examples
    --------
    >>> import numpy as np
    >>> from conovel.models.linear import Linear
    >>> n_nodes_of(encode(Linear(np.ones(2), 0.0)))
    3
    """
    return header.split(message)[0].n_items


def paper_bits(message: bytes) -> float:
    """Return the bits that the paper's communication column would count for a message.

    Its figures fit N (b + 2.33) for N thresholds and leaf values of b bits, 64 when they
    are not quantized: 2.33 for feature and structure. Weights of a network need neither.
    """
    about, _ = header.split(message)
    inputs, outputs = (64, 64) if about.exact else (about.input_bits, about.output_bits)
    if about.kind != header.FOREST:
        return float(about.n_items * inputs)
    n_splits = (about.n_items - about.n_parts) // 2
    n_leaves = about.n_items - n_splits
    return n_splits * (inputs + _SIDE_BITS) + n_leaves * (outputs + _SIDE_BITS)


def _forest_shape(about: Header, model: Forest | QuantizedForest) -> dict[str, Any]:
    trees = forests.canonical_trees(model)
    return {
        "kind": "forest",
        "trees": about.n_parts,
        "nodes": about.n_items,
        "leaves": (about.n_items + about.n_parts) // 2,
        "depth": max(map(depth, trees)),
        "features_used": len({f for tree in trees for f, _ in tree} - {LEAF}),
    }


def _network_shape(about: Header) -> dict[str, Any]:
    return {
        "kind": "linear" if about.n_parts == 1 else "dense",
        "layers": about.n_parts,
        "weights": about.n_items,
    }

"""Models as bytes, byte by byte as `docs/wire.md` specifies.

Whatever a peer sends, `decode` returns a model in canonical form or raises a `WireError`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conovel.canonical import LEAF, depth
from conovel.coder import Coder, Decoder, Encoder, Tally
from conovel.errors import HeaderError, InputError, ModelError, NonCanonicalError
from conovel.forest import Forest
from conovel.quantize import QuantizedForest, uniform
from conovel.wire import forests, header
from conovel.wire.header import NO_SCHEMA, Header, schema_digest

__all__ = ["NO_SCHEMA", "decode", "describe", "encode", "schema_digest"]

Flat = Forest
Surrogate = Forest | QuantizedForest


def encode(model: Surrogate, *, bits: int | None = None, schema: bytes = NO_SCHEMA) -> bytes:
    """Return a model as bytes: the same bytes for the same model, on every machine.

    Parameters
    ----------
    model : Forest or QuantizedForest
        The model.
    bits : int, optional
        Quantize with `conovel.quantize.uniform` first; by default the model travels as it
        is, in full precision unless it is quantized already.
    schema : bytes, optional
        4 bytes of `schema_digest` that tell for which columns the model was made.

    Returns
    -------
    bytes
        A header of 28 bytes and the payload.
    """
    if bits is not None:
        if isinstance(model, QuantizedForest):
            raise InputError("the model is quantized already")
        model = uniform(model, bits)
    coder = Encoder()
    about = write(coder, model, schema)
    return header.join(about, coder.finish())


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
    Forest or QuantizedForest
        The model.

    Raises
    ------
    WireError
        If the bytes are not a model.
    """
    message = bytes(memoryview(message))
    about, payload = header.split(message, schema)
    coder = Decoder(payload)
    model = _read(coder, about)
    coder.finish()
    if encode(model, schema=about.schema) != message:
        raise NonCanonicalError("the bytes are not the canonical form of their model")
    return model


def describe(model: Surrogate) -> dict[str, Any]:
    """Return what a model consists of and what its bytes are spent on.

    Returns
    -------
    dict
        ``kind``, ``bits`` (of thresholds and of leaf values, None when exact), counts, the
        deepest level, the features in use, ``bits_per_node`` by stream, ``bytes`` by part
        and ``paper_bytes``: N (bits + 2.33) / 8 for N thresholds and leaf values, the
        formula that fits the communication column of the paper.
    """
    tally = Tally()
    about = write(tally, model)
    trees = (
        model.trees if isinstance(model, QuantizedForest) else forests.list_numbers(model).trees
    )
    n_nodes, n_splits = about.n_items, (about.n_items - about.n_parts) // 2
    n_leaves = n_nodes - n_splits
    widths = (64, 64) if about.exact else (about.input_bits, about.output_bits)
    paper = n_splits * (widths[0] + 2.33) + n_leaves * (widths[1] + 2.33)
    return {
        "kind": "forest",
        "bits": None if about.exact else widths,
        "trees": about.n_parts,
        "nodes": n_nodes,
        "leaves": n_leaves,
        "depth": max(map(depth, trees)),
        "features": about.n_features,
        "features_used": len({f for tree in trees for f, _ in tree} - {LEAF}),
        "bits_per_node": {name: bits / n_nodes for name, bits in tally.bits.items()},
        "bytes": {"header": header.SIZE, "payload": len(encode(model)) - header.SIZE},
        "paper_bytes": paper / 8,
    }


def write(coder: Coder, model: Surrogate, schema: bytes = NO_SCHEMA) -> Header:
    """Write a model to any coder and return its header."""
    if isinstance(model, QuantizedForest):
        about = replace(forests.quantized_header(model), schema=schema)
        header.refuse_large(about)
        forests.write_quantized(coder, about, model)
    elif isinstance(model, Forest):
        listing = forests.list_numbers(model)
        about = replace(forests.exact_header(model, listing), schema=schema)
        header.refuse_large(about)
        forests.write_exact(coder, about, listing)
    else:
        raise ModelError(f"{type(model).__name__} has no wire format")
    return about


def _read(coder: Coder, about: Header) -> Surrogate:
    if about.kind == header.FOREST:
        forests.check_forest(about)
        read = forests.read_exact if about.exact else forests.read_quantized
        return read(coder, about)
    raise HeaderError(f"kind {about.kind} is not known here")

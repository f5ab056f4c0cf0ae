"""The bytes of a kept detector: no code in them, checked before anything is built.

Layout, numbers little-endian::

    8 bytes    "CNVDTCTR"
    2 bytes    version of the layout, 1
    4 bytes    length of the header
    header     JSON: settings, columns, the model as a tree of parts, and for each array
               its type ("f8" or "i4") and shape
    arrays     one after the other
    32 bytes   SHA-256 of all bytes before

The arrays begin with the calibration scores and with known normals that explain flagged rows, of
which there may be none. Whatever the bytes are, :func:`unpack` returns a
header, arrays and parts within bounds, or raises a :class:`SavedFileError`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SavedFileError
from conovel.scorers.kept import MAX_PARTS, Part

MAGIC, VERSION = b"CNVDTCTR", 1
MAX_BYTES = 2**30
_START = struct.Struct("<8sHI")
_DIGEST_BYTES = 32
_MAX_HEADER = 8 * 2**20  # the names and kinds of 100,000 features take less
_MAX_ARRAYS = 32 * MAX_PARTS
_MAX_DEPTH = 6
_TYPES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "i4": np.dtype("<i4")}
_PART_FIELDS = {"kind", "scale", "settings", "arrays", "parts"}


class Unpacked(NamedTuple):
    """What the bytes of a detector hold."""

    settings: dict[str, Any]
    model: Part
    calibration_scores: NDArray[np.float64]
    normals: NDArray[np.float64]


def pack(
    settings: dict[str, Any],
    model: Part,
    calibration_scores: NDArray[np.float64],
    normals: NDArray[np.float64],
) -> bytes:
    """Write a detector as bytes: the same bytes for the same detector."""
    arrays: list[NDArray[Any]] = [calibration_scores, normals]
    tree = _tree(model, arrays)
    types = [_type_of(array) for array in arrays]
    shapes = [[t, list(a.shape)] for t, a in zip(types, arrays, strict=True)]
    header = json.dumps({"settings": settings, "model": tree, "arrays": shapes})
    data = header.encode()
    parts = [a.astype(_TYPES[t], order="C").tobytes() for t, a in zip(types, arrays, strict=True)]
    content = b"".join([_START.pack(MAGIC, VERSION, len(data)), data, *parts])
    return content + hashlib.sha256(content).digest()


def _type_of(array: NDArray[Any]) -> str:
    return "f8" if array.dtype.kind == "f" else "i4"


def _tree(part: Part, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    places = {}
    for name, array in sorted(part.arrays.items()):
        places[name] = len(arrays)
        arrays.append(array)
    return {
        "kind": part.kind,
        "scale": part.scale,
        "settings": part.settings,
        "arrays": places,
        "parts": [_tree(one, arrays) for one in part.parts],
    }


def unpack(data: bytes) -> Unpacked:
    """Read what :func:`pack` wrote; :class:`SavedFileError` for anything else."""
    content, body = _checked(data)
    try:
        header = json.loads(content[_START.size : body].decode())
    except (ValueError, RecursionError):
        raise SavedFileError("its header is not JSON") from None
    if not isinstance(header, dict) or set(header) != {"settings", "model", "arrays"}:
        raise SavedFileError("its header has other fields than expected")
    if not isinstance(header["settings"], dict):
        raise SavedFileError("its settings are no table")
    arrays = _arrays(header["arrays"], memoryview(content)[body:])
    if len(arrays) < 2 or [a.dtype.kind for a in arrays[:2]] != ["f", "f"] or arrays[0].ndim != 1:
        raise SavedFileError("its calibration scores are missing")
    _require_few_parts(header["model"])
    return Unpacked(
        header["settings"], _part(header["model"], dict(enumerate(arrays[2:], 2)), 0), *arrays[:2]
    )


def _require_few_parts(plain: Any) -> None:
    """Count the parts of a model, and theirs, before anything is built."""
    waiting, n_parts = [plain], 0
    while waiting:
        one = waiting.pop()
        n_parts += 1
        if n_parts > MAX_PARTS:
            raise SavedFileError(f"its model has more than {MAX_PARTS:,} parts")
        inner = one.get("parts") if isinstance(one, dict) else None
        waiting += inner[: MAX_PARTS + 1] if isinstance(inner, list) else []


def _checked(data: bytes) -> tuple[bytes, int]:
    """Return the bytes without their checksum, and where the arrays begin."""
    if len(data) > MAX_BYTES:
        raise SavedFileError("it is larger than a detector may be")
    if data[: len(MAGIC)] != MAGIC:
        raise SavedFileError("it does not begin like a detector")
    if len(data) < _START.size + _DIGEST_BYTES:
        raise SavedFileError("it ends too early")
    _, version, size = _START.unpack_from(data)
    if version != VERSION:
        raise SavedFileError(f"its version is {version}, and this release reads {VERSION}")
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise SavedFileError("its checksum is wrong: the file was damaged or changed")
    if size > min(_MAX_HEADER, len(content) - _START.size):
        raise SavedFileError("its header is longer than the file")
    return content, _START.size + size


def _arrays(shapes: Any, body: memoryview) -> list[NDArray[Any]]:
    if not isinstance(shapes, list) or len(shapes) > _MAX_ARRAYS:
        raise SavedFileError("its list of arrays is none, or too long")
    arrays, at = [], 0
    for one in shapes:
        is_pair = isinstance(one, list) and len(one) == 2 and one[0] in ("f8", "i4")
        shape = one[1] if is_pair else None
        if not isinstance(shape, list) or not 1 <= len(shape) <= 2:
            raise SavedFileError("an array has no type and shape")
        if any(type(n) is not int or not 0 <= n <= MAX_BYTES for n in shape):
            raise SavedFileError("an array has a shape that is none")
        kind = _TYPES[one[0]]
        n_items = int(np.prod(shape, dtype=object))
        end = at + n_items * kind.itemsize
        if end > len(body):
            raise SavedFileError("it ends before its arrays do")
        array = np.frombuffer(body[at:end], dtype=kind).reshape(shape)
        array = array.astype(kind.newbyteorder("="))
        if kind.kind == "f" and not np.isfinite(array).all():
            raise SavedFileError("an array holds NaN or infinity")
        arrays.append(array)
        at = end
    if at != len(body):
        raise SavedFileError("it goes on after its arrays")
    return arrays


def _part(plain: Any, arrays: dict[int, NDArray[Any]], depth: int) -> Part:
    """Read a part; each array is taken out, so that no two parts share one."""
    if depth > _MAX_DEPTH:
        raise SavedFileError("its model is nested too deeply")
    if not isinstance(plain, dict) or set(plain) != _PART_FIELDS:
        raise SavedFileError("a part of its model has other fields than expected")
    kind, scale, settings, places, parts = (
        plain[name] for name in ("kind", "scale", "settings", "arrays", "parts")
    )
    texts = isinstance(kind, str) and isinstance(scale, str)
    if not texts or not isinstance(settings, dict) or not isinstance(places, dict):
        raise SavedFileError("a part of its model is not as expected")
    if not isinstance(parts, list):
        raise SavedFileError("the parts of its model are no list")
    if any(type(i) is not int or i not in arrays for i in places.values()):
        raise SavedFileError("a part of its model names an array that is not there")
    if len(set(places.values())) < len(places):
        raise SavedFileError("a part of its model names an array twice")
    return Part(
        kind,
        scale,
        settings,
        {name: arrays.pop(i) for name, i in places.items()},
        tuple(_part(one, arrays, depth + 1) for one in parts),
    )

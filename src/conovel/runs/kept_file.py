"""The bytes of a kept detector: no code in them, checked before anything is built.

Layout, numbers little-endian::

    8 bytes    "CNVDTCTR"
    2 bytes    version of the layout, 1; 2 where it has known novelties or a confidence, 3 strata
    4 bytes    length of the header
    header     JSON: settings, columns, the model as a tree of parts, and for each array
               its type ("f8" or "i4") and shape
    arrays     one after the other
    32 bytes   SHA-256 of all bytes before

The arrays begin with the calibration scores and with known normals that explain flagged rows,
from version 2 on also with known novelties that do; of either there may be none. In version 3
those of :class:`conovel.site.kept_strata.KeptStrata` follow. Whatever the bytes are,
:func:`unpack` returns a header, arrays and parts within bounds, or raises a
:class:`SavedFileError`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from conovel.errors import ConovelError, InputError, SavedFileError
from conovel.rows.encoding import Encoder
from conovel.rows.pairs import KnownRows
from conovel.rows.strata import as_strata
from conovel.rows.tables import Rows
from conovel.scorers.base import Matrix, Vector
from conovel.scorers.kept import MAX_PARTS, Part
from conovel.site.kept_strata import KeptStrata
from conovel.spec.records import as_record
from conovel.spec.schema import Schema
from conovel.stats.levels import as_level

T = TypeVar("T")

MAGIC, VERSION = b"CNVDTCTR", 3
_FIRST_VERSION = 1
# The types of the arrays before those of the model
_FIRST_ARRAYS = {1: "ff", 2: "fff", 3: "fffffi"}
MAX_BYTES = 2**30
_START = struct.Struct("<8sHI")
_DIGEST_BYTES = 32
MAX_FEATURES = 100_000
_MAX_HEADER = 8 * 2**20  # the names and kinds of 100,000 features take less
_MAX_ARRAYS = 32 * MAX_PARTS
_MAX_DEPTH = 6
_Names: TypeAlias = tuple[str, ...] | None
_TypeName: TypeAlias = Literal["f8", "i4"]
_Length: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_BYTES)]
_Shape: TypeAlias = Annotated[list[_Length], Meta(min_length=1, max_length=2)]
_TYPES: dict[str, np.dtype[Any]] = {"f8": np.dtype("<f8"), "i4": np.dtype("<i4")}


@dataclass(frozen=True)
class _Header:
    settings: dict[str, Any]
    model: Any
    arrays: Annotated[list[tuple[_TypeName, _Shape]], Meta(max_length=_MAX_ARRAYS)]


@dataclass(frozen=True)
class _PartRecord:
    kind: str
    scale: str
    settings: dict[str, Any]
    arrays: dict[str, int]
    parts: list[Any]


class Unpacked(NamedTuple):
    """What the bytes of a detector hold."""

    settings: dict[str, Any]
    model: Part
    calibration_scores: NDArray[np.float64]
    normals: NDArray[np.float64]
    novelties: NDArray[np.float64] | None = None  # None in version 1
    strata: tuple[NDArray[Any], ...] = ()  # from version 3 on


def pack(
    settings: dict[str, Any],
    model: Part,
    calibration_scores: NDArray[np.float64],
    normals: NDArray[np.float64],
    novelties: NDArray[np.float64] | None = None,
    strata: tuple[NDArray[Any], ...] = (),
) -> bytes:
    """Write a detector as bytes: the same bytes for the same detector.

    Without `novelties` it is version 1, and without `strata` version 2, so that what an earlier
    release wrote keeps its digest.
    """
    arrays: list[NDArray[Any]] = [calibration_scores, normals]
    if novelties is not None:
        arrays += [novelties, *strata]
    version = _FIRST_VERSION if novelties is None else VERSION if strata else 2
    tree = _tree(model, arrays)
    types = [_type_of(array) for array in arrays]
    shapes = [[t, list(a.shape)] for t, a in zip(types, arrays, strict=True)]
    header = json.dumps({"settings": settings, "model": tree, "arrays": shapes})
    data = header.encode()
    parts = [a.astype(_TYPES[t], order="C").tobytes() for t, a in zip(types, arrays, strict=True)]
    content = b"".join([_START.pack(MAGIC, version, len(data)), data, *parts])
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
    content, body, version = _checked(data)
    try:
        plain = json.loads(content[_START.size : body].decode())
    except (ValueError, RecursionError):
        raise SavedFileError("its header is not JSON") from None
    header = _as_record(_Header, plain, "its header")
    arrays = _arrays(header.arrays, memoryview(content)[body:])
    n_first = len(_FIRST_ARRAYS[version])
    first = arrays[:n_first]
    if "".join(a.dtype.kind for a in first) != _FIRST_ARRAYS[version] or first[0].ndim != 1:
        raise SavedFileError("its calibration scores or strata are missing")
    _require_few_parts(header.model)
    model = _part(header.model, dict(enumerate(arrays[n_first:], n_first)), 0)
    novelties = first[2] if n_first > 2 else None
    return Unpacked(header.settings, model, first[0], first[1], novelties, tuple(first[3:]))


def _as_record(kind: type[T], plain: Any, name: str) -> T:
    try:
        return as_record(kind, plain, name)
    except InputError as error:
        raise SavedFileError(str(error)) from None


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


def _checked(data: bytes) -> tuple[bytes, int, int]:
    """Return the bytes without their checksum, where the arrays begin, and the version."""
    if len(data) > MAX_BYTES:
        raise SavedFileError("it is larger than a detector may be")
    if data[: len(MAGIC)] != MAGIC:
        raise SavedFileError("it does not begin like a detector")
    if len(data) < _START.size + _DIGEST_BYTES:
        raise SavedFileError("it ends too early")
    _, version, size = _START.unpack_from(data)
    if not _FIRST_VERSION <= version <= VERSION:
        raise SavedFileError(
            f"its version is {version}, and this release reads {_FIRST_VERSION} to {VERSION}"
        )
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise SavedFileError("its checksum is wrong: the file was damaged or changed")
    if size > min(_MAX_HEADER, len(content) - _START.size):
        raise SavedFileError("its header is longer than the file")
    return content, _START.size + size, version


def _arrays(shapes: list[tuple[_TypeName, _Shape]], body: memoryview) -> list[NDArray[Any]]:
    arrays, at = [], 0
    for name, shape in shapes:
        kind = _TYPES[name]
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
    part = _as_record(_PartRecord, plain, "a part of its model")
    places = part.arrays
    if not arrays.keys() >= set(places.values()):
        raise SavedFileError("a part of its model names an array that is not there")
    if len(set(places.values())) < len(places):
        raise SavedFileError("a part of its model names an array twice")
    return Part(
        part.kind,
        part.scale,
        part.settings,
        {name: arrays.pop(i) for name, i in places.items()},
        tuple(_part(one, arrays, depth + 1) for one in part.parts),
    )


@dataclass(frozen=True)
class Settings:
    """What the file of a detector says besides its numbers."""

    level: str
    scorer: str
    imitated: bool
    n_train: Annotated[int, Meta(ge=0)]
    n_unlabelled: Annotated[int, Meta(ge=0)]
    n_features: Annotated[int, Meta(ge=1, le=MAX_FEATURES)]
    unlabelled: str
    software: str
    schema: dict[str, Any] | None
    columns: _Names
    kinds: _Names
    # Version 2 of the file
    n_known: Annotated[int, Meta(ge=0)] = 0
    known_kinds: _Names = None
    confidence: str | None = None
    # Version 3
    strata: _Names = None


FIRST_SETTINGS = [one.name for one in fields(Settings) if one.default is MISSING]  # of version 1


def read_detector(data: bytes) -> dict[str, Any]:
    """Read the fields of a detector, and check them against each other."""
    content = unpack(data)
    settings = _as_record(Settings, content.settings, "its settings")
    width = settings.n_features
    for what in (settings.columns, settings.kinds):
        if what is not None and len(what) != width:
            raise SavedFileError(f"it has {len(what)} names or kinds for {width} features")
    scores, normals = content.calibration_scores, content.normals
    if not scores.size or (np.diff(scores) < 0).any():
        raise SavedFileError("its calibration scores are not in order")
    if normals.ndim != 2 or normals.shape[1] != width:
        raise SavedFileError("its known normals have another number of columns")
    novelties = _as_known(content.novelties, settings, width)
    sure = settings.confidence
    try:
        schema = _as_schema(settings.schema, settings.columns)
        read = {
            "level": as_level(settings.level),
            "schema": schema,
            "calibration_scores": scores,
            "model": content.model,
            "normals": normals,
            "novelties": novelties,
            "confidence": None if sure is None else as_level(sure, "confidence"),
            "strata": _as_strata(settings, content.strata, schema, scores),
        }
    except ConovelError as error:
        raise SavedFileError(f"its settings are not those of a detector: {error}") from None
    numbers = {**vars(settings), **read}
    del numbers["known_kinds"]
    return numbers


def _as_strata(
    settings: Settings, arrays: tuple[NDArray[Any], ...], schema: Schema | None, scores: Vector
) -> KeptStrata | None:
    """Check strata that a file may hold, against its columns and its calibration scores."""
    if settings.strata is None and not arrays:
        return None
    if settings.strata is None or not arrays or settings.confidence is not None:
        raise SavedFileError("strata go with version 3, and with no confidence")
    encoder = None if schema is None else Encoder(schema)
    empty = Rows(np.zeros((0, settings.n_features)), settings.columns, encoder=encoder)
    strata = KeptStrata(as_strata(list(settings.strata)), settings.n_train, *arrays)
    strata.check(empty)
    if not np.array_equal(np.sort(strata.scores[strata.n_train :]), scores):
        raise SavedFileError("its strata are not those of its calibration scores")
    return strata


def _as_known(novelties: Matrix | None, settings: Settings, width: int) -> KnownRows | None:
    """Check known novelties that a file may hold, and their kinds."""
    kinds = settings.known_kinds
    if novelties is None or not len(novelties):
        if kinds is not None:
            raise SavedFileError("it has kinds of known novelties, and no known novelties")
        return None
    if novelties.ndim != 2 or novelties.shape[1] != width or len(novelties) != settings.n_known:
        raise SavedFileError("its known novelties have another number of rows or columns")
    if kinds is not None and len(kinds) != len(novelties):
        raise SavedFileError("each of its known novelties has a kind, or none has")
    return KnownRows(novelties, kinds)


def _as_schema(plain: Any, columns: tuple[str, ...] | None) -> Schema | None:
    if plain is None:
        return None
    schema = Schema.from_dict(plain)
    if schema.features != columns:
        raise SavedFileError("its features are not those of its schema")
    return schema

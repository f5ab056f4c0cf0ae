"""One numeric representation for a column, in all samples that are compared.

0.7 in float32 and 0.7 in float64 are two numbers. If the known normals came in one type and
the test rows in the other, equal values would never tie, and a score could tell the samples
apart by their last digits. So a column has one type in all samples: the narrowest float type
that any of them has. Integers, booleans and decimals are exact; beside a float they are rounded
to its type, alone to float64 like everything else.

The wider sample has been rounded once before, to its own type. That changes the result only
for values that it rounded to the middle between two numbers of the narrower type: for float64
beside float32, one in half a billion.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, DataWarning

_SHOWN = 5  # how many columns a message spells out
# Significant bits. Everything is computed in float64, so wider floats count as float64.
_FLOAT_BITS = {"float16": 11, "float32": 24, "float64": 53}
_EXACT_BITS = {"bool": 1} | {
    f"{sign}int{n}": n - (not sign) for sign in ("", "u") for n in (8, 16, 32, 64, 128)
}


def kind_of(dtype: np.dtype[Any]) -> str | None:
    """Name the kind of numbers of a numpy type, such as "float32" or "bool"; None if it has none.

    Examples
    --------
    >>> kind_of(np.dtype(np.float32)), kind_of(np.dtype("U3"))
    ('float32', None)
    """
    if dtype.kind not in "biuf":
        return None
    return "float64" if dtype.kind == "f" and dtype.itemsize > 8 else dtype.name


def kinds_of_objects(column: NDArray[Any]) -> set[str]:
    """Name the kinds of numbers in a column of objects; what is missing has none.

    Examples
    --------
    >>> sorted(kinds_of_objects(np.array([np.float32(1), 2.0, 3, None], dtype=object)))
    ['float32', 'float64', 'integer']
    """

    def kind(held: type) -> str:
        if issubclass(held, np.generic):
            return kind_of(np.dtype(held)) or held.__name__
        return {bool: "bool", int: "integer", float: "float64"}.get(held, held.__name__)

    return {kind(held) for held in set(map(type, column)) - {type(None)}}


def common_kind(kinds: Iterable[str]) -> str:
    """Give the kind in which columns of these kinds are compared.

    Examples
    --------
    >>> common_kind(["float64", "float32"]), common_kind(["int64", "int64"])
    ('float32', 'int64')
    >>> common_kind(["int64", "float32"]), common_kind(["int64", "bool"])
    ('float32', 'float64')
    """
    found = set(kinds)
    floats = found & _FLOAT_BITS.keys()
    if floats:
        return min(floats, key=lambda kind: _FLOAT_BITS[kind])
    return found.pop() if len(found) == 1 else "float64"


def loses_digits(kind: str, common: str) -> bool:
    """Tell whether numbers of a kind may change when they are compared in a narrower float.

    All numbers become float64, so that this alone is no difference between samples.
    """
    if common not in _FLOAT_BITS or common == "float64":
        return False
    needed = (_FLOAT_BITS | _EXACT_BITS).get(kind, np.inf)  # decimals have any number of digits
    return needed > _FLOAT_BITS[common]


def require_kept_kind(kept: str, new: str, label: str, name: str) -> None:
    """Refuse new rows in a narrower type of float than the one that rows were calibrated with."""
    common = common_kind((kept, new))
    if common in ("float16", "float32") and loses_digits(kept, common):
        raise ColumnError(
            f"{name}: {label} is {new}, and the detector was calibrated with {kept}: give {kept},"
            " or keep a new detector"
        )


def as_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    """Turn numbers of any kind into float64, each to the nearest; what is missing is NaN.

    Python's decimals are rounded correctly, which casts of data frame libraries do not promise.
    """
    if array.dtype.kind != "O":
        return array.astype(np.float64, copy=False)
    missing = [type(value).__name__ == "NAType" for value in array.flat]  # pandas has its own
    if any(missing):
        array = array.copy()
        array[np.reshape(missing, array.shape)] = None
    return array.astype(np.float64)  # None becomes NaN


def round_to(values: NDArray[np.float64], kind: str, label: str) -> NDArray[Any]:
    """Round a column to a float type, and leave it in that type."""
    with np.errstate(over="ignore"):
        rounded = values.astype(kind)
    if np.any(np.isinf(rounded) & np.isfinite(values)):
        raise ColumnError(
            f"{label} has values beyond {kind}, the type of the other sample or of another file:"
            " rescale the column in all of them"
        )
    return rounded


def warn_rounded(found: Mapping[str, Iterable[str]], stacklevel: int = 3) -> None:
    """Warn of columns whose kinds differ so that some numbers are rounded."""
    differing = []
    for label, kinds in found.items():
        names = sorted(set(kinds))
        if any(loses_digits(kind, common_kind(names)) for kind in names):
            differing.append(f"{label} ({' and '.join(names)})")
    if differing:
        more = len(differing) - _SHOWN
        warnings.warn(
            f"{', '.join(differing[:_SHOWN])}{f' and {more} more' if more > 0 else ''}: known"
            " normals and test rows must have the same numeric type, or equal values differ in"
            " their last digits. All are rounded to the narrower float type; give all samples"
            " and files one type",
            DataWarning,
            stacklevel=stacklevel,
        )

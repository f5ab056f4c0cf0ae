"""From what the user holds (arrays, pandas, polars, arrow) to two checked matrices.

Every complaint names the column or the number of rows and says what to do, before any
model is fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import ColumnError, DataWarning, MissingExtraError, SampleError
from conovel.sampling import content_hash

_SHOWN = 5  # how many offending columns an error spells out
LARGEST = float(np.finfo(np.float32).max)  # scikit-learn's trees read single precision


@dataclass(frozen=True, eq=False)
class Rows:
    """A sample as a finite float64 matrix, with the names it came with.

    Attributes
    ----------
    values : float64 array of shape (n, d)
        Contiguous and finite; negative zeros are made positive, so that equal rows have
        equal bytes.
    columns : tuple of str, or None
        Column names, when the sample was a frame.
    frame : narwhals DataFrame, or None
        The frame itself, to give results back in kind.
    """

    values: NDArray[np.float64]
    columns: tuple[str, ...] | None = None
    frame: nw.DataFrame[Any] | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])


def read_rows(sample: Any, name: str, columns: Sequence[str] | None = None) -> Rows:
    """Check one sample.

    Parameters
    ----------
    sample : array or frame of shape (n, d)
        Numbers only. Frames of pandas, polars and pyarrow are read by column name.
    name : str
        What errors call it.
    columns : sequence of str, optional
        Columns the frame must have; they are taken in this order.
    """
    if isinstance(sample, Rows):
        return sample
    frame = nw.from_native(sample, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        values, labels = _array_values(sample, name), None
    else:
        frame, labels = _chosen_columns(frame, name, columns)
        values = frame.select(nw.all().cast(nw.Float64)).to_numpy()
    if values.shape[0] == 0:
        raise SampleError(f"{name} has no rows")
    if values.shape[1] == 0:
        raise SampleError(f"{name} has no columns")
    _require_finite(values, labels, name)
    # Adding zero turns -0.0 into 0.0.
    values = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    return Rows(values, labels, frame if labels is not None else None)


def read_pair(X_null: Any, X_test: Any) -> tuple[Rows, Rows]:
    """Check the two samples of a detection and that they speak of the same columns."""
    null = read_rows(X_null, "X_null")
    test = read_rows(X_test, "X_test", null.columns)
    if null.values.shape[1] != test.values.shape[1]:
        raise ColumnError(
            f"X_null has {null.values.shape[1]} columns and X_test {test.values.shape[1]}:"
            " both must hold the same features in the same order"
        )
    warn_constant(null, test)
    _warn_shared_rows(null.values, test.values)
    return null, test


def column_label(columns: Sequence[str] | None, index: int) -> str:
    """Name a column the way the user knows it."""
    return f"column {columns[index]!r}" if columns is not None else f"column {index}"


def with_ids(ids: NDArray[Any] | None, **columns: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Put the row names, if there are any, in front of per-row results."""
    return columns if ids is None else {"id": ids, **columns}


def as_ids(ids: ArrayLike | None, m: int) -> NDArray[Any] | None:
    """Check that there is one name for each of the m test rows."""
    if ids is None:
        return None
    names = np.asarray(ids)
    if names.shape != (m,):
        raise SampleError(f"ids has shape {names.shape}, but there are {m} test rows")
    return names


def give_back(test: Rows, data: dict[str, NDArray[Any]]) -> Any:
    """Build a frame of per-row results in the kind of frame the test rows came in.

    A pandas index is kept. Rows that came as an array give a pandas frame.
    """
    if test.frame is not None:
        result = nw.from_dict(data, backend=test.frame.implementation).to_native()
        if (index := nw.maybe_get_index(test.frame)) is not None:
            result.index = index
        return result
    try:
        import pandas as pd  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("pandas", "pandas") from None
    return pd.DataFrame(data)


def _array_values(sample: Any, name: str) -> NDArray[np.float64]:
    if hasattr(sample, "toarray"):
        raise SampleError(f"{name} is sparse: pass {name}.toarray() if it fits in memory")
    array = np.asarray(sample)
    if array.ndim != 2:
        hint = f": use {name}.reshape(-1, 1) for a single feature" if array.ndim == 1 else ""
        raise SampleError(f"{name} must have shape (rows, columns), not {array.shape}{hint}")
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            pass
    raise ColumnError(f"{name} holds {array.dtype} values: encode them as numbers or drop them")


def _chosen_columns(
    frame: nw.DataFrame[Any], name: str, columns: Sequence[str] | None
) -> tuple[nw.DataFrame[Any], tuple[str, ...]]:
    labels = tuple(str(label) for label in frame.columns)
    if columns is not None:
        missing = [c for c in columns if c not in labels]
        extra = [c for c in labels if c not in columns]
        if missing or extra:
            parts = [f"lacks {_quoted(missing)}"] if missing else []
            parts += [f"also has {_quoted(extra)}"] if extra else []
            raise ColumnError(f"{name} {' and '.join(parts)}: give both samples the same columns")
        frame, labels = frame.select(*columns), tuple(columns)
    bad = [
        f"{label!r} ({dtype})"
        for label, dtype in zip(labels, frame.schema.dtypes(), strict=True)
        if not (dtype.is_numeric() or dtype == nw.Boolean)
    ]
    if bad:
        raise ColumnError(
            f"{name}: not numeric: {', '.join(bad[:_SHOWN])}{_and_more(bad)}:"
            " encode them as numbers or leave them out"
        )
    return frame, labels


def _require_finite(values: NDArray[np.float64], columns: Sequence[str] | None, name: str) -> None:
    # One pass over the sum finds nearly every clean matrix without a temporary mask.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) and np.abs(values).max() <= LARGEST:
            return
    for what, wrong, fix in (
        ("missing", np.isnan(values), "drop those rows or fill them in"),
        ("infinite", np.isinf(values), "drop those rows or cap the values"),
        ("beyond single precision", np.abs(values) > LARGEST, "rescale the column"),
    ):
        hit = np.flatnonzero(wrong.any(axis=0))
        if hit.size:
            found = [
                f"{column_label(columns, j)} has {np.count_nonzero(wrong[:, j])}"
                f" (first in row {np.flatnonzero(wrong[:, j])[0]})"
                for j in hit.tolist()
            ]
            listed = ", ".join(found[:_SHOWN]) + _and_more(found)
            raise ColumnError(f"{name} has {what} values: {listed}: {fix}")


def warn_constant(null: Rows, test: Rows) -> None:
    """Warn of columns that are the same in all rows of both samples."""
    low = np.minimum(null.values.min(axis=0), test.values.min(axis=0))
    high = np.maximum(null.values.max(axis=0), test.values.max(axis=0))
    constant = [column_label(null.columns, j) for j in np.flatnonzero(low == high).tolist()]
    if len(constant) == low.size:
        raise ColumnError("every column is constant: there is nothing to tell rows apart by")
    if constant:
        warnings.warn(
            f"{', '.join(constant[:_SHOWN])}{_and_more(constant)} never changes in either sample"
            " and tells nothing: leave it out",
            DataWarning,
            stacklevel=4,
        )


def _warn_shared_rows(null: NDArray[np.float64], test: NDArray[np.float64]) -> None:
    """Warn when test rows reappear among the nulls more often than nulls repeat themselves.

    Coarse data repeat by nature; then the rate within the null sample is as high, and
    sharing is no sign that somebody put test rows among the known normals.
    """
    known, times = np.unique(content_hash(null), return_counts=True)
    shared = int(np.isin(content_hash(test), known).sum())
    by_nature = int(times[times > 1].sum()) / len(null) * len(test)
    if shared > by_nature + 3 * by_nature**0.5:
        warnings.warn(
            f"{shared} of {len(test)} test rows also stand in X_null: if they are the same"
            " observations, remove them from X_null, or novelties among them go unseen",
            DataWarning,
            stacklevel=4,
        )


def _quoted(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels[:_SHOWN])) + _and_more(labels)


def _and_more(items: Sequence[object]) -> str:
    return f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""

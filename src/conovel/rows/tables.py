"""From what the user holds (arrays, pandas, polars, arrow) to two checked matrices.

Every complaint names the column or the number of rows and says what to do, before any
model is fitted. Samples that are compared get one numeric type for each column, see
:mod:`conovel.rows.representation`.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import (
    ColumnError,
    DataWarning,
    MissingValueError,
    SampleError,
    ValueTypeError,
)
from conovel.rows.columns import plain_kinds
from conovel.rows.encoding import FeatureMap
from conovel.rows.representation import (
    as_floats,
    common_kind,
    kind_of,
    kinds_of_objects,
    loses_digits,
    round_to,
    warn_rounded,
)
from conovel.scorers.base import content_hash
from conovel.spec.made_from import Contents
from conovel.stats.ranks import as_array

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
    kinds : tuple of str, or None
        The type in which each column came, such as "float32"; None is float64 throughout.
    encoder : FeatureMap, or None
        What made the columns out of columns of other kinds, where they were not plain numbers.
    contents : Contents, or None
        What tells whether a schema was made from these rows, where it says what it was made from.
    """

    values: NDArray[np.float64]
    columns: tuple[str, ...] | None = None
    frame: nw.DataFrame[Any] | None = None
    kinds: tuple[str, ...] | None = None
    encoder: FeatureMap | None = None
    contents: Contents | None = None

    def __len__(self) -> int:
        return int(self.values.shape[0])

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.values.shape[1])

    def take(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        """Give the rows at some places, in this order."""
        return self.values[places]

    def chunks(self) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Give all rows in one chunk, which begins at row 0."""
        yield 0, self.values

    def in_memory(self) -> Rows:
        """Give all rows."""
        return self


def read_rows(sample: Any, name: str, columns: Sequence[str] | None = None) -> Rows:
    """Check one sample."""
    if isinstance(sample, Rows):
        return sample
    frame = as_frame(sample, name)
    labels: tuple[str, ...] | None = None
    if frame is not None:
        frame, labels = chosen_columns(frame, name, columns)
        held, kinds = _frame_columns(frame, labels, name)
        values = np.stack(held, axis=1)
    else:
        values, kinds = array_values(sample, name)
    require_finite(values, labels, name)
    return Rows(as_clean(values), labels, frame, kinds)


def as_clean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give a contiguous matrix in which equal numbers have equal bytes: no -0.0."""
    return np.ascontiguousarray(values, dtype=np.float64) + 0.0


def unify(*samples: Rows) -> tuple[Rows, ...]:
    """Give every column the narrowest float type that it has in any of the samples.

    Part of what exchangeability means (docs/theory.md, section 1): all rows that are compared
    must have been rounded alike. Warns of columns in which numbers may have been rounded.
    """
    if len({sample.kinds for sample in samples}) == 1:
        return samples
    width = samples[0].values.shape[1]
    kinds = [sample.kinds or ("float64",) * width for sample in samples]
    common = tuple(common_kind(column) for column in zip(*kinds, strict=True))
    labels = [column_label(samples[0].columns, j) for j in range(width)]
    warn_rounded(dict(zip(labels, zip(*kinds, strict=True), strict=True)), stacklevel=5)
    return tuple(
        _rounded(sample, own, common, labels) for sample, own in zip(samples, kinds, strict=True)
    )


def pool_pairs(pairs: Sequence[Sequence[Rows]]) -> tuple[Rows, Rows]:
    """Put the known normals of several sites together, and their test rows, all in one type."""
    unified = unify(*(sample for pair in pairs for sample in pair))
    null, test = (
        replace(part[0], values=np.concatenate([rows.values for rows in part]), frame=None)
        for part in (unified[::2], unified[1::2])
    )
    return null, test


def _rounded(
    sample: Rows, own: Sequence[str], common: tuple[str, ...], labels: Sequence[str]
) -> Rows:
    values = sample.values
    for j, (kind, wanted) in enumerate(zip(own, common, strict=True)):
        if loses_digits(kind, wanted):
            values = values.copy() if values is sample.values else values
            values[:, j] = round_to(values[:, j], wanted, labels[j])
    return replace(sample, values=values + 0.0, kinds=common)  # what was rounded to -0.0 is 0.0


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
    names = as_array(ids, "ids")
    if names.shape != (m,):
        raise SampleError(f"ids has shape {names.shape}, but there are {m} test rows")
    if names.dtype.kind == "S" or any(isinstance(name, bytes) for name in names):
        raise SampleError("ids holds bytes: name rows by texts or numbers")
    return names


def array_values(sample: Any, name: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Read an array of numbers as float64, and name the kind of each column."""
    if hasattr(sample, "toarray"):
        raise SampleError(f"{name} is sparse: pass {name}.toarray() if it fits in memory")
    try:
        array = np.asarray(sample)
    except (TypeError, ValueError):
        raise SampleError(
            f"{name} is no array of numbers: give every row the same number of columns"
        ) from None
    if array.ndim == 0:
        raise SampleError(
            f"{name} must be an array or a frame of shape (rows, columns), not a"
            f" {type(sample).__name__}"
        )
    if array.ndim != 2:
        hint = (
            f". Reshape your data: {name}.reshape(-1, 1) for a single feature, (1, -1) for a row"
        )
        raise SampleError(
            f"{name} must have shape (rows, columns), not {array.shape}"
            + (hint if array.ndim == 1 else "")
        )
    _require_some(array.shape, name)
    if (kind := kind_of(array.dtype)) is not None:
        return array.astype(np.float64), (kind,) * array.shape[1]
    if array.dtype.kind == "O":
        try:
            values = as_floats(array)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            return values, _settle_objects(values, array)
    raise ValueTypeError(
        f"{name} holds {array.dtype} values{_why_no_numbers(array)}: encode them as numbers or"
        " drop them"
    )


def _why_no_numbers(array: NDArray[Any]) -> str:
    """Name the first object that is no number; words of scikit-learn for complex numbers."""
    for i, j in np.ndindex(array.shape) if array.dtype.kind == "O" else ():
        try:
            as_floats(array[i : i + 1, j])
        except (TypeError, ValueError, OverflowError) as error:
            return f" ({column_label(None, j)}, first in row {i}: {error})"
    return " (Complex data not supported)" if array.dtype.kind == "c" else ""


def _settle_objects(values: NDArray[np.float64], array: NDArray[Any]) -> tuple[str, ...]:
    """Bring each column of objects to one type, in place, and name it."""
    found = {column_label(None, j): kinds_of_objects(column) for j, column in enumerate(array.T)}
    warn_rounded(found, stacklevel=6)
    common = tuple(map(common_kind, found.values()))
    for j, (label, kinds) in enumerate(found.items()):
        if any(loses_digits(kind, common[j]) for kind in kinds):
            values[:, j] = round_to(values[:, j], common[j], label)
    return common


def as_frame(sample: Any, name: str) -> nw.DataFrame[Any] | None:
    """See a frame of any library as one of narwhals'; None for anything else."""
    if isinstance(sample, np.ndarray) and sample.dtype.names:  # a structured array
        fields = {field: sample[field] for field in sample.dtype.names}
        return nw.from_dict(fields, backend="pyarrow")
    try:
        frame = nw.from_native(sample, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names: Any = getattr(sample, "column_names", None) or getattr(sample, "columns", ())
        _require_distinct(list(map(str, names)), name)
        raise ColumnError(f"{name} has more than one column of the same name") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def _require_distinct(labels: Sequence[str], name: str) -> None:
    if twice := [label for label, n in Counter(labels).items() if n > 1]:
        raise ColumnError(f"{name} has more than one column called {_quoted(twice)}: rename them")


def chosen_columns(
    frame: nw.DataFrame[Any], name: str, columns: Sequence[str] | None
) -> tuple[nw.DataFrame[Any], tuple[str, ...]]:
    """Take the columns in the order asked for, by the text of their names."""
    labels = tuple(str(label) for label in frame.columns)
    _require_distinct(labels, name)
    _require_some(frame.shape, name)
    if columns is None:
        return frame, labels
    missing = [c for c in columns if c not in labels]
    extra = [c for c in labels if c not in columns]
    if missing or extra:
        parts = [f"lacks {_quoted(missing)}"] if missing else []
        parts += [f"also has {_quoted(extra)}"] if extra else []
        raise ColumnError(f"{name} {' and '.join(parts)}: give both samples the same columns")
    # By position, because names need not be texts.
    return frame[:, [labels.index(c) for c in columns]], tuple(columns)


def _frame_columns(
    frame: nw.DataFrame[Any], labels: Sequence[str], name: str
) -> tuple[list[NDArray[np.float64]], tuple[str, ...]]:
    """Give the columns as float64, and the kinds of numbers that they held."""
    series = [frame[:, j] for j in range(len(labels))]
    kinds = plain_kinds(frame)
    empty = [
        label
        for label, s, kind in zip(labels, series, kinds, strict=True)
        if kind is None and s.null_count() == len(s)
    ]
    if empty:
        raise entirely_missing(name, list(map(repr, empty)), len(frame))
    bad = [
        f"{label!r} ({s.dtype})"
        for label, s, kind in zip(labels, series, kinds, strict=True)
        if kind is None
    ]
    if bad:
        raise ValueTypeError(
            f"{name}: not numeric: {', '.join(bad[:_SHOWN])}{_and_more(bad)}:"
            " encode them as numbers or leave them out"
        )
    return [as_floats(s.to_numpy()) for s in series], tuple(filter(None, kinds))


def _require_some(shape: tuple[int, ...], name: str) -> None:
    for n, what, unit in zip(shape, ("rows", "columns"), ("sample", "feature"), strict=True):
        if n == 0:
            raise SampleError(
                f"{name} has no {what}: 0 {unit}(s) (shape={shape}) while a minimum of 1 is"
                f" required: add {what}"
            )


def entirely_missing(name: str, labels: Sequence[str], n: int) -> ColumnError:
    """Say that columns have no value at all."""
    where = "the one row that was read" if n == 1 else f"all {n:,} rows that were read"
    return ColumnError(
        f"{name}: entirely missing, in {where}:"
        f" {', '.join(labels[:_SHOWN])}{_and_more(labels)}: leave the column out or fill it in"
    )


def require_finite(
    values: NDArray[np.float64],
    columns: Sequence[str] | None,
    name: str,
    *,
    may_be_missing: bool = False,
) -> None:
    """Check that all values are numbers that trees can read, and that no column is empty."""
    # One pass over the sum finds nearly every clean matrix without a temporary mask.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()) and np.abs(values).max() <= LARGEST:
            return
    n = len(values)
    empty = np.flatnonzero(np.isnan(values).all(axis=0)).tolist() if n > 1 else []
    if empty and not may_be_missing:
        raise entirely_missing(name, [column_label(columns, j) for j in empty], n)
    for what, wrong, fix in (
        ("missing", np.isnan(values) & (not may_be_missing), "drop the rows or fill them in"),
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
            error = MissingValueError if what == "missing" else ColumnError
            raise error(f"{name} has {what} values: {listed}: {fix}")


def warn_constant(null: Rows, test: Rows) -> None:
    """Warn of columns that are the same in all rows of both samples."""
    low = np.minimum(null.values.min(axis=0), test.values.min(axis=0))
    high = np.maximum(null.values.max(axis=0), test.values.max(axis=0))
    if null.encoder is None:
        constant = [column_label(null.columns, j) for j in np.flatnonzero(low == high).tolist()]
    else:
        constant = [f"column {c!r}" for c in null.encoder.constant_columns(low == high)]
    if (low == high).all():
        raise ColumnError("every column is constant: there is nothing to tell rows apart by")
    if constant:
        warnings.warn(
            f"{', '.join(constant[:_SHOWN])}{_and_more(constant)} never changes in either sample"
            " and tells nothing: leave it out",
            DataWarning,
            stacklevel=4,
        )


def count_shared_rows(null: NDArray[np.float64], test: NDArray[np.float64]) -> int:
    """Count the test rows among the nulls, if they are more than rows that repeat by nature; or 0.

    Coarse data repeat by nature; then the rate within the null sample is as high, and
    sharing is no sign that somebody put test rows among the known normals.
    """
    known, times = np.unique(content_hash(null), return_counts=True)
    shared = int(np.isin(content_hash(test), known).sum())
    # One row more, because no copy may occur by chance. Copies come in pairs, and both samples
    # vary: the variance is about 2 (1 + m/n) times the mean.
    by_nature = (int(times[times > 1].sum()) + 1) / len(null) * len(test)
    largest = by_nature + 3 * (2 * by_nature * (1 + len(test) / len(null))) ** 0.5
    return shared if shared > largest else 0


def warn_shared_rows(null: NDArray[np.float64], test: NDArray[np.float64]) -> None:
    """Warn when test rows reappear among the nulls more often than nulls repeat themselves."""
    if shared := count_shared_rows(null, test):
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

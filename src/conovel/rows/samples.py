"""A sample with columns of any kind, before its columns become features."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, SampleError, ValueTypeError
from conovel.rows.columns import Numbers, RawColumn, Texts, plain_kinds, read_series
from conovel.rows.encoding import contents_of_columns, contents_of_frame, number_of_text
from conovel.rows.schemas import columns_of, may_be_missing
from conovel.rows.spelling import spells_number
from conovel.rows.tables import (
    Rows,
    as_floats,
    column_label,
    common_kind,
    entirely_missing,
    kind_of,
    kinds_of_objects,
    loses_digits,
    require_finite,
    round_to,
    warn_rounded,
)
from conovel.spec.made_from import Contents
from conovel.spec.schema import Schema
from conovel.stats.words import joined, listed


@dataclass(frozen=True, eq=False)
class Table:
    """A sample whose columns are not all plain numbers."""

    values: Mapping[str, RawColumn]
    frame: nw.DataFrame[Any] | None = None  # the frame itself, to give results back in kind
    # What tells whether a schema was made from these rows, where it says what it was made from
    contents: Contents | None = None

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.values)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns, when the sample was a frame."""
        return None if self.frame is None else tuple(self.values)


def read_sample(
    sample: Any,
    name: str,
    columns: Sequence[str] | None = None,
    schema: Schema | Mapping[str, Any] | None = None,
) -> Rows | Table:
    """Check one sample with columns of any kind."""
    if isinstance(sample, Rows | Table):
        return sample
    sample = collected(sample)
    frame = as_frame(sample, name)
    read: Rows | Table
    if frame is None:
        values, kinds = array_values(sample, name)
        require_finite(values, None, name, may_be_missing=True)
        if np.isnan(values.sum()):  # a sum is a number unless a value is missing
            read = _numbered(values, kinds)
        else:
            read = Rows(as_clean(values), kinds=kinds)
    else:
        read = _read_frame(frame, name, columns, schema)
    if not isinstance(schema, Schema) or schema.made_from is None:
        return read
    names = schema.made_from.columns
    if frame is None:
        return replace(read, contents=contents_of_columns(as_table(read).values, names))
    return replace(read, contents=contents_of_frame(frame, names))  # of columns to ignore, too


def _numbered(values: NDArray[np.float64], kinds: Sequence[str]) -> Table:
    """Read an array with missing values: its columns have numbers for names."""
    numbered = enumerate(zip(values.T, kinds, strict=True))
    return Table({str(j): Numbers(column, kind) for j, (column, kind) in numbered})


def _read_frame(
    frame: nw.DataFrame[Any],
    name: str,
    columns: Sequence[str] | None,
    schema: Schema | Mapping[str, Any] | None,
) -> Rows | Table:
    wanted, ignored = columns_of(schema)
    if columns is None and wanted is not None:
        # A column that the schema says may be missing need not be there.
        gone = may_be_missing(schema).difference(map(str, frame.columns))
        columns = [label for label in wanted if label not in gone]
    if ignored:
        kept = [j for j, label in enumerate(frame.columns) if str(label) not in ignored]
        frame = frame[:, kept]
    frame, labels = chosen_columns(frame, name, columns)
    if None not in plain_kinds(frame) and not _has_missing(frame):
        return read_rows(frame, name)
    held = {
        label: read_series(frame[:, j], f"{name}: column {label!r}")
        for j, label in enumerate(labels)
    }
    numbers = {label: raw.values for label, raw in held.items() if isinstance(raw, Numbers)}
    if numbers:
        matrix = np.stack(list(numbers.values()), axis=1)
        require_finite(matrix, list(numbers), name, may_be_missing=True)
    return Table(held, frame)


def _has_missing(frame: nw.DataFrame[Any]) -> bool:
    series = [frame[:, j] for j in range(frame.shape[1])]
    return any(s.null_count() or (s.dtype.is_float() and bool(s.is_nan().any())) for s in series)


def as_table(sample: Rows | Table) -> Table:
    """See a sample of plain numbers as one with columns of any kind."""
    if isinstance(sample, Table):
        return sample
    names = sample.columns or tuple(map(str, range(sample.width)))
    kinds = sample.kinds or ("float64",) * sample.width
    numbers = map(Numbers, sample.values.T, kinds)
    return Table(dict(zip(names, numbers, strict=True)), sample.frame, sample.contents)


def completed(table: Table, columns: Sequence[str]) -> Table:
    """Give a table these columns; one that it does not have is missing in all rows."""
    gone = Numbers(np.full(len(table), np.nan))
    return replace(table, values={name: table.values.get(name, gone) for name in columns})


def part_of(sample: Rows | Table, rows: NDArray[np.intp]) -> Rows | Table:
    """Take some rows of a sample; what follows from the others is not in it."""
    if isinstance(sample, Rows):
        return replace(sample, values=sample.values[rows], frame=None, contents=None)
    columns: dict[str, RawColumn] = {
        name: replace(raw, values=raw.values[rows])
        if isinstance(raw, Numbers)
        else Texts.of(raw.codes[rows], raw.levels, raw.kinds)
        for name, raw in sample.values.items()
    }
    return Table(columns, sample.frame)


def raw_numbers(sample: Rows | Table) -> NDArray[np.float64]:
    """Give numbers that stand for the values of a sample before they are encoded.

    Equal values have equal numbers in every sample, so that samples can be compared by digest.
    """
    if isinstance(sample, Rows):
        return sample.values
    columns = []
    for raw in sample.values.values():
        if isinstance(raw, Numbers):
            columns.append(raw.values + 0.0)
            continue
        numbers = [
            float(level) if spells_number(level) else number_of_text(level) for level in raw.levels
        ]
        columns.append(np.array([*numbers, np.nan])[raw.codes])
    return np.stack(columns, axis=1)


def read_rows(sample: Any, name: str, columns: Sequence[str] | None = None) -> Rows:
    """Check one sample."""
    if isinstance(sample, Rows):
        return sample
    sample = collected(sample)
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
        is_path = isinstance(sample, str | os.PathLike)
        raise SampleError(
            f"{name} must be an array or a frame of shape (rows, columns), not a"
            f" {type(sample).__name__}"
            + (f": for a file give conovel.read({str(sample)!r})" if is_path else "")
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
        floats = as_floats(array)  # a copy: what it was read from may change later
        return floats.copy() if floats is array else floats, (kind,) * array.shape[1]
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
    kinds_by_column = {
        column_label(None, j): kinds_of_objects(column) for j, column in enumerate(array.T)
    }
    warn_rounded(kinds_by_column, stacklevel=6)
    common = tuple(map(common_kind, kinds_by_column.values()))
    for j, (label, kinds) in enumerate(kinds_by_column.items()):
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


def collected(sample: Any) -> Any:
    """Give the frame that a lazy one, such as a polars LazyFrame, stands for; others as they are.

    This is done once for each sample: a plan that is carried out twice may order its rows
    differently.
    """
    if not hasattr(sample, "collect"):
        return sample
    lazy = nw.from_native(sample, pass_through=True)
    return lazy.collect().to_native() if isinstance(lazy, nw.LazyFrame) else sample


def _require_distinct(labels: Sequence[str], name: str) -> None:
    if twice := [label for label, n in Counter(labels).items() if n > 1]:
        raise ColumnError(
            f"{name} has more than one column called {listed(twice, 5)}: rename them"
        )


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
        parts = [f"lacks {listed(missing, 5)}"] if missing else []
        parts += [f"also has {listed(extra, 5)}"] if extra else []
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
            f"{name}: not numeric: {joined(bad)}: encode them as numbers or leave them out"
        )
    return [as_floats(s.to_numpy()) for s in series], tuple(filter(None, kinds))


def _require_some(shape: tuple[int, ...], name: str) -> None:
    for n, what, unit in zip(shape, ("rows", "columns"), ("sample", "feature"), strict=True):
        if n == 0:
            raise SampleError(
                f"{name} has no {what}: 0 {unit}(s) (shape={shape}) while a minimum of 1 is"
                f" required: add {what}"
            )

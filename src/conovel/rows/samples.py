"""A sample with columns of any kind, before its columns become features."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.rows.asked import columns_of, may_be_missing
from conovel.rows.columns import Numbers, RawColumn, Texts, plain_kinds, read_series
from conovel.rows.contents import contents_of_columns, contents_of_frame, number_of_text
from conovel.rows.spelling import spells_number
from conovel.rows.tables import (
    Rows,
    array_values,
    as_clean,
    as_frame,
    chosen_columns,
    entirely_missing,
    read_rows,
    require_finite,
)
from conovel.spec.made_from import Contents
from conovel.spec.schema import Schema


@dataclass(frozen=True, eq=False)
class Table:
    """A sample whose columns are not all plain numbers.

    Attributes
    ----------
    values : dict of the name of a column to its values
    frame : narwhals DataFrame, or None
        The frame itself, to give results back in kind.
    contents : Contents or None
        What tells whether a schema was made from these rows, where it says what it was made from.
    """

    values: Mapping[str, RawColumn]
    frame: nw.DataFrame[Any] | None = None
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
    frame = as_frame(sample, name)
    read: Rows | Table
    if frame is None:
        values, kinds = array_values(sample, name)
        require_finite(values, None, name, may_be_missing=True)
        if np.isnan(values.sum()):  # a sum is a number unless a value is missing
            read = _numbered(values, kinds, name, schema)
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


def _numbered(
    values: NDArray[np.float64],
    kinds: Sequence[str],
    name: str,
    schema: Schema | Mapping[str, Any] | None,
) -> Table:
    """Read an array with missing values: its columns have numbers for names."""
    numbered = enumerate(zip(values.T, kinds, strict=True))
    held = {str(j): Numbers(column, kind) for j, (column, kind) in numbered}
    _check_table(held, name, may_be_missing(schema) if len(values) > 1 else held)
    return Table(held)


def _read_frame(
    frame: nw.DataFrame[Any],
    name: str,
    columns: Sequence[str] | None,
    schema: Schema | Mapping[str, Any] | None,
) -> Rows | Table:
    wanted, ignored = columns_of(schema)
    columns = columns or wanted
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
    _check_table(held, name, may_be_missing(schema))
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


def _check_table(columns: Mapping[str, RawColumn], name: str, may_miss: Collection[str]) -> None:
    empty = [
        f"column {label!r}"
        for label, raw in columns.items()
        if label not in may_miss
        and (not raw.levels if isinstance(raw, Texts) else np.isnan(raw.values).all())
    ]
    if empty:
        raise entirely_missing(name, empty, len(next(iter(columns.values()))))
    numbers = {label: raw.values for label, raw in columns.items() if isinstance(raw, Numbers)}
    if numbers:
        matrix = np.stack(list(numbers.values()), axis=1)
        require_finite(matrix, list(numbers), name, may_be_missing=True)


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

"""A sample with columns of any kind, before its columns become features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from conovel.site.asked import columns_of
from conovel.site.columns import Numbers, RawColumn, Texts, plain_kinds, read_series
from conovel.site.spelling import spells_number
from conovel.site.tables import (
    Rows,
    array_values,
    as_clean,
    as_frame,
    chosen_columns,
    entirely_missing,
    read_rows,
    require_finite,
)
from conovel.spec.schema import Schema


@dataclass(frozen=True, eq=False)
class Table:
    """A sample whose columns are not all plain numbers.

    Attributes
    ----------
    values : dict of the name of a column to its values
    frame : narwhals DataFrame, or None
        The frame itself, to give results back in kind.
    """

    values: Mapping[str, RawColumn]
    frame: nw.DataFrame[Any] | None = None

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
    """Check one sample with columns of any kind.

    Parameters
    ----------
    sample : array or frame of shape (n, d)
        Frames of pandas, polars and pyarrow are read by column name.
    name : str
        What errors call it.
    columns : sequence of str, optional
        Columns the frame must have, in this order; by default those that the schema names.
    schema : Schema, mapping or None
        Columns of its kind "ignore" are left out.
    """
    if isinstance(sample, Rows | Table):
        return sample
    wanted, ignored = columns_of(schema)
    columns = columns or wanted
    frame = as_frame(sample, name)
    if frame is None:
        values, kinds = array_values(sample, name)
        require_finite(values, None, name, may_be_missing=True)
        if not np.isnan(values.sum()):  # a sum is a number unless a value is missing
            return Rows(as_clean(values), kinds=kinds)
        numbered = enumerate(zip(values.T, kinds, strict=True))
        return Table({str(j): Numbers(column, kind) for j, (column, kind) in numbered})
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
    _check_table(held, name)
    return Table(held, frame)


def _has_missing(frame: nw.DataFrame[Any]) -> bool:
    series = [frame[:, j] for j in range(frame.shape[1])]
    return any(s.null_count() or (s.dtype.is_float() and bool(s.is_nan().any())) for s in series)


def _check_table(columns: Mapping[str, RawColumn], name: str) -> None:
    empty = [
        f"column {label!r}"
        for label, raw in columns.items()
        if (not raw.levels if isinstance(raw, Texts) else np.isnan(raw.values).all())
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
        return replace(sample, values=sample.values[rows], frame=None)
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
        digests = [hashlib.blake2b(level.encode(), digest_size=6).digest() for level in raw.levels]
        numbers = [
            float(level) if spells_number(level) else float(int.from_bytes(digest, "big"))
            for level, digest in zip(raw.levels, digests, strict=True)
        ]
        columns.append(np.array([*numbers, np.nan])[raw.codes])
    return np.stack(columns, axis=1)

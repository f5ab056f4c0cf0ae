"""Contents of samples: numbers by which a schema and a run recognise the rows they have seen.

A value has the same number however it is written or read: 007 as a text and 7.0, a date and its
text, single and double precision, true and 1. So it does not matter from which format rows come,
or whether a schema reads a column as a category or as numbers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np

from conovel.rows.columns import Numbers, RawColumn, Texts, read_series
from conovel.scorers.base import Vector, hash_columns
from conovel.spec.made_from import Contents

_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def contents_of(columns: Sequence[RawColumn]) -> Contents:
    """Give the contents of some rows, held by their columns.

    Examples
    --------
    >>> texts = Texts.of(np.array([1, 0]), ["1.50", "yes"])
    >>> numbers = Numbers(np.array([1.0, 1.5]))
    >>> contents_of([texts]) == contents_of([numbers])
    True
    """
    n = len(columns[0])
    with np.errstate(over="ignore"):
        hashes = hash_columns(map(_canonical, columns), n)
        return Contents(n, int(hashes.sum(dtype=np.uint64)))


def contents_of_frame(frame: nw.DataFrame[Any], names: Sequence[str]) -> Contents | None:
    """Give the contents of the named columns of a frame; None where it lacks one."""
    places = {str(label): j for j, label in enumerate(frame.columns)}
    if not len(frame) or any(name not in places for name in names):
        return None
    return contents_of([read_series(frame[:, places[name]], name) for name in names])


def contents_of_columns(columns: Mapping[str, RawColumn], names: Sequence[str]) -> Contents | None:
    """Give the contents of the named columns; None where one is not there."""
    if any(name not in columns for name in names):
        return None
    return contents_of([columns[name] for name in names])


def number_of_text(text: str) -> float:
    """Give a whole number that stands for a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
    return float(int.from_bytes(digest, "big"))


def _canonical(column: RawColumn) -> Vector:
    """Give one number for each value, the same for all spellings and types of it."""
    if isinstance(column, Numbers):
        return _single(column.values)
    found = [*map(_number_of_level, column.levels), np.nan]
    return _single(np.array(found))[column.codes]


def _single(values: Vector) -> Vector:
    """Round to single precision, in which a file may hold what another holds in double."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    rounded[np.isnan(rounded)] = np.nan  # one pattern of bits
    return rounded


def _number_of_level(level: str) -> float:
    alone = Texts(np.zeros(1, dtype=np.int64), (level,))
    for read in (alone.numbers(), alone.truths()):
        if isinstance(read, Numbers):
            return float(read.values[0])
    if _DATE.match(level) and (times := alone.as_times) is not None:
        level = str(times[0])
    return number_of_text(level)

"""Which stratum a row belongs to: the values of one column, or of several.

Known normals and tests are compared within strata, so that the shares of strata may differ
between them (docs/theory.md#thm-strata). A stratum is read from the features of its columns, which
follow from the row and the schema alone. A missing value is a stratum of its own. Levels that a
schema puts together, such as rare ones, are not one stratum: their shares may differ, too. Rows
with such a level are in no stratum, and are not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from conovel.errors import ColumnError, InputError
from conovel.rows.encoding import Encoder, FeatureMap, level_names, spell_number
from conovel.rows.stored import RowSource
from conovel.scorers.base import Matrix
from conovel.stats.words import briefly, joined, listed

MOST_STRATA = 100  # more values are a continuous column or an id
NO_STRATUM = -1  # the code of a row whose level is put together with others
StrataLike: TypeAlias = str | int | Sequence[str | int] | None

_TOGETHER = {"(rare)", "(unseen)"}


@dataclass(frozen=True, eq=False)
class Strata:
    """The strata of both samples of a site."""

    columns: tuple[str, ...]
    labels: tuple[str, ...]  # one for each stratum, in the order of their values
    places: tuple[int, ...]  # the features that make strata
    codes: Mapping[tuple[float, ...], int]  # the stratum of each of their values
    null: NDArray[np.int16]  # of shape (n,); the stratum of each known normal
    test: NDArray[np.int16]  # of shape (m,); the stratum of each test row
    rare: tuple[str, ...] = ()  # levels that a schema puts together

    def of_rows(self, rows: Matrix) -> NDArray[np.int16]:
        """Return the stratum of each of some rows of the samples."""
        keys, inverse = np.unique(rows[:, self.places], axis=0, return_inverse=True)
        held = [self.codes[tuple(key)] for key in keys.tolist()]
        return np.array(held, dtype=np.int16)[inverse.reshape(-1)]

    def sizes(self) -> list[tuple[int, int]]:
        """Return the numbers of known normals and of tests in each stratum."""
        counts = [
            np.bincount(codes[codes != NO_STRATUM], minlength=len(self.labels))
            for codes in (self.null, self.test)
        ]
        return list(zip(*(one.tolist() for one in counts), strict=True))


def as_strata(strata: Any) -> tuple[str, ...]:
    """Read the columns that make strata: a name, or several; empty where there are none.

    Examples
    --------
    >>> as_strata("branch"), as_strata(["branch", 3]), as_strata(None)
    (('branch',), ('branch', '3'), ())
    """
    if strata is None:
        return ()
    given = [strata] if isinstance(strata, str | int) else strata
    if not isinstance(given, list | tuple) or not given:
        raise InputError(
            f"strata must be a column's name, or a list of them, not {briefly(strata)}"
        )
    names = []
    for name in given:
        if isinstance(name, bool) or not isinstance(name, str | int | np.integer) or name == "":
            raise InputError(f"strata must be names of columns, not {briefly(name)}")
        names.append(str(name))
    if len(set(names)) < len(names):
        raise InputError(f"strata names a column twice: {', '.join(names)}")
    return tuple(names)


def find_strata(null: RowSource, test: RowSource, columns: Sequence[str]) -> Strata:
    """Find the stratum of every row of both samples.

    Proof: Theorem 22 (docs/theory.md#thm-strata).
    """
    places = [_features_of(null, name) for name in columns]
    used = places_of(null, columns)
    codes: dict[tuple[float, ...], int] = {}
    coded = [_codes(sample, used, codes, columns) for sample in (null, test)]
    keys = sorted(codes)
    labels = [_label(null, columns, places, key) for key in keys]
    kept = [key for key, label in zip(keys, labels, strict=True) if label is not None]
    final = np.full(len(codes) + 1, NO_STRATUM, dtype=np.int16)
    for place, key in enumerate(kept):
        final[codes[key]] = place
    named = tuple(label for label in labels if label is not None)
    of_values = {key: int(final[code]) for key, code in codes.items()}
    of_null, of_test = (final[one] for one in coded)
    rare: tuple[str, ...] = ()
    if isinstance(null.encoder, Encoder):
        rare = tuple(level for name in columns for level in null.encoder.schema[name].rare)
    return Strata(tuple(columns), named, tuple(used), of_values, of_null, of_test, rare)


def places_of(sample: RowSource, columns: Sequence[str]) -> list[int]:
    """Return the places of the features that make strata."""
    return [place for name in columns for place in _features_of(sample, name)]


def _features_of(sample: RowSource, name: str) -> list[int]:
    """Return the places of the features that a column became."""
    encoder = sample.encoder
    if encoder is None:
        names = sample.columns or tuple(map(str, range(sample.width)))
    else:
        names = encoder.source
        if isinstance(encoder, Encoder) and name in encoder.schema.names:
            encoder.schema.require_apart(name)
    places = [j for j, one in enumerate(names) if one == name]
    if not places:
        raise ColumnError(
            f"strata: there is no column {name!r} among {listed(list(dict.fromkeys(names)), 8)}:"
            " name a column that the score uses, and do not ignore it"
        )
    return places


def _codes(
    sample: RowSource, used: list[int], codes: dict[tuple[float, ...], int], columns: Sequence[str]
) -> NDArray[np.intp]:
    """Give each row the number of its values, and new values the next number."""
    coded = np.empty(len(sample), dtype=np.intp)
    for start, keys in _keys(sample, used):
        distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
        if len(distinct) + len(codes) > MOST_STRATA:
            new = {tuple(key) for key in distinct.tolist()} - codes.keys()
            if len(new) + len(codes) > MOST_STRATA:
                raise _too_many(columns)
        numbers = [codes.setdefault(tuple(key), len(codes)) for key in distinct.tolist()]
        coded[start : start + len(keys)] = np.array(numbers)[inverse.reshape(-1)]
    return coded


def _keys(sample: RowSource, used: list[int]) -> Iterator[tuple[int, Matrix]]:
    for start, rows in sample.chunks():
        yield start, np.ascontiguousarray(rows[:, used])


def _too_many(columns: Sequence[str]) -> ColumnError:
    which = joined([f"column {name!r}" for name in columns])
    have = "has" if len(columns) == 1 else "have"
    return ColumnError(
        f"strata: {which} {have} more than {MOST_STRATA} different values: choose a column of few"
        " values, such as a branch or a month, or put values together in a new column"
    )


def _label(
    sample: RowSource, columns: Sequence[str], places: list[list[int]], key: tuple[float, ...]
) -> str | None:
    """Name a stratum by its values; None where a schema puts levels together."""
    names, start = [], 0
    for column, own in zip(columns, places, strict=True):
        names.append(_value(sample.encoder, column, key[start : start + len(own)]))
        start += len(own)
    return None if set(names) & _TOGETHER else ", ".join(names)


def _value(encoder: FeatureMap | None, name: str, features: tuple[float, ...]) -> str:
    """Spell the value of one column, given its features."""
    if encoder is None:
        return spell_number(features[0])
    if isinstance(encoder, Encoder):
        column = encoder.schema[name]
        if column.missing and features[-1] > 0:
            return "(missing)"
        if column.kind == "category":
            return str(level_names(column, np.array(features)[:, np.newaxis])[0])
        return spell_number(features[0])
    return encoder.spell_value(name, features)

"""What is to be known of the values of a column, before anybody says what the column is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.rows.columns import Numbers, RawColumn, Texts
from conovel.rows.spelling import spell_number, zone_kind
from conovel.rows.tables import chance_of_none, entirely_missing
from conovel.scorers.content import hash_columns

MOST_KEPT = 4096  # different values that a profile keeps
_LEAST_CHANCE = 1e-3  # a sample that has no value of a column with less chance is a mistake


@dataclass(eq=False)
class Profile:
    """What is to be known of a column to say what it is; profiles of parts can be joined.

    Attributes
    ----------
    n, n_missing : int
        Rows, and those without a value.
    counts : dict
        How often each of some values occurs: those with the smallest hashes, whole numbers of
        rows, because a value that is kept in the end was kept whenever it occurred.
    spells_numbers, spells_times, is_date : bool
        What all texts of the column are.
    """

    n: int = 0
    n_missing: int = 0
    counts: dict[Any, tuple[int, int]] = field(default_factory=dict)  # value: (hash, rows)
    is_cut: bool = False
    has_numbers: bool = False
    has_texts: bool = False
    spells_numbers: bool = True
    spells_times: bool = True
    is_bool: bool = True
    moments: frozenset[str] = frozenset()  # with a time zone, without one, or both

    @classmethod
    def of(cls, column: RawColumn) -> Profile:
        """Look at some rows of a column."""
        return _of_numbers(column) if isinstance(column, Numbers) else _of_texts(column)

    def join(self, other: Profile) -> None:
        """Take in what was seen of further rows."""
        for value, (hash_, rows) in other.counts.items():
            self.counts[value] = (hash_, rows + self.counts.get(value, (0, 0))[1])
        self.n, self.n_missing = self.n + other.n, self.n_missing + other.n_missing
        self.is_cut |= other.is_cut
        self.has_numbers |= other.has_numbers
        self.has_texts |= other.has_texts
        self.spells_numbers &= other.spells_numbers
        self.spells_times &= other.spells_times
        self.is_bool &= other.is_bool
        self.moments |= other.moments
        self._cut()

    def _cut(self) -> None:
        if len(self.counts) > MOST_KEPT:
            kept = sorted(self.counts.items(), key=lambda item: (item[1][0], str(item[0])))
            self.counts, self.is_cut = dict(kept[:MOST_KEPT]), True

    @property
    def n_values(self) -> int:
        """How many different values there are; about so many where not all are kept."""
        if not self.is_cut:
            return len(self.counts)
        largest = max(hash_ for hash_, _ in self.counts.values())
        estimate = int((MOST_KEPT - 1) * 2.0**64 / (largest + 1))
        return min(estimate, self.n - self.n_missing)

    @property
    def kind(self) -> str:
        """The kind of the column by its values."""
        if not self.has_texts:
            return "boolean" if self.is_bool else "number"
        if self.spells_numbers:
            return "number"
        return "date" if self.spells_times and not self.has_numbers else "category"

    def median(self) -> float:
        """Give the middle one of the values that are kept, by their rows; a value that occurs."""
        pairs = sorted((float(value), rows) for value, (_, rows) in self.counts.items())
        total, seen = sum(rows for _, rows in pairs), 0
        for value, rows in pairs:
            seen += rows
            if 2 * seen >= total:
                return value
        return 0.0

    def texts(self) -> list[tuple[str, int]]:
        """Give the values as texts with their rows, the most frequent ones first."""
        rows_of: dict[str, int] = {}
        for value, (_, rows) in self.counts.items():
            text = value if isinstance(value, str) else spell_number(value)
            rows_of[text] = rows_of.get(text, 0) + rows
        return sorted(rows_of.items(), key=lambda item: (-item[1], item[0]))


def _of_numbers(column: Numbers) -> Profile:
    present = column.values[~np.isnan(column.values)] + 0.0
    values, rows = np.unique(present, return_counts=True)
    hashes = hash_columns([values], values.size)
    counts, is_cut = _smallest(values.tolist(), hashes, rows)
    n, missing = len(column), len(column) - present.size
    is_bool = column.kind == "bool"
    return Profile(n, missing, counts, is_cut, has_numbers=present.size > 0, is_bool=is_bool)


def _of_texts(column: Texts) -> Profile:
    numbers = column.as_numbers if column.levels else None
    rows = np.bincount(column.codes[column.codes >= 0], minlength=len(column.levels))
    digests = (hashlib.blake2b(level.encode(), digest_size=8).digest() for level in column.levels)
    hashes = np.array([int.from_bytes(d, "little") for d in digests], dtype=np.uint64)
    values: Sequence[Any] = column.levels
    spells_times = column.is_date or (numbers is None and column.as_times is not None)
    counts, is_cut = _smallest(values, hashes, rows)
    return Profile(
        len(column),
        int((column.codes < 0).sum()),
        counts,
        is_cut,
        has_texts=bool(column.levels),
        spells_numbers=numbers is not None or not column.levels,
        spells_times=spells_times or not column.levels,
        is_bool=not column.levels,
        moments=frozenset(filter(None, map(zone_kind, column.levels))),
    )


def _smallest(
    values: Sequence[Any], hashes: NDArray[np.uint64], rows: NDArray[np.int64]
) -> tuple[dict[Any, tuple[int, int]], bool]:
    kept = np.argsort(hashes, kind="stable")[:MOST_KEPT].tolist()
    counts = {values[i]: (int(hashes[i]), int(rows[i])) for i in kept}
    return counts, len(values) > MOST_KEPT


def joined_profiles(samples: Sequence[Mapping[str, Profile]]) -> dict[str, Profile]:
    """Put the profiles of samples together, as one multiset of rows."""
    joined: dict[str, Profile] = {}
    for key in samples[0]:
        joined[key] = Profile()
        for sample in samples:
            joined[key].join(sample[key])
    return joined


def compared_profiles(
    samples: Sequence[Mapping[str, Profile]], names: Sequence[str]
) -> dict[str, Profile]:
    """Put the profiles of samples that are compared together.

    A column that has values, and none in a sample that by chance would have some, is refused. A
    run that is refused rejects nothing.
    """
    joined = joined_profiles(samples)
    for sample, name in zip(samples, names, strict=True):
        gone = [
            f"column {key!r}"
            for key, own in sample.items()
            if 1 < own.n == own.n_missing and _none_by_chance(own, joined[key]) < _LEAST_CHANCE
        ]
        if gone:
            raise entirely_missing(name, gone, next(iter(sample.values())).n)
    return joined


def _none_by_chance(own: Profile, whole: Profile) -> float:
    return chance_of_none(own.n, whole.n - own.n, whole.n - whole.n_missing)


def profiles_of(
    samples: Sequence[Mapping[str, RawColumn]], names: Sequence[str]
) -> dict[str, Profile]:
    """Look at samples that are compared, as one multiset of rows."""
    seen = [{key: Profile.of(raw) for key, raw in sample.items()} for sample in samples]
    return compared_profiles(seen, names)

"""Which known normals are spent: digests of rows, and how many copies of each were used before.

A row is compared by its content, because users order, append and export rows anew. Rows that
repeat by nature are compared by their number of copies: if a batch used two rows of one content
and there are five now, three of them are fresh. Which three does not matter, as they are equal.
"""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import SpentRowsError
from conovel.rows.samples import Table, raw_numbers
from conovel.rows.tables import Rows
from conovel.runs.verdict_file import Digests


def row_digests(sample: Rows | Table, key: str) -> Digests:
    """Return a keyed digest of each row of a sample, whatever the order of its columns.

    Values are rounded to single precision before, in which one file may hold what another holds
    in double.
    """
    values = raw_numbers(sample)
    if sample.columns is not None:
        values = values[:, np.argsort(np.array(sample.columns, dtype=object), kind="stable")]
    single = np.where(np.isnan(values), np.nan, values).astype("<f4") + np.float32(0)
    secret = bytes.fromhex(key)
    digests = (hashlib.blake2b(row.tobytes(), key=secret, digest_size=8) for row in single)
    joined = b"".join(digest.digest() for digest in digests)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


class Copies(NamedTuple):
    """Rows as a multiset: different digests in ascending order, and the copies of each."""

    digests: Digests
    copies: NDArray[np.int64]

    @classmethod
    def of(cls, digests: Digests) -> Copies:
        """Count rows."""
        return cls(*np.unique(digests, return_counts=True))

    @property
    def repeats(self) -> bool:
        """Whether any row occurs twice."""
        return bool((self.copies > 1).any())

    def copies_of(self, digests: Digests) -> NDArray[np.int64]:
        """Return how many copies there are of each of some rows."""
        if not self.digests.size:
            return np.zeros(digests.shape, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.digests, digests), self.digests.size - 1)
        return np.where(self.digests[place] == digests, self.copies[place], 0)

    def contains(self, other: Copies) -> bool:
        """Tell whether all rows of another multiset are among these."""
        return bool((self.copies_of(other.digests) >= other.copies).all())

    def joined(self, other: Copies) -> Copies:
        """Return the rows that occur in either of two samples of known normals.

        Where one of them contains the other, rows were added, and it is the larger one. Otherwise
        rows of equal content are one row, which is certain only if no row repeats.
        """
        if other.contains(self):
            return other
        if self.contains(other):
            return self
        if self.repeats or other.repeats:
            raise SpentRowsError(
                "known normals of earlier batches were left out and others added, and rows repeat:"
                " nobody can tell which of them are spent. Give all known normals of the earlier"
                " batches, which train, and append fresh ones"
            )
        return Copies.of(np.union1d(self.digests, other.digests))


NO_ROWS = Copies(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))


def first_copies(digests: Digests, used: Copies) -> NDArray[np.bool_]:
    """Mark the rows that were used before: of each content as many copies as were used.

    Proof: Theorem 20 (docs/theory.md#thm-verdicts).

    Examples
    --------
    >>> rows = np.array([7, 5, 7, 7, 9], dtype=np.uint64)
    >>> first_copies(rows, Copies.of(np.array([7, 7, 9], dtype=np.uint64)))
    array([ True, False,  True, False,  True])
    """
    order = np.argsort(digests, kind="stable")
    ordered = digests[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(starts, ordered.size))
    number = np.zeros(digests.size, dtype=np.int64)  # 0 for the first copy of a content
    number[order] = np.arange(digests.size) - np.repeat(starts, lengths)
    return number < used.copies_of(digests)


def spent_mask(digests: Digests, spent: Copies) -> NDArray[np.bool_]:
    """Mark the known normals that are spent, or say that it cannot be told.

    If the earlier known normals are all among them, those that are left are exactly the rows that
    were added. If some are not, a fresh row could be taken for one of them where rows repeat. That
    would choose calibration rows by their content.
    """
    present = Copies.of(digests)
    if (present.repeats or spent.repeats) and not present.contains(spent):
        raise SpentRowsError(
            "known normals of earlier batches are missing, and rows repeat: nobody can tell which"
            " of the others are spent. Give all known normals of the earlier batches, which train,"
            " and append fresh ones"
        )
    marked = first_copies(digests, spent)
    again = int((spent.copies_of(digests[~marked]) > 0).sum())
    if again > _most_by_nature(spent.copies, digests.size - int(marked.sum())):
        raise SpentRowsError(
            f"{again:,} of the known normals that are not spent are equal to spent ones, which is"
            " more than by chance: rows were appended twice. Give every row once"
        )
    return marked


def same_rows(digests: Digests, tested: Copies) -> NDArray[np.bool_]:
    """Mark rows that are tested rows of an earlier batch, if they are more than by nature.

    Coarse data repeat. Then rows that agree are no sign that somebody put tested rows there, and
    to choose by it would choose rows by content. As of
    :func:`conovel.rows.tables.count_shared_rows`.
    """
    mask, own = first_copies(digests, tested), Copies.of(digests)
    if own.repeats and mask.sum() <= _most_by_nature(own.copies, int(tested.copies.sum())):
        return np.zeros_like(mask)
    return mask


def _most_by_nature(copies: NDArray[np.int64], n_others: int) -> float:
    """Return how many of other rows are equal to rows of a sample by nature, at most.

    The copies of the rows in the sample say how often rows repeat. Three standard deviations.
    """
    n_rows, n_repeated = max(int(copies.sum()), 1), int(copies[copies > 1].sum())
    by_nature = (n_repeated + 1) / n_rows * n_others
    return by_nature + 3 * math.sqrt(2 * by_nature * (1 + n_others / n_rows))

"""The rows that checks look at: all rows of a small sample, every 2^k-th row of a large one.

Which rows they are follows from the number of rows and columns alone. So files that are read in
pieces give the same findings as rows in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.rows.stored import RowSource

_MOST_ROWS = 1 << 14
_MOST_VALUES = 1 << 21
_FEWEST_ROWS = 64


def most_rows(width: int) -> int:
    """Return how many rows of a sample are looked at, at most.

    Examples
    --------
    >>> most_rows(10), most_rows(1000)
    (16384, 2097)
    """
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_VALUES // max(width, 1)))


def stride_of(n: int, most: int) -> int:
    """Return the smallest power of two of which at most so many multiples are below n.

    Examples
    --------
    >>> [stride_of(n, 100) for n in (100, 101, 401)]
    [1, 2, 8]
    """
    stride = 1
    while n > stride * most:
        stride *= 2
    return stride


class Looked(NamedTuple):
    """The rows that checks look at, of both samples of a site.

    Attributes
    ----------
    null, test : float arrays of shape (n', d) and (m', d)
        Every 2^k-th row.
    features : tuple of str
        Names of the columns of these arrays.
    sources : tuple of str
        For each of them, the column of the user's table that it comes from.
    n_null, n_test : int
        Numbers of all rows.
    """

    null: NDArray[np.float64]
    test: NDArray[np.float64]
    features: tuple[str, ...]
    sources: tuple[str, ...]
    n_null: int
    n_test: int

    @classmethod
    def of(cls, null: RowSource, test: RowSource) -> Looked:
        """Take the rows of both samples."""
        most = most_rows(null.width)
        features = null.columns or tuple(map(str, range(null.width)))
        known, tests = (
            rows.take(np.arange(0, len(rows), stride_of(len(rows), most))) for rows in (null, test)
        )
        return cls(
            known,
            tests,
            features,
            features if null.encoder is None else null.encoder.source,
            len(null),
            len(test),
        )

    def some(self, of_tests: NDArray[Any] | None) -> NDArray[Any] | None:
        """Take the entries of the test rows that are looked at, if there are any."""
        return None if of_tests is None else of_tests[:: self.test_stride]

    @property
    def null_stride(self) -> int:
        """Every how many known normals are looked at."""
        return stride_of(self.n_null, most_rows(len(self.features)))

    @property
    def test_stride(self) -> int:
        """Every how many test rows are looked at."""
        return stride_of(self.n_test, most_rows(len(self.features)))

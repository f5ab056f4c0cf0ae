"""Hashes of what a row holds, the same on every machine.

Folds and samples are drawn by these hashes, so that they do not depend on where a row stands and
equal rows share their fold. The upper bits assign folds, the lower ones draw samples.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from conovel.scorers.base import Matrix, Vector


def content_hash(rows: Matrix) -> NDArray[np.uint64]:
    """Hash the bytes of each row, the same on every machine.

    Examples
    --------
    >>> import numpy as np
    >>> a, b, c = content_hash(np.array([[0.0, 2.0], [3.0, 4.0], [-0.0, 2.0]]))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    return hash_columns(rows.T, len(rows))


def hash_columns(columns: Iterable[Vector], n: int) -> NDArray[np.uint64]:
    """Hash n rows that are held by columns."""
    # The finalizer of splitmix64, once for each column (Steele, Lea and Flood 2014).
    mixed = np.full(n, 0x9E3779B97F4A7C15, dtype=np.uint64)
    for values in columns:
        mixed ^= (values + 0.0).view(np.uint64)  # -0.0 is 0.0; contiguous, too
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(27)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed


def content_folds(rows: Matrix, n_folds: int) -> NDArray[np.int64]:
    """Assign rows to folds by their bytes alone, the same on every machine.

    Examples
    --------
    >>> import numpy as np
    >>> content_folds(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), 5).tolist()
    [4, 1, 4]
    """
    return ((content_hash(rows) >> np.uint64(33)) % np.uint64(n_folds)).astype(np.int64)

"""Rows by their content: a hash of the bytes of each row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def content_hash(rows: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Hash the bytes of each row, the same on every machine.

    Proof: Theorem 1 (docs/theory.md#thm-valid), Corollary 2 (docs/theory.md#cor-files).
    """
    return hash_columns(rows.T, len(rows))


def hash_columns(columns: Iterable[NDArray[np.float64]], n: int) -> NDArray[np.uint64]:
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

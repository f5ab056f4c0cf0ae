"""How many of its rows a number that leaves a site stands for, at least."""

from __future__ import annotations

# A site with fewer rows than these has a few novelties, which groups of five rows would hide
# (docs/privacy.md).
_FEW_ROWS = 400
LEAST_ROWS, LEAST_ROWS_OF_FEW = 5, 3


def least_rows(n_rows: int) -> int:
    """Return how many rows a leaf, a level or a cell that leaves a site stands for, at least.

    Parameters
    ----------
    n_rows : int
        The rows that a model is learnt from: null_train and the mixture together. This number
        does not depend on which rows of the mixture are calibration rows.

    Examples
    --------
    >>> least_rows(1_300), least_rows(133)
    (5, 3)
    """
    return LEAST_ROWS if n_rows >= _FEW_ROWS else LEAST_ROWS_OF_FEW

"""Numbers of things in words, for messages and pages."""

from __future__ import annotations


def counted(n: int, what: str) -> str:
    """Write a number of things; `what` is the word for one of them.

    Examples
    --------
    >>> counted(1, "row"), counted(1500, "row"), counted(2, "calibration row")
    ('1 row', '1,500 rows', '2 calibration rows')
    """
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"

"""Numbers of things in words, for messages and pages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any


def counted(n: int, what: str) -> str:
    """Write a number of things; `what` is the word for one of them.

    Examples
    --------
    >>> counted(1, "row"), counted(1500, "row"), counted(2, "batch")
    ('1 row', '1,500 rows', '2 batches')
    """
    ending = "es" if what.endswith("ch") else "s"
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{ending}"


def briefly(value: Any, most: int = 80) -> str:
    """Write any value for a message: at most so many characters, and never an error.

    Examples
    --------
    >>> briefly("a" * 100, 10), briefly(1 << 60_000)
    ("'aaaaaa...", 'a whole number of 60,001 bits')
    """
    if isinstance(value, int) and value.bit_length() > 4 * most:
        return f"a whole number of {value.bit_length():,} bits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # of a long number inside, or of deep nesting
        return f"a {type(value).__name__} that is too long"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def listed(names: Sequence[str], most: int = 20) -> str:
    """Name some things, the first ones of many.

    Examples
    --------
    >>> listed(["a", "b, c"]), listed(list("abcd"), 2)
    ("'a', 'b, c'", "'a', 'b' and 2 more")
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def joined(items: Sequence[str], most: int = 5) -> str:
    """Write some texts as they are, the first ones of many.

    Examples
    --------
    >>> joined(["a", "b"]), joined(list("abcd"), 2)
    ('a, b', 'a, b and 2 more')
    """
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def not_there(name: str, names: Sequence[str]) -> str:
    """Say what there is instead of a name: those like it, or else the first ones.

    Examples
    --------
    >>> not_there("Machine failure", ["id", "Machine_failure"]), not_there("x", ["a", "b"])
    ("did you mean 'Machine_failure'?", "there are 'a', 'b'")
    """
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there are {listed(names)}"

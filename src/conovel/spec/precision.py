"""How precisely models are sent: the values of ``bits``, and what each of them means.

None sends a model in float64. An integer is the paper's uniform quantizer with that many bits.
``"compact"`` sends a small forest that imitates the model, and ``"compact:300"`` the best such
forest of at most 300 bytes.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, TypeAlias

from conovel.errors import InputError
from conovel.stats.words import briefly

Bits: TypeAlias = int | str | None
COMPACT = "compact"
MAX_BITS = 16
_DIGITS = 9  # of a number of bytes


def as_bits(bits: Any) -> Bits:
    """Check a precision and return its one spelling.

    Parameters
    ----------
    bits : None, int or str
        None, an integer from 1 to 16, "compact", or "compact:300" for a compact model of at
        most 300 bytes.

    Examples
    --------
    >>> as_bits("compact:0300")
    'compact:300'
    """
    if bits is None:
        return None
    if isinstance(bits, str):
        name, colon, text = bits.partition(":")
        if name == COMPACT and not colon:
            return COMPACT
        if (
            name == COMPACT
            and text.isascii()
            and text.isdigit()
            and len(text) <= _DIGITS
            and int(text) > 0
        ):
            return f"{COMPACT}:{int(text)}"
    elif isinstance(bits, Integral) and not isinstance(bits, bool):
        return check_bits(int(bits))
    raise InputError(
        f"bits must be None, an integer from 1 to {MAX_BITS}, 'compact:BYTES' or 'compact', not"
        f" {briefly(bits)}"
    )


def exposure_note(bits: Bits) -> str:
    """Say what models of a stated precision give away; an empty text for compact models.

    Examples
    --------
    >>> exposure_note("compact")
    ''
    >>> print(exposure_note(4))
    models are sent with 4 bits instead of compact: rows behind a random forest are then told from
    others with AUC 0.71 (trees of depth 5) to 0.97 (of full depth), and 0.5 is a guess; see
    conovel privacy
    """
    if isinstance(bits, str):
        return ""
    sent, shallow, deep = f"with {bits} bits", "0.71", "0.97"
    if bits is None:
        sent, shallow, deep = "in float64", "0.81", "1.00"
    return (
        f"models are sent {sent} instead of compact: rows behind a random forest are then told"
        f" from others with AUC {shallow} (trees of depth 5) to {deep} (of full depth), and 0.5 is"
        " a guess; see conovel privacy"
    )


def check_bits(bits: int) -> int:
    """Return a number of bits if it can be the width of a quantizer."""
    if not isinstance(bits, Integral) or isinstance(bits, bool) or not 1 <= bits <= MAX_BITS:
        raise InputError(f"bits must be from 1 to {MAX_BITS}, not {briefly(bits)}")
    return int(bits)

"""What people see: text from outside as printable text, and results in a few words, never rows."""

from __future__ import annotations

import unicodedata
from html import escape


def printable(text: str) -> str:
    r"""Spell out what is not printable: every text from outside is shown through this function.

    A name can hold the sequences that steer a terminal, the end of a line and then a line that we
    never wrote, marks that turn the direction of writing, or bytes that are no text.

    Examples
    --------
    >>> print(printable("a\x1b[2Kb"), printable("x\ny"), printable("\u202egnp.exe"))
    a\x1b[2Kb x\ny \u202egnp.exe
    >>> printable("Größe [m²]")
    'Größe [m²]'
    """
    if text.isprintable():
        return text
    return "".join(c if _is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def _is_seen(character: str) -> bool:
    # Other spaces than the usual one are no printable characters for Python.
    return character.isprintable() or unicodedata.category(character) == "Zs"


class Shown:
    """Base of what shows itself by a few facts instead of all its fields."""

    def _shown(self) -> dict[str, str]:
        """Return the facts: a term and its value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = ", ".join(f"{term} {value}" for term, value in self._shown().items())
        return f"<{type(self).__name__}: {printable(facts)}>"

    def _repr_html_(self) -> str:
        lines = "".join(
            f'<tr><th scope="row" style="text-align: left">{escape(printable(term))}</th>'
            f'<td style="text-align: left">{escape(printable(value))}</td></tr>'
            for term, value in self._shown().items()
        )
        caption = f'<caption style="text-align: left">{type(self).__name__}</caption>'
        return f"<table>{caption}<tbody>{lines}</tbody></table>"

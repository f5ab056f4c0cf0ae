"""How results, runs and models show themselves in a notebook: in a few words, never with rows."""

from __future__ import annotations

from html import escape


class Shown:
    """Base of what shows itself by a few facts instead of all its fields."""

    def _shown(self) -> dict[str, str]:
        """Return the facts: a term and its value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        told = ", ".join(f"{term} {value}" for term, value in self._shown().items())
        return f"<{type(self).__name__}: {told}>"

    def _repr_html_(self) -> str:
        lines = "".join(
            f'<tr><th scope="row" style="text-align: left">{escape(term)}</th>'
            f'<td style="text-align: left">{escape(value)}</td></tr>'
            for term, value in self._shown().items()
        )
        caption = f'<caption style="text-align: left">{type(self).__name__}</caption>'
        return f"<table>{caption}<tbody>{lines}</tbody></table>"

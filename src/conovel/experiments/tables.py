"""Tables of results: means with standard errors, as Markdown, LaTeX and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from conovel.experiments.tasks import Row

_TEX = {"±": r"$\pm$", "δ": r"$\delta$", "α": r"$\alpha$", "–": "--", "%": r"\%", "_": r"\_"}


class Estimate(NamedTuple):
    """A mean over trials and its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        """Return the text that tables show."""
        return "" if np.isnan(self.mean) else f"{self.mean:.3f} ± {self.error:.3f}"


def estimate(values: Iterable[float | None]) -> Estimate:
    """Average over the trials that have a value.

    Examples
    --------
    >>> print(estimate([0.5, 0.7, None]))
    0.600 ± 0.100
    """
    present = np.array([v for v in values if v is not None], dtype=np.float64)
    if present.size == 0:
        return Estimate(np.nan, np.nan)
    error = present.std(ddof=1) / np.sqrt(present.size) if present.size > 1 else np.nan
    return Estimate(float(present.mean()), float(error))


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """Return the rows that have these values.

    Examples
    --------
    >>> where([{"regime": "full", "trial": 0}, {"regime": "split", "trial": 0}], regime="full")
    [{'regime': 'full', 'trial': 0}]
    """
    wanted = values.items()
    return [row for row in rows if all(row.get(name) == value for name, value in wanted)]


@dataclass(frozen=True)
class ResultTable:
    """A table of text, which can be written in several formats."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """Return the table as Markdown, with its title above."""
        lines = [self.columns, ("---", *["---:"] * (len(self.columns) - 1)), *self.rows]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(x)} |" for x in lines)])

    def to_latex(self) -> str:
        r"""Return the table as LaTeX.

        Examples
        --------
        >>> print(ResultTable("Power at δ", ("δ", "ours"), (("0", "0.9 ± 0.1"),)).to_latex())
        \begin{table}
        \centering
        \caption{Power at $\delta$}
        \begin{tabular}{lr}
        \hline
        $\delta$ & ours \\
        \hline
        0 & 0.9 $\pm$ 0.1 \\
        \hline
        \end{tabular}
        \end{table}
        """
        body = [" & ".join(map(_tex, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(_tex, self.columns)) + r" \\"
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(self.title)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain JSON types."""
        return {key: _lists(value) for key, value in asdict(self).items()}


def cell_text(rows: Sequence[Row], what: str) -> str:
    """Return one cell: ``power``, ``fdp``, or both as "power (FDR)"."""
    if not rows:
        return ""
    if what != "both":
        return str(estimate(row[what] for row in rows))
    false = estimate(row["fdp"] for row in rows)
    return f"{estimate(row['power'] for row in rows)} ({false.mean:.3f})"


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value

"""What a certificate adds to the first sentences of a page."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from conovel.errors import InputError
from conovel.report.sections import lead
from conovel.report.view import Checked
from conovel.spec.findings import certificate_words, percent
from conovel.stats.levels import as_level
from conovel.stats.words import counted


def certified_lead(run: Checked, n_rejected: int, level: float, where: str = "") -> str:
    """Return the sentences that say what a flag means, and what a certificate says besides."""
    if (
        "confidence" in run and "detector" not in run and n_rejected
    ):  # one site whose list a certificate chose
        sure = percent(_confidence(run))
        words = f"With {sure} probability at most {percent(level)} of the flagged rows are false."
    else:
        words = lead(n_rejected, level, where)
    if "certificate" in run:
        return _with_certificate(run.object("certificate"), words, n_rejected, level)
    if "certified" in run:
        part = run.object("certified")
        rows, sure = counted(part.integer("n_flagged"), "row"), percent(_confidence(part))
        words += f" A list of {rows} has at most {percent(level)} false with {sure} probability."
    return words


def _with_certificate(part: Checked, words: str, n_rejected: int, level: float) -> str:
    names = ("n_test", "n_flagged", "min_novelties", "max_false")
    most = part.object("most_novel")
    numbers: dict[str, Any] = {name: part.integer(name) for name in names}
    numbers["confidence"] = str(_confidence(part))
    numbers["most_novel"] = {name: most.integer(name) for name in ("rows", "min_novelties")}
    certified = certificate_words(as_level(level), numbers)
    return f"{words} {certified}" if n_rejected else certified


def _confidence(part: Checked) -> Fraction:
    try:
        return as_level(part.text("confidence"), "confidence")
    except InputError:
        part.refuse("confidence", "is not a probability between 0 and 1")

"""One spelling of a value, in whichever sample, type or file it stands.

A loader gives a column the type that the rows of one sample allow: numbers, or texts where one
value is no number. So 3, 3.0, "3" and "3.0" may be the same value in two samples, and a category
that took them for different levels would tell calibration rows from test rows. Here every value
gets one text, a function of the value alone. Where a type of one sample leaves open which value a
text of the other is, the column is refused.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterable

import numpy as np
import pyarrow.csv as pa_csv

from conovel.errors import ValueTypeError
from conovel.rows.tables import common_kind

# Texts that stand for a missing value, in files and in columns of texts.
NA_MARKERS = frozenset(
    {"?", "None", "<NA>", "NaT", *pa_csv.ConvertOptions().null_values}  # NaN, NA, null and others
)
# Kinds of values that are no plain numbers.
DATE, ZONED, TIME, DURATION = "date", "date with a time zone", "time of day", "duration"
TEXT = "text"
DATES = frozenset({DATE, ZONED})
_SPANS = frozenset({TIME, DURATION})
_LONGEST = 40  # characters; a longer text is no number of a column
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)
_HAS_DIGIT = re.compile(r"\d")
_TRUTHS = {"true": "1", "false": "0"}
_TRUTH_WORDS = frozenset({"yes", "no", "y", "n", "t", "f", "on", "off"})


def spells_number(text: str) -> bool:
    """Tell whether a text is a number."""
    return _NUMBER.fullmatch(text) is not None


def spell_number(value: float, kind: str = "float64") -> str:
    """Spell a number with the fewest digits that tell it from others of its type."""
    if kind in ("float16", "float32"):
        with np.errstate(over="ignore"):
            value = float(str(np.dtype(kind).type(value)))
    return repr(value + 0.0).removesuffix(".0")


def spell(text: str, kind: str = "float64") -> str | None:
    """Spell what a text stands for; None is a missing value.

    Numbers are rounded to `kind`, true and false are 1 and 0 as in columns of booleans, and a
    moment in ISO 8601 has one form, in UTC if it has a time zone.
    """
    text = text.strip()
    if text in NA_MARKERS:
        return None
    number = _number_in(text)
    if number is not None:
        return spell_number(number, kind)
    return _TRUTHS.get(text.lower()) or _moment_in(text) or text


def _number_in(text: str) -> float | None:
    """Give the number that a text prints; None where reading it would lose digits."""
    if len(text) > _LONGEST or not spells_number(text):
        return None
    number = float(text)
    if not math.isfinite(number):
        return None
    is_exact = _WHOLE.fullmatch(text) is None or int(text) == int(number)
    return number if is_exact else None


def _moment_in(text: str) -> str | None:
    if len(text) > _LONGEST or not _MOMENT.fullmatch(text):
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
        zoned = moment.tzinfo is not None
        moment = moment.astimezone(datetime.UTC).replace(tzinfo=None) if zoned else moment
    except (ValueError, OverflowError):
        return None
    if not zoned and moment.time() == datetime.time():
        return moment.date().isoformat()
    return moment.isoformat() + ("Z" if zoned else "")


def zone_kind(text: str) -> str | None:
    """Tell whether a text, spelled by :func:`spell`, is a moment, with a time zone or without."""
    if text[4:5] != "-" or _moment_in(text) is None:
        return None
    return ZONED if text.endswith("Z") else DATE


def number_kind(kinds: Collection[str]) -> str:
    """Give the type in which numbers of these kinds are compared."""
    return common_kind(kinds - DATES - _SPANS) if (kinds := set(kinds)) else "float64"


def require_one_meaning(kinds: Collection[str], label: str) -> None:
    """Refuse a column whose types have no common form: numbers and dates, for one."""
    different = set(kinds)
    plain = different - DATES - _SPANS
    meanings = sorted(different - plain) + (["number"] if plain else [])
    if len(meanings) > 1:
        raise ValueTypeError(
            f"{label} holds {_these(meanings)}, and no rule says which of them are equal: give the"
            " column one type in all samples and files"
        )


def respell(texts: Iterable[str], kinds: Collection[str], label: str) -> list[str | None]:
    """Spell texts of a column that holds values of these kinds, too, in any of the samples."""
    kind = number_kind(kinds)
    spelled = [spell(text, kind) for text in texts]
    for text in spelled:
        if text is not None and kinds and _is_ambiguous(text, set(kinds)):
            raise ValueTypeError(
                f"{label} holds values of type {_these(sorted(kinds))} and the text {text!r},"
                " which may be one of them in another spelling: give the column as texts in all"
                " samples and files, or mark that text as missing"
            )
    return spelled


def _is_ambiguous(text: str, kinds: set[str]) -> bool:
    """Tell whether a text, spelled by :func:`spell`, leaves open which value it is."""
    if kinds & DATES:
        return _moment_in(text) is None or text.endswith("Z") is not (ZONED in kinds)
    is_number = _number_in(text) is not None and not kinds & _SPANS
    has_digit = _HAS_DIGIT.search(text) is not None
    return not is_number and (has_digit or text.lower() in _TRUTH_WORDS)


def _these(words: Iterable[str]) -> str:
    return " and ".join(words)

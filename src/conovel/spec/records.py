"""Records from outside: JSON and TOML that a person, or an attacker, wrote.

A record is a frozen dataclass; the annotations of its fields say what they may be, with bounds as
``Annotated[int, msgspec.Meta(ge=2)]``. msgspec checks the values. An error names the field, what
it must be and what it is. Text is bounded in size and depth before anything is made of it: the
TOML parser of Python takes time that grows with the square of the parts of a dotted key, and both
parsers stop at deep nesting with a `RecursionError`.
"""

from __future__ import annotations

import re
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from conovel.errors import ConovelError, InputError
from conovel.stats.levels import as_fraction
from conovel.stats.words import briefly

T = TypeVar("T")
MAX_BYTES = 4 * 2**20
MAX_KEY_PARTS = 16
_MOST = 2**63
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_DIGITS = "64 hexadecimal digits"
Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z", description=_DIGITS)]
# Texts and comments, in which a dot separates nothing. Each is matched as far as it goes, so that
# a text without an end is looked at once.
_TEXTS = re.compile(
    r'"""(?:[^\\]|\\.)*?(?:"""|\Z)' + r"|'''.*?(?:'''|\Z)"
    r'|"(?:[^"\\\n]|\\.)*+"?' + r"|'[^'\n]*+'?" + r"|#[^\n]*+",
    re.DOTALL,
)
_PART = r"[^\s.=\[\],{}]++"
# It begins where a part begins, so that no character is looked at more than 17 times.
_LONG_KEY = re.compile(
    rf"(?<![^\s.=\[\],{{}}]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{MAX_KEY_PARTS}}}"
)
_HINTS: dict[Any, dict[str, Any]] = {}  # the annotations of each record
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    dict: "a table",
    Fraction: "a number such as 0.1 or '1/10'",
}


def as_record(kind: type[T], plain: Any, name: str = "") -> T:
    """Make a record of plain values; `name` is what they are called in an error.

    `kind` is a frozen dataclass. A field that is a record itself is made of a mapping.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Limits:
    ...     agents: Annotated[int, msgspec.Meta(ge=2)] = 2
    >>> as_record(Limits, {"agents": 3}, "site.toml").agents
    3
    >>> as_record(Limits, {"agents": True}, "site.toml")
    Traceback (most recent call last):
    conovel.errors.InputError: site.toml: agents must be a whole number from 2, not True
    """
    before = f"{name}: " if name else ""
    if not isinstance(plain, Mapping):
        raise InputError(f"{before}it must be a table, not {briefly(plain)}")
    own = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(map(str, set(plain) - set(own))):
        raise InputError(
            f"{before}there is no key {briefly(unknown[0])}; choose from {', '.join(own)}"
        )
    for field in own.values():
        if field.default is field.default_factory is MISSING and field.name not in plain:
            raise InputError(f"{before}it needs the key {field.name!r}")
    hints = _hints(kind)
    values = {key: _field_of(hints[key], value, key, name) for key, value in plain.items()}
    try:
        return kind(**values)
    except ConovelError as error:
        raise InputError(f"{before}{error}") from error


def check_fields(record: Any, name: str = "") -> None:
    """Bring every field of a frozen dataclass to the type of its annotation, or say which cannot.

    For records that are also made in Python; to be called when one is made.
    """
    for key, kind in _hints(type(record)).items():
        object.__setattr__(record, key, _field_of(kind, getattr(record, key), key, name))


def _field_of(kind: Any, value: Any, key: str, name: str) -> Any:
    """Give the value of a field as its annotation says."""
    before = f"{name}: " if name else ""
    records = [one for one in _alternatives(kind) if is_dataclass(one)]
    if records and isinstance(value, Mapping):
        own: Any = records[0]
        return (
            own.from_dict(value)
            if hasattr(own, "from_dict")
            else as_record(own, value, f"{before}[{key}]")
        )
    if records and isinstance(value, _alternatives(kind)):
        return value
    if records:
        raise InputError(f"{before}{key} must be a table, not {briefly(value)}")
    return as_value(kind, value, f"{before}{key}")


def as_value(kind: Any, value: Any, name: str) -> Any:
    """Give a value as an annotation says; `name` is what it is called in an error."""
    try:
        return msgspec.convert(value, kind, dec_hook=_read_custom)
    except (msgspec.ValidationError, UnicodeError, RecursionError, OverflowError):
        raise InputError(f"{name} must be {in_words(kind)}, not {briefly(value)}") from None


def _read_custom(kind: type, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    if kind is Fraction and isinstance(value, int | float | str) and not isinstance(value, bool):
        return as_fraction(str(value))
    raise ValueError(f"not a {kind.__name__}")


def _hints(kind: Any) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def in_words(kind: Any) -> str:
    """Say what a value of an annotation is.

    Examples
    --------
    >>> in_words(Annotated[int, msgspec.Meta(ge=1, le=9)]), in_words(tuple[str, ...] | None)
    ('a whole number from 1 to 9', 'a list, of each a text')
    >>> in_words(Literal["a", "b"])
    "'a' or 'b'"
    """
    if get_origin(kind) is Annotated:
        first, *metas = get_args(kind)
        return in_words(first) + "".join(map(_bounds, metas))
    if get_origin(kind) is Literal:
        few = " or ".join(map(repr, choices := get_args(kind)))
        return few if len(choices) < 3 else f"one of {', '.join(map(str, choices))}"
    if len(several := [one for one in _alternatives(kind) if one is not type(None)]) > 1:
        return " or ".join(map(in_words, several))
    (kind,) = several or (kind,)
    if get_origin(kind) in (list, tuple):
        return f"a list, of each {in_words(get_args(kind)[0])}"
    if is_dataclass(kind) or get_origin(kind) is dict:
        return "a table"
    return _WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")


def _bounds(meta: Any) -> str:
    if not isinstance(meta, msgspec.Meta):
        return ""
    if meta.description is not None:
        return f" ({meta.description})"
    words = (
        (meta.ge, "from"),
        (meta.gt, "above"),
        (meta.le, "to" if meta.ge is not None else "up to"),
        (meta.lt, "below"),
        (meta.pattern, "of the form"),
        (meta.min_length, "of a length from"),
        (meta.max_length, "of a length up to"),
    )
    return "".join(f" {word} {bound}" for bound, word in words if bound is not None)


def read_json(content: bytes | str, name: str, most: int = MAX_BYTES) -> Any:
    """Parse JSON; `name` is what the content is called in an error."""
    if len(content) > most:
        raise InputError(f"{name} has more than {most:,} bytes")
    try:
        return msgspec.json.decode(content)
    except RecursionError:
        raise InputError(f"{name} is not JSON: it is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(f"{name} is not JSON: {str(error)[:200]}") from None


def read_toml(content: bytes | str, name: str) -> dict[str, Any]:
    """Parse TOML; `name` is what the content is called in an error."""
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode() if isinstance(content, bytes) else content
    except UnicodeDecodeError:
        raise InputError(f"{name} is not TOML: it is not in UTF-8") from None
    if _LONG_KEY.search(_TEXTS.sub("s", text)):
        raise InputError(f"{name} has a key of more than {MAX_KEY_PARTS} parts")
    try:
        plain = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not TOML: {str(error)[:200]}") from None
    # Python cannot write long whole numbers in a message.
    if any(isinstance(one, int) and not -_MOST <= one < _MOST for one in _leaves(plain)):
        raise InputError(f"{name} has a whole number of more than 64 bits")
    return plain


def _leaves(plain: Any) -> Iterator[Any]:
    waiting = [plain]
    while waiting:
        match waiting.pop():
            case dict() as table:
                waiting += table.values()
            case list() as several:
                waiting += several
            case leaf:
                yield leaf

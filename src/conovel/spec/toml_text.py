"""TOML that a person, or an attacker, wrote: bounded before it is parsed.

The parser of Python takes time that grows with the square of the parts of a dotted key, stops at
deep nesting with a `RecursionError`, and reads integers that cannot be written again. So a text
has at most :data:`MAX_BYTES`, a key at most :data:`MAX_KEY_PARTS` parts, and an integer 64 bits,
as TOML itself says. Everything else is an :class:`conovel.errors.InputError`.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from conovel.errors import InputError

MAX_BYTES = 4 * 2**20
MAX_KEY_PARTS = 16
_MOST = 2**63
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


def read_toml(content: bytes | str, name: str) -> dict[str, Any]:
    r"""Parse TOML; `name` is what the content is called in an error.

    Examples
    --------
    >>> read_toml("[data]\nnull = 'normal.csv'", "site.toml")
    {'data': {'null': 'normal.csv'}}
    >>> read_toml("a." * 20 + "a = 1", "site.toml")
    Traceback (most recent call last):
    conovel.errors.InputError: site.toml has a key of more than 16 parts
    """
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
    _check_numbers(plain, name)
    return plain


def _check_numbers(plain: dict[str, Any], name: str) -> None:
    """Refuse integers of more than 64 bits: Python cannot write long ones in a message."""
    waiting: list[Any] = [plain]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, int) and not -_MOST <= one < _MOST:
            raise InputError(f"{name} has a whole number of more than 64 bits")

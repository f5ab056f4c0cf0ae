"""Changes of valid inputs: of bytes, of JSON trees, and of texts such as TOML."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

_BYTES = (0, 1, 2, 127, 128, 254, 255)
_TEXTS = ("", "x", "\0", "\ud800", "a" * 5000, "1" * 5000, "compact:" + "9" * 5000, "-1", "nan")
_NUMBERS = (0, -1, 1, 2, 0.5, 2**31, 2**63, 2**64, 10**4000, 1e308, float("nan"), float("inf"))
_OTHERS = (None, True, False, [], {}, [[]], {"": None}, [1], [1, 2, 3], {"kind": "number"})
_SNIPPETS = (
    "\0",
    "a." * 40 + "a = 1\n",
    "[" + "a." * 300 + "a]\n",
    "x = " + "[" * 3000,
    "x = " + "9" * 5000 + "\n",
    "x = 0x" + "f" * 5000 + "\n",
    "x = 1979-05-27T07:32:00Z\n",
    'x = """',
    "{",
    "[[data]]\n",
    "[data]\n",
    "nan",
    "inf",
    "true",
    "-1",
    "0x" + "f" * 5000,
    "9" * 5000,
    '"utf\\u0000"',
    "[]",
    "{}",
    "[1, 'a']",
)


def of_bytes(random: Random, data: bytes) -> bytes:
    """Flip, set, cut, insert or copy a few bytes."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(changed) + 1)
        match random.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << random.randrange(8)
            case 1 if at < len(changed):
                changed[at] = random.choice(_BYTES)
            case 2:
                del changed[at : at + random.randint(1, 8)]
            case 3:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case 4:
                start = random.randrange(len(changed) + 1)
                changed[at:at] = changed[start : start + random.randint(1, 32)]
            case _:
                changed[at : at + 4] = random.choice((0, 1, 2**31, 2**32 - 1)).to_bytes(
                    4, "little"
                )
    return bytes(changed)


def of_tree(random: Random, plain: Any) -> Any:
    """Change a few places of a JSON tree: other values and types, missing and further keys."""
    changed = deepcopy(plain)
    for _ in range(random.randint(1, 3)):
        places = list(_places(changed))
        if not places:
            return changed
        holder, key = random.choice(places)
        _change_place(random, holder, key, random.choice(places))
    return changed


def _change_place(random: Random, holder: Any, key: Any, other: Any) -> None:
    """Change one place of a tree; `other` is a place of which it may become a copy."""
    value = holder[key]
    match random.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[random.choice(_TEXTS)] = value
        case 1:
            holder.insert(random.randrange(len(holder) + 1), deepcopy(value))
        case 2:
            holder[key] = deepcopy(other[0][other[1]])
        case 3:
            holder[key] = random.choice(_TEXTS)
        case 4 | 5:
            holder[key] = random.choice(_NUMBERS)
        case 6:
            holder[key] = deepcopy(random.choice(_OTHERS))
        case _:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            holder[key] = value + random.choice((-1, 1)) if is_number else str(value)[:100]


def of_text(random: Random, text: str) -> str:
    """Insert hostile pieces, change values, cut and swap lines, and change single characters."""
    for _ in range(random.randint(1, 3)):
        lines = text.splitlines(keepends=True) or [""]
        at = random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                lines.insert(at, random.choice(_SNIPPETS))
            case 1 if "=" in lines[at]:
                key = lines[at].partition("=")[0]
                lines[at] = f"{key}= {random.choice(_SNIPPETS)}\n"
            case 2:
                del lines[at]
            case 3:
                lines.append(lines[at])
            case 4:
                other = random.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                data = of_bytes(random, "".join(lines).encode())
                lines = [data.decode(errors="replace")]
        text = "".join(lines)
    return text


def as_json(plain: Any) -> bytes:
    """Write a tree as JSON, with halves of pairs and numbers that are none."""
    return json.dumps(plain).encode()


def _places(plain: Any) -> Any:
    """Give every place of a tree: what holds it, and its key there."""
    waiting = [plain]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else range(len(one))
            yield from ((one, key) for key in keys)
            waiting += one.values() if isinstance(one, dict) else one

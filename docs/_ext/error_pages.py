"""The page about errors, made from the records that ``conovel explain`` prints.

It is in the repository, so that it can be read without a build: after a change of
`src/conovel/errors.toml`, run ``python docs/_ext/error_pages.py``.
"""

from __future__ import annotations

import os.path
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paths import DOCS, ROOT, write_if_changed

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

PAGE = DOCS / "errors.md"
RECORDS = ROOT / "src" / "conovel" / "errors.toml"
FAMILIES = {
    "0": "All errors",
    "1": "Arguments and rows",
    "2": "Files",
    "3": "Extras and clusters",
    "4": "Federations",
    "5": "Runs between agents",
    "6": "Bytes of a model",
    "7": "Warnings",
}
MADE = "<!-- made from src/conovel/errors.toml by docs/_ext/error_pages.py: change it there -->\n"


def records() -> Mapping[str, Mapping[str, Any]]:
    """Return the record of each number."""
    return tomllib.loads(RECORDS.read_text(encoding="utf-8"))


def text() -> str:
    """Return the whole page: its beginning as it is, and what is made."""
    begin, _, _ = PAGE.read_text(encoding="utf-8").partition(MADE)
    return begin + MADE + "\n" + "\n".join([*_contents(), *_parts()]).strip() + "\n"


def _contents() -> Iterator[str]:
    families = dict.fromkeys(FAMILIES[code[3]] for code in records())
    yield " · ".join(f"[{name}](#{name.lower().replace(' ', '-')})" for name in families) + "\n"
    yield "| number | class | in one sentence |"
    yield "|---|---|---|"
    for code, record in records().items():
        first = re.split(r"(?<=\.) (?=[A-Z`])", record["means"])[0]
        yield f"| [{code}](#{code.lower()}) | {_class_of(record)} | {first} |"
    yield ""


def _parts() -> Iterator[str]:
    family = ""
    for code, record in records().items():
        if code[3] != family:
            family = code[3]
            yield f"## {FAMILIES[family]}\n"
        name = _class_of(record)
        yield f"### {code}\n\n{name + ': ' if name else ''}{record['means']}\n"
        if "example" in record:
            yield f"```text\n{record['example']}\n```\n"
        if record["cases"]:
            yield "| message | cause | what to do |\n|---|---|---|"
            yield from map(_row, record["cases"])
            yield ""


def _class_of(record: Mapping[str, Any]) -> str:
    return f"`{record['class']}`" if "class" in record else ""


def _row(case: Mapping[str, str]) -> str:
    fix = _as_code(case["fix"])
    if "see" in case:
        fix += f"; see [{title(case['see'])}]({case['see']})"
    message, tick = case["message"].strip(), "`" if "`" not in case["message"] else "``"
    return f"| {tick}{message}{tick} | {_as_code(case['cause'])} | {fix} |"


def _as_code(words: str) -> str:
    """Mark options as code: Sphinx would make one dash of two."""
    parts = words.split("`")
    parts[::2] = [re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def title(page: str) -> str:
    """Return the title of a page."""
    path = DOCS / os.path.normpath(page)
    return re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)[1]  # type: ignore[index]


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the page before Sphinx looks for sources."""
    app.connect("builder-inited", lambda app: write_if_changed(PAGE, text()))
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    write_if_changed(PAGE, text())

"""Give links without a text the title of what they lead to, so that pages read well as files.

Without an argument it lists them, and the exit code is 1 if there are any. With `write` it fills
them in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EMPTY = re.compile(r"\[\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ +(.*?)(?: *\{#.*\})?$", re.MULTILINE)
_LABELLED = re.compile(r"^\(([\w-]+)\)=\n+(?:#+ +|:::\{admonition\} +)(.*)$", re.MULTILINE)


def pages() -> list[Path]:
    """Return all pages that are written by hand."""
    made = {"_build", "_generated"}
    docs = (p for p in (ROOT / "docs").rglob("*.md") if not made & set(p.parts))
    return sorted([*ROOT.glob("*.md"), *docs])


def empty_links() -> Iterator[tuple[Path, str]]:
    """Give the links without a text, each with its page."""
    for page in pages():
        for link in EMPTY.finditer(page.read_text(encoding="utf-8")):
            yield page, link[0]


def title(page: Path, anchor: str | None = None) -> str:
    """Return the title of a page, or of the part of it that an anchor names."""
    text = page.read_text(encoding="utf-8")
    headings = _HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    if anchor is None:
        return str(headings[0])
    labelled = dict(_LABELLED.findall(text))
    return str(labelled.get(anchor) or {slug(one): one for one in headings}[anchor])


def slug(heading: str) -> str:
    """Return the anchor that a heading has by itself."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()))


def filled(page: Path) -> str:
    """Return a page with a text in each of its links."""

    def link(match: re.Match[str]) -> str:
        target = (page.parent / match[1]).resolve() if match[1] else page
        return f"[{title(target, match[2])}]{match[0][2:]}"

    return EMPTY.sub(link, page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] == ["write"]:
        for changed in {page for page, _ in empty_links()}:
            changed.write_text(filled(changed), encoding="utf-8")
    left = [f"{page.relative_to(ROOT)}: {link}" for page, link in empty_links()]
    print("\n".join(left))
    sys.exit(bool(left))

"""Where the pages that are made at build time go, and how they are written."""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
GENERATED = DOCS / "_generated"  # in .gitignore


def write_if_changed(page: Path, text: str) -> None:
    """Leave the file alone when nothing changed, so that Sphinx does not read it again."""
    page.parent.mkdir(parents=True, exist_ok=True)
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")

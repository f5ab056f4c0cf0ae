"""The gallery: cards with pictures from the executed pages, and where their outputs are kept.

A page of the gallery is a notebook in Markdown. The build executes it and keeps its outputs in a
folder that is named after the sources of the package. So unchanged pages are not executed again,
and a page never shows the outputs of another version of the code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from paths import DOCS, ROOT
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def sources_digest() -> str:
    """Return a digest of the package and of the versions that it is installed with."""
    package = ROOT / "src" / "conovel"
    files = sorted(path for path in package.rglob("*") if path.suffix not in ("", ".pyc"))
    digest = hashlib.sha256()
    for path in [*files, ROOT / "constraints.txt"]:
        name, content = path.relative_to(ROOT).as_posix().encode(), path.read_bytes()
        digest.update(b"%d %s %d " % (len(name), name, len(content)) + content)
    return digest.hexdigest()[:16]


class Card(nodes.container):
    """The place of one page on the index; it is filled when all pages were executed."""


class GalleryCards(SphinxDirective):
    """One card for each page that is named in the content, in that order."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Make the empty cards, and read the index again when a page changes."""
        cards = nodes.container(classes=["gallery"])
        for page in (line.strip() for line in self.content if line.strip()):
            source = Path(self.env.doc2path(page))
            if not source.exists():
                raise self.error(f"the gallery has no page {page}")
            self.env.note_dependency(source.relative_to(DOCS).as_posix())
            cards += Card(page=page, classes=["gallery-card"])
        return [cards]


def fill_cards(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each card the first picture, the title and the first paragraph of its page."""
    for card in list(doctree.findall(Card)):
        page = app.env.get_doctree(card["page"])
        link = app.builder.get_relative_uri(docname, card["page"])
        title = app.env.titles[card["page"]].astext()
        picture = next(page.findall(nodes.image), None)
        if picture is None:
            raise ValueError(f"{card['page']} draws no picture for its card")
        shown = nodes.image(uri=picture["uri"], candidates=picture["candidates"], alt=title)
        name = nodes.reference("", "", nodes.strong(text=title), refuri=link, internal=True)
        summary = next(page.findall(nodes.paragraph)).astext()
        parts = [
            nodes.reference("", "", shown, refuri=link, internal=True),
            nodes.paragraph("", "", name),
            nodes.paragraph(text=summary),
        ]
        # A writer knows containers; it does not know cards.
        card.replace_self(nodes.container("", *parts, classes=card["classes"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_node(Card)
    app.add_directive("gallery-cards", GalleryCards)
    app.connect("doctree-resolved", fill_cards)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Every link of the documentation has a text, so that pages are readable as files."""

import importlib.util
import re
import sys

import pytest
from support.paths import ROOT


@pytest.fixture(scope="module")
def links():
    path = ROOT / "packaging" / "link_texts.py"
    spec = importlib.util.spec_from_file_location("link_texts", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["link_texts"] = module
    spec.loader.exec_module(module)
    return module


def test_no_link_is_without_a_text(links):
    assert len(links.pages()) > 50
    assert [f"{page.name}: {link}" for page, link in links.empty_links()] == []


def test_a_link_gets_the_title_of_its_page_or_part(links, tmp_path):
    (tmp_path / "a.md").write_text("# One page\n\n## Two *words*, here\n\n(lab)=\n### Named\n")
    page = tmp_path / "b.md"
    page.write_text("See [](a.md), [](a.md#two-words-here), [](a.md#lab) and [so](a.md).\n")
    assert links.filled(page) == (
        "See [One page](a.md), [Two *words*, here](a.md#two-words-here), [Named](a.md#lab) and"
        " [so](a.md).\n"
    )


LONG = 400  # lines


def test_a_long_page_begins_with_a_list_of_its_parts(links):
    """The list works in the built pages, and where the file itself is shown."""
    missing = []
    for page in links.pages():
        text = page.read_text(encoding="utf-8")
        if page.parent == ROOT or text.count("\n") <= LONG:
            continue
        outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        before, *_ = re.split(r"^## ", outside, maxsplit=1, flags=re.MULTILINE)
        listed = set(re.findall(r"\[[^\]]+\]\(#([^)]+)\)", before))
        parts = re.findall(r"^## +(.*)$", outside, re.MULTILINE)
        missing += [f"{page.name}: {part}" for part in parts if links.slug(part) not in listed]
    assert missing == []


def test_the_glossary_lists_the_terms_of_each_part(links):
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    parts = re.findall(r"^## (.*?)\n+```\{glossary\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(parts) == 4
    for part, terms in parts:
        wanted = sorted(re.findall(r"^(\S.*)$", terms, re.MULTILINE), key=str.casefold)
        [index] = re.findall(
            rf"^- \[{part}\]\(#{links.slug(part)}\): (.*?)\n(?=[-\n])", text, re.M | re.S
        )
        assert " ".join(index.split()) == ", ".join(wanted) + "."


def test_figures_of_the_page_of_promises_stand_on_their_sources():
    docs = ROOT / "docs"
    text = (docs / "promises.md").read_text(encoding="utf-8")
    [part] = re.findall(r"^## Measured figures\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\|[^|]*\| ([^|]*) \| \[[^\]]+\]\(([^)]+)\) \|$", part, re.MULTILINE)
    assert len(rows) >= 10
    for figures, source in rows:
        there = (docs / source).read_text(encoding="utf-8")
        assert [one for one in figures.split(", ") if one not in there] == [], source


# Words that promise or fill instead of saying something.
EMPTY_WORDS = re.compile(
    r"\b(basically|battle-tested|blazing(ly)?|boilerplate|cutting[- ]edge|delves?|easily"
    r"|effortless(ly)?|game[- ]chang\w+|in order to|just|leverag(e|es|ed|ing)|magical(ly)?"
    r"|obviously|of course|out of the box|painless(ly)?|seamless(ly)?|simply"
    r"|state[- ]of[- ]the[- ]art|under the hood|utili[sz](e|es|ed|ing|ation))\b",
    re.IGNORECASE,
)


def test_pages_do_without_empty_words(links):
    found = []
    for page in links.pages():
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
        found += [f"{page.name}: {word[0]}" for word in EMPTY_WORDS.finditer(prose)]
    assert found == []

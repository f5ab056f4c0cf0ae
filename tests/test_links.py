"""Every link of the documentation has a text, so that pages are readable as files."""

import importlib.util
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

"""The page about threats names tests that exist, and leaves no row without one."""

import re

import pytest
from support.paths import DOCS, ROOT

PAGE = (DOCS / "threats.md").read_text(encoding="utf-8")
ADVERSARIES = (
    "A member",
    "A coalition of members",
    "The coordinator",
    "The relay",
    "An operator",
    "An outsider",
    "A thief of a kit",
    "People near a site",
)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_that_the_page_names_exists(path, name):
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("who", ADVERSARIES)
def test_every_adversary_has_a_section_that_says_what_is_not_stopped(who):
    _, _, section = PAGE.partition(f"\n## {who}\n")
    assert "**Not stopped:**" in section.partition("\n## ")[0]


def test_every_row_names_a_test_or_says_that_there_is_none():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "---" not in line]
    told = [row.rstrip("| ").rpartition("|")[2].strip() for row in rows]
    assert len(told) > 30
    assert [
        cell for cell in told if "::" not in cell and cell not in ("test", "–", "the proof")
    ] == []

"""What the README names exists. Its examples and commands are run by tests/test_bare.py."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_the_make_targets_and_the_marker():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    assert "`slow`" in README


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md"])
def test_pictures_and_links_exist(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if "://" not in link and not (ROOT / link).is_file()] == []

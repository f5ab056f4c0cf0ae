"""What the README promises is run here; tests/test_docs.py does the same for the pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_examples_run_one_after_the_other(capsys, few_trees):
    said = ["isolated: ", "joint: ", "of 100 novelties", "FDR over all", "of 20 novelties found"]
    names = {}
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert [words for words in said if words not in printed] == []


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

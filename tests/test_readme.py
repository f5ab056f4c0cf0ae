"""What the README promises is run here."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
def test_python_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert "of 20 novelties found" in capsys.readouterr().out


def test_the_readme_names_the_make_targets_and_the_marker():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    assert "`slow`" in README


def test_the_pictures_exist():
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (Path(__file__).parent.parent / picture).is_file(), picture

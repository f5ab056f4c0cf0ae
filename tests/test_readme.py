"""What the README and the tutorial promise is run here."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("README.md", ["of 20 novelties found", "rows flagged in", "'messages': 6"]),
        ("docs/tutorial.md", ["full", "('south',)", "Resolution(fewest=60"]),
    ],
)
@pytest.mark.filterwarnings("ignore::conovel.errors.ResolutionWarning")
def test_python_examples_run_one_after_the_other(file, said, capsys):
    text = (ROOT / file).read_text(encoding="utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(code, file, "exec"), names)
    printed = capsys.readouterr().out
    assert [words for words in said if words not in printed] == []


def test_the_readme_names_the_make_targets_and_the_marker():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make ([\w-]+)", README):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    assert "`slow`" in README


def test_the_pictures_exist():
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).is_file(), picture

"""Every function that carries a guarantee names its theorem, and is as somebody confirmed it."""

import importlib.util
import re
import shutil

import pytest
from support.paths import ROOT

spec = importlib.util.spec_from_file_location("proofs", ROOT / "packaging" / "proofs.py")
proofs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(proofs)


@pytest.fixture
def copy(tmp_path):
    """A project of one module and one theorem."""
    for path in ("docs", "tests", "src/conovel"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "tests" / "test_one.py").touch()
    (tmp_path / "docs" / "theory.md").write_text(
        "(thm-one)=\n:::{admonition} Theorem 1 (one)\n:class: statement\n\nOne is one.\n\n"
        "*Held by:* `tests/test_one.py`.\n:::\n"
    )
    (tmp_path / "src/conovel" / "one.py").write_text(
        'def one():\n    """Return one.\n\n    Proof: Theorem 1 (docs/theory.md#thm-one).\n'
        '    """\n    return 1\n'
    )
    proofs.confirm(["--all"], tmp_path)
    return tmp_path


def edit(root, path, old, new):
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new))


def test_this_project_is_as_it_was_confirmed():
    assert list(proofs.faults()) == []


def test_comments_and_docstrings_may_change(copy):
    edit(copy, "src/conovel/one.py", "    return 1", "    # a number\n    return  1")
    edit(copy, "src/conovel/one.py", "Return one", "Give one")
    assert list(proofs.faults(copy)) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "fault"),
    [
        ("src/conovel/one.py", "return 1", "return 2", "one.one changed"),
        ("src/conovel/one.py", "def one", "def two", "one.one is in docs/proofs.toml"),
        ("src/conovel/one.py", "Theorem 1 ", "Theorem 2 ", "Theorem 2 .* there is none"),
        ("src/conovel/one.py", "#thm-one", "#thm-two", "#thm-two.*there is none"),
        ("src/conovel/one.py", "(docs/theory.md#thm-one)", "", "one.one: write  Proof: "),
        ("docs/theory.md", "One is one.", "One is two.", "thm-one changed"),
        ("docs/theory.md", "test_one.py", "test_two.py", "test_two.py: there is none"),
        ("docs/theory.md", "*Held by:*", "See", "has no line"),
    ],
)
def test_a_change_without_a_look_at_the_proof_is_noticed(copy, path, old, new, fault):
    edit(copy, path, old, new)
    listed = "\n".join(proofs.faults(copy))
    assert re.search(fault, listed), listed


def test_who_confirms_is_shown_the_tests(copy):
    edit(copy, "src/conovel/one.py", "return 1", "return 2")
    assert proofs.confirm(["one.one"], copy) == ["tests/test_one.py"]
    assert list(proofs.faults(copy)) == []
    with pytest.raises(SystemExit, match="two"):
        proofs.confirm(["two"], copy)
    shutil.rmtree(copy / "src")
    assert proofs.confirm(["--all"], copy) == []

"""No variable is called by a bare verb: a name says what it holds (docs/glossary.md)."""

import ast

import pytest
from support.paths import ROOT

VERBS = {"said", "told", "found", "asked", "looked", "known"}
PACKAGE = ROOT / "src" / "conovel"


def bare_verbs(tree):
    """Yield the names of variables, parameters, fields and loops that are a verb by itself."""
    for node in ast.walk(tree):
        is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        name = node.id if is_stored else getattr(node, "arg", None)
        if (is_stored or isinstance(node, ast.arg)) and name.strip("_") in VERBS:
            yield f"{node.lineno}: {name}"


def test_no_variable_is_a_bare_verb():
    places = {
        path.relative_to(PACKAGE).as_posix(): list(bare_verbs(ast.parse(path.read_text("utf-8"))))
        for path in PACKAGE.rglob("*.py")
    }
    # A key of site.toml is called as it is there.
    places["federation/settings.py"] = [
        name for name in places["federation/settings.py"] if not name.endswith(": known")
    ]
    assert {path: names for path, names in places.items() if names} == {}


@pytest.mark.parametrize(
    "code", ["found = 1", "def f(said): ...", "[x for known in y]", "class A:\n    told: int"]
)
def test_a_bare_verb_is_noticed(code):
    assert len(list(bare_verbs(ast.parse(code)))) == 1

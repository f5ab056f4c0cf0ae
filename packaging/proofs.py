"""Proof beside code: the functions that a theorem is about, and whether they have changed.

    python packaging/proofs.py check              # part of `make check`
    python packaging/proofs.py list               # every theorem, its functions and its tests
    python packaging/proofs.py confirm NAME...    # after reading the proof and running its tests
    python packaging/proofs.py confirm --all

A function that carries a guarantee has a line such as

    Proof: Theorem 10 (docs/theory.md#thm-joint).

in its docstring. `docs/proofs.toml` has a digest of each such function, without comments and
docstrings, and of each statement that they name. If either changes, `check` fails until somebody
has read the proof again and confirms it in the same change. Every statement has a line "Held by"
that names tests. Needs the standard library only.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_HEAD = "# Written by  python packaging/proofs.py confirm NAME;  see CONTRIBUTING.md.\n"
_PROOF = re.compile(r"^\s*Proof: (.*?\.)$", re.MULTILINE | re.DOTALL)
_CITED = re.compile(r"([A-Z][a-z]+(?: \d+)?)(?:\([a-z]\))?\s+\(docs/theory\.md#([a-z-]+)\)")
_STATEMENT = re.compile(
    r"^\(([a-z-]+)\)=\n:::\{admonition\} (.*?)\n(.*?)^:::$", re.MULTILINE | re.DOTALL
)
_HELD = re.compile(r"^\*Held by:\*.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
# Of the tree of a function: what differs between versions of Python and says nothing.
_LEFT_OUT = {"type_comment", "type_params", "kind", "ctx"}


class Function(NamedTuple):
    """A function or class with a line `Proof:`."""

    name: str
    cited: tuple[tuple[str, str], ...]  # (number, label) of each theorem
    digest: str


class Statement(NamedTuple):
    """A theorem, lemma, corollary or proposition of docs/theory.md."""

    label: str
    title: str
    digest: str
    tests: tuple[str, ...]


def plain(node: object) -> object:
    """Return a syntax tree as nested lists, the same for all versions of Python."""
    if isinstance(node, list):
        return [plain(item) for item in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    body = fields.get("body")
    if isinstance(body, list) and isinstance(node, ast.FunctionDef | ast.ClassDef):
        fields["body"] = [item for i, item in enumerate(body) if i or not _is_text(item)]
    return [type(node).__name__] + [
        [name, plain(value)]
        for name, value in fields.items()
        if name not in _LEFT_OUT and value not in (None, [])
    ]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def digest(thing: object) -> str:
    """Return 64 bits of the SHA-256 of what a thing prints."""
    return hashlib.sha256(repr(thing).encode()).hexdigest()[:16]


def functions(package: Path = ROOT / "src" / "conovel") -> Iterator[Function]:
    """Yield all functions, methods and classes that name a proof."""
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Proof: " not in text:
            continue
        module = ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        yield from _inside(module, ast.parse(text).body)


def _inside(owner: str, body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{owner}.{node.name}"
            if proof := _PROOF.search(ast.get_docstring(node) or ""):
                cited = tuple((number, label) for number, label in _CITED.findall(proof[1]))
                yield Function(name, cited, digest(plain(node)))
            if isinstance(node, ast.ClassDef):
                yield from _inside(name, node.body)


def statements(page: Path = ROOT / "docs" / "theory.md") -> dict[str, Statement]:
    """Return the statements of the page, by label."""
    listed = {}
    for label, title, text in _STATEMENT.findall(page.read_text(encoding="utf-8")):
        held = "\n".join(_HELD.findall(text))
        words = " ".join(_HELD.sub("", text).split())
        tests = tuple(re.findall(r"`(tests/[\w./-]+)`", held))
        listed[label] = Statement(label, title, digest((title, words)), tests)
    return listed


def read(root: Path) -> tuple[dict[str, Function], dict[str, Statement], dict[str, str]]:
    """Return the functions and the statements by name, and the digests that were confirmed."""
    path = root / "docs" / "proofs.toml"
    confirmed = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    carriers = {function.name: function for function in functions(root / "src" / "conovel")}
    return carriers, statements(root / "docs" / "theory.md"), confirmed


def faults(root: Path = ROOT) -> Iterator[str]:
    """Yield what is not as the page and the file of digests say."""
    carriers, stated, confirmed = read(root)
    for label, statement in stated.items():
        if not statement.tests:
            yield f"docs/theory.md#{label} has no line *Held by:* that names a test"
        missing = [test for test in statement.tests if not (root / test).exists()]
        yield from (f"docs/theory.md#{label} names {test}: there is none" for test in missing)
    for function in carriers.values():
        if not function.cited:
            yield f"{function.name}: write  Proof: Theorem 10 (docs/theory.md#thm-joint)."
        cited = [(label, number, stated.get(label)) for number, label in function.cited]
        for label, number, one in cited:
            if one is None or one.title.split(" (")[0] != number:
                yield f"{function.name} names {number} (docs/theory.md#{label}): there is none"
    digests = _digests(carriers, stated)
    for name in sorted(confirmed.keys() - digests.keys()):
        yield f"{name} is in docs/proofs.toml, and nothing of that name has a proof any more"
    for name in sorted(digests):
        if confirmed.get(name) != digests[name]:
            yield f"{name} changed: read the proof again and run its tests, then confirm {name}"


def _digests(carriers: dict[str, Function], stated: dict[str, Statement]) -> dict[str, str]:
    """Return the digests of all functions with a proof, and of the statements that they name."""
    labels = {label for function in carriers.values() for _, label in function.cited}
    used = {label: stated[label].digest for label in labels if label in stated}
    return used | {name: function.digest for name, function in carriers.items()}


def confirm(names: list[str], root: Path = ROOT) -> list[str]:
    """Write the digests of these functions and statements, or of all; return their tests."""
    carriers, stated, confirmed = read(root)
    digests = _digests(carriers, stated)
    wanted = set(digests) if names == ["--all"] else set(names)
    if unknown := wanted - digests.keys():
        raise SystemExit(f"nothing with a proof is called {', '.join(sorted(unknown))}")
    confirmed |= {name: digests[name] for name in wanted}
    lines = [f'"{name}" = "{confirmed[name]}"\n' for name in sorted(confirmed.keys() & digests)]
    (root / "docs" / "proofs.toml").write_text("".join([_HEAD, *lines]), encoding="utf-8")
    labels = wanted | {
        label for name in wanted & carriers.keys() for _, label in carriers[name].cited
    }
    return sorted({test for label in labels & stated.keys() for test in stated[label].tests})


def table(root: Path = ROOT) -> str:
    """Return a table: each statement, the functions it is about, the tests that hold it."""
    carriers, stated, _ = read(root)
    lines = ["| statement | functions | held by |", "|---|---|---|"]
    for label, one in stated.items():
        cells = (
            [
                f"`conovel.{name}`"
                for name, own in carriers.items()
                if label in dict(own.cited).values()
            ],
            [f"`{test}`" for test in one.tests],
        )
        code, tests = (", ".join(cell) or "–" for cell in cells)
        lines.append(f"| [{one.title.split(' (')[0]}](#{label}) | {code} | {tests} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> int:
    """Check, list or confirm."""
    if arguments[:1] == ["check"]:
        listed = list(faults())
        print(
            "\n".join(listed) or "every function that carries a guarantee is as it was confirmed"
        )
        return bool(listed)
    if arguments == ["list"]:
        print(table())
        return 0
    if arguments[:1] == ["confirm"] and len(arguments) > 1:
        print("held by:", *confirm(arguments[1:]), sep="\n  ")
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

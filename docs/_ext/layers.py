"""The drawing of the layers and the table module → layer, made from the tree itself.

The order of the layers is that of the import contract in ``pyproject.toml``. The summary of a
module is the first line of its docstring.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from paths import GENERATED, ROOT, write_if_changed

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

PACKAGE = ROOT / "src" / "conovel"
TABLE = GENERATED / "modules.md"
DRAWING = GENERATED / "layers.svg"
PROOFS = GENERATED / "proofs.md"

# What may happen in a layer, and what may not. The import contract names the same layers.
RULES = {
    "cli": "commands: read arguments, call the rest, print",
    "demo": "the run of make demo",
    "desk": "the page of a site in a browser",
    "report": "one HTML page about a run",
    "experiments": "the paper's experiments and their tables",
    "runs": "the steps of a run: one site, a network, repeats, ledgers, kept detectors",
    "federation": "between organisations, on NVFlare",
    "rows": "reading: files, frames, schemas, encodings",
    "learning": "ways to learn a score: alone, by exchange, together, pooled",
    "deciding": "ways to decide: alone, by counts, by cells, by types",
    "protocol": "messages and state machines: no IO, no fitting",
    "site": "one organisation's work on its own rows",
    "scorers": "learn a score; the only layer that fits scikit-learn models",
    "models": "flat models and their bytes; no scikit-learn",
    "spec": "frozen descriptions that the other layers share",
    "stats": "pure functions on integers",
    "errors": "the tree of named errors",
}


class Module(NamedTuple):
    """A module of the package: its path below ``src/conovel`` and what it says it does."""

    path: str
    layer: str
    summary: str


def layers() -> list[list[str]]:
    """Return the layers from the top down; layers on one line are on one height."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers" and contract["containers"] == ["conovel"]:
            return [re.findall(r"\w+", line) for line in contract["layers"]]
    raise KeyError("pyproject.toml has no contract of layers for conovel")


def modules() -> list[Module]:
    """Return all modules, by layer from the top down and then by path."""
    order = [name for line in layers() for name in line]
    paths = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    found = [_module(path) for path in paths if path.name != "__init__.py" or _has_code(path)]
    return sorted(found, key=lambda m: (order.index(m.layer), m.path.count("/"), m.path))


def _has_code(path: Path) -> bool:
    """Tell whether a package holds more than a docstring."""
    return len(ast.parse(path.read_text(encoding="utf-8")).body) > 1


def _module(path: Path) -> Module:
    relative = path.relative_to(PACKAGE)
    layer = relative.parts[0].removesuffix(".py").replace("__main__", "cli")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return Module(relative.as_posix(), layer, docstring.split("\n\n")[0].replace("\n", " "))


def table() -> str:
    """Return the table of modules, one part for each layer."""
    lines, all_modules = [], modules()
    for name in (name for line in layers() for name in line):
        own = [module for module in all_modules if module.layer == name]
        lines += [f"### {name}", "", f"{RULES[name][0].upper()}{RULES[name][1:]}.", ""]
        lines += ["| module | what it does |", "|---|---|"]
        # A docstring writes code as ``code``; Markdown writes it as `code`.
        said = ((m.path, m.summary.replace("``", "`").replace("|", "\\|")) for m in own)
        lines += [f"| `{path}` | {re.sub(r':[a-z:]+:`~?', '`', text)} |" for path, text in said]
        lines.append("")
    return "\n".join(lines)


def drawing() -> str:
    """Return the layers as SVG: a box for each, the callers above the called."""
    width, height, gap, left = 760, 46, 14, 10
    rows = layers()
    total = len(rows) * (height + gap) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}"'
        ' font-family="sans-serif" font-size="13">',
        "<title>The layers of conovel</title>",
        "<desc>A layer imports only from the layers below it.</desc>",
        f'<rect width="{width}" height="{total}" fill="#ffffff"/>',
    ]
    for i, row in enumerate(rows):
        y = 10 + i * (height + gap)
        each = (width - 2 * left - 60 - gap * (len(row) - 1)) / len(row)
        for j, name in enumerate(row):
            x = left + j * (each + gap)
            parts += [
                f'<rect x="{x:.0f}" y="{y}" width="{each:.0f}" height="{height}" rx="4"'
                ' fill="#eef4fa" stroke="#0072b2"/>',
                f'<text x="{x + 12:.0f}" y="{y + 19}" font-weight="bold">{escape(name)}</text>',
                f'<text x="{x + 12:.0f}" y="{y + 37}" font-size="{12 if len(row) == 1 else 11}"'
                f">{escape(RULES[name])}</text>",
            ]
    x, bottom = width - 36, len(rows) * (height + gap)
    parts += [
        f'<line x1="{x}" y1="14" x2="{x}" y2="{bottom - 14}" stroke="#444444"/>',
        f'<path d="M{x - 5} {bottom - 16} L{x + 5} {bottom - 16} L{x} {bottom - 4} Z"'
        ' fill="#444444"/>',
        f'<text x="{x + 18}" y="{bottom / 2:.0f}" text-anchor="middle"'
        f' transform="rotate(90 {x + 18} {bottom / 2:.0f})">imports</text>',
        f'<text x="{left}" y="{bottom + 24}" fill="#444444">protocol and site do not import each'
        " other: a driver joins them.</text>",
        "</svg>",
    ]
    return "\n".join([*parts, ""])


def write(app: Sphinx) -> None:
    """Write the tables and the drawing."""
    command = [sys.executable, str(ROOT / "packaging" / "proofs.py"), "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    write_if_changed(PROOFS, listed.stdout)
    write_if_changed(TABLE, table())
    write_if_changed(DRAWING, drawing())


def setup(app: Sphinx) -> dict[str, bool]:
    """Make both before Sphinx looks for sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

"""Sphinx configuration: MyST pages, numpydoc docstrings, and an API page made at build time."""

from __future__ import annotations

import inspect
import logging
from collections import defaultdict
from importlib import import_module
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

project = "conovel"
author = "the conovel developers"
project_copyright = "the conovel developers, BSD-3-Clause"
release = version = installed_version("conovel")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"conovel {release}"
html_static_path = ["_static"]
html_css_files = ["theory.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpydoc sections say it in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# The catch-all at the end of a table of contents may find every page listed already. Sphinx gives
# that warning no type that suppress_warnings could name.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: "glob pattern" not in str(record.msg)
)

_HERE = Path(__file__).parent
_DIRECTIVES = {"class": "autoclass", "exception": "autoexception", "function": "autofunction"}


def _kind(thing: object) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) else "data"


def write_api_pages(app: Sphinx) -> None:
    """Write one page for every module behind a name in ``conovel.__all__``.

    The pages document the public path (``conovel.reject``, not ``conovel.stats.stepup.reject``)
    and are grouped by the module that holds the code, whose docstring introduces them.
    """
    package = import_module("conovel")
    pages: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in getattr(package, "__all__", []):
        thing = getattr(package, name)
        module = getattr(thing, "__module__", "conovel")
        if _kind(thing) != "data" and module.startswith("conovel."):
            pages[module].append((name, _kind(thing)))

    folder = _HERE / "api" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {f"{module}.rst" for module in pages}
    for stale in folder.glob("*.rst"):
        if stale.name not in wanted:
            stale.unlink()
    for module, names in pages.items():
        lines = [module, "=" * len(module), "", f".. automodule:: {module}", "   :no-members:", ""]
        for name, kind in sorted(names):
            lines += [f".. {_DIRECTIVES[kind]}:: conovel.{name}"]
            lines += ["   :members:", ""] if kind == "class" else [""]
        page = folder / f"{module}.rst"
        text = "\n".join(lines)
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Make the API pages before Sphinx looks for sources."""
    app.connect("builder-inited", write_api_pages)

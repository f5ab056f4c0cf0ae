"""Sphinx configuration: MyST pages, numpydoc docstrings, and pages made at build time."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "conovel"
author = "the conovel developers"
project_copyright = "the conovel developers, BSD-3-Clause"
release = version = installed_version("conovel")

extensions = [
    "api_pages",
    "cli_page",
    "layers",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "walk",
]
# modules.md and walk.md are included in the page on the architecture; they are no pages.
exclude_patterns = ["_build", "_ext", "_generated/modules.md", "_generated/walk.md"]
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

"""Sphinx configuration: MyST pages, numpydoc docstrings, and pages made at build time."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

from gallery import sources_digest  # noqa: E402 - it lies in _ext

project = "conovel"
author = "the conovel developers"
project_copyright = "the conovel developers, BSD-3-Clause"
release = version = installed_version("conovel")

extensions = [
    "api_pages",
    "cli_page",
    "error_pages",
    "gallery",
    "layers",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "walk",
]
# These are included in other pages; they are no pages.
exclude_patterns = [
    "_build",
    "_ext",
    "_generated/modules.md",
    "_generated/proofs.md",
    "_generated/walk.md",
]
root_doc = "index"

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Pages of the gallery are executed, each in a folder of its own that is removed afterwards.
# Outputs are kept for the same cells and the same package. An error in a cell ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "executed" / sources_digest())
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_execution_timeout = 300  # seconds for a cell
nb_merge_streams = True
os.environ["MATPLOTLIBRC"] = str(DOCS / "gallery" / "matplotlibrc")

html_theme = "furo"
html_title = f"conovel {release}"
html_static_path = ["_static"]
html_css_files = ["gallery.css", "theory.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpydoc sections say it in words
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

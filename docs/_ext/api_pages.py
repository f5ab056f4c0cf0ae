"""One page for each group of public names, made from ``conovel.__all__`` at build time.

Names that have moved out of ``conovel`` are described under the module that has them.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from paths import GENERATED, write_if_changed

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

FOLDER = GENERATED / "api"
_DIRECTIVES = {
    "class": "autoclass",
    "data": "autodata",
    "exception": "autoexception",
    "function": "autofunction",
}

# (file, title, first parts of the modules it covers). The first group that fits takes a name.
GROUPS = [
    ("models", "Models as bytes", ("conovel.site.sent.surrogate", "conovel.models")),
    ("tables", "Tables", ("conovel.spec.schema", "conovel.rows.pairs", "conovel.rows.fetched")),
    (
        "networks",
        "Networks of agents",
        (
            "conovel.runs.network",
            "conovel.runs.agents",
            "conovel.runs.results",
            "conovel.protocol",
        ),
    ),
    (
        "one-site",
        "Detection at one site",
        ("conovel.runs", "conovel.site", "conovel.experiments"),
    ),
    ("scorers", "Scorers", ("conovel.scorers",)),
    ("statistics", "Statistics on integers", ("conovel.stats",)),
    ("guarantees", "What a result promises", ("conovel.spec",)),
    ("errors", "Errors and warnings", ("conovel.errors",)),
]


def group_of(name: str) -> str:
    """Return the file of the group that a public name belongs to.

    A name without a group stops the build, so that no public name is left out.
    """
    package = import_module("conovel")
    module = f"conovel.{(package._HOMES | package._MOVED)[name]}"
    for file, _, prefixes in GROUPS:
        if any(module == p or module.startswith(f"{p}.") for p in prefixes):
            return file
    raise KeyError(f"conovel.{name} of {module} has no group in docs/_ext/api_pages.py")


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    package = import_module("conovel")
    names: dict[str, list[str]] = defaultdict(list)
    places = dict.fromkeys(package.__all__, "conovel")
    places |= {name: f"conovel.{home}" for name, home in package._MOVED.items()}
    for name in places:
        names[group_of(name)].append(name)
    return {
        file: _page(title, {f"{places[name]}.{name}": name for name in sorted(names[file])})
        for file, title, _ in GROUPS
        if names[file]
    }


def _page(title: str, names: dict[str, str]) -> str:
    things = {
        place: getattr(import_module(place.rpartition(".")[0]), name)
        for place, name in names.items()
    }
    lines = [title, "=" * len(title), "", ".. list-table::", "   :widths: 30 70", ""]
    for place, thing in things.items():
        lines += [
            f"   * - :{_role(thing)}:`{place}`",
            f"     - {_summary(thing)}",
        ]
    for place, thing in things.items():
        kind, name = _kind(thing), names[place]
        lines += ["", name, "-" * len(name), "", f".. {_DIRECTIVES[kind]}:: {place}"]
        if kind == "class":
            # scikit-learn makes the request methods, and their text refers to its own pages.
            lines += ["   :members:", "   :exclude-members: set_fit_request"]
    return "\n".join([*lines, ""])


def _kind(thing: object) -> str:
    if inspect.isclass(thing):
        return "exception" if issubclass(thing, BaseException) else "class"
    return "function" if callable(thing) else "data"


def _role(thing: object) -> str:
    return {"class": "class", "exception": "exc", "function": "func", "data": "data"}[_kind(thing)]


def _summary(thing: object) -> str:
    if _kind(thing) == "data":  # an alias of several classes
        return f"One of {', '.join(part.__name__ for part in get_args(thing))}."
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def write(app: Sphinx) -> None:
    """Write the pages, and delete those of groups that are gone."""
    made = pages()
    for file, text in made.items():
        write_if_changed(FOLDER / f"{file}.rst", text)
    for page in FOLDER.glob("*.rst"):
        if page.stem not in made:
            page.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the pages before Sphinx looks for sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

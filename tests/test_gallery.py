"""The pages of the gallery are listed, use public names, and draw from fixed seeds."""

import ast
import re

import pytest
from support.paths import DOCS

import conovel

PAGES = sorted((DOCS / "gallery").glob("*.md"))
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEAD = (
    "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n\n# "
)


def cells(text):
    """Return the code of a page, cell by cell."""
    return CELL.findall(text)


def faults(code):
    """Name what a page must not do: private names, and numbers that differ between runs."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "conovel":
            found.append(f"from {node.module} import")
        elif isinstance(node, ast.Import):
            own = [name for name in node.names if name.name.split(".")[0] == "conovel"]
            found += [f"import {n.name}" for n in own if (n.name, n.asname) != ("conovel", "cn")]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "cn":
            found += [ast.unparse(node)] * (node.attr not in [*conovel.__all__, "errors"])
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "np.random":
            found += [ast.unparse(node)] * (node.attr != "default_rng")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng"):
            found += ["default_rng()"] * (not node.args)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_a_notebook_of_public_names_with_fixed_seeds(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    assert text.count("{code-cell}") == len(cells(text)) > 1
    code = "\n".join(cells(text))
    assert faults(code) == []
    assert "default_rng(" in code
    assert "plt.subplots(" in code  # its card shows the first picture
    assert "guarantee" in text  # a page says what is promised


def test_the_faults_are_noticed():
    bad = "import conovel\nfrom conovel.stats import ranks\ncn.Hidden\nnp.random.normal()\n"
    good = "import conovel as cn\ncn.AdaDetect\nnp.random.default_rng(0)\n"
    assert sorted(faults(good + bad + "np.random.default_rng()\n")) == [
        "cn.Hidden",
        "default_rng()",
        "from conovel.stats import",
        "import conovel",
        "np.random.normal",
    ]


def test_every_page_has_a_card_and_is_listed():
    index = (DOCS / "gallery.md").read_text(encoding="utf-8")
    cards, toctree = (
        re.findall(r"^gallery/([\w-]+)$", block, re.MULTILINE)
        for block in re.findall(r"```\{(?:gallery-cards|toctree)\}\n(.*?)```", index, re.DOTALL)
    )
    assert cards == toctree
    assert sorted(cards) == [page.stem for page in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs(page, tmp_path, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    code = cells(page.read_text(encoding="utf-8"))
    if "pyod" in "".join(code):
        pytest.importorskip("pyod")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    with plt.rc_context(fname=DOCS / "gallery" / "matplotlibrc"):
        names = {"__name__": "__main__"}
        for cell in code:
            exec(compile(cell, page.name, "exec"), names)
        assert plt.get_fignums()
        plt.close("all")

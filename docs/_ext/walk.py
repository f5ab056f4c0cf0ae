"""How far a row walks: the files that a default run enters, in order, and how often it comes back.

A run is made twice with fresh rows, and the second one is traced. *Files* are the modules of the
package of which a function is called. A *return* is the first call of a function in a file that
was left before and of which no function is under way.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from layers import PACKAGE, modules
from paths import GENERATED, write_if_changed
from typer.testing import CliRunner

import conovel as cn
from conovel.cli import app

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

TABLE = GENERATED / "walk.md"


class Step(NamedTuple):
    """The first call of a function."""

    file: str  # below ``src/conovel``
    function: str
    is_return: bool


class _Trace:
    """Calls of the package, each function once, with whether its file is under way."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, tuple[str, bool]] = {}
        self._stack: list[str] = []
        self._under_way: Counter[str] = Counter()
        self._root = f"{PACKAGE}/"

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(self._root):
            return
        if event == "call":
            name = "" if code.co_name == "<module>" else code.co_filename[len(self._root) :]
            if name:
                self.calls.setdefault(code, (name, self._under_way[name] > 0))
            self._stack.append(name)
            self._under_way[name] += 1
        elif event == "return" and self._stack:
            self._under_way[self._stack.pop()] -= 1


def walk(run: Callable[[int], object]) -> list[Step]:
    """Make a run twice, with other seeds, and return the steps of the second one."""
    trace = _Trace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(1)
        sys.setprofile(trace)
        try:
            run(2)
        finally:
            sys.setprofile(None)
    steps: list[Step] = []
    seen: set[str] = set()
    for code, (file, is_under_way) in trace.calls.items():
        is_return = file in seen and steps[-1].file != file and not is_under_way
        steps.append(Step(file, code.co_name, is_return))
        seen.add(file)
    return steps


def rows(seed: int, shift: float = 0.0) -> tuple[Any, Any]:
    """Return known normals, and test rows of which a tenth is novel."""
    rng = np.random.default_rng(seed)
    tests = rng.normal(size=(200, 5)) + shift
    tests[:20] += 4
    return rng.normal(size=(600, 5)) + shift, tests


def detect_run(seed: int) -> None:
    """One site, all defaults."""
    cn.AdaDetect().detect(*rows(seed))


def files_run(seed: int) -> None:
    """One site, two CSV files, the command `detect`."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["detect", "--out", f"{folder}/out.csv"]
        for name, table in zip(("null", "test"), rows(seed), strict=True):
            path = Path(folder, f"{name}.csv")
            np.savetxt(path, table, delimiter=",", header="a,b,c,d,e", comments="")
            command += [f"--{name}", str(path)]
        result = CliRunner().invoke(app, command, catch_exceptions=False)
        assert result.exit_code == 0, result.output


def network_run(seed: int) -> None:
    """Three agents, the default regime."""
    parts = [cn.Agent(name, *rows(seed + i, 0.3 * i)) for i, name in enumerate("abc")]
    cn.Network(parts).run()


RUNS = {
    "`AdaDetect().detect` on arrays": detect_run,
    "`conovel detect` on CSV files": files_run,
    "`Network` of three agents": network_run,
}
# Questions about a regime that only `learning` and `deciding` may ask.
FLAGS = {
    "exchanges_models",
    "splits_rows",
    "uses_counts",
    "divides_level",
    "pools_calibration",
    "composite_null",
    "decides_by_cells",
    "deployable",
}


def count(steps: list[Step]) -> tuple[int, int]:
    """Return the numbers of files and of returns."""
    return len({step.file for step in steps}), sum(step.is_return for step in steps)


def flag_reads() -> list[str]:
    """Return the places outside `learning` and `deciding` that read a flag of a regime."""
    places = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("learning/", "deciding/")) and not name.endswith("regimes.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in FLAGS:
                    places.append(f"{name}:{node.lineno} {node.attr}")
    return places


def n_lines() -> int:
    """Return the number of lines of the package."""
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    return sum(len(text.splitlines()) for text in texts)


def page() -> str:
    """Return the files that `detect` enters, in order, and the figures of all runs."""
    walks = {name: walk(run) for name, run in RUNS.items()}
    lines = ["| run | files | returns |", "|---|---|---|"]
    lines += ["| {} | {} | {} |".format(name, *count(steps)) for name, steps in walks.items()]
    summaries = {module.path: module.summary for module in modules()}
    lines += [
        "",
        "The files of `detect` on arrays, in the order in which a row enters them:",
        "",
    ]
    lines += ["| file | enters by | what it does |", "|---|---|---|"]
    steps = walks[next(iter(RUNS))]
    first = {step.file: step.function for step in reversed(steps)}
    for file in dict.fromkeys(step.file for step in steps):
        what = summaries.get(file, "").replace("``", "`").replace("|", "\\|")
        lines.append(f"| `{file}` | `{first[file]}` | {what} |")
    return "\n".join([*lines, ""])


def write(app: Sphinx) -> None:
    """Write the table."""
    write_if_changed(TABLE, page())


def setup(app: Sphinx) -> dict[str, bool]:
    """Make it before Sphinx looks for sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

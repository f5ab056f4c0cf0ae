"""The walk of a row: which functions handle one row of a test sample, from a trace of a run.

A run is made twice. The first run tells the row's score and ranks. In the second run every call
of a function of the package is looked at: it is a step of the walk if an argument or the result
holds the row, its score, its ranks or its decision. A function is listed once, where it is first
called. A file is left when none of its functions is under way any more. What a scorer does inside
is left out: the walk enters it and goes on with what it gives back. The checks are left out, too:
they decide nothing.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from paths import GENERATED, ROOT, write_if_changed

if TYPE_CHECKING:  # the tests use this module without Sphinx
    from sphinx.application import Sphinx

PACKAGE = ROOT / "src" / "conovel"
TABLE = GENERATED / "walk.md"
MARK = 8191.25  # a value that only the row has
# Reading the arguments of a call, and errors: no step of a row's way.
ASIDE = ("stats/levels.py", "stats/levels.py", "errors.py", "__init__.py")


class Step(NamedTuple):
    """A function that handles the row."""

    file: str  # below ``src/conovel``
    function: str
    summary: str
    is_under_way: bool  # whether its file is, when it is called


class Row(NamedTuple):
    """What is known of the row and of the test sample it is in."""

    score: float
    ranks: Any
    rejected: Any

    def is_in(self, value: Any, depth: int = 2) -> bool:
        """Tell whether a value holds the row, its score, its ranks or a decision on it."""
        if isinstance(value, np.ndarray):
            return self._is_in_array(value)
        if type(value).__name__ == "RankHistogram":
            order = np.arange(1, value.size + 1)
            return bool(np.array_equal(value.smallest(order), np.sort(self.ranks)))
        if depth == 0:
            return False
        if isinstance(value, dict):
            parts: Any = list(value.values())
        elif isinstance(value, list | tuple):
            parts = value
        elif is_dataclass(value) and not isinstance(value, type):
            # Only what is there: a cached property would be computed by looking at it.
            parts = [vars(value).get(f.name) for f in fields(value) if hasattr(value, "__dict__")]
        else:
            return False
        return any(self.is_in(part, depth - 1) for part in parts)

    def _is_in_array(self, array: Any) -> bool:
        if array.dtype.kind == "f":
            return bool(np.any(array == MARK) or np.any(array == self.score))
        own = self.rejected if array.dtype.kind == "b" else self.ranks
        return bool(np.array_equal(array, own))


def samples() -> tuple[Any, list[Any]]:
    """Draw known normals and three test samples; the marked row is in the first."""
    rng = np.random.default_rng(0)
    null = rng.normal(size=(3, 400, 3))
    tests = rng.normal(size=(3, 60, 3))
    tests[:, :12] += 4.0
    tests[0, 0, 0] = MARK
    return null, list(tests)


def network_run() -> Any:
    """Run a network of three agents; return the result of the agent with the row."""
    import conovel as cn  # noqa: PLC0415

    null, tests = samples()
    agents = [cn.Agent(n, a, b) for n, a, b in zip("abc", null, tests, strict=True)]
    return cn.Network(agents, composite="mean", bits=4, scorer="logistic").run(check=False)["a"]


def detect_run() -> Any:
    """Detect at one site."""
    import conovel as cn  # noqa: PLC0415

    null, tests = samples()
    return cn.AdaDetect("logistic").detect(null[0], tests[0], check=False)


def walk(run: Callable[[], Any]) -> list[Step]:
    """Trace a run and return the steps of the marked row, each function once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = run()
        row = Row(float(known.scores[0]), known.ranks, known.rejected)
        calls: dict[CodeType, Step | None] = {}  # None: no step so far
        stack: list[FrameType] = []

        def trace(frame: FrameType, event: str, given: Any) -> None:
            if event not in ("call", "return") or not _is_ours(frame.f_code):
                return
            code, file = frame.f_code, _file(frame.f_code)
            around = [_file(f.f_code) for f in stack if f is not frame]
            is_inside = any(other.startswith("scorers/") for other in around)
            if event == "call":
                under_way.setdefault(code, file in around)
                calls.setdefault(code, None)
                stack.append(frame)
            elif stack and stack[-1] is frame:
                stack.pop()
            values = list(_arguments(frame)) if event == "call" else [given]
            if calls.get(code) or is_inside or file in ASIDE or not any(map(row.is_in, values)):
                return
            calls[code] = _step(frame, under_way[code])

        under_way: dict[CodeType, bool] = {}
        sys.setprofile(trace)
        try:
            run()
        finally:
            sys.setprofile(None)
    return [step for step in calls.values() if step]


def files(steps: list[Step]) -> tuple[int, int]:
    """Count the files of a walk, and how often it comes back to a file it has left."""
    seen: set[str] = set()
    n_returns, last = 0, ""
    for step in steps:
        n_returns += step.file in seen and step.file != last and not step.is_under_way
        seen.add(step.file)
        last = step.file
    return len(seen), n_returns


def _is_ours(code: CodeType) -> bool:
    """Tell whether to look at a call: of this package, and no comprehension or operator."""
    is_place = code.co_name == "__init__" or not code.co_name.startswith(("<", "__"))
    return is_place and code.co_filename.startswith(str(PACKAGE))


def _file(code: CodeType) -> str:
    return code.co_filename[len(str(PACKAGE)) + 1 :]


def _arguments(frame: FrameType) -> Iterator[Any]:
    """Give the arguments of a call; of methods without the object, unless it is a record."""
    n = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
    for name in frame.f_code.co_varnames[:n]:
        value = frame.f_locals[name]
        if name != "self" or is_dataclass(value):
            yield value


def _step(frame: FrameType, is_under_way: bool) -> Step:
    code = frame.f_code
    documented: Any = getattr(_function(frame), "__doc__", None) or ""
    summary = " ".join(documented.split("\n\n")[0].split())
    return Step(_file(code), code.co_qualname, summary, is_under_way)


def _function(frame: FrameType) -> Any:
    """Find the function of a frame by its qualified name."""
    found: Any = sys.modules[frame.f_globals["__name__"]]
    for name in frame.f_code.co_qualname.split("."):
        found = inspect.getattr_static(found, name, None)
        found = getattr(found, "func", getattr(found, "fget", getattr(found, "__func__", found)))
    return found


def table() -> str:
    """Return both walks as tables."""
    lines: list[str] = []
    for title, run in (("Network.run", network_run), ("AdaDetect.detect", detect_run)):
        steps = walk(run)
        n_files, n_returns = files(steps)
        lines += [
            f"`{title}`: {len(steps)} functions in {n_files} files, with {n_returns} returns to a"
            " file that was left.",
            "",
            "| file | function | what it does |",
            "|---|---|---|",
        ]
        last = ""
        for step in steps:
            file = "" if step.file == last else f"`{step.file}`"
            lines.append(f"| {file} | `{step.function}` | {step.summary.replace('``', '`')} |")
            last = step.file
        lines.append("")
    return "\n".join(lines)


def write(app: Sphinx) -> None:
    """Write the tables."""
    write_if_changed(TABLE, table())


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the tables before Sphinx looks for sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

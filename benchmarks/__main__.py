"""Run benchmarks by name: ``python -m benchmarks [NAME ...] [options of the benchmarks]``.

Without a name the short ones run; ``--list`` tells which there are.
"""

import ast
import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path

# What a plain `python -m benchmarks` runs.
SHORT = ["statistics", "scoring_speed", "model_sizes", "network_growth", "contest"]


def available() -> dict[str, str]:
    """Map each benchmark to the first line of its docstring, without importing any."""
    files = sorted(Path(__file__).parent.glob("[!_]*.py"))
    docs = {file.stem: ast.get_docstring(ast.parse(file.read_text("utf-8"))) for file in files}
    return {name: (doc or "(no description)").splitlines()[0] for name, doc in docs.items()}


def main() -> None:
    """Run the benchmarks named on the command line, one after the other."""
    arguments = sys.argv[1:]
    names = list(takewhile(lambda word: not word.startswith("-"), arguments))
    options = arguments[len(names) :]
    known = available()
    listing = "\n".join(f"  {name:<{max(map(len, known))}}  {known[name]}" for name in known)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no benchmark is called {', '.join(unknown)}; there are\n{listing}")
    if not names and options:
        if options[0] not in ("--list", "-h", "--help"):
            sys.exit(f"name the benchmark that {options[0]} is for; there are\n{listing}")
        print(f"{__doc__}\n{listing}")
        return
    for name in names or SHORT:
        print(f"{name}: {known[name]}", flush=True)
        sys.argv = [f"python -m benchmarks {name}", *options]
        import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()

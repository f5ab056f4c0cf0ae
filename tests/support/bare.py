"""Run pages in this process, with modules missing: called by tests/test_bare.py.

Called with the modules that are missing, separated by commas, and the pages. The default scorer
has few trees. What takes longest is left out; the same pages run whole in a new environment.
"""

import sys
from pathlib import Path

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
LONG = (["conovel", "reproduce"], ["python", "-m", "conovel.demo"])


class Missing:
    """Finds modules before all others, and says of some that they are not there."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def run_here(command):
    """Run a command of conovel in this process."""
    from conovel.cli import main

    if any(command[: len(start)] == start for start in LONG):
        return
    print("$", *command)
    sys.argv = command
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"{command} ended with {end.code}")


if __name__ == "__main__":
    names, *pages = sys.argv[1:]
    sys.meta_path.insert(0, Missing(set(names.split(","))))
    sys.path.insert(0, str(PACKAGING))
    import run_pages
    from few_trees import few_candidates

    from conovel.scorers.automatic import Automatic

    Automatic.candidates = few_candidates  # as the fixture `few_trees`; pytest is missing here
    run_pages.run_pages(pages, run_here)

"""The table of faults: every fault test declares its row, and the page shows the rows.

``python tests/federation/faults.py`` writes the table into docs/deployment.md.
"""

import re
import sys
from dataclasses import dataclass
from inspect import isfunction
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "deployment.md"
BEGIN, END = "<!-- fault table: begin -->\n", "<!-- fault table: end -->\n"


@dataclass(frozen=True)
class Fault:
    """One row: what goes wrong, what whoever notices is told, how the parties end."""

    what: str
    told: tuple[str, ...]  # the test asserts that one of these is said
    ends: str

    def is_in(self, text):
        return any(words in text for words in self.told)


def fault(what, told, ends):
    """Declare the row of a fault test."""

    def declare(test):
        test.fault = Fault(what, (told,) if isinstance(told, str) else told, ends)
        return test

    return declare


def table(tests):
    """Write the rows of the tests of a module, in its order."""
    lines = ["| fault | somebody is told | and then |", "|---|---|---|"]
    for test in filter(isfunction, vars(tests).values()):
        if row := getattr(test, "fault", None):
            words = ", or ".join(f"“{words}”" for words in row.told)
            lines.append(f"| {row.what} | {words} | {row.ends} |")
    return "\n".join(lines) + "\n"


def shown():
    """Read the table of the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import test_real_faults

    text = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    new = re.sub(pattern, lambda _: BEGIN + table(test_real_faults) + END, text, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")

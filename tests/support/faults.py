"""The table of faults: every fault test declares its row, asserts it, and the page shows it.

``python -m support.faults`` in the folder of the tests writes the table into docs/deployment.md.
"""

import re
import runpy
from dataclasses import dataclass
from inspect import isfunction

from support.paths import DOCS, ROOT

PAGE = DOCS / "deployment.md"
BEGIN, END = "<!-- fault table: begin -->\n", "<!-- fault table: end -->\n"
GOES_ON, KILLED = "goes on", "killed"
COLUMNS = ("fault", "what is said", "operator", "coordinator", "other sites", "that site")


@dataclass(frozen=True)
class Fault:
    """One row: what goes wrong, what is said, and the exit codes of all parties.

    Instead of an exit code a party may be ``KILLED``, that is the fault, or ``GOES_ON``, and
    None means that it does not take part in the test.
    """

    what: str
    told: tuple[str, ...]  # one of these is said by whoever notices
    operator: int | None = 3
    coordinator: int | str = 3
    others: int | str = 3
    site: int | str = 3

    def is_in(self, text):
        # A console breaks lines where it likes.
        return any(words in " ".join(text.split()) for words in self.told)

    def cells(self):
        words = ", or ".join(f"“{words}”" for words in self.told)
        codes = (self.operator, self.coordinator, self.others, self.site)
        return [self.what, words, *("–" if code is None else str(code) for code in codes)]


def fault(what, told, **codes):
    """Declare the row of a fault test."""

    def declare(test):
        test.fault = Fault(what, (told,) if isinstance(told, str) else told, **codes)
        return test

    return declare


def table(names):
    """Write the rows of the tests among the names of a module, in its order."""
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    rows += [
        test.fault.cells() for test in filter(isfunction, names.values()) if hasattr(test, "fault")
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def shown():
    """Read the table of the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    tests = runpy.run_path(str(ROOT / "tests" / "federation" / "test_real_faults.py"))
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.escape(BEGIN) + ".*?" + re.escape(END)
    new = re.sub(pattern, lambda _: BEGIN + table(tests) + END, text, flags=re.DOTALL)
    PAGE.write_text(new, encoding="utf-8")

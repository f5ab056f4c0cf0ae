"""Pages of results are about the code as it is.

Each table of a measurement stands under a line that says with which commit, which defaults, how
many trials and which command it was measured. The defaults are digests of what they decide.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from support.defaults import RECORDED, digest, groups
from support.recording import RECORDED as RUNS
from support.recording import fingerprint

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    *(DOCS / name for name in ("power.md", "peers.md", "contest.md", "front.md", "scale.md")),
    DOCS / "reproduction.md",
    *sorted((DOCS / "results").glob("*.md")),
]
# The defaults of which a figure may depend, or none of them.
LINE = re.compile(
    r"\*Measured at commit `(?P<commit>[0-9a-f]{8})`, "
    r"(?:no default score|defaults (?P<defaults>(?:`\w+ [0-9a-f]{8}`(?:, )?)+)), "
    r"(?P<trials>[^`*]*\d[^`*]*|one run): (?P<command>`[^`]+`(?:(?:, | and )`[^`]+`)*)\.\*"
)
# A cell that begins with a number that is not whole; the number of a version is none.
MEASURED = re.compile(r"\| *\**[−+-]?\d*\.\d+(?![\d.]| to )")
QUICK = {"detect", "kept", "together"}


class Measured(NamedTuple):
    """One line that says how a table was measured."""

    page: str
    defaults: dict[str, str]


def sections(text: str) -> list[tuple[int, str]]:
    """Part a page at its headings: the level and the text of each section, without code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    parts = re.split(r"^(#+) .*$", text, flags=re.M)
    return [(len(marks), body) for marks, body in zip(parts[1::2], parts[2::2], strict=True)]


def unmeasured(text: str) -> list[str]:
    """Return the first lines of tables above which no section says how they were measured."""
    above: dict[int, bool] = {}
    without = []
    for level, body in sections(text):
        above = {other: has for other, has in above.items() if other < level}
        above[level] = bool(LINE.search(body))
        tables = re.findall(r"^(\|.*\|)\n\|[ :|-]+\|\n((?:\|.*\n?)+)", body, flags=re.M)
        holds_numbers = [head for head, rows in tables if MEASURED.search(rows)]
        if holds_numbers and not any(above.values()):
            without += holds_numbers
    return without


def lines(page: Path) -> list[Measured]:
    """Return what a page says of how its tables were measured."""
    return [
        Measured(
            page.name,
            dict(one.split() for one in re.findall(r"`([^`]+)`", line["defaults"] or "")),
        )
        for line in LINE.finditer(page.read_text(encoding="utf-8"))
    ]


def recorded() -> dict[str, str]:
    return json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_table_says_how_it_was_measured(page):
    text = page.read_text(encoding="utf-8")
    assert unmeasured(text) == []
    assert len(re.findall(r"\*Measured at", text)) == len(lines(page)), "a line of another form"


def test_no_table_is_older_than_the_defaults():
    wanted = recorded()
    old = [
        (one.page, name, value)
        for page in PAGES
        for one in lines(page)
        for name, value in one.defaults.items()
        if wanted.get(name) != value
    ]
    assert old == []


def test_a_table_without_a_line_and_an_old_one_are_noticed():
    table = "| a | b |\n|---|---|\n| 1 | .25 |\n"
    line = "*Measured at commit `0123abcd`, defaults `detect 00000000`, 6 trials: `x y`.*\n"
    assert unmeasured(f"# One\n\n{table}") == ["| a | b |"]
    assert unmeasured(f"# One\n\n{line}\n## Two\n\n{table}") == []
    assert unmeasured(f"# One\n\n## Two\n\n{line}\n## Three\n\n{table}") == ["| a | b |"]
    found = LINE.search(line)
    assert found
    assert found["defaults"] == "`detect 00000000`"


def test_every_default_is_recorded():
    assert set(recorded()) == set(groups())


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in groups()]
)
def test_the_defaults_decide_as_recorded(name):
    if fingerprint() != json.loads(RUNS.read_text(encoding="utf-8"))["fingerprint"]:
        pytest.skip("recorded on a machine that rounds in another way")
    assert digest(name) == recorded()[name]

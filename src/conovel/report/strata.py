"""The strata of a page: one line for each, how many rows were compared, and which are flagged."""

from __future__ import annotations

from dataclasses import replace

from conovel.report.picture import shortened
from conovel.report.view import Checked, Section, Story, Table
from conovel.stats.words import counted

_WORDS = (
    "Rows are compared with known normals of their own stratum. The shares of strata may differ"
    " between known normals and tests."
)


def with_strata(story: Story, run: Checked) -> Story:
    """Let a page show what became of each stratum, if there are any."""
    if "strata" in run:
        tables = [strata_table(run.object("strata"))]
    else:
        decisions = run.object("decisions") if "decisions" in run else Checked({})
        tables = [
            strata_table(site.object("strata"), name)
            for name in decisions
            if "strata" in (site := decisions.object(name))
        ]
    if not tables:
        return story
    section = Section("By stratum", [_WORDS], tables=tables)
    return replace(story, sections=[section, *story.sections])


def strata_table(strata: Checked, site: str = "") -> Table:
    """Return one line for each stratum of a site."""
    lines = []
    for one in strata.objects("strata"):
        numbers = ("n_train", "n_calibration", "n_test", "n_rejected")
        cells = [f"{one.integer(name):,}" for name in numbers]
        tested = "yes" if one.flag("tested") else "no"
        lines.append([shortened(one.text("stratum"), 40), *cells[:3], tested, cells[3]])
    columns = [
        ", ".join(shortened(name, 24) for name in strata.texts("columns")),
        "known normals that train",
        "known normals to compare with",
        "rows to test",
        "tested",
        "flagged",
    ]
    n_none, note = strata.integer("n_in_no_stratum", 0), ""
    if n_none:
        note = f"{counted(n_none, 'row')} with rare or unknown values are in no stratum."
    whose = f"Strata of {shortened(site, 24)}" if site else "Strata"
    return Table(whose, columns, lines, note, text=frozenset({4}), shown=20)

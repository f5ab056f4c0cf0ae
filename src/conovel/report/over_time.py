"""What a page says about the list of all batches so far, where a ledger decided."""

from __future__ import annotations

from dataclasses import replace

from conovel.report.checked import Checked
from conovel.report.picture_content import shortened
from conovel.report.view import Section, Story, Table
from conovel.stats.words import counted

_MOST_ROWS = 200
_SHOWN = 15
_WORDS = (
    "A ledger decides about the rows of all batches together. The rows below came on the list, or"
    " went off it, when this batch was added."
)


def with_ledger(story: Story, run: Checked) -> Story:
    """Let a page speak of the list of all batches, if a ledger decided."""
    if "ledger" not in run:
        return story
    told = run.object("ledger")
    if "sites" in told:
        return _network(story, told)
    n_listed, n_tests = told.integer("n_listed"), told.integer("n_tests")
    number, name = told.integer("batch"), shortened(told.text("name"))
    promise = story.facts[0][1] if story.facts else ""
    lead = (
        f"{name} is batch {number:,}. The list of all batches so far has {n_listed:,} of"
        f" {counted(n_tests, 'row')}, and on average at most {promise} of them are false alarms."
    )
    facts = [*story.facts, ("rows on the list of all batches", f"{n_listed:,}")]
    section = Section("The list so far", [_WORDS], tables=_tables(told))
    return replace(story, lead=lead, facts=facts, sections=[section, *story.sections])


def _network(story: Story, told: Checked) -> Story:
    """Add the list of a network; the rest of the page is about the run of the batch alone."""
    sites = told.object("sites")
    by_name = {name: sites.object(name) for name in sites}
    table = Table(
        "The list so far",
        ["agent", "batch", "rows on the list", "rows tested"],
        [
            [
                shortened(name),
                f"{site.integer('batch'):,}",
                f"{site.integer('n_listed'):,}",
                # The coordinator does not know it.
                f"{site.integer('n_tests'):,}" if "n_tests" in site else "–",
            ]
            for name, site in by_name.items()
        ],
    )
    words = [
        told.text("guarantee"),
        "The rest of this page is about the run of this batch, at half the level.",
    ]
    tables, facts = [table], story.facts
    if "n_listed_in_all" in told:
        n_listed = told.integer("n_listed_in_all")
        facts = [*facts, ("rows on the list of all batches and sites", f"{n_listed:,}")]
    for site in by_name.values():
        if len(by_name) == 1:  # a site's own page: which rows they are
            words.insert(1, _WORDS)
            tables += _tables(site)
    section = Section("The list so far", words, tables=tables)
    return replace(story, facts=facts, sections=[section, *story.sections])


def _tables(told: Checked) -> list[Table]:
    found = []
    for key, caption in (("joined", "Rows that joined the list"), ("left", "Rows that left it")):
        rows = told.objects(key)
        if not rows:
            continue
        cells = [
            [
                shortened(row.text("id")) if "id" in row else f"row {row.integer('row'):,}",
                shortened(row.text("batch")),
            ]
            for row in rows[:_MOST_ROWS]
        ]
        more = f"{len(rows) - _MOST_ROWS:,} more." if len(rows) > _MOST_ROWS else ""
        found.append(Table(caption, ["row", "batch"], cells, more, frozenset({1}), _SHOWN))
    return found

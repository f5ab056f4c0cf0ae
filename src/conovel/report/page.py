"""The page: one HTML file that contains its style, its drawings and at most one script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.errors import InputError, RunFileError
from conovel.report.certified import certified_lead
from conovel.report.experiment import evaluation_story, experiment_story
from conovel.report.findings import check_story, with_findings
from conovel.report.flagged import page_script, read_flagged
from conovel.report.lists import lists_script, lists_section
from conovel.report.network import network_story
from conovel.report.picture import of_detection, shortened
from conovel.report.repeats import repeated_detection_story, repeated_network_story
from conovel.report.run_pictures import network_content, of_files
from conovel.report.sections import (
    NOT_CLAIMED,
    RESOLUTION,
    made_section,
    row_sections,
    selection_section,
    settings_section,
    threshold_fact,
)
from conovel.report.strata import with_strata
from conovel.report.view import Checked, Section, Story, Table, read_picture
from conovel.rows.storage import read_json, write_text
from conovel.runs.file_detection import FileDetection
from conovel.spec.findings import percent
from conovel.spec.version import __version__
from conovel.stats.levels import as_level
from conovel.stats.words import counted

if TYPE_CHECKING:
    from jinja2 import Environment

    from conovel.runs.detection import Detection
    from conovel.runs.results import NetworkRun


def render(content: Mapping[str, Any], folder: Path | None = None) -> str:
    """Write the page of a run as text."""
    template = environment().get_template("page.html")
    story = story_of(content, folder)
    scripts = [page_script()] if story.flagged else []
    scripts += [lists_script()] if story.has_lists else []
    page = template.render(story=story, scripts=scripts, version=__version__)
    return page.encode("utf-8", "replace").decode(
        "utf-8"
    )  # JSON may hold half of a surrogate pair


def page_of(result: Detection | FileDetection | NetworkRun) -> str:
    """Write the page of a result as text."""
    if isinstance(result, Mapping):
        return render(network_content(result))
    content: dict[str, Any] = {"command": "detect", **result.summary()}
    if isinstance(result, FileDetection):
        content["picture"] = of_files(result)
        if result.reasons is not None:
            content["reasons"] = {"": result.reasons.to_dict(result.n_rejected)}
        return render(content)
    content["picture"] = of_detection(result)
    if result.explainer is not None:
        why = result.most_novel_reasons()
        content["reasons"] = {"": why.to_dict(result.n_rejected)}
    return render(content)


def write_report(run: Path, out: Path) -> None:
    """Read a result and write its page in one step."""
    try:
        page = render(read_json(run), run.parent)
    except RunFileError as error:
        raise RunFileError(f"{run}: {error}") from None
    write_text(out, page)


@cache
def environment() -> Environment:
    """Return what renders the templates; every value is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    return Environment(
        loader=PackageLoader("conovel.report"),
        autoescape=True,  # names in a run may hold anything
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def story_of(content: Mapping[str, Any], folder: Path | None = None) -> Story:
    """Read the result of any command.

    Examples
    --------
    >>> story_of({"level": "1/10"})
    Traceback (most recent call last):
    ...
    conovel.errors.RunFileError: command is missing
    """
    run = Checked(content)
    story = replace(_story(run, folder), flagged=read_flagged(run))
    story = replace(story, sections=[*story.sections, *made_section(run)])
    return with_findings(with_strata(with_ledger(story, run), run), run)


def _story(run: Checked, folder: Path | None) -> Story:
    command = run.text("command")
    if command == "detect":
        return repeated_detection_story(run) if "repeats" in run else detection_story(run)
    if command == "check":
        return check_story(run)
    if command == "evaluate":
        return evaluation_story(run)
    if command == "reproduce":
        return experiment_story(run, folder)
    if "runs" in run:
        return repeated_network_story(run)
    if "transcript" not in run:
        run.refuse("transcript", f"is missing, and a result of {shortened(command)!r} needs it")
    return network_story(run)


def detection_story(run: Checked) -> Story:
    """Describe the decisions of one site."""
    n_rejected, n_test = run.integer("n_rejected"), run.integer("n_test")
    n_calibration, scorer = run.integer("n_calibration"), run.text("scorer")
    level, guarantee = _level(run), run.object("guarantee")
    drawn = read_picture(run.object("picture"))
    chosen, why_none = lists_section(run.object("picture"), len(drawn.most_novel))
    is_certified = "confidence" in run and "detector" not in run
    promised = "with this probability" if is_certified else "on average"
    facts = [
        (f"false alarms, at most {promised}", percent(level)),
        ("rows tested", f"{n_test:,}"),
        ("known normals to train on", f"{run.integer('n_train'):,}"),
        ("known normals to compare with", f"{n_calibration:,}"),
        *threshold_fact(drawn),
    ]
    if "weights" in run:
        part = run.object("weights")
        worth = f"{part.number('effective_calibration_rows'):,.0f} rows of equal weight"
        facts += [("weights", shortened(part.text("source"))), ("these are worth", worth)]
    if "pi0" in run:
        facts.append(("share of normals, estimated", f"{run.number('pi0'):.3f}"))
    return Story(
        kind="One site",
        headline=f"{n_rejected:,} of {counted(n_test, 'row')} flagged as novel",
        lead=certified_lead(run, n_rejected, level),
        facts=facts,
        guarantee=guarantee.text("statement"),
        assumptions=guarantee.texts("assumptions"),
        caveats=[*([] if is_certified else [NOT_CLAIMED]), *why_none],
        sections=[
            *chosen,
            *row_sections(drawn, weighted="weights" in run),
            *selection_section(run, scorer),
            settings_section(
                [
                    ("known normals", run.text("null", "")),
                    ("detector", run.text("detector", "")),
                    ("rows to test", run.text("test", "")),
                    ("level", run.text("level")),
                    ("scorer", scorer),
                ]
            ),
        ],
    )


def _level(run: Checked) -> float:
    try:
        return float(as_level(run.text("level")))
    except InputError:
        run.refuse("level", "is not a level between 0 and 1")


_MOST_ROWS = 200
_SHOWN_ROWS = 15
_WORDS = (
    "A ledger decides about the rows of all batches together. The rows below came on the list, or"
    " went off it, when this batch was added."
)


def with_ledger(story: Story, run: Checked) -> Story:
    """Let a page speak of the list of all batches, if a ledger decided."""
    if "ledger" not in run:
        return story
    ledger = run.object("ledger")
    if "sites" in ledger:
        return _network(story, ledger)
    n_listed, n_tests = ledger.integer("n_listed"), ledger.integer("n_tests")
    number, name = ledger.integer("batch"), shortened(ledger.text("name"))
    promise = story.facts[0][1] if story.facts else ""
    lead = (
        f"{name} is batch {number:,}. The list of all batches so far has {n_listed:,} of"
        f" {counted(n_tests, 'row')}, and on average at most {promise} of them are false alarms."
    )
    facts = [*story.facts, ("rows on the list of all batches", f"{n_listed:,}")]
    section = Section("The list so far", [_WORDS], tables=_tables(ledger))
    return replace(story, lead=lead, facts=facts, sections=[section, *_without_resolution(story)])


def _without_resolution(story: Story) -> list[Section]:
    """Leave out how few rows of a batch by itself could be flagged: the list decides."""
    return [section for section in story.sections if section.title != RESOLUTION]


def _network(story: Story, ledger: Checked) -> Story:
    """Add the list of a network; the rest of the page is about the run of the batch alone."""
    sites = ledger.object("sites")
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
        ledger.text("guarantee"),
        "The rest of this page is about the run of this batch, at half the level.",
    ]
    tables, n_listed = [table], sum(site.integer("n_listed") for site in by_name.values())
    promised = percent(_level(ledger))
    facts = [
        ("false alarms on the list, at most on average", promised),
        ("rows on the list of all batches", f"{n_listed:,}"),
        *story.facts[1:],
    ]
    if len(by_name) == 1 and "n_listed_in_all" in ledger:
        facts.insert(2, ("on the lists of all sites", f"{ledger.integer('n_listed_in_all'):,}"))
    lead = (
        f"On average at most {promised} of the rows on the list of all batches are false alarms."
        f" In the run of this batch, {story.headline}."
    )
    for site in by_name.values():
        if len(by_name) == 1:  # a site's own page: which rows they are
            words.insert(1, _WORDS)
            tables += _tables(site)
    section = Section("The list so far", words, tables=tables)
    headline = f"{counted(n_listed, 'row')} on the list of all batches"
    sections = [section, *_without_resolution(story)]
    return replace(story, headline=headline, lead=lead, facts=facts, sections=sections)


def _tables(ledger: Checked) -> list[Table]:
    tables = []
    for key, caption in (("joined", "Rows that joined the list"), ("left", "Rows that left it")):
        rows = ledger.objects(key)
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
        tables.append(Table(caption, ["row", "batch"], cells, more, frozenset({1}), _SHOWN_ROWS))
    return tables

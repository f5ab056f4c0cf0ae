"""The page about several runs on the same rows: how often each was flagged, and what decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conovel.errors import InputError, RunFileError
from conovel.protocol.recompute import combined
from conovel.protocol.replay import verify
from conovel.protocol.transcript import Transcript
from conovel.report.lists import none_because
from conovel.report.network import promise, read_truth, realised, settings_of
from conovel.report.picture import MOST_ROWS, shortened
from conovel.report.run_pictures import REPEATS_FORMAT, RepeatedRows, of_repeats
from conovel.report.sections import NOT_CLAIMED, lead, settings_section
from conovel.report.tables import MOST_COLUMNS, MOST_ROUNDS, revealed_rows
from conovel.report.view import MOST_SITES, Checked, Section, Story, Table
from conovel.spec.findings import percent
from conovel.spec.run_spec import RunSpec
from conovel.stats.levels import MAX_REPEATS, as_level
from conovel.stats.words import counted

_HOW = (
    "One run depends on its random split of the known normals. So {repeats} runs with splits of"
    " their own tested the rows, each at level {level}. A flag in a run that flagged few rows is"
    " stronger evidence than one in a run that flagged many. A row is flagged when its evidence,"
    " averaged over all runs, is large enough (e-BH, or closed e-BH where a site decides alone);"
    " all comparisons were made in whole numbers."
)


@dataclass(frozen=True)
class Runs:
    """What is known of each run."""

    level: str
    seeds: list[int]
    n_rejected: list[int]


_NO_LISTS = none_because("with repeats evidence decides, which no single score ranks")


def repeated_detection_story(run: Checked) -> Story:
    """Describe what one site decided by several runs."""
    part, level = run.object("repeats"), _level(run)
    runs = Runs(part.text("level"), part.integers("seeds"), part.integers("n_rejected"))
    n_rejected, n_test = run.integer("n_rejected"), run.integer("n_test")
    guarantee, repeats = run.object("guarantee"), _number_of(runs, part)
    settings = [
        ("known normals", run.text("null", "")),
        ("rows to test", run.text("test", "")),
        ("level", run.text("level")),
        ("repeats", repeats),
        ("scorer", run.text("scorer")),
    ]
    return Story(
        kind="One site",
        headline=f"{n_rejected:,} of {counted(n_test, 'row')} flagged as novel",
        lead=lead(n_rejected, level) + _lead(repeats),
        facts=[
            ("false alarms, at most on average", percent(level)),
            ("rows tested", f"{n_test:,}"),
            ("runs", f"{repeats:,}"),
            ("known normals to train on", f"{run.integer('n_train'):,}"),
            ("known normals to compare with", f"{run.integer('n_calibration'):,}"),
        ],
        guarantee=guarantee.text("statement"),
        assumptions=guarantee.texts("assumptions"),
        caveats=[NOT_CLAIMED, _NO_LISTS],
        sections=[
            *_row_sections(run.object("picture"), runs),
            Section("The runs", tables=[_run_rows(runs)]),
            settings_section(settings),
        ],
    )


def repeated_network_story(run: Checked) -> Story:
    """Describe what several sites decided by several runs."""
    try:
        spec = RunSpec.from_dict(run.object("spec").value)
        transcripts = [
            Transcript.from_dict(one.object("transcript").value)
            for one in run.objects("runs")[:MAX_REPEATS]
        ]
        seeds = [transcript.settings.seed for transcript in transcripts]
        level = str(transcripts[0].settings.level) if transcripts else str(spec.level)
    except InputError as error:
        raise RunFileError(f"runs: {shortened(str(error), 300)}") from None
    each = [one.integer("n_rejected") for one in run.objects("runs")[:MAX_REPEATS]]
    runs, truth = Runs(level, seeds, each), read_truth(run)
    findings = verify(run.value)
    n_rejected, drawn = run.integer("n_rejected"), _picture(run, spec, findings)
    sites = drawn.object("sites")
    n_tested = sum(sites.object(name).integer("n_tested") for name in sites)
    n_bytes = [transcript.totals()["bytes"] for transcript in transcripts]
    rounds = run.objects("evidence_rounds")
    revealed = revealed_rows(spec)
    words = realised(truth)
    promised = promise(run, Transcript(spec=spec))
    if promised:
        promised["caveats"] += [_NO_LISTS]
    return Story(
        kind="Several sites",
        headline=f"{n_rejected:,} of {counted(n_tested, 'row')} flagged as novel",
        lead=lead(n_rejected, float(spec.level), " of all sites together")
        + _lead(spec.repeats)
        + words,
        facts=[
            ("false alarms, at most on average", percent(float(spec.level))),
            ("sites", f"{len(sites.value):,}"),
            ("rows tested", f"{n_tested:,}"),
            ("runs", f"{spec.repeats:,}"),
            ("bytes in all messages", f"{sum(n_bytes):,}"),
        ],
        warnings=[shortened(finding, 300) for finding in findings[:20]],
        **promised,
        sections=[
            *_row_sections(drawn, runs),
            Section("The sites", tables=[_site_rows(sites)]),
            Section("The runs", tables=[_run_rows(runs, n_bytes)]),
            *_counting(rounds),
            Section(
                revealed.caption,
                [
                    f"What left each site in the regime “{spec.regime.name}”, in every run. After"
                    " the runs, the counts of the evidence."
                ],
                tables=[revealed],
            ),
            settings_section(settings_of(spec).items()),
        ],
    )


def _picture(run: Checked, spec: RunSpec, findings: list[str]) -> Checked:
    """Read the picture, or make one from the decisions if the file has none."""
    if "picture" in run:
        return run.object("picture")
    if findings:
        raise RunFileError(f"decisions cannot be drawn: {shortened(findings[0], 300)}")
    decided, sites = combined(spec, run.value), run.objects("runs")[0].object("decisions")
    rows = {
        name: RepeatedRows(
            part, decided.rejected[name], sites.object(name).integer("n_calibration")
        )
        for name, part in decided.parts.items()
    }
    return Checked(of_repeats(rows), "decisions")


def _lead(repeats: int) -> str:
    return f" The rows were tested in {repeats:,} runs, which decide together."


def _level(run: Checked) -> float:
    try:
        return float(as_level(run.text("level")))
    except InputError:
        run.refuse("level", "is not a level between 0 and 1")


def _number_of(runs: Runs, part: Checked) -> int:
    repeats = len(runs.n_rejected)
    if not 1 <= repeats == len(runs.seeds) <= MAX_REPEATS:
        part.refuse("seeds", "is not one seed for each run")
    return repeats


def _row_sections(drawn: Checked, runs: Runs) -> list[Section]:
    if drawn.text("format") != REPEATS_FORMAT:
        drawn.refuse("format", f"is not {REPEATS_FORMAT}")
    repeats = len(runs.n_rejected)
    rows = _novel_rows(drawn, repeats)
    times = drawn.object("times")
    counts = times.integers("tests"), times.integers("rejected")
    if {len(part) for part in counts} != {repeats + 1}:
        times.refuse("tests", f"has not one count for each of 0 to {repeats} runs")
    table = Table(
        "How often rows were flagged",
        ["flagged in", "rows", "of these flagged in the end"],
        [
            [f"{n} of {repeats} runs", f"{tests:,}", f"{rejected:,}"]
            for n, (tests, rejected) in reversed(list(enumerate(zip(*counts, strict=True))))
        ],
        shown=25,
    )
    how = _HOW.format(repeats=repeats, level=shortened(runs.level))
    return [
        Section(rows.caption, tables=[rows]),
        Section("How it was decided", [how], tables=[table]),
    ]


def _novel_rows(drawn: Checked, repeats: int) -> Table:
    several = len(drawn.object("sites").value) > 1
    rows = []
    for row in drawn.objects("rows")[:MOST_ROWS]:
        cells = [shortened(row.text("row")), *([shortened(row.text("site"))] if several else [])]
        cells.append("● flagged" if row.flag("rejected") else "○ not flagged")
        cells.append(f"{row.integer('times_flagged'):,} of {repeats} runs")
        rows.append([*cells, f"{row.number('e_value'):.4g}"])
    columns = ["row", *(["site"] if several else []), "decision", "flagged in", "e-value"]
    note = (
        "Largest e-value first: the evidence averaged over the runs. Rows that no run flagged are"
        f" not listed, and at most {MOST_ROWS} are."
    )
    text = frozenset(range(len(columns) - 1))
    return Table("The most novel rows", columns, rows, note, text, shown=15)


def _run_rows(runs: Runs, n_bytes: list[int] | None = None) -> Table:
    rows = [
        [str(b), str(seed), f"{n:,}", *([f"{n_bytes[b - 1]:,}"] if n_bytes else [])]
        for b, (seed, n) in enumerate(zip(runs.seeds, runs.n_rejected, strict=True), 1)
    ]
    columns = ["run", "seed", "rows it flagged", *(["bytes in messages"] if n_bytes else [])]
    note = (
        f"Each run was made at level {shortened(runs.level)}, and can be made again by its seed."
    )
    return Table("What each run flagged", columns, rows, note, text=frozenset({1}), shown=20)


def _site_rows(sites: Checked) -> Table:
    rows = []
    for name in list(sites)[:MOST_SITES]:
        site = sites.object(name)
        keys = ("n_calibration", "n_tested", "n_rejected")
        rows.append([shortened(name), *(f"{site.integer(key):,}" for key in keys)])
    return Table("The sites", ["site", "calibrating", "tested", "flagged"], rows, shown=30)


def _counting(rounds: list[Checked]) -> list[Section]:
    """Show the counts by which the sites decided together; none where each decided alone."""
    if not rounds:
        return []
    words = (
        "Each site knows the evidence about its own rows. Each round asks how many of them have"
        " at least the evidence that k flagged rows need; k falls until the answer stays."
    )
    tables: list[Mapping[str, Any]] = [round_.object("counts").value for round_ in rounds]
    names = sorted(tables[0]) if len(tables[0]) <= MOST_COLUMNS else []
    rows = []
    for i, round_ in enumerate(rounds[:MOST_ROUNDS], 1):
        counts = round_.object("counts")
        total = sum(counts.integer(name) for name in counts)
        cells = [str(i), f"{round_.integer('k'):,}", f"{total:,}"]
        rows.append(cells + [f"{counts.integer(name):,}" for name in names])
    columns = ["round", "k", "all sites", *(shortened(name, 24) for name in names)]
    table = Table("The counts of the evidence", columns, rows, shown=12)
    return [Section(table.caption, [words], tables=[table])]

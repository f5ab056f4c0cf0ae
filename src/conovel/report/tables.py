"""The tables of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conovel.deciding.asking import Question, Step
from conovel.deciding.counts import step_of
from conovel.deciding.ways import revealed_by, ways_of
from conovel.protocol.group_records import AgentGroup
from conovel.protocol.transcript import Transcript
from conovel.report.picture import shortened
from conovel.report.plots import spelled
from conovel.report.view import MOST_SITES, Picture, Table
from conovel.spec.bodies import COORDINATOR
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS

MOST_MESSAGES = 300
MOST_ROUNDS = 200
MOST_COLUMNS = 8  # agents side by side in one table

MEANING = {
    "HELLO": "says who takes part, with how many rows",
    "ROSTER": "says who takes part",
    "MODEL": "a score model, as bytes",
    "KEY": "a public key, to make masks with",
    "SUMS": "adds numbers to a sum",
    "TOTALS": "tells the sums",
    "READY": "says that the ranks are ready",
    "LEFT": "says who vanished",
    "START": "says how many tests there are",
    "BELOW": "asks for p-values below a limit",
    "STEP": "asks for p-values within the step-up",
    "COUNT": "answers with one number",
    "HISTOGRAM": "counts the rows in each cell",
    "SIZES": "tells everybody's numbers of rows",
    "MASKED": "adds hidden counts to those of a group",
    "WANTED": "tells what the groups want, and x",
    "CELLS": "tells the counts of the groups",
    "SHARED": "counts the rows in each cell",
    "OUTCOME": "says where the counts ended",
    "ABORT": "breaks the run off",
}


@dataclass(frozen=True)
class Truth:
    """Numbers of novelties, of those found, and of false alarms; known in simulations only."""

    novel: int
    true: int
    false: int


def novel_rows(picture: Picture) -> Table:
    """List the most novel rows first."""
    several = len(picture.sites) > 1
    # As many digits as are needed to distinguish steps of 1/(ℓ+1).
    finest = max((site.n_calibration for site in picture.sites.values()), default=0)
    digits = min(max(4, len(str(finest))), 9)
    with_score = any(row.score is not None for row in picture.most_novel)
    columns = [
        "row",
        *(["site"] if several else []),
        "decision",
        "p-value",
        "rank",
        *(["score"] if with_score else []),
    ]
    rows = []
    for row in picture.most_novel:
        cells = [row.row, *([row.site] if several else [])]
        cells.append("● flagged" if row.rejected else "○ not flagged")
        cells += [f"{row.p_value:.{digits}f}", f"{row.rank:,}"]
        if with_score:
            cells.append("" if row.score is None else f"{row.score:.4f}")
        rows.append(cells)
    m = sum(site.n_tested for site in picture.sites.values())
    note = (
        "Smallest p-value first; equal ones by score. The rank is one more than the number of"
        " known normals that look at least as novel."
    )
    if len(rows) < m:
        note += f" The other {m - len(rows):,} tested rows are not listed here."
    text = frozenset({0, *range(1, 3 if several else 2)})
    return Table("The most novel rows", columns, rows, note, text, shown=15)


def resolution_rows(picture: Picture) -> Table:
    """Show the smallest possible p-value of each site, and its limit."""
    rows = []
    for name, site in picture.sites.items():
        rows.append(
            [
                shortened(name) or "this site",
                f"{1 / (site.n_calibration + 1):.2g}",
                _fewest(site.fewest),
                f"{site.n_calibration:,}",
                f"{site.limit - 1:,}" if site.limit else "not flagged",
            ]
        )
    columns = [
        "site",
        "smallest p-value possible",
        "fewest rows that could be flagged",
        "known normals compared with",
        "as novel as a flagged row, at most",
    ]
    note = (
        "A p-value is at least one over the number of known normals plus one, so a step-up can"
        " only flag rows in groups of some size. Where the last column is 0 or 1, more known"
        " normals would sharpen the decision."
    )
    return Table("Resolution left", columns, rows, note)


def _fewest(fewest: int | None) -> str:
    if fewest is None:
        return "not known here"
    return f"{fewest:,}" if fewest else "no row could be"


def agent_rows(
    transcript: Transcript, picture: Picture | None, truth: Mapping[str, Truth]
) -> Table:
    """One line per site: rows, decisions, traffic."""
    traffic = transcript.totals()["by_agent"]
    sites = picture.sites if picture else {}
    columns = ["site", "took part", "known normals", "calibrating", "tests", "tested", "flagged"]
    columns += ["bytes sent", "bytes received"]
    columns += ["found", "false alarms"] if truth else []
    rows = []
    for name in sorted({*transcript.roster, *transcript.agents, *sites})[:MOST_SITES]:
        sizes, site = transcript.agents.get(name), sites.get(name)
        moved = traffic.get(name, {"sent": 0, "received": 0})
        left = transcript.left.get(name)
        status = "to the end" if left is None else "lost in the counts" if left else "left before"
        cells = [shortened(name), status]
        sizes_known: tuple[int | None, ...] = (None,) * 4
        if sizes:
            sizes_known = (sizes.n_null, sizes.n_calibration, sizes.n_test, sizes.n_tested)
        elif site:  # rows were pooled, so no site sent a hello
            sizes_known = (None, site.n_calibration, None, site.n_tested)
        cells += map(_count, sizes_known)
        cells += [_count(site.n_rejected) if site else "not known"]
        cells += [_count(moved["sent"]), _count(moved["received"])] if sizes else ["", ""]
        if truth:
            known_truth = truth.get(name)
            cells += (
                [f"{known_truth.true:,} of {known_truth.novel:,}", f"{known_truth.false:,}"]
                if known_truth
                else ["", ""]
            )
        rows.append(cells)
    return Table("The sites", columns, rows, text=frozenset({0, 1}), shown=30)


def round_rows(transcript: Transcript) -> Table:
    """One line per round of counts; one site's record has only its own counts."""
    counted = {name for round_ in transcript.rounds.values() for name in round_.counts}
    names = sorted(counted) if len(counted) <= MOST_COLUMNS else []
    whole = counted >= set(transcript.outcome.participants) if transcript.outcome else False
    rows = []
    for number, round_ in sorted(transcript.rounds.items())[:MOST_ROUNDS]:
        counts = round_.counts
        cells = [str(number), question_in_words(round_.question)]
        cells += [f"{sum(counts.values()):,}"] if whole else []
        rows.append(cells + [_count(counts.get(name)) for name in names])
    columns = ["round", "p-values counted", *(["all sites"] if whole else [])]
    columns += [shortened(name, 24) for name in names]
    return Table("The counts", columns, rows, text=frozenset({1}), shown=12)


def reveal_rows(transcript: Transcript) -> Table:
    """One line per site that revealed its counts: its tests, what could matter, and its count."""
    outcome = transcript.outcome
    k = step_of(outcome).k if outcome else 0
    rows = []
    for name, reveal in sorted(transcript.reveals.items()):
        within = sum(n for at, n in zip(reveal.steps, reveal.tests, strict=False) if at <= k)
        numbers = [reveal.n_tested, sum(reveal.tests), within]
        digest = transcript.commitments.get(name, b"").hex()[:16]
        rows.append([shortened(name, 24), *(f"{n:,}" for n in numbers), digest])
    columns = ["site", "rows tested", "p-values up to the level", "within the limit", "commitment"]
    return Table("The counts", columns, rows, text=frozenset({4}), shown=12)


def cell_rows(transcript: Transcript) -> Table:
    """One line per site of the regime `joint`: its rows above its floor, and those flagged."""
    outcome = transcript.outcome
    lowest = dict(zip(outcome.participants, outcome.cells, strict=False)) if outcome else {}
    rows = []
    counted = transcript.cell_counts or transcript.group_cells  # of sites, or of groups
    for name, counts in sorted(counted.items()):
        cut = lowest.get(name, N_CELLS)
        flagged = sum(counts.tests[cut:])
        above = [
            sum(counts.calibration),
            sum(counts.tests),
            sum(counts.calibration[cut:]),
            flagged,
        ]
        rows.append([shortened(name, 24), *(f"{n:,}" for n in above)])
    columns = [
        "first site of a group" if transcript.group_cells else "site",
        "calibration rows above the floor",
        "test rows above the floor",
        "calibration rows in flagged cells",
        "test rows flagged",
    ]
    return Table("Rows above the floors", columns, rows, shown=12)


def group_rows(transcript: Transcript, groups: Sequence[AgentGroup]) -> Table:
    """One line per site of the regime `joint`: its group, and what the group's numbers are."""
    rows = []
    for number, group in enumerate(groups, 1):
        for name in group.agents:
            floor = "reached" if name in group.floors_reached else "not reached"
            rows.append(
                [
                    shortened(name, 24),
                    str(number) if group.can_reject else f"{number}, cannot flag",
                    spelled(float(group.weight)),
                    str(group.x) if group.x else "no floor",
                    f"{float(1 - group.level_used / transcript.settings.level):.0%}",
                    f"{transcript.agents[name].n_calibration:,}",
                    "none" if group.cell is None else f"{group.cell:,}",
                    floor if group.x else "no floor",
                ]
            )
    columns = [
        "site",
        "group",
        "weight of a calibration row",
        "x",
        "share of the level that x cost",
        "calibration rows counted",
        "lowest flagged cell",
        "floor",
    ]
    return Table("The groups", columns, rows[:MOST_SITES], text=frozenset({0, 1, 3, 7}), shown=30)


def question_in_words(question: Question) -> str:
    """Describe the p-values that a round counts."""
    if isinstance(question, Step):
        return f"up to {spelled(float(question.slope * question.k))}"
    return f"below {spelled(float(question.p_value))}"


def message_rows(transcript: Transcript) -> list[Table]:
    """List messages by kind, and the first ones one by one."""
    totals = transcript.totals()
    by_kind = [
        [kind.lower(), MEANING.get(kind, ""), f"{sums['messages']:,}", f"{sums['bytes']:,}"]
        for kind, sums in totals["by_kind"].items()
    ]
    by_kind.append(["all", "", f"{totals['messages']:,}", f"{totals['bytes']:,}"])
    listed = sorted(transcript.entries, key=lambda entry: entry.place)
    every = [
        [
            str(i + 1),
            entry.kind.lower(),
            shortened(entry.sender, 24),
            shortened(entry.receiver, 24),
            str(entry.round or ""),
            f"{entry.n_bytes:,}",
        ]
        for i, entry in enumerate(listed[:MOST_MESSAGES])
    ]
    more = len(listed) - len(every)
    note = f"{more:,} further messages are in the run's own file." if more else ""
    heads = ["kind", "what it does", "messages", "bytes"]
    return [
        Table("Messages by kind", heads, by_kind, text=frozenset({1}), total=True),
        Table(
            "Every message",
            ["no.", "kind", "from", "to", "round", "bytes"],
            every,
            note,
            text=frozenset({1, 2, 3}),
            shown=0,
        ),
    ]


def revealed_rows(spec: RunSpec) -> Table:
    """Show what was revealed to which party (docs/revealed.md)."""
    rows = [["what this regime sends", *revealed_by(spec)]]
    if not ways_of(spec.regime).learning.simulated:
        to_peers = "of each site" if spec.masks else "totals over all sites"
        rows += [
            ["names of the sites", "all", "all"],
            ["numbers of rows", to_peers, "of each site"],
            ["names of the columns", "that they are equal", "their number and a digest"],
            ["who vanished, and when", "yes", "yes"],
            ["rows, scores, ranks, p-values", "nothing", "nothing"],
            ["which rows are flagged", "nothing", "nothing"],
        ]
    return Table(
        "What was revealed to whom",
        ["what", "to the other sites", f"to the {COORDINATOR}"],
        rows,
        text=frozenset({0, 1, 2}),
    )


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"

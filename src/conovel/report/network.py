"""The decisions and messages of a network, as far as the file has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conovel.deciding.asking import Step
from conovel.deciding.ways import ways_of
from conovel.errors import ConovelError, InputError, RunFileError
from conovel.protocol.group_records import AgentGroup, groups_of
from conovel.protocol.replay import verify
from conovel.protocol.transcript import Transcript
from conovel.report.certified import certified_lead
from conovel.report.lists import network_lists
from conovel.report.picture import SiteRanks, picture, shortened
from conovel.report.plots import rounds_plot
from conovel.report.roaming import flow_section, type_section
from conovel.report.run_pictures import lines_of
from conovel.report.sections import (
    NOT_CLAIMED,
    row_sections,
    selection_section,
    settings_section,
    threshold_fact,
)
from conovel.report.tables import (
    Truth,
    agent_rows,
    cell_rows,
    group_rows,
    message_rows,
    reveal_rows,
    revealed_rows,
    round_rows,
)
from conovel.report.view import Checked, Picture, Section, Story, read_picture
from conovel.spec.findings import percent
from conovel.spec.run_spec import RunSpec
from conovel.stats.words import counted


def network_story(run: Checked) -> Story:
    """Describe a run of several sites: the decisions that the file has, and the messages."""
    try:
        transcript = Transcript.from_dict(run.object("transcript").value)
        spec = transcript.settings
    except InputError as error:
        raise RunFileError(f"transcript: {shortened(str(error), 300)}") from None
    if not all(0 <= n < 2**63 for n in _numbers(transcript)):
        raise RunFileError(
            "transcript: a number in it is negative or too large for a number of rows"
        )
    drawn, truth = _picture(run, transcript), read_truth(run)
    headline, n_rejected = _headline(transcript, drawn)
    level = float(spec.level)
    chosen, why_none = network_lists(run, transcript)
    promised = promise(run, transcript)
    if promised:
        promised["caveats"] += why_none
    return Story(
        kind="Several sites",
        headline=headline,
        lead=certified_lead(run, n_rejected, level, " of all sites together") + realised(truth)
        if n_rejected is not None
        else "",
        facts=_facts(transcript, drawn, level),
        warnings=_contradictions(run, transcript, drawn),
        **promised,
        sections=[
            *chosen,
            *(row_sections(drawn) if drawn else []),
            *selection_section(run),
            Section("The sites", tables=[agent_rows(transcript, drawn, truth)]),
            *_counting(transcript, _groups(run, transcript)),
            *flow_section(run, transcript),
            *_messages(transcript),
            settings_section(settings_of(spec).items()),
        ],
    )


def settings_of(spec: RunSpec) -> dict[str, Any]:
    """Give the settings that made a difference."""
    settings, ways = spec.to_dict(), ways_of(spec.regime)
    if not ways.learning.model_rounds:
        del settings["composite"], settings["bits"]
    if spec.repeats == 1:
        del settings["repeats"]
    if not ways.deciding.shares_counts:
        del settings["liars"], settings["counting"]
    if not spec.is_committed:
        del settings["reveal_to"]
    if spec.privacy is not None:
        settings["privacy"] = (
            f"{spec.privacy.in_words}, for every row in what each site learns and sends"
        )
    return settings


def _numbers(transcript: Transcript) -> Iterator[int]:
    yield transcript.n_tests
    yield from transcript.left.values()
    for sizes in transcript.agents.values():
        yield from astuple(sizes)
    for number, round_ in transcript.rounds.items():
        yield from (number, *round_.counts.values())
    for reveal in transcript.reveals.values():
        yield from (reveal.n_tested, reveal.n_calibration, *reveal.steps, *reveal.tests)
    for entry in transcript.entries:
        yield from (entry.round, entry.n_bytes)


def _picture(run: Checked, transcript: Transcript) -> Picture | None:
    """Read the picture, or make one from the ranks if the file has none."""
    if "picture" in run:
        return read_picture(run.object("picture"))
    decisions = run.object("decisions") if "decisions" in run else Checked({})
    blocks = {}
    for name in decisions:
        site = decisions.object(name)
        ranks = np.array(site.integers("ranks"), dtype=np.int64)
        rejected = np.array(site.flags("rejected"), dtype=np.bool_)
        n_calibration = site.integer("n_calibration")
        if ranks.shape != rejected.shape:
            site.refuse("rejected", "is not one entry for each rank")
        if ranks.max(initial=0) > n_calibration + 1:
            site.refuse("ranks", "has a rank above the number of known normals plus one")
        rows = np.flatnonzero(ranks)
        if rows.size:
            block = SiteRanks(ranks[rows], rejected[rows], n_calibration, rows)
            blocks[name] = _with_names(block, site, rows, ranks.size)
    if not blocks:
        return None
    try:
        plain = picture(blocks, lines_of(transcript, blocks))
    except (ConovelError, ZeroDivisionError) as error:
        raise RunFileError(f"decisions cannot be drawn: {error}") from None
    return read_picture(Checked(plain, "decisions"))


def _with_names(block: SiteRanks, site: Checked, rows: NDArray[np.intp], m: int) -> SiteRanks:
    """Add names and scores of the rows, where the file has them."""
    for key in ("ids", "scores"):
        if key in site and len(site.rows(key)) != m:
            site.refuse(key, "is not one entry for each rank")
    if "ids" in site:
        ids = site.rows("ids")
        block = replace(block, names=np.array([str(ids[row]) for row in rows], dtype=object))
    if "scores" in site:
        scores = site.rows("scores")
        tested = Checked({"scores": [scores[row] for row in rows]}, site.path).numbers("scores")
        block = replace(block, scores=np.array(tested, dtype=np.float64))
    return block


def _headline(transcript: Transcript, drawn: Picture | None) -> tuple[str, int | None]:
    outcome = transcript.outcome
    if _is_broken_off(transcript):
        return "The run was broken off: nothing was decided", None
    if drawn:
        n_rejected = sum(site.n_rejected for site in drawn.sites.values())
        tested = sum(site.n_tested for site in drawn.sites.values())
        alone = len(drawn.sites) == 1 < len(transcript.roster)
        whose = f" of {shortened(next(iter(drawn.sites)))}" if alone else ""
        return f"{n_rejected:,} of {counted(tested, 'row')}{whose} flagged as novel", n_rejected
    if outcome and ways_of(transcript.settings.regime).deciding.shares_counts:
        n_rejected = outcome.n_rejected
        return f"{n_rejected:,} of {counted(outcome.n_tests, 'row')} flagged as novel", n_rejected
    return "Every site decided for itself", None


def _is_broken_off(transcript: Transcript) -> bool:
    return bool(transcript.abort or (transcript.outcome is None and transcript.entries))


def _facts(transcript: Transcript, drawn: Picture | None, level: float) -> list[tuple[str, str]]:
    outcome = transcript.outcome
    sites = drawn.sites if drawn else {}
    tested = sum(site.n_tested for site in sites.values())
    promised = [("false alarms, at most on average", percent(level))]
    facts = [
        *([] if _is_broken_off(transcript) else promised),
        ("sites", f"{len(transcript.roster) or len(sites):,}"),
        ("rows tested", f"{outcome.n_tests if outcome else tested:,}"),
    ]
    if outcome and drawn and not all(curve.whole for curve in drawn.step_up):
        facts.append(("flagged over all sites", f"{outcome.n_rejected:,}"))
    if transcript.entries:
        word = "round of counts" if transcript.n_rounds == 1 else "rounds of counts"
        facts.append((word, f"{transcript.n_rounds:,}"))
        moved = "bytes in its messages" if _is_of_one_site(transcript) else "bytes in all messages"
        facts.append((moved, f"{transcript.totals()['bytes']:,}"))
    return facts + (threshold_fact(drawn) if drawn else [])


def promise(run: Checked, transcript: Transcript) -> dict[str, Any]:
    """Return the guarantee in plain words, and its exact wording as a caveat."""
    exact, outcome = shortened(run.text("guarantee", ""), 2000), transcript.outcome
    if not exact or (outcome is None and transcript.entries):
        return {}
    spec = transcript.settings
    ways, bound = ways_of(spec.regime), percent(float(spec.level))
    shares_counts = ways.deciding.shares_counts
    statement = (
        "Among all flagged rows of all sites together, the expected share of false alarms is at"
        f" most {bound}."
    )
    if spec.pi0 and shares_counts and not spec.pi0.proven_for_several:
        statement = f"Meant to keep false alarms to {bound}, but no proof covers this setting."
    if ways.deciding.false_alarm:
        statement += " A row is a false alarm if it is normal at any site, not only at its own."
    needs = list(ways.plain_needs)
    if shares_counts:
        needs.append("no site lies about its counts")
    if spec.liars:
        needs[-1] = f"at most {spec.liars} of the sites lie about their counts"
        statement = statement.replace("all sites together", "all sites that do not lie")
    if outcome and outcome.left_out and shares_counts:
        needs.append("no site left because of how its own rows were split")
    if outcome and outcome.dropped:
        needs.append("no site was lost because of what others counted")
    caveats = [NOT_CLAIMED, f"In its exact wording: {exact}"]
    return {"guarantee": statement, "assumptions": needs, "caveats": caveats}


def _groups(run: Checked, transcript: Transcript) -> tuple[AgentGroup, ...]:
    """Derive the groups of the regime `joint`; none from a file that contradicts itself."""
    decisions = run.object("decisions") if "decisions" in run else Checked({})
    sites = {name: decisions.object(name) for name in decisions}
    floors = {name: site.integer("floor") for name, site in sites.items() if "floor" in site}
    try:
        return groups_of(transcript, floors)
    except (ConovelError, LookupError, ValueError, ArithmeticError):
        return ()


def _counting(transcript: Transcript, groups: tuple[AgentGroup, ...]) -> list[Section]:
    if transcript.cell_counts or transcript.group_cells:
        return [_cells(transcript, groups)]
    if transcript.shared:
        return [type_section(transcript)]
    if transcript.reveals:
        return [_reveals(transcript)]
    if not transcript.rounds:
        return []
    words = (
        "The sites never compare rows. Each round asks how many p-values lie within the current"
        " limit; the limit falls until the answer stays."
    )
    # Every question holds the last total, so the record of one site is enough.
    questions = [r.question for _, r in sorted(transcript.rounds.items())]
    totals = [question.k for question in questions if isinstance(question, Step)]
    if transcript.outcome:
        totals.append(transcript.outcome.n_rejected)
    plots = [rounds_plot(totals, "Rows still in question")] if len(totals) > 1 else []
    table = round_rows(transcript)
    return [Section(table.caption, [words], plots=plots, tables=[table])]


_COMMITTED = (
    "Each site committed to its counts by a hash before any site revealed them, so that none could"
    " fit its counts to those of the others."
)


def _tolerance(spec: RunSpec) -> str:
    if not spec.liars:
        return "No site may lie about its counts: liars are not tolerated in this run."
    return f"{spec.liars} of the sites may lie: the largest counts do not raise the limit."


def _reveals(transcript: Transcript) -> Section:
    table = reveal_rows(transcript)
    words = [f"The sites never compare rows. {_COMMITTED}", _tolerance(transcript.settings)]
    return Section(table.caption, words, tables=[table])


_MASKED = "adds them to those of its group under masks, so that only totals are seen"


def _cells(transcript: Transcript, groups: tuple[AgentGroup, ...]) -> Section:
    words = [
        "Each site counts its calibration rows and test rows in every cell above its floor, and"
        f" {_MASKED if transcript.group_cells else 'sends these counts'}. The calibration rows of"
        " all sites of a group count together. One step-up decides for all groups."
    ]
    if transcript.reveals:
        words += [_COMMITTED, _tolerance(transcript.settings)]
    tables = [cell_rows(transcript)]
    if groups:
        tables.insert(0, group_rows(transcript, groups))
        words += _notable(groups, transcript.settings)
    return Section("The counts", words, tables=tables)


def _notable(groups: tuple[AgentGroup, ...], spec: RunSpec) -> Iterator[str]:
    """Say what a reader should know of the groups."""
    for group in groups:
        if not group.can_reject:
            yield (
                f"This group could flag no row in this run: {_named(group.agents)}. It has too"
                " many rows to test for so few known normals, by its numbers of rows and of rows"
                " in high cells. It takes nothing from the others."
            )
    if reached := [name for group in groups for name in group.floors_reached]:
        yield (
            f"The floor was reached at {_named(reached)}: rows below it could not be flagged,"
            " although their cell was low enough. More known normals would give them room."
        )
    if any(group.x for group in groups):
        used = max(group.x for group in groups)
        yield (
            "At most a share x of a site's calibration rows, and as many test rows less, may lie"
            f" above its floor. A group pays for x: the largest x here, {percent(float(used))},"
            f" leaves {percent(float(spec.level * (1 - used)))} of the"
            f" {percent(float(spec.level))} that are promised."
        )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(shortened(name, 24) for name in names[:12])
    return f"{shown} and {len(names) - 12:,} more" if len(names) > 12 else shown


def _messages(transcript: Transcript) -> list[Section]:
    regime = transcript.settings.regime
    revealed = revealed_rows(transcript.settings)
    words = f"What left each site in the regime “{regime.name}”."
    sections = [Section(revealed.caption, [words], tables=[revealed])]
    if transcript.entries:
        which = "this site sent or received" if _is_of_one_site(transcript) else "was sent"
        words = f"Every message that {which}, by its size. No message holds a row."
        sections.append(Section("Messages", [words], tables=message_rows(transcript)))
    return sections


def _is_of_one_site(transcript: Transcript) -> bool:
    """Return whether this is the record of one site: it has the hello of no other site."""
    return len(transcript.agents) == 1 < len(transcript.roster)


def _contradictions(run: Checked, transcript: Transcript, drawn: Picture | None) -> list[str]:
    """Compute the outcome again, if the file has all that this needs; return contradictions."""
    if run.text("state", "") == "failed":
        return [shortened(run.text("message", "the run failed"), 300)]
    outcome = transcript.outcome
    if outcome is None or "decisions" not in run:
        return []
    decisions = run.object("decisions")
    if not set(outcome.participants) <= set(decisions):
        return []  # the file of one site
    decided = sum(sum(decisions.object(name).flags("rejected")) for name in decisions)
    for name in decisions:
        decisions.object(name).integers("ranks")
    contradictions = verify(run.value)
    flagged = sum(site.n_rejected for site in drawn.sites.values()) if drawn else 0
    if flagged != decided:
        contradictions.append(f"{flagged} rows are drawn as flagged, but {decided} were flagged")
    return [shortened(sentence, 300) for sentence in contradictions[:20]]


def read_truth(run: Checked) -> dict[str, Truth]:
    """Read what is known of the truth, in a simulation."""
    truth = run.object("truth") if "truth" in run else Checked({})
    return {
        name: Truth(*(truth.object(name).integer(key) for key in ("novel", "found", "false")))
        for name in truth
    }


def realised(truth: Mapping[str, Truth]) -> str:
    """Say how many of the decisions are right, where the truth is known."""
    if not truth:
        return ""
    novel, n_found, false = (
        sum(getattr(t, key) for t in truth.values()) for key in ("novel", "true", "false")
    )
    return (
        f" This is a simulation, so the truth is known: {n_found:,} of {novel:,} novelties were"
        f" found, and {false:,} of the flagged rows are false alarms."
    )

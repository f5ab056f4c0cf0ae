"""The certificate of a run from its messages: what all parties know of the cells."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.errors import InputError
from conovel.protocol.group_records import groups_of, plan_in
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import Outcome, Ready
from conovel.spec.run_spec import RunSpec
from conovel.stats.cells import N_CELLS, most_above
from conovel.stats.certificate import Block, as_confidence, false_bound
from conovel.stats.certified import Counts, ListBounds, certificate_numbers
from conovel.stats.levels import Level


def places_of(cells: Counts, floor: int = 0) -> Counts:
    """Return the places of rows in cells, the highest cell first; rows below the floor are last.

    Examples
    --------
    >>> places_of(np.array([127, 126, 3]), 5).tolist()
    [0, 1, 128]
    """
    return np.where(cells >= floor, N_CELLS - 1 - cells, N_CELLS)


def refuse_uncovered(spec: RunSpec) -> None:
    """Refuse what Theorem 21 does not cover: regimes that compare no scores, averaged evidence."""
    regime = spec.regime.name
    if regime not in ("joint", "together"):
        raise InputError(
            f"there is no certificate for a network in the regime {regime!r}: it compares no"
            " scores of different agents. Use 'joint' or 'together', or the certificate of one"
            " agent"
        )
    if spec.repeats > 1:
        raise InputError("a certificate is about one run: leave repeats out")


class _Part(NamedTuple):
    """Agents whose cells are told together, and their rows in each cell above floors."""

    agents: tuple[str, ...]
    calibration: Counts
    tests: Counts


def sizes_of(transcript: Transcript) -> dict[str, Ready]:
    """Return the numbers of rows of the agents; with masks a site is told those of all."""
    own = {name: agent.ready for name, agent in transcript.agents.items()}
    return own | transcript.all_ready


def run_bounds(transcript: Transcript, confidence: Level) -> ListBounds:
    """Return what follows for all agents of a finished run of `joint` or `together`.

    Of an agent by itself the counts below some cell are not told, and that cell depends on which
    rows are calibration rows. So thresholds below its lowest cell with rows are not used.

    Proof: Theorem 21 (docs/theory.md#thm-certificate).
    """
    spec = transcript.settings
    refuse_uncovered(spec)
    parts, ready = _parts(transcript), sizes_of(transcript)
    blocks, lowest = [], 0
    for part in parts:
        rows = part.calibration + part.tests
        for name in part.agents:
            room = transcript.rooms[name]
            for m, size, _ in ready[name].blocks:  # with strata, each of them is a block
                blocks.append(Block(m, size, most_above(size, room) if room else None))
        if len(part.agents) == 1 and not transcript.rooms[part.agents[0]]:
            lowest = max(lowest, int(np.argmax(rows > 0)) if rows.any() else N_CELLS)
    calibration, tests = (
        np.cumsum(sum((np.array(one) for one in counts), np.zeros(N_CELLS, dtype=np.int64))[::-1])
        for counts in ([p.calibration for p in parts], [p.tests for p in parts])
    )
    n = N_CELLS - lowest
    relied_on = None
    if spec.liars:  # their histograms are told one by one
        by_agent = np.sort([np.cumsum(part.tests[::-1]) for part in parts], axis=0)
        relied_on = (tests - by_agent[-spec.liars :].sum(axis=0))[:n]
    return ListBounds(tests[:n], calibration[:n], false_bound(blocks, confidence), relied_on)


def _parts(transcript: Transcript) -> list[_Part]:
    outcome = transcript.outcome
    if outcome is None or not transcript.rooms:
        raise InputError("a certificate follows from the cells of a finished run: there are none")
    if transcript.all_ready:
        cells = {g.agents: transcript.group_cells.get(g.agents[0]) for g in _groups(transcript)}
    else:
        counted = transcript.cell_counts
        tested = [n for n in outcome.participants if transcript.agents[n].n_tested]
        cells = {(name,): counted.get(name) for name in tested}
    missing = [agents[0] for agents, counts in cells.items() if counts is None]
    if missing:
        raise InputError(
            f"the cells of {', '.join(missing)} are not in this record: only the coordinator"
            " has them all"
        )
    return [
        _Part(agents, np.array(counts.calibration), np.array(counts.tests))
        for agents, counts in cells.items()
        if counts is not None
    ]


def _groups(transcript: Transcript) -> Any:
    return plan_in(transcript).groups


class CellLists(NamedTuple):
    """The lists of all agents that end with each cell, from the highest on."""

    bounds: ListBounds
    false: NDArray[np.float64]  # expected in each list if no test were novel
    flagged: Counts  # rows of each list that are flagged
    n_test: int


def cell_lists(transcript: Transcript, confidence: Level) -> CellLists:
    """Return what is known of lists of all agents, from the messages of a finished run.

    False rows of a group of agents are estimated as its step-up does: w·(1 + C), where w is
    the largest m_j/(ℓ_j + 1). The estimate carries no guarantee.
    """
    bounds = run_bounds(transcript, confidence)
    parts, outcome = _parts(transcript), transcript.outcome
    cuts = dict(zip(outcome.participants, outcome.cells, strict=True)) if outcome else {}
    n, ready = bounds.tests.size, sizes_of(transcript)
    flagged, false = np.zeros(n, dtype=np.int64), np.zeros(n)
    for part in parts:
        above = np.arange(N_CELLS) >= cuts.get(part.agents[0], N_CELLS)
        flagged += _from_the_highest(part.tests * above)[:n]
    # The record of one site does not tell groups: then each part is one.
    together = [group.agents for group in groups_of(transcript)] or [p.agents for p in parts]
    for names in together:
        own = [part for part in parts if part.agents[0] in names]
        if not own:
            continue
        tests, calibration = (
            _from_the_highest(np.sum(counts, axis=0))[:n]
            for counts in ([p.tests for p in own], [p.calibration for p in own])
        )
        sizes = [one for part in own for name in part.agents for one in ready[name].blocks]
        weight = max(m / (size + 1) for m, size, _ in sizes)
        false += np.where(tests > 0, weight * (1 + calibration), 0.0)
    n_test = sum(ready[name].n_tested for part in parts for name in part.agents)
    return CellLists(bounds, false, flagged, n_test)


def _from_the_highest(counts: Counts) -> Counts:
    return np.cumsum(counts[::-1])


def flagged_places(transcript: Transcript, outcome: Outcome) -> Counts:
    """Return the places of the flagged rows of all agents, from cells alone."""
    cut = dict(zip(outcome.participants, outcome.cells, strict=True))
    places = []
    for part in _parts(transcript):
        cells = np.repeat(np.arange(N_CELLS), part.tests)
        places.append(places_of(cells[cells >= cut[part.agents[0]]]))
    return np.concatenate(places) if places else np.zeros(0, dtype=np.int64)


def run_numbers(transcript: Transcript, confidence: Level) -> dict[str, Any]:
    """Return the numbers of the certificate of a run, from its messages alone."""
    bounds = run_bounds(transcript, confidence)
    outcome = transcript.outcome
    flagged = flagged_places(transcript, outcome) if outcome else np.zeros(0, dtype=np.int64)
    ready = sizes_of(transcript)
    n_test = sum(ready[name].n_tested for part in _parts(transcript) for name in part.agents)
    return certificate_numbers(bounds, flagged, n_test, 1 - as_confidence(confidence))


def last_cell(transcript: Transcript, confidence: Level, max_share: Fraction) -> int:
    """Return the lowest cell of the longest list of all agents with at most this share false.

    It is the number of cells if there is no such list.
    """
    return N_CELLS - 1 - run_bounds(transcript, confidence).last_place(max_share)


def certified_findings(run: Mapping[str, Any], transcript: Transcript) -> list[str]:
    """Check the certificate of a record, and the list that a confidence asked for."""
    findings = []
    if "certificate" in run:
        given = run["certificate"]
        follows = run_numbers(transcript, given["confidence"])
        if given != follows:
            findings.append(f"the certificate is {given}, and follows to be {follows}")
    if "certified" in run:
        given, level = run["certified"], transcript.settings.level
        cell = last_cell(transcript, given["confidence"], level)
        if given["cell"] != cell:
            findings.append(f"the certified list begins at cell {cell}, not {given['cell']}")
        for name, own in run.get("decisions", {}).items():
            rows = np.asarray(own["cells"]) >= max(cell, own["floor"])
            if given["flagged"].get(name) != np.flatnonzero(rows).tolist():
                findings.append(f"the certified list of {name} is not that of its cells")
    return findings

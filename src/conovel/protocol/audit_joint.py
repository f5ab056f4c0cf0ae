"""Deriving again what a run of the regime `joint` decided, from its histograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from conovel.deciding.cells import (
    GroupOutcome,
    block_of,
    decide_groups,
    rooms_of,
    told_cells,
)
from conovel.errors import InputError
from conovel.protocol.transcript import Sizes, Transcript
from conovel.spec.bodies import Outcome
from conovel.spec.groups import Group, Numbers, divide, told_weights
from conovel.stats.cells import N_CELLS, reaches


def planned_groups(transcript: Transcript, outcome: Outcome) -> tuple[Group, ...]:
    """Derive the groups from the hellos of everybody on the roster."""
    hellos = {name: transcript.agents[name] for name in transcript.roster}
    numbers = {name: Numbers(sizes.n_null, sizes.n_test) for name, sizes in hellos.items()}
    if not all(0 <= n < 1 << 64 for rows in numbers.values() for n in rows):
        raise InputError("a number of rows is negative, or too large for a HELLO")
    n_invited = len({*outcome.participants, *outcome.left_out, *outcome.dropped})
    return divide(numbers, transcript.settings, n_invited)


def decided_groups(
    transcript: Transcript, sizes: Mapping[str, Sizes], groups: tuple[Group, ...]
) -> tuple[GroupOutcome, ...]:
    """Decide again from the histograms of those who stayed to the end."""
    spec, rooms, counts = transcript.settings, transcript.rooms, transcript.cell_counts
    ready = {name: s.ready for name, s in sizes.items() if name not in transcript.left}
    blocks = {
        name: block_of(name, one, counts[name], rooms[name], spec.level)
        for name, one in ready.items()
    }
    return decide_groups(groups, blocks, rooms, ready, spec.level, spec.liars)


def outcome_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome
) -> Iterator[str]:
    """Check that groups, x, the lowest rejected cells and the number of rejections follow."""
    n_tests = sum(s.n_tested for s in sizes.values())
    if transcript.rounds or any(round_ > 1 for round_ in transcript.left.values()):
        yield "joint has one round, in which histograms are sent"
    if transcript.n_tests != n_tests:
        yield f"the counts began with {transcript.n_tests} tests, not {n_tests}"
    groups = planned_groups(transcript, outcome)
    weights = told_weights(groups, transcript.roster)
    if transcript.weights != dict(zip(transcript.roster, weights, strict=True)):
        yield "the weights of the roster are not those that follow from the hellos"
    ready = {name: s.ready for name, s in sizes.items()}
    rooms = rooms_of(groups, ready, transcript.settings.level, transcript.settings.liars)
    if transcript.rooms != rooms:
        for name in sorted(rooms.keys() | transcript.rooms.keys()):
            told, follows = transcript.rooms.get(name), rooms.get(name)
            if told != follows:
                yield f"x of {name} is {told}, and follows to be {follows}"
        return
    stayed = [name for name in sizes if name not in transcript.left]
    if missing := sorted(set(stayed) - set(transcript.cell_counts)):
        yield f"the histogram of {', '.join(missing)} is missing"
        return
    decided = decided_groups(transcript, sizes, groups)
    n_rejected = sum(group.found.n_rejected for group in decided)
    cells = told_cells(decided, outcome.participants)
    if (outcome.n_rejected, outcome.slope, outcome.rounds) != (n_rejected, Fraction(0), 1):
        yield f"the outcome has {outcome.n_rejected} rejections, the histograms {n_rejected}"
    if outcome.cells != cells:
        yield f"the lowest rejected cells are {outcome.cells}, and follow to be {cells}"


def foreign_findings(transcript: Transcript) -> Iterator[str]:
    """Check that a run of another regime has nothing that only `joint` has."""
    wanted = any(sizes.n_wanted for sizes in transcript.agents.values())
    cells = transcript.outcome.cells if transcript.outcome else ()
    told = (wanted, cells, transcript.weights, transcript.rooms, transcript.histograms)
    if any(told):
        yield f"{transcript.settings.regime.name} has no cells, and here are some"


def decision_findings(
    transcript: Transcript, outcome: Outcome, name: str, decisions: Mapping[str, Any]
) -> Iterator[str]:
    """Check that an agent's histogram and decisions follow from the cells of its rows."""
    cells, floor = np.asarray(decisions["cells"]), decisions["floor"]
    if cells.dtype.kind not in "iu" or cells.ndim != 1 or type(floor) is not int:
        yield f"the cells of {name} are no whole numbers"
        return
    if cells.size and not 0 <= cells.min() <= cells.max() < N_CELLS:
        yield f"a row of {name} is in a cell that does not exist"
        return
    counts = np.bincount(cells[cells >= floor], minlength=N_CELLS)
    histogram = transcript.cell_counts.get(name)
    if histogram is None or counts.tolist() != list(histogram.tests):
        yield f"the histogram of {name} is not that of its rows above cell {floor}"
    elif any(histogram.calibration[:floor]):
        yield f"the histogram of {name} counts calibration rows below its floor"
    rejected, lowest = np.asarray(decisions["rejected"]), max(outcome.cell_of(name), floor)
    if not np.array_equal(rejected, reaches(cells, lowest)):
        yield f"{name} did not reject exactly its rows from cell {lowest} on"

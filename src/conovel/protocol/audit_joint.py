"""Deriving again what a run of the regime `joint` decided, from its histograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from conovel.protocol.joint import block_of, pooled_result
from conovel.protocol.messages import Outcome, Ready
from conovel.protocol.transcript import Sizes, Transcript
from conovel.spec.joint import N_CELLS
from conovel.stats.cells import choose_room, reaches


def outcome_findings(
    transcript: Transcript, sizes: Mapping[str, Sizes], outcome: Outcome
) -> Iterator[str]:
    """Check that x, the lowest rejected cell and the number of rejections follow."""
    ready = {name: Ready(s.n_tested, s.n_calibration, s.n_wanted) for name, s in sizes.items()}
    level, n_tests = transcript.agreed.level, sum(s.n_tested for s in sizes.values())
    if transcript.rounds or any(round_ > 1 for round_ in transcript.left.values()):
        yield "joint has one round, in which histograms are sent"
    if transcript.n_tests != n_tests:
        yield f"the counts began with {transcript.n_tests} tests, not {n_tests}"
    room = choose_room([one.asks for one in ready.values() if one.n_tested], level)
    if transcript.room != room:
        yield f"x is {transcript.room}, and follows to be {room}"
        return
    stayed = [name for name in sizes if name not in transcript.left]
    if missing := sorted(set(stayed) - set(transcript.histograms)):
        yield f"the histogram of {', '.join(missing)} is missing"
        return
    blocks = [block_of(name, ready[name], transcript.histograms[name], room) for name in stayed]
    found = pooled_result(blocks, level, room)
    if found != (outcome.n_rejected, outcome.slope, outcome.rounds, outcome.cell):
        yield (
            f"the outcome has {outcome.n_rejected} rejections from cell {outcome.cell} on, the"
            f" histograms {found[0]} from cell {found[3]} on"
        )


def foreign_findings(transcript: Transcript) -> Iterator[str]:
    """Check that a run of another regime has nothing that only `joint` has."""
    wanted = any(sizes.n_wanted for sizes in transcript.agents.values())
    cell = transcript.outcome.cell if transcript.outcome else 0
    if wanted or cell or transcript.room or transcript.histograms:
        yield f"{transcript.agreed.regime.name} has no cells, and here are some"


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
    histogram = transcript.histograms.get(name)
    if histogram is None or counts.tolist() != list(histogram.tests):
        yield f"the histogram of {name} is not that of its rows above cell {floor}"
    elif any(histogram.calibration[:floor]):
        yield f"the histogram of {name} counts calibration rows below its floor"
    rejected = np.asarray(decisions["rejected"])
    if not np.array_equal(rejected, reaches(cells, max(outcome.cell, floor))):
        yield f"{name} did not reject exactly its rows from cell {max(outcome.cell, floor)} on"

"""The regime `joint` from the asking side: check a histogram, and decide from all of them."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from conovel.errors import CountOutOfRangeError
from conovel.protocol.messages import Histogram, Ready
from conovel.spec.joint import N_CELLS
from conovel.stats.grouped import pooled_cut
from conovel.stats.pooled import PooledBlock


def block_of(agent: str, ready: Ready, histogram: Histogram, room: Fraction) -> PooledBlock:
    """Check an agent's histogram against the numbers that it gave before.

    Raises
    ------
    CountOutOfRangeError
        If it counts more rows than the agent has, or more above its floor than x allows.
    """
    n_calibration, n_tests = sum(histogram.calibration), sum(histogram.tests)
    if n_calibration > ready.n_calibration or n_tests > ready.n_tested:
        raise CountOutOfRangeError(
            f"{agent} counts {n_calibration} calibration rows and {n_tests} test rows, and has"
            f" {ready.n_calibration} and {ready.n_tested}",
            agent,
        )
    most = room * (ready.n_calibration + 1) // 1
    if n_calibration + n_tests > most:
        raise CountOutOfRangeError(
            f"{agent} counts {n_calibration + n_tests} rows above its floor, and x = {room} allows"
            f" {most}",
            agent,
        )
    return PooledBlock(ready.n_tested, ready.n_calibration, histogram.tests, histogram.calibration)


def pooled_result(
    blocks: Collection[PooledBlock], level: Fraction, room: Fraction
) -> tuple[int, Fraction, int, int]:
    """Return rejections, slope, rounds and the lowest rejected cell, as an outcome has them."""
    if not any(block.n_test for block in blocks):
        return 0, Fraction(0), 1, N_CELLS
    found = pooled_cut(list(blocks), level, room)
    return found.n_rejected, Fraction(0), 1, N_CELLS if found.cell is None else found.cell

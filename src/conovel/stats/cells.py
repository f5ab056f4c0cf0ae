"""The rows of one agent as counts in the cells of a common scale, for the regime `joint`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from conovel.stats.pooled import floor_cell

# Values of x: the share of ℓ + 1 that may lie above a floor. 1 - x of the level is left.
ROOMS = (Fraction(1, 20), Fraction(1, 10), Fraction(3, 20), Fraction(1, 5), Fraction(3, 10))

_LEAST_ROOM = Fraction(1, 40)  # where liars are tolerated: what is above floors is subtracted


def rooms(liars: int) -> tuple[Fraction, ...]:
    """Return the values that x may have, ascending.

    Examples
    --------
    >>> len(rooms(0)), str(rooms(1)[0])
    (5, '1/40')
    """
    return (_LEAST_ROOM, *ROOMS) if liars else ROOMS


@dataclass(frozen=True, eq=False)
class CellHistogram:
    """How many calibration rows and test rows of an agent are in each cell.

    Attributes
    ----------
    calibration, tests : int arrays of shape (number of cells,)
        The lowest cell first.
    likely : int
        The lowest cell whose rows are likely novelties.

    Examples
    --------
    >>> histogram = CellHistogram.of(np.array([0, 0, 1]), np.array([0, 2]), n_cells=3, likely=1)
    >>> histogram.calibration.tolist(), histogram.tests.tolist(), histogram.size
    ([2, 1, 0], [1, 0, 1], 2)
    >>> histogram.n_likely
    2
    """

    calibration: NDArray[np.int64]
    tests: NDArray[np.int64]
    likely: int = 0

    @classmethod
    def of(
        cls,
        calibration: NDArray[np.int64],
        tests: NDArray[np.int64],
        n_cells: int,
        likely: int = 0,
    ) -> CellHistogram:
        """Count the cells of calibration rows and test rows."""
        known, tested = (np.bincount(cells, minlength=n_cells) for cells in (calibration, tests))
        return cls(known, tested, likely)

    @property
    def size(self) -> int:
        """The number of test rows."""
        return int(self.tests.sum())

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return int(self.calibration.sum())

    def floor(self, room: Fraction) -> int:
        """Return the agent's floor, from all rows together and never from one kind alone."""
        return floor_cell(self.calibration + self.tests, self.n_calibration, room)

    def floor_alone(self, level: Fraction) -> int:
        """Return the lowest cell with 1 + C <= α(ℓ + 1), for an agent that is a group by itself.

        It needs no floor. But below this cell nothing can be rejected: a group rejects where
        w(1 + C) <= α min(π k, m_j), with w = m_j/(ℓ + 1). The counts below are not sent.
        """
        above = np.cumsum(self.calibration[::-1])[::-1]
        most = level.numerator * (self.n_calibration + 1) // level.denominator
        return int(np.count_nonzero(1 + above > most))

    @property
    def n_likely(self) -> int:
        """The likely novelties, of both kinds of rows: the room that the agent would fill."""
        return int((self.calibration + self.tests)[self.likely :].sum())

    def above(self, cell: int) -> CellHistogram:
        """Return the histogram with zeros below a cell."""
        kept = np.arange(self.tests.size) >= cell
        return CellHistogram(self.calibration * kept, self.tests * kept, self.likely)


def reaches(cells: NDArray[np.int64], cut: int | NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which rows are rejected: those at or above the cut, or each its own.

    Examples
    --------
    >>> reaches(np.array([1, 5, 9]), 5)
    array([False,  True,  True])
    """
    return np.asarray(cells >= cut)


class RoomWanted(NamedTuple):
    """What one agent would like to have above its floor, and its numbers of rows."""

    n_wanted: int
    n_test: int
    n_calibration: int


def choose_room(agents: Sequence[RoomWanted], level: Fraction, liars: int = 0) -> Fraction:
    """Choose x, the share of ℓ + 1 that may lie above a floor, from numbers alone.

    None of the numbers depends on which rows are calibration rows. There is room for novelties
    up to 15 % of the test rows, at every agent, together with the normal rows that the level
    lets in beside them. Where more rows look like novelties, x is the smallest that has room for
    nine tenths of them. A larger x lets agents with many novelties reject them all, and costs
    everybody a share x of the level.

    Where liars are tolerated, all rows above the floors of so many agents are subtracted from what
    is rejected. Then x is the smallest that has room for nine tenths of the likely novelties.

    Parameters
    ----------
    agents : sequence of RoomWanted
        The agents that test rows.
    level : Fraction
        The level α.
    liars : int
        How many agents may lie.

    Returns
    -------
    Fraction
        One of :func:`rooms`.

    Examples
    --------
    >>> usual = RoomWanted(30, 333, 500)
    >>> str(choose_room([usual] * 3, Fraction(1, 10)))
    '3/20'
    >>> str(choose_room([RoomWanted(120, 333, 500)] * 3, Fraction(1, 10)))
    '3/10'
    """
    share = Fraction(15, 100) / (1 - level)  # of all rejected rows among the test rows
    weight = max((Fraction(a.n_test, a.n_calibration + 1) for a in agents), default=Fraction(0))
    by_numbers = Fraction(0) if liars else share * weight + share * level
    total = sum(a.n_wanted for a in agents)
    for room in rooms(liars):
        served = sum(min(a.n_wanted, room * (a.n_calibration + 1) // 1) for a in agents)
        if room >= by_numbers and 10 * served >= 9 * total:
            return room
    return ROOMS[-1]

"""The rows of one agent as counts in the cells of a common scale, for the regime `joint`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level, as_whole
from conovel.stats.members import Member
from conovel.stats.ranks import as_array

# Cells of the common scale. More cells reveal more; docs/results/joint.md has power against cells.
N_CELLS = 128
# The room x of a group: the share of ℓ + 1 that may lie above a floor; 1 - x of the level is left.
ROOMS = (Fraction(1, 20), Fraction(1, 10), Fraction(3, 20), Fraction(1, 5), Fraction(3, 10))

_LEAST_ROOM = Fraction(1, 40)  # where liars are tolerated: what is above floors is subtracted


def allowed_rooms(liars: int) -> tuple[Fraction, ...]:
    """Return the rooms that a group may have, ascending."""
    return (_LEAST_ROOM, *ROOMS) if liars else ROOMS


@dataclass(frozen=True, eq=False)
class CellHistogram:
    """How many calibration rows and test rows of an agent are in each cell, the lowest cell first.

    Rows from the cell `likely` on are likely novelties.
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
        normals, tested = (np.bincount(cells, minlength=n_cells) for cells in (calibration, tests))
        return cls(normals, tested, likely)

    @property
    def size(self) -> int:
        """The number of test rows."""
        return int(self.tests.sum())

    @property
    def n_calibration(self) -> int:
        """The number of calibration rows."""
        return int(self.calibration.sum())

    def floor(self, room: Fraction) -> int:
        """Return the agent's floor, from all rows together and never from one kind alone.

        Proof: Theorem 10 (docs/theory.md#thm-joint).
        """
        return floor_cell(self.calibration + self.tests, self.n_calibration, room)

    def floor_alone(self, level: Fraction) -> int:
        """Return the lowest cell with 1 + C <= α(ℓ + 1), for an agent that is a group by itself.

        It needs no floor. But below this cell nothing can be rejected: a group rejects where
        w(1 + C) <= α min(π k, m_j), with w = m_j/(ℓ + 1). The counts below are not sent.

        Proof: Corollary 3 (docs/theory.md#cor-joint-one).
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

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    return np.asarray(cells >= cut)


class RoomWanted(NamedTuple):
    """What one agent would like to have above its floor, and its numbers of rows."""

    n_wanted: int
    n_test: int
    n_calibration: int


def room_numbers(agent: RoomWanted, liars: int = 0) -> tuple[int, ...]:
    """Return what an agent adds to the totals that the room of its group follows from.

    How many rows it would like to have above its floor, and how many of these each room has place
    for.
    """
    served = (
        min(agent.n_wanted, most_above(agent.n_calibration, room)) for room in allowed_rooms(liars)
    )
    return agent.n_wanted, *served


def choose_room(agents: Sequence[RoomWanted], level: Fraction, liars: int = 0) -> Fraction:
    """Choose the room x of a group from the numbers of its agents; see :func:`room_from`.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    columns = zip(*(room_numbers(agent, liars) for agent in agents), strict=True)
    totals = [sum(column) for column in columns] or [0] * (1 + len(allowed_rooms(liars)))
    return room_from(totals, [(a.n_test, a.n_calibration) for a in agents], level, liars)


def room_from(
    totals: Sequence[int], sizes: Sequence[tuple[int, int]], level: Fraction, liars: int = 0
) -> Fraction:
    """Choose the room x, the share of ℓ + 1 that may lie above a floor, from totals alone.

    None of the numbers depends on which rows are calibration rows. There is room for novelties
    up to 15 % of the test rows, at every agent, together with the normal rows that the level
    lets in beside them. Where more rows look like novelties, x is the smallest that has room for
    nine tenths of them. A larger x lets agents with many novelties reject them all, and costs
    everybody a share x of the level. Where liars are tolerated, all rows above the floors of so
    many agents are subtracted from what is rejected. So only nine tenths of the likely novelties
    count.

    Proof: Theorem 10 (docs/theory.md#thm-joint).

    Parameters
    ----------
    totals : sequence of int
        The sums of :func:`room_numbers` over the agents of the group.
    sizes : sequence of (int, int)
        Tests m_j and calibration rows ℓ_j of every agent of the group.
    level : Fraction
    liars : int
    """
    wanted, *served = totals
    share = Fraction(15, 100) / (1 - level)  # of all rejected rows among the test rows
    weight = max((Fraction(m, n + 1) for m, n in sizes), default=Fraction(0))
    by_numbers = Fraction(0) if liars else share * weight + share * level
    for room, n in zip(allowed_rooms(liars), served, strict=True):
        if room >= by_numbers and 10 * n >= 9 * wanted:
            return room
    return ROOMS[-1]


@dataclass(frozen=True)
class PooledBlock:
    """The rows of one agent: all tests m_j and calibration rows ℓ_j, and those above its floor.

    `test_counts` and `calibration_counts` are rows in each cell of the common scale, the lowest
    cell first; zero below the floor.
    """

    n_test: int
    n_calibration: int
    test_counts: tuple[int, ...]
    calibration_counts: tuple[int, ...]

    def __post_init__(self) -> None:
        for kind in ("test", "calibration"):
            total = as_whole(getattr(self, f"n_{kind}"), f"n_{kind}")
            counts = _as_counts(getattr(self, f"{kind}_counts"), f"{kind}_counts")
            if sum(counts) > total:
                raise InputError(
                    f"{kind}_counts add up to {sum(counts)}, and n_{kind} is only {total}"
                )
            object.__setattr__(self, f"n_{kind}", total)
            object.__setattr__(self, f"{kind}_counts", counts)
        cells = len(self.test_counts), len(self.calibration_counts)
        if cells[0] != cells[1]:
            raise SampleError(
                "test_counts and calibration_counts must have the same cells, not"
                f" {cells[0]} and {cells[1]}"
            )

    @property
    def n_above(self) -> int:
        """The number κ_j of all mixture rows at or above the floor."""
        return sum(self.test_counts) + sum(self.calibration_counts)

    @property
    def member(self) -> Member:
        """The agent by its numbers of rows."""
        return Member(self.n_test, self.n_calibration, self.n_above)

    @property
    def takes_part(self) -> bool:
        """Whether the agent has tests, and rows above its floor."""
        return self.member.takes_part


def common_weight(agents: Sequence[PooledBlock | Member]) -> Fraction:
    """Return the smallest weight w that the theorem allows: the largest m_j/(ℓ_j + 1).

    An agent without rows above its floor rejects nothing and does not count.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    sizes = [(b.n_test, b.n_calibration + 1) for b in agents if b.takes_part]
    return max((Fraction(*size) for size in sizes), default=Fraction(0))


def floor_cell(mixture_counts: ArrayLike, n_calibration: int, room: Level) -> int:
    """Return the lowest cell with at most x(ℓ + 1) mixture rows at or above it.

    The counts are those of *all* mixture rows of the agent, so the floor does not depend on which
    of them are calibration rows. A cell is above the floor as a whole or not at all. The number of
    cells is returned if even the highest cell has too many rows.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    counts = _as_counts(mixture_counts, "mixture_counts")
    size = as_whole(n_calibration, "n_calibration")
    most = most_above(size, as_level(room, "room"))
    above = 0
    for cell in reversed(range(len(counts))):
        above += counts[cell]
        if above > most:
            return cell + 1
    return 0


def most_above(n_calibration: int, room: Fraction) -> int:
    """Return the largest number of mixture rows that may be above a floor, floor(x(ℓ + 1))."""
    return room.numerator * (n_calibration + 1) // room.denominator


def _as_counts(counts: Any, name: str) -> tuple[int, ...]:
    array = as_array(counts, name)
    if array.ndim != 1 or array.size == 0:
        raise SampleError(f"{name} must be one count for each cell, not shape {array.shape}")
    if array.dtype.kind not in "iu" or array.min() < 0:
        raise InputError(f"{name} must be whole numbers from 0 on, one for each cell")
    return tuple(array.tolist())


def check_blocks(blocks: Sequence[PooledBlock]) -> None:
    """Refuse blocks on different cells, and blocks without any test."""
    if not blocks or not all(isinstance(block, PooledBlock) for block in blocks):
        raise InputError("blocks must be a list of PooledBlock, one for each agent")
    cells = {len(block.test_counts) for block in blocks}
    if len(cells) > 1:
        raise SampleError(f"all blocks must have the same cells, not {sorted(cells)} cells")
    if not any(block.n_test for block in blocks):
        raise SampleError("there is nothing to test: every block is empty")

"""The rows of one agent as counts in the cells of a common scale, for the regime `joint`."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.levels import Level, as_level, as_whole
from conovel.stats.ranks import as_array

# Cells of the common scale. More cells reveal more: docs/decisions/evidence/common-scale.md
N_CELLS = 128
# The room of a group: the share of ℓ + 1 that may lie above a floor.
ROOMS = tuple(Fraction(n, 20) for n in (1, 2, 3, 4, 5, 6, 7, 8, 10))

_LEAST_ROOM = Fraction(1, 40)  # where liars are tolerated: what is above floors is subtracted
# A larger room is only for groups that keep as much of the level with it as this one leaves.
USUAL_ROOM = Fraction(3, 10)
N_WANTED = 2 + len(ROOMS)  # numbers of one agent, see room_numbers


def allowed_rooms(liars: int) -> tuple[Fraction, ...]:
    """Return the rooms that a group may have, ascending."""
    if liars:
        return (_LEAST_ROOM, *(room for room in ROOMS if room <= USUAL_ROOM))
    return ROOMS


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

    @property
    def member(self) -> Member:
        """The agent in a group, with at least one row above its floor."""
        return Member(self.n_test, self.n_calibration, 1)


def affordable_rooms(
    agents: Sequence[RoomWanted], level: Fraction, liars: int = 0
) -> list[Fraction]:
    """Return the rooms that may be chosen: those that leave most of the level, if all are filled.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    weight = common_weight([agent.member for agent in agents])

    def is_cheap(room: Fraction) -> bool:
        members = [Member(m, size, most_above(size, room)) for _, m, size in agents]
        above = sum(member.n_above for member in members)
        reach = Reach(sum(member.n_test for member in members), above, Fraction(1))
        return level_left(members, weight, level, reach) >= (1 - USUAL_ROOM) * level

    return [room for room in allowed_rooms(liars) if is_cheap(room)]


def choose_room(agents: Sequence[RoomWanted], level: Fraction, liars: int = 0) -> Fraction:
    """Choose the room of a group from the numbers of its agents; see :func:`room_from`.

    Proof: Theorem 10 (docs/theory.md#thm-joint).
    """
    sizes = [(agent.n_test, agent.n_calibration) for agent in agents]
    columns = zip(*(room_numbers(agent, sizes, level, liars) for agent in agents), strict=True)
    totals = [sum(column) for column in columns] or [0] * N_WANTED
    return room_from(totals, sizes, level, liars)


def room_numbers(
    agent: RoomWanted, sizes: Sequence[tuple[int, int]], level: Fraction, liars: int = 0
) -> tuple[int, ...]:
    """Return what an agent adds to the totals that the room of its group follows from.

    Its likely novelties; these together with the normal rows that the level lets in beside them;
    and how many of these rows each of `ROOMS` has place for, or each room with liars, then zeros.

    Parameters
    ----------
    agent : RoomWanted
    sizes : sequence of (int, int)
        Tests m_j and calibration rows ℓ_j of every agent of the group.
    level : Fraction
    liars : int
    """
    weight = _weight_of(sizes)
    # N novelties are N/(1 - α) rejected test rows, with α/w calibration rows for each of them
    beside = Fraction(1) if liars or not weight else (1 + level / weight) / (1 - level)
    rows = math.floor(agent.n_wanted * beside)
    rooms = allowed_rooms(liars)
    served = [min(rows, most_above(agent.n_calibration, room)) for room in rooms]
    return agent.n_wanted, rows, *served, *[0] * (len(ROOMS) - len(rooms))


def room_from(
    totals: Sequence[int], sizes: Sequence[tuple[int, int]], level: Fraction, liars: int = 0
) -> Fraction:
    """Choose the room of a group, the share of ℓ + 1 that may lie above a floor, from totals.

    None of the numbers depends on which rows are calibration rows. There is room for novelties
    up to 15 % of the test rows, at every agent, together with the normal rows that the level
    lets in beside them. Where more rows look like novelties, it is the smallest room for nine
    tenths of them, again together with normal rows. A larger room lets agents with many novelties
    reject them all, and costs everybody a share of the level. Where liars are tolerated, all rows
    above the floors of so many agents are subtracted from what is rejected. So only nine tenths of
    the likely novelties count.

    Proof: Theorem 10 (docs/theory.md#thm-joint).

    Parameters
    ----------
    totals : sequence of int
        The sums of :func:`room_numbers` over the agents of the group.
    sizes, level, liars
        As there.
    """
    _, rows, *served = totals
    by_numbers = Fraction(15, 100) * (_weight_of(sizes) + level) / (1 - level)
    least = Fraction(0) if liars else by_numbers
    rooms = affordable_rooms([RoomWanted(0, *size) for size in sizes], level, liars)
    places = dict(zip(allowed_rooms(liars), served, strict=False))
    for room in rooms:
        if room >= least and 10 * places[room] >= 9 * rows:
            return room
    return rooms[-1]


def _weight_of(sizes: Sequence[tuple[int, int]]) -> Fraction:
    return common_weight([RoomWanted(0, *size).member for size in sizes])


class Member(NamedTuple):
    """One agent of a group: all its tests and calibration rows, and those above its floor."""

    n_test: int
    n_calibration: int
    n_above: int  # the number κ_j of all mixture rows at or above the floor, or a bound on it

    @property
    def takes_part(self) -> bool:
        """Whether the agent has tests, and rows above its floor."""
        return self.n_test > 0 and self.n_above > 0

    @property
    def most(self) -> int:
        """The largest number of rows that the agent can reject."""
        return min(self.n_test, self.n_above)


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


class Reach(NamedTuple):
    """What bounds the rejections of a group: a group g rejects where w(1 + C) <= a min(π k, m_g).

    k is at most the rows of the group and `others` rows of other groups.
    """

    n_test: int  # m_g, those below the floors included
    n_above: int  # all mixture rows of the group above their floors
    share: Fraction  # π
    others: int = 0

    def right_side(self, n: int) -> Fraction:
        """Return min(π k, m_g) for n rows of the group and all rows of the others."""
        return min(self.share * (n + self.others), Fraction(self.n_test))


def level_left(
    members: Sequence[Member], weight: Fraction, level: Fraction, reach: Reach
) -> Fraction:
    """Return a = α(1 - x), with x the largest h_j/(ℓ_j + 1) of the agents that take part.

    h_j bounds how many of the ℓ_j calibration rows of an agent and one of its test rows can lie at
    or above a threshold at which rows are rejected. There are κ_j mixture rows of the agent above
    its floor. But many calibration rows above a threshold need many rejections, and there are
    only so many tests. So h_j is the smallest whole number from 1 on with h_j = κ_j, or with

        w h_j  >  α(1 - h_j/(ℓ_j + 1)) min(π k, m_g),

    where k - 1 is the largest number of rejections beside h_j + 1 rows of the agent that are none:
    min(m_j, κ_j - h_j) of the agent, min(m_a, κ_a) of every other one, and those of other groups.
    None of these numbers depends on which mixture rows are calibration rows.

    Proof: Theorem 10 (docs/theory.md#thm-joint), Theorem 12 (docs/theory.md#thm-groups).
    """
    taking = [member for member in members if member.takes_part]
    most = sum(member.most for member in taking)
    x = Fraction(0)
    for agent in taking:
        suffices = partial(_suffices, agent, most - agent.most, weight, level, reach)
        # Its left side grows with h and its right side does not, so the first one is searched for
        h = 1 + bisect_left(range(1, agent.n_above), True, key=suffices)
        x = max(x, Fraction(h, agent.n_calibration + 1))
    return level * (1 - x)


def _suffices(
    agent: Member, of_others: int, weight: Fraction, level: Fraction, reach: Reach, h: int
) -> bool:
    size = agent.n_calibration + 1
    own = min(agent.n_test, agent.n_above - h)
    beside = min(of_others + own, reach.n_above - h)
    return weight * h > level * Fraction(size - h, size) * reach.right_side(1 + beside)


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

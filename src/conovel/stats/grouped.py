"""One step-up over groups of agents, each with one calibration: the rule of the regime `joint`.

The agents are divided into groups. For a cell t of the common scale let C_g(t) and R_g(t) be
the numbers of calibration and test rows of group g at or above t and their agent's floor. Group
g has m_g tests, a weight w_g, a level a_g = α(1 - x_g) and a share π_g; x_g is at most the room of
the group, and less where fewer rows can matter (`level_left` in `stats/cells.py`). If there are k
rejections in all, group g stops at the lowest cell T_g(k) with

    w_g (1 + C_g(t))  <=  a_g min(π_g k, m_g)

and rejects its N_g(k) test rows at or above it and their floor. k is the largest number with
Σ_g N_g(k) >= k. Then the false discovery rate over all groups is at most α (Theorem 12 of
docs/theory.md). With one group this is the rule of Theorem 10: the lowest cell with
w(1 + C(t)) <= α(1 - x) R(t).

If up to f agents may lie about their counts, k is the largest number with
Σ_g N_g(k) - D_f(k) >= k. D_f(k) adds up what the f agents with the most rows to reject could
have claimed: of an agent by itself the rows that it rejects, and of an agent in a group with
others all its rows above its floor, whatever k is (Theorem 18 of docs/theory.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from conovel.errors import InputError, SampleError
from conovel.stats.cells import (
    Member,
    PooledBlock,
    Reach,
    check_blocks,
    common_weight,
    level_left,
    most_above,
)
from conovel.stats.levels import Level, as_level, as_liars, as_whole
from conovel.stats.ranks import as_array


@dataclass(frozen=True)
class PooledGroup:
    """Agents whose calibration rows count together, all on the same cells."""

    blocks: Sequence[PooledBlock]  # one per agent, or one with the totals of all: see `of_totals`
    # The room x: no agent has more than x(ℓ_j + 1) mixture rows above its floor. Where one agent
    # alone takes part, x and the floor are not needed, and all of the level is used. None: one
    # agent, without a floor.
    room: Level | None = None
    # How many rejections the group may expect, by one or more guesses; None: as many as it has
    # tests. Like x and floors, it must not depend on which mixture rows are calibration rows.
    expected: Sequence[int] | None = None
    # (m_j, ℓ_j) of every agent, where only totals of the group are given
    sizes: Sequence[tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        check_blocks(self.blocks)
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if self.room is not None:
            object.__setattr__(self, "room", as_level(self.room, "room"))
        elif (n := len(self.sizes or self.blocks)) > 1:
            raise InputError(f"a group of {n} agents needs a room and floors")
        if self.sizes is not None:
            self._check_totals()
        if self.sizes is None and self.is_several:
            self._check_floors()

    @classmethod
    def of_totals(
        cls,
        sizes: Sequence[tuple[int, int]],
        test_counts: ArrayLike,
        calibration_counts: ArrayLike,
        room: Level | None,
        expected: Sequence[int] | None = None,
    ) -> PooledGroup:
        """Return a group of which only totals are known: rows of all its agents in each cell.

        How many rows of one agent are above its floor is not known then, only that they are at
        most floor(x(ℓ_j + 1)). Every agent with tests and room for a row counts as taking part.
        As the only group, and where each of them has rows above its floor, it rejects no row that
        the same group from blocks does not reject; the same rows, where all floors are as full as
        they may be. Where liars are tolerated the counts of each agent are needed, and totals are
        refused.

        Parameters
        ----------
        sizes : sequence of (int, int)
            Tests m_j and calibration rows ℓ_j of every agent of the group.
        test_counts, calibration_counts : array-like of int, shape (n_cells,)
            Totals over all agents, of rows at or above their agent's floor.
        room, expected
            As for the class.

        Proof: Corollary 5 (docs/theory.md#cor-joint-totals), Theorem 12
        (docs/theory.md#thm-groups).

        Examples
        --------
        >>> group = PooledGroup.of_totals([(10, 69)] * 2, [0, 2, 6], [6, 0, 0], "1/10")
        >>> [outcome] = grouped_cut([group], "1/10")
        >>> outcome.n_rejected, outcome.cell
        (8, 1)
        """
        pairs = tuple((as_whole(m, "n_test"), as_whole(n, "n_calibration")) for m, n in sizes)
        n_test, n_calibration = (sum(one) for one in zip(*pairs, strict=True)) if pairs else (0, 0)
        total = PooledBlock(n_test, n_calibration, test_counts, calibration_counts)  # type: ignore[arg-type]
        return cls((total,), room, expected, pairs)

    @property
    def n_test(self) -> int:
        """The tests of the group, those below the floors included."""
        return sum(block.n_test for block in self.blocks)

    @property
    def guesses(self) -> tuple[int, ...]:
        """How many rejections the group may expect, from 1 to the number of its tests."""
        given = (self.n_test,) if self.expected is None else self.expected
        return tuple(max(min(n, self.n_test), 1) for n in given)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The agents by their numbers of rows; κ_j is the most that there can be above a floor."""
        if self.sizes is None or self.room is None:
            return tuple(block.member for block in self.blocks)
        above = sum(block.n_above for block in self.blocks)
        return tuple(
            Member(m, n, min(most_above(n, Fraction(self.room)), above)) for m, n in self.sizes
        )

    @property
    def most(self) -> int:
        """The largest number of rows that the group can reject, by its numbers of rows."""
        if not self.is_several:
            return self.n_test
        return sum(member.most for member in self.members if member.takes_part)

    def level_used(
        self, level: Fraction, share: Fraction = Fraction(1), others: int = 0
    ) -> Fraction:
        """Return α(1 - x), or α where one agent alone takes part (Corollary 3).

        x follows from the group's share of the level, and from the largest number of rows that
        other groups can reject.

        Proof: Theorem 12 (docs/theory.md#thm-groups), Corollary 3 (docs/theory.md#cor-joint-one).
        """
        if not self.is_several:
            return level
        above = sum(block.n_above for block in self.blocks)
        return level_left(self.members, self.w, level, Reach(self.n_test, above, share, others))

    @property
    def w(self) -> Fraction:
        """The smallest weight of a calibration row; zero if the group cannot reject a row."""
        if self.room is not None:
            return common_weight(self.members)
        # Without a floor the counts may be cut off where no row can be rejected. That cut sees
        # the calibration rows, so the weight must not depend on what is above it.
        [block] = self.blocks
        return Fraction(block.n_test, block.n_calibration + 1)

    @property
    def is_several(self) -> bool:
        """Whether several agents take part."""
        return self.room is not None and sum(member.takes_part for member in self.members) > 1

    def _check_floors(self) -> None:
        """Refuse an agent with tests that has too many mixture rows above its floor."""
        for place, block in enumerate(self.blocks):
            most = most_above(block.n_calibration, Fraction(self.room or 0))
            if block.n_test and block.n_above > most:
                raise InputError(
                    f"block {place} has {block.n_above} mixture rows above its floor, and a"
                    f" room of {self.room} with {block.n_calibration} calibration rows allows"
                    f" {most}: see floor_cell"
                )

    def _check_totals(self) -> None:
        """Refuse totals that no agents of these sizes can have."""
        if len(self.blocks) != 1:
            raise InputError("sizes go with one block of totals: see PooledGroup.of_totals")
        if self.room is None:
            return
        [total], x = self.blocks, Fraction(self.room)
        rooms = [(m, n if m == 0 else most_above(n, x)) for m, n in self.sizes or ()]
        for what, count, most in (
            ("mixture rows", total.n_above, sum(room for _, room in rooms)),
            ("test rows", sum(total.test_counts), sum(min(m, room) for m, room in rooms)),
        ):
            if count > most:
                raise InputError(
                    f"the totals have {count} {what} above floors, and a room of {x} at"
                    f" {len(rooms)} agents allows {most}: see floor_cell"
                )


@dataclass(frozen=True)
class PooledOutcome:
    """Where the rule stopped in a group: test rows from `cell` and their floor on are rejected.

    `cell` is None if no row is. `n_calibration_above` counts calibration rows from there on.
    """

    cell: int | None
    n_rejected: int
    n_calibration_above: int
    weight: Fraction
    level_used: Fraction
    share: Fraction = Fraction(1)

    def rejects(self, cells: ArrayLike, floor: int) -> NDArray[np.bool_]:
        """Return which test rows of an agent are rejected, from their cells and its floor."""
        rows = as_array(cells, "cells")
        if self.cell is None:
            return np.zeros(rows.shape, dtype=np.bool_)
        return np.asarray(rows >= max(self.cell, floor))

    def evidence(self, m: int, level: Fraction) -> Fraction:
        """Return the e-value mπ(1 - x)/(w(1 + C)) of each rejected row among m; zero if none is.

        Proof: Lemma 12 (docs/theory.md#lem-block-evidence).
        """
        if self.cell is None:
            return Fraction(0)
        above = self.weight * (1 + self.n_calibration_above)
        return m * self.share * self.level_used / (level * above)


def shares_of(groups: Sequence[PooledGroup], level: Fraction) -> tuple[Fraction, ...]:
    """Divide the level among the groups, in proportion to the rejections that they expect.

    A group that cannot reject gets share zero, and takes nothing from the others:

    - By its numbers of rows: w(1 + 0) > a min(π k, m_g) for the largest possible k. The group
      that needs most goes first (several, if equal); then the others are looked at again.
    - A group that would need more rejections than it expects, w > a e_g, where there is a group
      that needs no more than it expects.

    With several guesses of what groups may expect, the shares are the average of what each guess
    gives. Nothing here depends on which mixture rows are calibration rows.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    by_guess = [
        _shares_by(guess, groups, level)
        for guess in zip(*(group.guesses for group in groups), strict=True)
    ]
    useful = [shares for shares in by_guess if any(shares)] or by_guess[:1]
    return tuple(sum(shares, Fraction(0)) / len(useful) for shares in zip(*useful, strict=True))


def _shares_by(
    expected: Sequence[int], groups: Sequence[PooledGroup], level: Fraction
) -> list[Fraction]:
    """Return the shares by one guess of how many rejections each group may expect."""
    used = levels_used(groups, level, [Fraction(1)] * len(groups))  # at most what shares leave
    needs = {
        g: group.w / (used[g] * expected[g])
        for g, group in enumerate(groups)
        if 0 < group.w <= used[g] * group.n_test
    }
    if any(need <= 1 for need in needs.values()):
        needs = {g: need for g, need in needs.items() if need <= 1}
    e = 0
    while needs:
        e = sum(expected[g] for g in needs)
        # w <= a (e_g/e) k_max  iff  w/(a e_g) <= k_max/e
        largest = Fraction(sum(groups[g].most for g in needs), e)
        worst = max(needs.values())
        if worst <= largest:
            break
        needs = {g: need for g, need in needs.items() if need < worst}
    return [Fraction(n, e) if g in needs else Fraction(0) for g, n in enumerate(expected)]


def levels_used(
    groups: Sequence[PooledGroup], level: Fraction, shares: Sequence[Fraction]
) -> list[Fraction]:
    """Return the level of each group; a group without a share rejects nothing.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    most = [group.most if share else 0 for group, share in zip(groups, shares, strict=True)]
    return [
        group.level_used(level, share, sum(most) - own)
        for group, share, own in zip(groups, shares, most, strict=True)
    ]


def grouped_cut(
    groups: Sequence[PooledGroup], level: Level, liars: int = 0, most: int | None = None
) -> tuple[PooledOutcome, ...]:
    """Decide for all groups by one step-up, at level α over all groups together.

    Every agent with tests is in one group. With `liars`, so many agents may lie about their
    counts, and α bounds the false discovery rate over the rows of the others. Beyond `most`
    rejections, or what lets one calibration row of each group in, no group goes on: then
    rejections are evidence for a list over several batches.

    Proof: Theorem 12 (docs/theory.md#thm-groups), Theorem 10 (docs/theory.md#thm-joint), Lemma 12
    (docs/theory.md#lem-block-evidence).
    """
    alpha = as_level(level)
    if not groups:
        raise InputError("there must be at least one group")
    if len(cells := {len(group.blocks[0].test_counts) for group in groups}) > 1:
        raise SampleError(f"all groups must have the same cells, not {sorted(cells)} cells")
    if len({len(group.guesses) for group in groups}) > 1:
        raise InputError("all groups must have as many guesses of what they expect")
    liars = as_liars(liars, sum(len(group.members) for group in groups))
    if liars and any(group.sizes is not None for group in groups):
        raise InputError(
            "with liars the counts of each agent are needed, to know what one could have claimed:"
            " totals are not enough"
        )
    shares = shares_of(groups, alpha)
    used = levels_used(groups, alpha, shares)
    sides = [_Side(*one) for one in zip(groups, used, shares, strict=True)]
    # Every number of rejections that is possible is at most the first k. As N and N - D are
    # nondecreasing, k falls to the largest fixed point; each step but the last raises the cell of
    # a group.
    k = limit = sum(side.rejected[0] for side in sides)
    if most is not None:
        limit = max([most, *(math.ceil(2 / side.rate) for side in sides if side.rate)])
    last = -1
    while k != last:
        last, k = k, _relied_on(sides, min(k, limit), liars)
    return tuple(side.outcome(min(k, limit)) for side in sides)


def cut_at(groups: Sequence[PooledGroup], level: Level, k: int) -> tuple[PooledOutcome, ...]:
    """Return where every group stops if there are k rejections in all.

    Whoever knows k and the rows of some groups can so check the cells of these groups.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    alpha = as_level(level)
    shares = shares_of(groups, alpha)
    used = levels_used(groups, alpha, shares)
    return tuple(_Side(*one).outcome(k) for one in zip(groups, used, shares, strict=True))


def _relied_on(sides: Sequence[_Side], k: int, liars: int) -> int:
    """Return Σ_g N_g(k) - D_f(k), and zero if it is negative."""
    lies = sorted(n for side in sides for n in side.could_claim(k)) if liars else []
    total = sum(side.n_rejected(k) for side in sides)
    return max(total - sum(lies[len(lies) - liars :]), 0)


def pooled_cut(
    blocks: Sequence[PooledBlock],
    level: Level,
    room: Level,
    liars: int = 0,
) -> PooledOutcome:
    """Decide for all agents together, by one calibration for the network: a single group."""
    [outcome] = grouped_cut([PooledGroup(blocks, room)], level, liars)
    return outcome


class _Side:
    """One group in the step-up: N(k), and where it stops."""

    def __init__(self, group: PooledGroup, used: Fraction, share: Fraction) -> None:
        self.group, self.share, self.used = group, share, used
        self.rejected = _from_each_cell([b.test_counts for b in group.blocks])
        self.above = _from_each_cell([b.calibration_counts for b in group.blocks])
        # w(1 + C) <= a min(π k, m)  iff  1 + C <= min(rate k, limit), in integers
        self.rate = self.used * share / group.w if group.w else Fraction(0)
        self.limit = self.used * group.n_test / group.w // 1 if group.w else 0

    def cell(self, k: int) -> int:
        """Return the lowest cell T(k); the number of cells if there is none."""
        most = min(self.rate.numerator * k // self.rate.denominator, self.limit) - 1
        return next((t for t, above in enumerate(self.above) if above <= most), len(self.above))

    def n_rejected(self, k: int) -> int:
        """Return N(k), the rows that are rejected if there are k in all."""
        return (*self.rejected, 0)[self.cell(k)]

    def could_claim(self, k: int) -> list[int]:
        """Return of each agent how many rows it could claim to reject, if it lied.

        In a group with others this must not depend on the threshold (Theorem 18).
        """
        if self.group.is_several:
            return [min(b.n_test, b.n_above) for b in self.group.blocks]
        return [self.n_rejected(k)]

    def outcome(self, k: int) -> PooledOutcome:
        cell = self.cell(k)
        n = (*self.rejected, 0)[cell]
        above = self.above[cell] if n else 0
        place = cell if n else None
        return PooledOutcome(place, n, above, self.group.w, self.used, self.share)


def _from_each_cell(counts: Sequence[Sequence[int]]) -> list[int]:
    """Add up the rows of all agents from each cell on."""
    by_cell = [sum(cell) for cell in zip(*counts, strict=True)]
    return list(accumulate(reversed(by_cell)))[::-1]

"""What follows from totals of cells: groups, x and the outcome, without any agent's counts.

These are functions of what all parties are told. So the coordinator and every agent compute the
same. The sides of the protocol are in :mod:`conovel.deciding.masked_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from conovel.deciding.cell_groups import Group, apart_from_group, is_crowded
from conovel.deciding.cells import (
    GroupOutcome,
    Histogram,
    block_of,
    expected_rejections,
    told_cells,
)
from conovel.spec.bodies import Body, Kind, Outcome, Ready, packed
from conovel.spec.fields import BLOB, FRACTIONS, NAMES, U64S, Field, layout_of, listed, unpack
from conovel.stats.cells import N_CELLS, ROOMS, room_from
from conovel.stats.grouped import PooledGroup, cut_at, grouped_cut

WANTED_ROUND, CELLS_ROUND = 1, 2
N_WANTED = 1 + len(ROOMS)  # numbers of one agent, see room_numbers
_ZEROS = (0,) * N_CELLS


def _bodies(kind: type[Body]) -> Field:
    return listed(Field(packed, lambda reader: kind(*unpack(layout_of(kind), reader))))


READIES_FIELD, HISTOGRAMS_FIELD = _bodies(Ready), _bodies(Histogram)


@dataclass(frozen=True)
class Masked(Body):
    """Agent to coordinator: numbers under masks; round 1 has rows wanted, round 2 cells."""

    kind = Kind.MASKED
    numbers: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Wanted(Body):
    """Coordinator to agents: numbers of participants, x and what it follows from; round 1.

    `groups` has the first agent of each planned group of several agents, and `totals` their sums
    of :func:`conovel.stats.cells.room_numbers`, one group after the other.
    """

    kind = Kind.WANTED
    agents: Annotated[tuple[str, ...], NAMES]
    ready: Annotated[tuple[Ready, ...], READIES_FIELD]
    groups: Annotated[tuple[str, ...], NAMES]
    totals: Annotated[tuple[int, ...], U64S]
    rooms: Annotated[tuple[Fraction, ...], FRACTIONS]

    @property
    def by_group(self) -> dict[str, tuple[int, ...]]:
        """The totals of each planned group of several agents."""
        starts = range(0, len(self.totals), N_WANTED)
        parts = [self.totals[at : at + N_WANTED] for at in starts]
        return dict(zip(self.groups, parts, strict=False))


@dataclass(frozen=True)
class Cells(Body):
    """Coordinator to agents: the rows of each group in each cell above floors; round 2.

    `groups` has the first agent of each group. The rows of an agent that is a group by itself are
    told to this agent alone.
    """

    kind = Kind.CELLS
    groups: Annotated[tuple[str, ...], NAMES]
    totals: Annotated[tuple[Histogram, ...], HISTOGRAMS_FIELD]


@dataclass(frozen=True)
class Plan:
    """Who decides with whom, at which x, and what each group may expect."""

    groups: tuple[Group, ...]  # only those with tests
    rooms: Mapping[str, Fraction]
    ready: Mapping[str, Ready]
    wanted: Mapping[str, int]  # rows that a group wants above its floors, by its first agent

    @classmethod
    def of(
        cls,
        planned: Sequence[Group],
        ready: Mapping[str, Ready],
        totals: Mapping[str, Sequence[int]],
        level: Fraction,
    ) -> Plan:
        """Derive groups and x from what all parties were told.

        Proof: Theorem 12 (docs/theory.md#thm-groups).

        Parameters
        ----------
        planned : sequence of Group
            As the roster tells them.
        ready : mapping of Ready
            Of everybody. `n_wanted` is zero unless the agent decides by itself.
        totals : mapping
            Of each planned group of several agents, by its first agent: the sums of what those
            want that do not decide by themselves.
        level : Fraction
        """
        rooms = dict.fromkeys(ready, Fraction(0))
        wanted = {name: one.n_wanted for name, one in ready.items()}
        groups: list[Group] = []
        for group in planned:
            for part in apart_from_group([group], ready):
                groups.append(part)
                is_rest = len(group.agents) > 1 and not is_crowded(ready[part.agents[0]])
                if is_rest:
                    wanted[part.agents[0]] = totals[group.agents[0]][0]
                if len(part.agents) > 1:
                    sizes = _sizes(part, ready)
                    room = room_from(totals[group.agents[0]], sizes, level)
                    rooms |= dict.fromkeys(part.agents, room)
        tested = [g for g in groups if any(ready[name].n_tested for name in g.agents)]
        return cls(tuple(tested), rooms, ready, wanted)

    def group_of(self, agent: str) -> tuple[str, ...]:
        """Return the agents among whom an agent's cells are added up."""
        return next((g.agents for g in self.groups if agent in g.agents), (agent,))

    def pooled(self, totals: Mapping[str, Histogram], level: Fraction) -> list[PooledGroup]:
        """Return the groups with their rows; a group whose rows are not known has none.

        Proof: Theorem 12 (docs/theory.md#thm-groups).

        Raises
        ------
        InputError
            If no agents of these sizes can have such totals.
        """
        return [self._pooled(group, totals, level) for group in self.groups]

    def _pooled(
        self, group: Group, totals: Mapping[str, Histogram], level: Fraction
    ) -> PooledGroup:
        first, ready = group.agents[0], self.ready
        sizes = _sizes(group, ready)
        guesses = expected_rejections([Ready(sum(m for m, _ in sizes), 0, self.wanted[first])])
        counts = totals.get(first, Histogram(_ZEROS, _ZEROS))
        if len(group.agents) > 1:
            cells = counts.tests, counts.calibration
            return PooledGroup.of_totals(sizes, *cells, self.rooms[first], guesses)
        block = block_of(first, ready[first], counts, Fraction(0), level)
        return PooledGroup([block], None, expected=guesses)


def _sizes(group: Group, ready: Mapping[str, Ready]) -> list[tuple[int, int]]:
    return [(ready[name].n_tested, ready[name].n_calibration) for name in group.agents]


def decide_totals(
    plan: Plan, totals: Mapping[str, Histogram], level: Fraction
) -> tuple[GroupOutcome, ...]:
    """Decide for all groups from their totals.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    if not plan.groups:
        return ()
    cuts = grouped_cut(plan.pooled(totals, level), level)
    return tuple(
        GroupOutcome(group.agents, plan.rooms[group.agents[0]], cut)
        for group, cut in zip(plan.groups, cuts, strict=True)
    )


def follows_from_totals(
    plan: Plan, totals: Mapping[str, Histogram], level: Fraction, outcome: Outcome
) -> bool:
    """Tell whether an outcome follows from the totals that an agent was told.

    Where the rows of an agent by itself are not told, the number k of all rejections cannot be
    derived. Then the cells of all other groups must follow from it, and these must reject no more.
    """
    hidden = [group for group in plan.groups if group.agents[0] not in totals]
    if not hidden:
        decided = decide_totals(plan, totals, level)
    else:
        cuts = cut_at(plan.pooled(totals, level), level, outcome.n_rejected)
        of_groups = zip(plan.groups, cuts, strict=True)
        decided = tuple(
            GroupOutcome(group.agents, plan.rooms[group.agents[0]], cut)
            for group, cut in of_groups
            if group not in hidden
        )
    n_rejected = sum(one.outcome.n_rejected for one in decided)
    cells = dict(zip(outcome.participants, outcome.cells, strict=True))  # of their groups
    for group in hidden:
        cells[group.agents[0]] = N_CELLS
    names = outcome.participants
    expected = dict(zip(names, told_cells(decided, names), strict=True))
    is_number = n_rejected <= outcome.n_rejected if hidden else n_rejected == outcome.n_rejected
    return is_number and cells == expected and outcome.rounds == CELLS_ROUND

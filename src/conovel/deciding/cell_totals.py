"""What follows from totals of cells: groups, x and the outcome, without any agent's counts.

These are functions of what all parties are told. So the coordinator and every agent compute the
same. The sides of the protocol are in :mod:`conovel.deciding.masked_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from conovel.deciding.cell_groups import Group
from conovel.deciding.cells import (
    GroupOutcome,
    Histogram,
    block_of,
    expected_rejections,
    told_cells,
)
from conovel.spec.bodies import Body, Kind, Outcome, Ready, packed
from conovel.spec.fields import BLOB, FRACTIONS, NAMES, U64S, Field, layout_of, listed, unpack
from conovel.stats.cells import N_CELLS, N_WANTED, room_from
from conovel.stats.grouped import PooledGroup, cut_at, grouped_cut

WANTED_ROUND, CELLS_ROUND = 1, 2
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
class AllSizes(Body):
    """Coordinator to agents: what all participants said when they were ready."""

    kind = Kind.SIZES
    agents: Annotated[tuple[str, ...], NAMES]
    ready: Annotated[tuple[Ready, ...], READIES_FIELD]


@dataclass(frozen=True)
class Wanted(Body):
    """Coordinator to agents: x of every participant, and what it follows from; round 1.

    `groups` has the first agent of each group, and `totals` the sums of
    :func:`conovel.stats.cells.room_numbers` over its agents, one group after the other.
    """

    kind = Kind.WANTED
    groups: Annotated[tuple[str, ...], NAMES]
    totals: Annotated[tuple[int, ...], U64S]
    rooms: Annotated[tuple[Fraction, ...], FRACTIONS]

    @property
    def by_group(self) -> dict[str, tuple[int, ...]]:
        """The totals of each group."""
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


def parts_of(planned: Sequence[Group], ready: Mapping[str, Ready]) -> tuple[Group, ...]:
    """Return who decides with whom: the planned groups, without those who decide by themselves.

    An agent of a group of several that decides by itself says so: it tells how many likely
    novelties it has, and the others do not. Agents without tests are in no group.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    parts = []
    for group in planned:
        alone = [name for name in group.agents if ready[name].n_wanted]
        rest = tuple(name for name in group.agents if name not in alone)
        parts += [Group((name,), group.weight) for name in alone]
        parts += [Group(rest, group.weight)] if rest else []
    return tuple(g for g in parts if any(ready[name].n_tested for name in g.agents))


@dataclass(frozen=True)
class Plan:
    """Who decides with whom, at which x, and what each group may expect."""

    groups: tuple[Group, ...]  # only those with tests
    ready: Mapping[str, Ready]
    rooms: Mapping[str, Fraction]
    wanted: Mapping[str, int]  # likely novelties of a group, by its first agent

    @classmethod
    def of(
        cls,
        groups: tuple[Group, ...],
        ready: Mapping[str, Ready],
        totals: Mapping[str, Sequence[int]],
        level: Fraction,
    ) -> Plan:
        """Derive x of each group from what all parties were told.

        Proof: Theorem 12 (docs/theory.md#thm-groups).

        Parameters
        ----------
        groups : tuple of Group
            See :func:`parts_of`.
        ready : mapping of Ready
            Of everybody.
        totals : mapping
            Of each group, by its first agent: the sums of `room_numbers`.
        level : Fraction
        """
        rooms = dict.fromkeys(ready, Fraction(0))
        for group in groups:
            if len(group.agents) > 1 or ready[group.agents[0]].strata:
                room = room_from(totals[group.agents[0]], sizes_of(group.agents, ready), level)
                rooms |= dict.fromkeys(group.agents, room)
        wanted = {group.agents[0]: totals[group.agents[0]][0] for group in groups}
        return cls(groups, ready, rooms, wanted)

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
        sizes = sizes_of(group.agents, ready)
        guesses = expected_rejections([Ready(sum(m for m, _ in sizes), 0, self.wanted[first])])
        counts = totals.get(first, Histogram(_ZEROS, _ZEROS))
        if len(group.agents) > 1 or ready[first].strata:
            cells = counts.tests, counts.calibration
            return PooledGroup.of_totals(sizes, *cells, self.rooms[first], guesses)
        block = block_of(first, ready[first], counts, Fraction(0), level)
        return PooledGroup([block], None, expected=guesses)


def sizes_of(agents: Sequence[str], ready: Mapping[str, Ready]) -> list[tuple[int, int]]:
    """Return the tests and calibration rows of agents, or of each of their strata."""
    return [(m, size) for name in agents for m, size, _ in ready[name].blocks]


def among(agent: str, groups: Sequence[Group]) -> tuple[str, ...]:
    """Return the agents among whom an agent's numbers are added up; empty for one in no group."""
    return next((group.agents for group in groups if agent in group.agents), ())


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

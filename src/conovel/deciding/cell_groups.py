"""Which agents calibrate together in the regime `joint`: a rule of numbers of rows.

A group pays for its most expensive agent: its weight w_g is the largest m_j/(ℓ_j + 1) of its
agents. An agent with few known normals and many tests would raise it for all others. So agents
with similar m_j/(ℓ_j + 1) are put together, from what the hellos say, before any row is
looked at.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from conovel.errors import ResolutionWarning
from conovel.spec.bodies import Ready
from conovel.spec.findings import Finding
from conovel.spec.grouping import Planned, best_stops
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import THIN, Numbers, few_rows, needed_calibration, planned_calibration
from conovel.stats.cells import ROOMS, RoomWanted, affordable_rooms, choose_room, most_above
from conovel.stats.resolution import resolution_words


class Group(NamedTuple):
    """Agents whose calibration rows count together, by their names, and the weight w planned."""

    agents: tuple[str, ...]
    weight: Fraction


def divide(agents: Mapping[str, Numbers], spec: RunSpec, n_agents: int) -> tuple[Group, ...]:
    """Divide agents into groups; the same for every party, as it follows from the hellos.

    Agents are sorted by w_j = m_j/(ℓ_j + 1), where ℓ_j is the number of calibration rows that
    the agent would keep by itself, and a group is a part of this order. Of all divisions the
    one is taken that maximises

        Σ_g M_g sqrt(max(0, 1 - w_g/(α ν M_g))),   ν = 1/10.

    For one agent by itself, M_g is the number of its tests. A share ν of them lets it reject rows
    with 1 + C_g <= α ν M_g/w_g, and the root says how much of its level is left after the leading
    1. In a group of several agents at most a share x of ℓ_j + 1 is above a floor, and x is at
    most 3/10. So of the tests of an agent only 3 (ℓ_j + 1) count in M_g, where ℓ_j is what it
    keeps in this group. Agents without tests are in no group.

    Proof: Theorem 12 (docs/theory.md#thm-groups).

    Parameters
    ----------
    agents : mapping of Numbers
        Everybody on the roster.
    spec : RunSpec
        The settings of the run.
    n_agents : int
        How many agents were invited.

    Examples
    --------
    >>> spec = RunSpec.of(regime="joint", level=0.1)
    >>> sizes = {"a": Numbers(300, 100), "b": Numbers(300, 100), "odd": Numbers(20, 2000)}
    >>> [group.agents for group in divide(sizes, spec, 3)]
    [('a', 'b'), ('odd',)]
    """
    planned = {
        name: Planned(rows.n_test, planned_calibration(rows, spec, n_agents))
        for name, rows in agents.items()
        if rows.n_test
    }
    order = sorted(planned, key=lambda name: (planned[name].weight, name))
    stops = best_stops([planned[name] for name in order], spec.level)
    return tuple(
        Group(tuple(sorted(order[start:stop])), planned[order[stop - 1]].weight)
        for start, stop in zip([0, *stops], stops, strict=False)
    )


def can_reject(agents: Mapping[str, Numbers], spec: RunSpec, n_agents: int) -> bool:
    """Tell whether any group could reject a row, by its numbers of rows alone.

    If not, no row can be rejected. At best no calibration row is above a floor, as many tests as
    the largest room has room for, and the whole level is used. Each group is looked at as if it
    were the only one: of several groups that reject, at least one rejects no less than its share
    of all, so it could do so by itself. Agents without rows above their floor do not count, so the
    first agents in the order of m_j/(ℓ_j + 1) may be enough.

    Parameters
    ----------
    agents, spec, n_agents
        As in :func:`divide`.

    Examples
    --------
    >>> spec = RunSpec.of(regime="joint", level=0.1)
    >>> [can_reject({str(j): Numbers(6, 3) for j in range(K)}, spec, K) for K in (2, 30)]
    [False, True]
    """
    for group in divide(agents, spec, n_agents):
        is_alone, above = len(group.agents) == 1, 0
        planned = (_in_group(agents[name], group, spec, n_agents) for name in group.agents)
        for agent in sorted(planned, key=lambda agent: agent.weight):
            most = agent.n_test if is_alone else most_above(agent.n_calibration, ROOMS[-1])
            above += min(agent.n_test, most)
            if agent.weight <= spec.level * above:
                return True
    return False


def _in_group(rows: Numbers, group: Group, spec: RunSpec, n_agents: int) -> Planned:
    """Return the numbers of an agent that trains on what its group does not need."""
    kept = planned_calibration(rows, spec, n_agents)
    if len(group.agents) > 1 and spec.train_fraction is None:
        kept = min(kept, needed_calibration(rows.n_test, group.weight))
    return Planned(rows.n_test, kept)


def told_weights(groups: Sequence[Group], agents: Sequence[str]) -> tuple[Fraction, ...]:
    """Return the weight of every agent's group, zero for an agent that is in no other's group.

    No two groups of several agents have the same weight, so this also says who is in a group
    with whom.
    """
    several = {n: group.weight for group in groups if len(group.agents) > 1 for n in group.agents}
    return tuple(several.get(name, Fraction(0)) for name in agents)


def fewest_of_groups(
    spec: RunSpec, agents: Mapping[str, Numbers]
) -> Iterator[tuple[tuple[str, ...], int, int, int]]:
    """Yield, for each group, its agents, calibration rows, fewest rejections and tests.

    The fewest rejections are more than the tests where no row of the group can be rejected.
    """
    for group in divide(agents, spec, len(agents)):
        size = sum(planned_calibration(agents[name], spec, len(agents)) for name in group.agents)
        n_tests = sum(agents[name].n_test for name in group.agents)
        yield group.agents, size, math.ceil(group.weight / spec.level), n_tests


def thin_groups(
    spec: RunSpec, agents: Mapping[str, Numbers], planned: object, share: Fraction = THIN
) -> dict[str, Finding]:
    """Find the agents whose group has few calibration rows, by name."""
    findings: dict[str, Finding] = {}
    for names, size, fewest, n_tests in fewest_of_groups(spec, agents):
        n = len(names)
        whose = f" of its group of {n} agents" if n > 1 else " of its own"
        for name in names:
            finding = few_rows(size, fewest, n_tests, spec.level, name, whose, share=share)
            if finding is not None:
                findings[name] = finding
    return findings


def warn_groups(spec: RunSpec, agents: Mapping[str, Numbers], planned: object) -> None:
    """Warn when no group has enough calibration rows for its tests."""
    n_agents = len(agents)
    if can_reject(agents, spec, n_agents):
        return
    size = sum(planned_calibration(rows, spec, n_agents) for rows in agents.values())
    n_tests = sum(rows.n_test for rows in agents.values())
    warnings.warn(
        f"{resolution_words(size, n_tests + 1, n_tests, spec.level)} in the regime"
        f" {spec.regime.name!r}: {size} calibration rows of {n_agents} agents are too few for"
        f" {n_tests} tests. Add known normals or agents, or lower train_fraction",
        ResolutionWarning,
        stacklevel=2,
    )


def apart_from_group(
    groups: Sequence[Group], ready: Mapping[str, Ready], level: Fraction, liars: int = 0
) -> list[Group]:
    """Let agents with more likely novelties than room above a floor decide by themselves.

    By itself an agent needs no floor. It stays in its group where it could reject nothing by
    itself: half of its likely novelties must be enough for its smallest p-value, at level 1/10.
    Whether a row is a calibration row plays no part in these numbers. With strata nobody does:
    one agent's strata are several blocks, and need floors.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    if any(one.strata for one in ready.values()):
        return list(groups)
    divided = []
    for group in groups:
        present = [name for name in group.agents if name in ready]
        wanted = [_wanted(ready[name]) for name in present]
        room = affordable_rooms(wanted, level, liars)[-1]
        apart = [n for n, one in zip(present, wanted, strict=True) if _is_crowded(one, room)]
        rest = tuple(name for name in group.agents if name not in apart)
        divided += [Group((name,), group.weight) for name in apart]
        divided += [Group(rest, group.weight)] if rest else []
    return divided


def _wanted(ready: Ready) -> RoomWanted:
    return RoomWanted(ready.n_wanted, ready.n_tested, ready.n_calibration)


def blocks_wanted(ready: Ready) -> list[RoomWanted]:
    """Return what each stratum of an agent wants above its floor, or the agent as a whole."""
    return [RoomWanted(wanted, m, size) for m, size, wanted in ready.blocks]


def _is_crowded(wanted: RoomWanted, room: Fraction) -> bool:
    """Tell whether an agent has more likely novelties than room, and may decide by itself."""
    size = wanted.n_calibration + 1
    can_alone = wanted.n_wanted * size >= 20 * wanted.n_test
    return can_alone and wanted.n_wanted > room * size


def decides_alone(agent: str, ready: Ready, numbers: Mapping[str, Numbers], spec: RunSpec) -> bool:
    """Tell whether an agent decides by itself, by its own rows and the plans of the others.

    It is in a group with no other, or has more likely novelties than its group has room for.
    """
    groups = divide(numbers, spec, len(numbers))
    group = next((g for g in groups if agent in g.agents), Group((agent,), Fraction(0)))
    if len(group.agents) == 1:
        return True
    planned = [_in_group(numbers[name], group, spec, len(numbers)) for name in group.agents]
    room = affordable_rooms([RoomWanted(0, *one) for one in planned], spec.level)[-1]
    return _is_crowded(_wanted(ready), room)


def rooms_of(
    groups: Sequence[Group], ready: Mapping[str, Ready], level: Fraction, liars: int = 0
) -> dict[str, Fraction]:
    """Choose the room of every group, and give it by the names of those who are ready.

    Zero, which means no floor, for whoever is in a group with no other and has no strata.

    Proof: Theorem 12 (docs/theory.md#thm-groups), Theorem 22 (docs/theory.md#thm-strata).
    """
    rooms = dict.fromkeys(ready, Fraction(0))
    for group in apart_from_group(groups, ready, level, liars):
        members = [name for name in group.agents if name in ready]
        if len(members) > 1 or any(ready[name].strata for name in members):
            wanted = [one for name in members for one in blocks_wanted(ready[name])]
            room = choose_room(wanted, level, liars)
            rooms |= dict.fromkeys(members, room)
    return rooms


def group_of(
    agent: str,
    names: Iterable[str],
    weights: Mapping[str, Fraction],
    rooms: Mapping[str, Fraction],
) -> set[str]:
    """Return who is in an agent's group, by what was told of everybody."""
    own = weights[agent]
    if not own or not rooms[agent]:  # it decides alone
        return {agent}
    return {name for name in names if weights[name] == own and rooms[name]} | {agent}


def told_groups(weights: Mapping[str, Fraction]) -> tuple[Group, ...]:
    """Return the groups that the weights of a roster tell; see :func:`told_weights`.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> [g.agents for g in told_groups({"a": half, "b": Fraction(0), "c": half})]
    [('a', 'c'), ('b',)]
    """
    together: dict[object, list[str]] = {}
    for name, weight in weights.items():
        together.setdefault(weight or name, []).append(name)
    return tuple(Group(tuple(names), weights[names[0]]) for names in together.values())

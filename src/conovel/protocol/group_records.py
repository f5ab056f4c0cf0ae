"""What became of every group of agents in the regime `joint`, for results and reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from conovel.deciding.cell_groups import divide, told_groups
from conovel.deciding.cell_totals import Plan, decide_totals, follows_from_totals, parts_of
from conovel.deciding.cells import GroupOutcome, block_of, decide_groups
from conovel.protocol.transcript import Transcript
from conovel.spec.bodies import Outcome
from conovel.spec.training import Numbers
from conovel.stats.cells import N_CELLS

_UNKNOWN: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class AgentGroup:
    """Agents whose calibration rows counted together, and what was decided for them.

    Attributes
    ----------
    agents : tuple of str
        Those that stayed to the end.
    weight : Fraction
        The weight w of a calibration row: the largest m_j/(ℓ_j + 1) of an agent that took part.
    x : Fraction
        The share of ℓ + 1 that may lie above a floor; zero for one agent without a floor.
    level_used : Fraction
        What is left of the level α: at least (1 - x)·α, more where fewer rows can matter than
        there is room for (Theorem 10), and α where one agent alone took part.
    share : Fraction
        The group's share of the level. Zero: by its numbers of rows, and of rows in high cells,
        it cannot expect to reject, and it takes nothing from the others.
    cell : int or None
        The lowest rejected cell; None if no row is rejected.
    n_rejected : int
    floors_reached : tuple of str
        Agents whose floor is above `cell`: rows between the two were not rejected.

    See Also
    --------
    conovel.NetworkRun : Has them as `groups`.
    """

    agents: tuple[str, ...]
    weight: Fraction
    x: Fraction
    level_used: Fraction
    share: Fraction
    cell: int | None
    n_rejected: int
    floors_reached: tuple[str, ...] = ()

    @property
    def can_reject(self) -> bool:
        """Whether the group has a share of the level."""
        return self.share > 0

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON types, fractions as text."""
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        values |= {key: list(values[key]) for key in ("agents", "floors_reached")}
        return {k: str(v) if isinstance(v, Fraction) else v for k, v in values.items()}


def groups_of(
    transcript: Transcript, floors: Mapping[str, int] = _UNKNOWN
) -> tuple[AgentGroup, ...]:
    """Derive the groups of a finished run, in ascending order of their planned weight.

    Empty in other regimes, and for the record of one site, which has no hello of the others.

    Parameters
    ----------
    transcript : Transcript
    floors : mapping of int
        The floor of each agent, where it is known: no message tells it.
    """
    groups = []
    for one in _decided(transcript):
        end, reached = one.outcome, list[str]()
        if one.room and end.cell is not None:
            reached = [name for name in one.agents if floors.get(name, 0) > end.cell]
        group = one.agents, end.weight, one.room, end.level_used, end.share, end.cell
        groups.append(AgentGroup(*group, end.n_rejected, tuple(reached)))
    return tuple(groups)


def plan_in(transcript: Transcript) -> Plan:
    """Derive the groups and x of a run with masks, as its agents did."""
    ready, level = transcript.all_ready, transcript.settings.level
    groups = parts_of(told_groups(transcript.weights), ready)
    return Plan.of(groups, ready, transcript.group_wanted, level)


def total_findings(transcript: Transcript, name: str, outcome: Outcome) -> Iterator[str]:
    """Check that x and outcome of a run with masks follow from what a site was told."""
    plan, level = plan_in(transcript), transcript.settings.level
    if plan.ready.get(name) != transcript.agents[name].ready:
        yield f"what {name} said when it was ready is not what was told of it"
    if dict(plan.rooms) != transcript.rooms:
        yield "x does not follow from what agents want"
    if not follows_from_totals(plan, transcript.group_cells, level, outcome):
        yield "the outcome does not follow from the totals"


def group_findings(transcript: Transcript, decisions: Mapping[str, Any]) -> Iterator[str]:
    """Check that the totals of each group are those of the rows of its agents, as far as known."""
    for group in plan_in(transcript).groups:
        names, totals = group.agents, transcript.group_cells.get(group.agents[0])
        here = [decisions[name] for name in names if name in decisions]
        if totals is None or not here:
            continue
        rows = [(np.asarray(own["cells"], dtype=np.int64), own["floor"]) for own in here]
        tests = sum(np.bincount(c[c >= max(floor, 0)], minlength=N_CELLS) for c, floor in rows)
        is_right = np.array_equal(tests, totals.tests)
        if len(here) < len(names):
            is_right = bool(np.all(tests <= np.array(totals.tests)))
        if not is_right:
            yield f"the totals of the group of {names[0]} are not those of its rows above floors"
        lowest = min(floor for _, floor in rows)
        if len(here) == len(names) and any(totals.calibration[:lowest]):
            yield f"the group of {names[0]} counts calibration rows below all floors"


def _decided(transcript: Transcript) -> Sequence[GroupOutcome]:
    outcome, rooms, counts = transcript.outcome, transcript.rooms, transcript.cell_counts
    if outcome is None or not rooms:
        return ()
    agents, members = transcript.agents, set(outcome.participants)
    if not set(transcript.roster) <= agents.keys():
        return ()
    spec = transcript.settings
    if transcript.all_ready:
        return decide_totals(plan_in(transcript), transcript.group_cells, spec.level)
    if not members <= counts.keys():
        return ()
    numbers = {n: Numbers(agents[n].n_null, agents[n].n_test) for n in transcript.roster}
    planned = divide(numbers, spec, len({*members, *outcome.left_out, *outcome.dropped}))
    ready = {name: agents[name].ready for name in outcome.participants}
    blocks = {
        name: block_of(name, one, counts[name], rooms[name], spec.level)
        for name, one in ready.items()
    }
    return decide_groups(planned, blocks, rooms, ready, spec.level, spec.liars)

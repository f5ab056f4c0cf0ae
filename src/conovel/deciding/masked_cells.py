"""Deciding by cells under masks: nobody sees the cells of an agent.

The coordinator tells everybody's numbers of rows (:class:`AllSizes`). Agents answer twice, each
time with numbers under masks that cancel in the sum over their group
(:mod:`conovel.learning.together.masks`). First, how many rows they want above their floors, and
how many of these each x has place for. The coordinator tells the totals (:class:`Wanted`), and x
of each group follows from them. Then, their rows in each cell above the floor. The coordinator
tells the totals of each group (:class:`Cells`), and the outcome follows. Every agent derives
groups, x and outcome itself and compares. What it was told is part of its next mask, so that all
must have been told the same.

An agent that is a group by itself has nobody to hide among. The coordinator sees its counts, as it
does without masks, and tells them to nobody else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from fractions import Fraction

import numpy as np

from conovel.deciding.base import Decided, Deciding, Present, either
from conovel.deciding.cell_groups import (
    Group,
    blocks_wanted,
    decides_alone,
    divide,
    thin_groups,
    told_groups,
    told_weights,
    warn_groups,
)
from conovel.deciding.cell_totals import (
    CELLS_ROUND,
    WANTED_ROUND,
    AllSizes,
    Cells,
    Masked,
    Plan,
    Wanted,
    among,
    decide_totals,
    follows_from_totals,
    parts_of,
    sizes_of,
)
from conovel.deciding.cells import (
    CellsAgent,
    CellsCoordinator,
    Histogram,
    as_decided,
    check_strata,
    count_cells,
)
from conovel.deciding.committed import (
    TRANSITIONS,
    CommittedAgent,
    CommittedCoordinator,
    Committing,
)
from conovel.errors import (
    ConovelError,
    CountOutOfRangeError,
    LocalProtocolError,
    OutcomeMismatchError,
    UnexpectedMessageError,
)
from conovel.learning.base import INDEPENDENT, Cue, Next, Out, Party, State, insist
from conovel.learning.together.masks import Masks, Purpose, added
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start, packed
from conovel.spec.training import Numbers
from conovel.stats.cells import N_CELLS, N_WANTED, CellHistogram, room_numbers

_LENGTHS = {WANTED_ROUND: 8 * N_WANTED, CELLS_ROUND: 8 * 2 * N_CELLS}
_NOBODY = ""  # masks hide who is at fault


class Hidden(Enum):
    """States of an agent whose counts nobody sees."""

    SIZING = "sizing"  # waits for the numbers of all
    WANTING = "wanting room"  # sent how many rows it wants above its floor, waits for x


class MaskedCellsAgent(CellsAgent):
    """An agent that adds its rows in each cell to those of its group."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        self._totals: dict[str, Histogram] | None = None  # of the groups, by their first agents

    @property
    def masks(self) -> Masks:
        """The masks that it learnt under."""
        if self.party.masks is None:
            raise LocalProtocolError("counts cannot be hidden before keys are exchanged")
        return self.party.masks

    def ready(self, counts: CellHistogram, score: bytes) -> Ready:
        """Take the rows of the site in each cell, if the groups follow from the numbers of all.

        Only an agent that leaves a group of several to decide by itself tells how many likely
        novelties it has.
        """
        whole, party = super().ready(counts, score), self.party
        groups = divide(party.numbers, party.spec, len(party.agents))
        follows = dict(zip(party.agents, told_weights(groups, party.agents), strict=True))
        insist(follows == self._weights, "the groups do not follow from the numbers of rows")
        self._wanted = blocks_wanted(whole)
        in_group = bool(self._weights[party.name]) and not whole.strata
        if not in_group or not decides_alone(party.name, whole, party.numbers, party.spec):
            strata = tuple(n for m, size, _ in whole.blocks for n in (m, size, 0))
            self._ready = replace(whole, n_wanted=0, strata=strata if whole.strata else ())
        return self._ready

    def start(self, start: Start) -> Next:
        """Wait for the numbers of all agents."""
        insist(not start.rooms, "x is told before it can follow from totals")
        self._n_tests, self._names = start.n_tests, start.participants
        self.masks.hear(packed(start))
        return Hidden.SIZING, []

    def take(self, body: Body, round_: int) -> Next:
        """Take the numbers of all agents, or totals of what agents want, or of their cells."""
        try:
            match body:
                case AllSizes():
                    return self._want(body)
                case Wanted() if round_ == WANTED_ROUND:
                    return self._count(body)
                case Cells() if round_ == CELLS_ROUND:
                    return self._derive(body)
        except (CountOutOfRangeError, LookupError, ValueError) as error:
            reason = f"the coordinator is wrong: its totals are of no agents ({error})"
            raise OutcomeMismatchError(reason, COORDINATOR) from None
        raise UnexpectedMessageError(f"totals of round {round_} were not due", COORDINATOR)

    def _want(self, sizes: AllSizes) -> Next:
        """Add what this agent wants above its floor to the totals of its group."""
        party, names = self.party, self._names
        insist(sizes.agents == names, "it tells numbers of others than take part")
        self._all = ready = dict(zip(names, sizes.ready, strict=True))
        insist(ready[party.name] == self._ready, "it tells other numbers of this agent")
        for name, one in ready.items():
            rows = party.numbers[name]
            is_right = one.n_tested == rows.n_test and one.n_calibration <= rows.n_null
            insist(is_right, f"{name} has not so many rows")
            check_strata(name, one, party.spec.strata)
        self._parts = parts_of(told_groups(self._weights), ready)
        self._among = among(party.name, self._parts)
        self.masks.hear(packed(sizes))
        numbers: Sequence[int] = (0,) * N_WANTED
        if self._among:
            of_group = sizes_of(self._among, ready)
            own = [room_numbers(one, of_group, party.spec.level) for one in self._wanted]
            numbers = [sum(column) for column in zip(*own, strict=True)]
        return Hidden.WANTING, [self._masked(numbers, WANTED_ROUND)]

    def _count(self, wanted: Wanted) -> Next:
        """Derive x, and add the rows above the floor to those of the group."""
        party, level = self.party, self.party.spec.level
        n_numbers = N_WANTED * len(wanted.groups)
        insist(len(wanted.totals) == n_numbers, "it does not tell one total of each number")
        self._plan = Plan.of(self._parts, self._all, wanted.by_group, level)
        self._rooms = dict(zip(self._names, wanted.rooms, strict=True))
        insist(self._rooms == self._plan.rooms, "x does not follow from what agents want")
        room, is_alone = self._rooms[party.name], len(self._among) == 1
        self._set_floor(room, is_alone=is_alone)
        self.masks.hear(packed(wanted))
        numbers = [*self._above.calibration.tolist(), *self._above.tests.tolist()]
        return State.COUNTING, [self._masked(numbers, CELLS_ROUND)]

    def _masked(self, numbers: Sequence[int], round_: int) -> Out:
        data = np.array(numbers, dtype="<u8").tobytes()
        masked = self.masks.masked(data, Purpose.DECIDE, round_, self._among)
        return Out([COORDINATOR], Masked(masked), round_)

    def _derive(self, cells: Cells) -> Next:
        """Take the totals of all groups; the own rows must be among them."""
        plan, name = self._plan, self.party.name
        insist(self._totals is None, "it tells totals twice")
        self._totals = dict(zip(cells.groups, cells.totals, strict=True))
        first = {group.agents[0]: group.agents for group in plan.groups}
        insist(set(self._totals) <= set(first), "it tells totals of other groups")
        due = {one for one, agents in first.items() if len(agents) > 1 or one == name}
        insist(due <= set(self._totals), "it does not tell the totals of each group")
        plan.pooled(self._totals, self.party.spec.level)  # refuses what no agents can have
        group, own = self._among, self._above
        if group:
            total = self._totals[group[0]]
            left = np.array([total.calibration, total.tests]) - [own.calibration, own.tests]
            insist(left.min() >= 0, "fewer rows than at this agent")
            insist(len(group) > 1 or not left.any(), "other rows than at this agent")
        return State.COUNTING, []

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Hold an outcome against the totals."""
        super().finish(outcome, is_ready=is_ready)
        totals, level = self._totals, self.party.spec.level
        insist(totals is not None, "an outcome before the totals")
        follows = follows_from_totals(self._plan, totals or {}, level, outcome)
        insist(follows, "not what follows from the totals")


class MaskedCellsCoordinator(CellsCoordinator):
    """The coordinator's side: it adds up, and every agent checks what it derives."""

    def __init__(self, present: Present) -> None:
        super().__init__(present)
        self._masked: dict[str, bytes] = {}
        self._totals: dict[str, Histogram] = {}

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Divide the agents into groups, from what all of them know."""
        return super().plan(agents, len(roster), roster)

    def begin(self) -> Next:
        """Ask everybody what it wants above its floor."""
        present = self.present
        present.round = WANTED_ROUND
        self._all_ready = ready = {name: present.ready[name] for name in present.here}
        for name, one in ready.items():
            check_strata(name, one, present.spec.strata)
        weights = told_weights(self._groups, present.here)
        planned = told_groups(dict(zip(present.here, weights, strict=True)))
        self._parts = parts_of(planned, ready)
        sizes = AllSizes(tuple(ready), tuple(ready.values()))
        return State.ASKING, [Out(present.here, present.start()), Out(present.here, sizes)]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take the numbers of an agent; tell the totals once all have come."""
        present = self.present
        is_due = isinstance(body, Masked) and round_ == present.round
        if not isinstance(body, Masked) or not is_due or len(body.numbers) != _LENGTHS[round_]:
            raise UnexpectedMessageError(f"{sender} sent numbers that are not asked for", sender)
        self._masked[sender] = body.numbers
        if set(present.here) - set(self._masked):
            return State.ASKING, []
        return self._tell_wanted() if round_ == WANTED_ROUND else self._tell_cells()

    def _tell_wanted(self) -> Next:
        """Tell x of each group and what it follows from."""
        present, ready = self.present, self._all_ready
        totals = {group.agents[0]: self._added(group) for group in self._parts}
        for group in self._parts:
            wanted, rows, *served = totals[group.agents[0]]
            most = sum(m + n for m, n in sizes_of(group.agents, ready))
            if not max(served) <= rows >= wanted <= most or served != sorted(served):
                _refuse(f"what {', '.join(group.agents)} want adds up to what no agents have")
        self._plan = Plan.of(self._parts, ready, totals, present.spec.level)
        self._rooms, firsts = dict(self._plan.rooms), sorted(totals)
        body = Wanted(
            tuple(firsts),
            tuple(n for first in firsts for n in totals[first]),
            tuple(self._rooms[name] for name in ready),
        )
        self._masked, present.round = {}, CELLS_ROUND
        return State.ASKING, [Out(present.here, body, WANTED_ROUND)]

    def _tell_cells(self) -> Next:
        """Tell the totals of each group, those of one agent to this agent alone."""
        present, groups = self.present, self._plan.groups
        for group in groups:
            counts = self._added(group)
            self._totals[group.agents[0]] = Histogram(
                tuple(counts[:N_CELLS]), tuple(counts[N_CELLS:])
            )
        try:
            self._plan.pooled(self._totals, present.spec.level)
        except CountOutOfRangeError:  # of an agent by itself, which is named
            raise
        except ConovelError as error:
            _refuse(f"counts add up to what no agents have: {error}")
        several = {group.agents[0] for group in groups if len(group.agents) > 1}
        steps = []
        for name in present.here:
            shown = {one: t for one, t in sorted(self._totals.items()) if one in several | {name}}
            cells = Cells(tuple(shown), tuple(shown.values()))
            steps.append(Out([name], cells, CELLS_ROUND))
        return State.DONE, steps

    def _added(self, group: Group) -> list[int]:
        total = added([self._masked[name] for name in group.agents])
        return [int(n) for n in np.frombuffer(total, dtype="<u8")]

    def decided(self) -> Decided:
        """Decide for all groups from their totals."""
        decided = decide_totals(self._plan, self._totals, self.present.spec.level)
        return as_decided(decided, self.present.here, CELLS_ROUND)


def _refuse(reason: str) -> None:
    raise CountOutOfRangeError(f"{reason}; masks hide whose numbers are wrong", _NOBODY)


CELLS = Deciding(
    name="cells",
    at_agent=either(CellsAgent, CommittedAgent, MaskedCellsAgent),
    at_coordinator=either(CellsCoordinator, CommittedCoordinator, MaskedCellsCoordinator),
    transitions={
        (State.READY, Kind.START): frozenset(
            {State.COUNTING, Committing.COMMITTED, Hidden.SIZING}
        ),
        (Hidden.SIZING, Kind.SIZES): frozenset({Hidden.WANTING}),
        (Hidden.WANTING, Kind.WANTED): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.CELLS): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.OUTCOME): frozenset({State.DONE}),
        (State.ASKING, Kind.HISTOGRAM): frozenset({State.ASKING, State.DONE}),
        (State.ASKING, Kind.MASKED): frozenset({State.ASKING, State.DONE}),
        (State.ASKING, Cue.DROP): frozenset(),  # ends the run
        **TRANSITIONS,
    },
    counts_type=CellHistogram,
    count=count_cells,
    needs=INDEPENDENT,
    peers_learn="the total count; the weight, x and lowest flagged cell of each group",
    coordinator_learns=(
        "every agent's counts of calibration rows and test rows in each cell above its floor, and"
        " the number of rows in high cells"
    ),
    shares_ranks=False,
    whose="",
    by_cells=True,
    thin=thin_groups,
    warn_thin=warn_groups,
)

"""The regime `joint` from the asking side: groups, x, checked histograms, and the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from conovel.deciding.base import Decided, Present
from conovel.deciding.cell_groups import (
    Group,
    apart_from_group,
    divide,
    group_of,
    rooms_of,
    told_groups,
    told_weights,
)
from conovel.deciding.committed import ROUND, Reveal
from conovel.errors import CountOutOfRangeError, UnexpectedMessageError
from conovel.learning.base import Next, Out, Party, State, insist
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start
from conovel.spec.fields import COUNTS
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers
from conovel.stats.cells import N_CELLS, CellHistogram, PooledBlock, allowed_rooms, most_above
from conovel.stats.grouped import PooledGroup, PooledOutcome, grouped_cut
from conovel.stats.strata import StrataHistogram

_GUESSES = (50, 10)  # one test in so many is expected to be rejected, if not more


@dataclass(frozen=True)
class Histogram(Body):
    """Agent to coordinator: its rows in each cell of the common scale above its floor."""

    kind = Kind.HISTOGRAM
    calibration: Annotated[tuple[int, ...], COUNTS]
    tests: Annotated[tuple[int, ...], COUNTS]


def own_floor(histogram: CellHistogram, room: Fraction, *, is_alone: bool, level: Fraction) -> int:
    """Return the lowest cell whose rows an agent sends.

    Proof: Theorem 10 (docs/theory.md#thm-joint), Corollary 3 (docs/theory.md#cor-joint-one).
    """
    if not histogram.size:
        return N_CELLS  # nothing to test: its rows do not matter
    return histogram.floor_alone(level) if is_alone else histogram.floor(room)


def check_strata(agent: str, ready: Ready, columns: Sequence[str]) -> None:
    """Check that the numbers of an agent's strata add up to its own.

    Raises
    ------
    CountOutOfRangeError
        If they do not, or if there are strata in a run without.
    """
    blocks = list(zip(*(ready.strata[i::3] for i in range(3)), strict=False))
    sums = tuple(sum(one[i] for one in blocks) for i in range(3))
    own = ready.n_tested, ready.n_calibration, ready.n_wanted
    if len(ready.strata) % 3 or bool(blocks) != bool(columns and ready.n_tested):
        raise CountOutOfRangeError(f"{agent} does not tell three numbers of each stratum", agent)
    if blocks and (sums != own or min(m for m, _, _ in blocks) == 0):
        raise CountOutOfRangeError(f"the strata of {agent} do not add up to its rows", agent)


def block_of(
    agent: str, ready: Ready, histogram: Histogram, room: Fraction, level: Fraction
) -> PooledBlock:
    """Check an agent's histogram against the numbers that it gave before.

    With strata it is the sum over them, each above a floor of its own.

    Proof: Theorem 10 (docs/theory.md#thm-joint), Theorem 22 (docs/theory.md#thm-strata).

    Raises
    ------
    CountOutOfRangeError
        If it counts more rows than the agent has, or more above its floor than x allows. Without
        a floor, if it counts calibration rows where no row can be rejected.
    """
    n_calibration, n_tests = sum(histogram.calibration), sum(histogram.tests)
    if n_calibration > ready.n_calibration or n_tests > ready.n_tested:
        raise CountOutOfRangeError(
            f"{agent} counts {n_calibration} calibration rows and {n_tests} test rows, and has"
            f" {ready.n_calibration} and {ready.n_tested}",
            agent,
        )
    if room:
        counted = n_calibration + n_tests
        most = sum(most_above(size, room) for _, size, _ in ready.blocks)
    else:  # see CellHistogram.floor_alone
        counted, most = n_calibration, max(level * (ready.n_calibration + 1) // 1 - 1, 0)
    if counted > most:
        raise CountOutOfRangeError(
            f"{agent} counts {counted} rows above its floor, and x = {room} allows {most}", agent
        )
    return PooledBlock(ready.n_tested, ready.n_calibration, histogram.tests, histogram.calibration)


def expected_rejections(ready: Sequence[Ready]) -> tuple[int, ...]:
    """Return how many rejections a group may expect, by two guesses.

    Both are at least its rows in high cells. Where these are few, one guess says that there are
    few novelties, and the other that they are not in high cells.

    Proof: Theorem 12 (docs/theory.md#thm-groups).
    """
    tests, likely = (sum(n) for n in zip(*((r.n_tested, r.n_wanted) for r in ready), strict=True))
    return tuple(max(likely, -(-tests // one_in)) for one_in in _GUESSES)


@dataclass(frozen=True)
class GroupOutcome:
    """What became of one group: who was in it, and where the rule stopped."""

    agents: tuple[str, ...]
    room: Fraction
    outcome: PooledOutcome


def decide_groups(
    groups: Sequence[Group],
    blocks: Mapping[str, PooledBlock],
    rooms: Mapping[str, Fraction],
    ready: Mapping[str, Ready],
    level: Fraction,
    liars: int = 0,
    most: int | None = None,
) -> tuple[GroupOutcome, ...]:
    """Decide for all agents that sent a histogram; agents without tests are in no group.

    With strata every (agent, stratum) is a block, of which totals are enough.

    Proof: Theorem 12 (docs/theory.md#thm-groups), Theorem 18 (docs/theory.md#thm-joint-liars),
    Theorem 22 (docs/theory.md#thm-strata).
    """
    names = [
        [name for name in group.agents if name in blocks]
        for group in apart_from_group(groups, ready, level, liars)
    ]
    present = [tuple(members) for members in names if any(blocks[n].n_test for n in members)]
    if not present:
        return ()
    x = [rooms[members[0]] for members in present]
    pooled = [
        _pooled([blocks[name] for name in members], [ready[name] for name in members], room)
        for members, room in zip(present, x, strict=True)
    ]
    return tuple(map(GroupOutcome, present, x, grouped_cut(pooled, level, liars, most)))


def _pooled(blocks: Sequence[PooledBlock], ready: Sequence[Ready], room: Fraction) -> PooledGroup:
    """Return one group, from the rows of each agent; with strata from the totals of all."""
    expected = expected_rejections(ready)
    if not any(one.strata for one in ready):
        return PooledGroup(blocks, room or None, expected=expected)
    tests, calibration = (
        np.sum([getattr(block, kind) for block in blocks], axis=0)
        for kind in ("test_counts", "calibration_counts")
    )
    sizes = [(m, size) for one in ready for m, size, _ in one.blocks]
    return PooledGroup.of_totals(sizes, tests, calibration, room, expected)


def told_cells(decided: Sequence[GroupOutcome], participants: Sequence[str]) -> tuple[int, ...]:
    """Return the lowest rejected cell of every participant, as an outcome has it."""
    cells = dict.fromkeys(participants, N_CELLS)
    for group in decided:
        if group.outcome.cell is not None:
            cells |= dict.fromkeys(group.agents, group.outcome.cell)
    return tuple(cells[name] for name in participants)


def reveal_cells(nonce: bytes, ready: Ready, above: CellHistogram) -> Reveal:
    """Return what an agent reveals in the regime `joint`: its rows above its floor."""
    counts = tuple(above.calibration.tolist()), tuple(above.tests.tolist())
    return Reveal(nonce, ready.n_tested, ready.n_calibration, ready.n_wanted, (), *counts)


def cells_of(agent: str, reveal: Reveal) -> Histogram:
    """Check that an agent reveals one count for each cell, and return them."""
    if reveal.steps or {len(reveal.calibration), len(reveal.tests)} != {N_CELLS}:
        raise CountOutOfRangeError(f"{agent} does not reveal one count for each cell", agent)
    return Histogram(reveal.calibration, reveal.tests)


def decide_revealed(
    spec: RunSpec,
    reveals: Mapping[str, Reveal],
    groups: Sequence[Group],
    rooms: Mapping[str, Fraction],
) -> Decided:
    """Decide from the rows in each cell that all participants reveal.

    Proof: Theorem 18 (docs/theory.md#thm-joint-liars).
    """
    ready = {name: reveal.ready for name, reveal in reveals.items()}
    blocks = {
        name: block_of(name, ready[name], cells_of(name, reveal), rooms[name], spec.level)
        for name, reveal in reveals.items()
    }
    decided = decide_groups(groups, blocks, rooms, ready, spec.level, spec.liars)
    return as_decided(decided, sorted(reveals))


def as_decided(
    decided: Sequence[GroupOutcome], participants: Sequence[str], rounds: int = ROUND
) -> Decided:
    """Return what an outcome says of these groups."""
    n_rejected = sum(group.outcome.n_rejected for group in decided)
    return Decided(n_rejected, rounds=rounds, cells=told_cells(decided, participants))


def count_cells(site: Any, ranks: object) -> CellHistogram:
    """Count the rows of a site in cells; their ranks do not matter."""
    counts: CellHistogram = site.count_cells()
    return counts


class CellsAgent:
    """An agent that sends its rows in each cell above its floor."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.limit = self.floor = 0
        self.floors: tuple[int, ...] = ()  # with strata, of each of them
        self._n_tests = 0
        self._weights: dict[str, Fraction] = {}  # of the groups
        self._rooms: dict[str, Fraction] = {}  # x of everybody there; zero where one decides alone

    def plan(self, weights: Sequence[Fraction]) -> Fraction:
        """Take the weights of all groups; return that of the own."""
        agents = self.party.agents
        insist(
            len(weights) == len(agents), f"{len(weights)} weights are told, and not {len(agents)}"
        )
        self._weights = dict(zip(agents, weights, strict=True))
        return self._weights[self.party.name]

    def ready(self, counts: CellHistogram, score: bytes) -> Ready:
        """Take the rows of the site in each cell; ask for room for the likely novelties."""
        self._cells = counts
        strata = counts.numbers if isinstance(counts, StrataHistogram) else ()
        self._ready = Ready(counts.size, counts.n_calibration, counts.n_likely, strata)
        return self._ready

    def start(self, start: Start) -> Next:
        """Send the rows in each cell above the floor that follows from x."""
        self._n_tests = start.n_tests
        agents, rooms = start.participants, start.rooms
        insist(len(rooms) == len(agents), f"{len(rooms)} x are told, and not {len(agents)}")
        self._rooms = dict(zip(agents, rooms, strict=True))
        spec, room = self.party.spec, self._rooms[self.party.name]
        is_alone = len(self._group(self._rooms, "x")) == 1
        has_floor = bool(self._ready.strata) or not is_alone
        allowed = allowed_rooms(spec.liars) if has_floor else (Fraction(0),)
        insist(room in allowed, f"x must be {' or '.join(map(str, allowed))}, not {room}")
        self._set_floor(room, is_alone=is_alone)
        counts = tuple(self._above.calibration.tolist()), tuple(self._above.tests.tolist())
        return State.COUNTING, [Out([COORDINATOR], Histogram(*counts), ROUND)]

    def _set_floor(self, room: Fraction, *, is_alone: bool) -> None:
        """Take the rows above the floor, with strata those above the floor of each of them."""
        cells, level = self._cells, self.party.spec.level
        if isinstance(cells, StrataHistogram):
            self.floors = cells.floors(room)
            self._above = cells.above_floors(self.floors)
        else:
            self.floor = own_floor(cells, room, is_alone=is_alone, level=level)
            self._above = cells.above(self.floor)

    def _group(self, values: Mapping[str, object], what: str) -> set[str]:
        """Return who is in this agent's group; they must have been told the same."""
        together = group_of(self.party.name, values, self._weights, self._rooms)
        insist(
            len({values[name] for name in together}) == 1, f"the agents of a group have one {what}"
        )
        return together

    def take(self, body: Body, round_: int) -> Next:
        """Refuse totals: without masks nothing is asked after START."""
        raise UnexpectedMessageError(f"{body.kind.name} belongs to runs with masks", COORDINATOR)

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Check the lowest rejected cell against the own rows."""
        insist(not is_ready, "an outcome before the counts")
        insist(outcome.n_tests == self._n_tests, "another number of tests")
        self.finish_committed(outcome)

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many test rows are in rejected cells."""
        return self._above.above(self.limit).size

    def reveal(self, nonce: bytes) -> Reveal:
        """Return all counts, where they are committed to."""
        return reveal_cells(nonce, self._ready, self._above)

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed, if x follows from it."""
        spec, groups = self.party.spec, told_groups(self._weights)
        ready = {name: reveal.ready for name, reveal in reveals.items()}
        follows = rooms_of(groups, ready, spec.level, spec.liars)
        insist(follows == self._rooms, "x does not follow from the numbers of rows")
        return decide_revealed(spec, reveals, groups, self._rooms)

    def finish_committed(self, outcome: Outcome) -> None:
        """Hold an outcome against the own rows, and note the lowest rejected cell."""
        names, cells = outcome.participants, outcome.cells
        insist(len(cells) == len(names), f"{len(cells)} cells are told, and not {len(names)}")
        lowest = dict(zip(names, cells, strict=True))
        self._group(lowest, "lowest cell")
        self.limit = max(lowest[self.party.name], self.floor)
        insist(lowest[self.party.name] <= N_CELLS, "a cell that does not exist")
        own = self._above.above(self.limit).size
        insist(own <= outcome.n_rejected, "fewer rejections than at this agent")


class CellsCoordinator:
    """The coordinator's side: groups by numbers of rows, one x for each, and one decision."""

    def __init__(self, present: Present) -> None:
        self.present = present
        self._groups: tuple[Group, ...] = ()
        self._rooms: dict[str, Fraction] = {}
        self._blocks: dict[str, PooledBlock] = {}

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Divide the agents into groups; tell the weight of everybody's group."""
        self._groups = divide(agents, self.present.spec, n_invited)
        return told_weights(self._groups, roster)

    def opened(self) -> Start:
        """Return the message that begins the counts: x follows from what the agents want."""
        present, spec = self.present, self.present.spec
        for name, one in present.ready.items():
            check_strata(name, one, spec.strata)
        self._rooms = rooms_of(self._groups, present.ready, spec.level, spec.liars)
        return present.start(tuple(self._rooms[name] for name in present.here))

    def begin(self) -> Next:
        """Ask everybody for its rows in each cell."""
        self.present.round = ROUND
        return State.ASKING, [Out(self.present.here, self.opened())]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take the rows of an agent in each cell."""
        present = self.present
        if not isinstance(body, Histogram) or round_ != present.round:
            raise UnexpectedMessageError(
                f"{sender} sent a histogram that is not asked for", sender
            )
        ready, room = present.ready[sender], self._rooms[sender]
        self._blocks[sender] = block_of(sender, ready, body, room, present.spec.level)
        return (State.ASKING if set(present.here) - set(self._blocks) else State.DONE), []

    def lost(self, name: str) -> Next:
        """Break the run off: its calibration rows would be missing."""
        self.present.require_all(name)
        raise AssertionError(name)

    def derive(self, reveals: Mapping[str, Reveal]) -> Decided:
        """Decide from what everybody revealed."""
        return decide_revealed(self.present.spec, reveals, self._groups, self._rooms)

    def decided(self) -> Decided:
        """Decide for all groups."""
        present, level = self.present, self.present.spec.level
        decided = decide_groups(self._groups, self._blocks, self._rooms, present.ready, level)
        return as_decided(decided, present.here)

"""The regime `consensus` in messages: checked counts by type, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from conovel.deciding.base import Decided, Deciding, Planned, Present
from conovel.errors import CountOutOfRangeError, OutcomeMismatchError, UnexpectedMessageError
from conovel.learning.base import Cue, Next, Out, Party, State, insist
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start
from conovel.spec.consensus import told_types, types_of
from conovel.spec.fields import COUNTS, DIGEST, U32, U32S
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, planned_calibration
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import (
    Calibration,
    Consensus,
    Group,
    SharedHistogram,
    decide_groups,
    grouped_types,
    shared_level,
)
from conovel.stats.levels import Level, as_level
from conovel.stats.resolution import warn_resolution


@dataclass(frozen=True)
class SharedCounts(Body):
    """Agent to coordinator: its rows in each cell of the score that all agents share.

    The fields are those of :class:`conovel.stats.consensus.SharedHistogram`. `score` is the digest
    of all totals that the score follows from: the same at every agent.
    """

    kind = Kind.SHARED
    calibration: Annotated[tuple[int, ...], COUNTS]
    tests: Annotated[tuple[int, ...], COUNTS]
    floor: Annotated[int, U32]
    near_calibration: Annotated[tuple[int, ...], U32S]
    near_tests: Annotated[tuple[int, ...], U32S]
    near_trained: Annotated[tuple[int, ...], U32S]
    n_tail: Annotated[int, U32]
    conforms: Annotated[int, U32]
    score: Annotated[bytes, DIGEST]


def check_counts(agent: str, ready: Ready, counts: SharedCounts, n_agents: int) -> None:
    """Check the counts of an agent against the numbers that it gave before.

    Raises
    ------
    CountOutOfRangeError
        If they are about other numbers of rows, or name a cell that does not exist.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    expected = (ready.n_calibration, ready.n_tested)
    totals = (sum(counts.calibration), sum(counts.tests))
    if totals != expected:
        raise CountOutOfRangeError(
            f"{agent} counts {totals} rows, and has {expected}: calibration rows, test rows", agent
        )
    below = (sum(counts.calibration[: counts.floor]), sum(counts.tests[: counts.floor]))
    near = (counts.near_calibration, counts.near_tests, counts.near_trained)
    if (
        max(counts.conforms, counts.floor) > N_CELLS
        or {*map(len, near)} != {n_agents}
        or any(sum(some) > most for some, most in zip(near[:2], below, strict=True))
    ):
        raise CountOutOfRangeError(f"{agent} counts rows in cells or regions with fewer", agent)


def check_score(counts: Mapping[str, SharedCounts]) -> None:
    """Check that all agents have the same score; blame the first that has not.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    scores = [(one.score, one.floor) for _, one in sorted(counts.items())]
    usual = max(sorted(set(scores)), key=scores.count)
    for name, one in sorted(counts.items()):
        if (one.score, one.floor) != usual:
            raise OutcomeMismatchError(
                f"{name} has another score than the others: it took other totals", name
            )


def groups_of(
    counts: Mapping[str, SharedCounts], types: Sequence[str], level: Level
) -> list[Group]:
    """Put types into groups, and give each a region and a part of the level.

    Groups and levels follow from counts of null_train alone.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    roster = sorted(counts)
    ordered = [counts[name] for name in roster]
    places = [roster.index(name) for name in types]
    members = grouped_types([one.near_trained for one in ordered], places)
    if not members:
        return []
    tails = [
        max(
            Fraction(one.n_tail, sum(one.near_trained) or 1) for one in map(ordered.__getitem__, g)
        )
        for g in members
    ]
    if len(members) == 1:  # one region: all rows below the floor
        return [
            Group(
                as_level(level),
                sum(sum(one.tests[: one.floor]) for one in ordered),
                tuple(
                    Calibration(one.calibration, sum(one.calibration[: one.floor]))
                    for one in map(ordered.__getitem__, places)
                ),
            )
        ]
    return [
        Group(
            share,
            sum(one.near_tests[k] for one in ordered for k in places_of_group),
            tuple(
                Calibration(one.calibration, sum(one.near_calibration[k] for k in places_of_group))
                for one in map(ordered.__getitem__, places_of_group)
            ),
        )
        for share, places_of_group in zip(shared_level(tails, level), members, strict=True)
    ]


def decide_consensus(
    counts: Mapping[str, SharedCounts], types: Sequence[str], level: Level
) -> Consensus:
    """Add up the test rows of all agents, keep calibration rows apart by type, and decide.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    tests = tuple(map(sum, zip(*(one.tests for one in counts.values()), strict=True)))
    floor = max(one.floor for one in counts.values())
    return decide_groups(tests, groups_of(counts, types, level), floor)


def outcome_faults(
    counts: SharedHistogram, outcome: Outcome, agent: str, n_tests: int
) -> Iterator[str]:
    """Name what in an outcome contradicts what an agent knows of its own rows."""
    cells, limits, names = outcome.cells, outcome.conforms, outcome.participants
    if outcome.n_tests != n_tests:
        yield "another number of tests"
    if len(cells) != 1 or cells[0] > N_CELLS:
        yield "cells that do not exist"
    if len(limits) != len(names) or max(limits) > N_CELLS:
        yield "not one limit for every agent"
    if agent not in names or limits[names.index(agent)] != counts.conforms:
        yield "another limit than this agent's"
    if counts.n_rejected(cells[0]) > outcome.n_rejected:
        yield "fewer rejections than at this agent"


class TypesAgent:
    """An agent that sends its rows in each cell of the score that all agents share."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.limit = self.floor = 0
        self._n_tests, self._score = 0, b""

    def plan(self, weights: Sequence[Fraction]) -> Fraction:
        """Take who is a type; return whether this agent is one."""
        agents = self.party.agents
        insist(
            len(weights) == len(agents), f"{len(weights)} weights are told, and not {len(agents)}"
        )
        return weights[self.party.index]

    def ready(self, counts: SharedHistogram, score: bytes) -> Ready:
        """Take the rows of the site in each cell, and the digest of their score."""
        self._counts, self._score = counts, score
        return Ready(counts.size, counts.n_calibration)

    def start(self, start: Start) -> Next:
        """Send the rows in each cell."""
        insist(not start.rooms, f"{len(start.rooms)} x are told, and not 0")
        self._n_tests = start.n_tests
        counts = self._counts
        body = SharedCounts(**vars(counts), score=self._score)
        return State.COUNTING, [Out([COORDINATOR], body, 1)]

    def take(self, body: Body, round_: int) -> Next:
        """Nothing is asked: the table of states has no such message."""
        raise AssertionError(body)

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Check the lowest rejected cell and the limits against the own rows."""
        insist(not is_ready, "an outcome before the counts")
        for fault in outcome_faults(self._counts, outcome, self.party.name, self._n_tests):
            insist(False, fault)
        self.limit = outcome.cells[0]

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many test rows are in the rejected cells."""
        return self._counts.n_rejected(outcome.cells[0])


class TypesCoordinator:
    """The coordinator's side: types by numbers of rows, and one decision for all."""

    def __init__(self, present: Present) -> None:
        self.present = present
        self._types: tuple[str, ...] = ()
        self._counts: dict[str, SharedCounts] = {}

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Say who is a type."""
        self._types = types_of(agents, self.present.spec, n_invited)
        return told_types(self._types, roster)

    def begin(self) -> Next:
        """Ask everybody for its rows in each cell."""
        self.present.round = 1
        return State.ASKING, [Out(self.present.here, self.present.start())]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take the rows of an agent."""
        if not isinstance(body, SharedCounts) or round_ != 1 or sender in self._counts:
            raise UnexpectedMessageError(f"{sender} sent counts that are not asked for", sender)
        check_counts(sender, self.present.ready[sender], body, len(self.present.here))
        self._counts[sender] = body
        if set(self.present.here) - set(self._counts):
            return State.ASKING, []
        check_score(self._counts)
        return State.DONE, []

    def lost(self, name: str) -> Next:
        """Break the run off: the worst case is over all agents."""
        self.present.require_all(name)
        raise AssertionError(name)

    def decided(self) -> Decided:
        """Decide about the rows of all agents."""
        present = self.present
        decided = decide_consensus(self._counts, self._types, present.spec.level)
        limits = tuple(self._counts[name].conforms for name in present.here)
        return Decided(decided.n_rejected, rounds=1, cells=(decided.cell,), conforms=limits)


def _warn_types(spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned) -> None:
    """Warn when the type with the fewest calibration rows keeps everybody from rejecting."""
    n_agents, n_tests = len(agents), sum(rows.n_test for rows in agents.values())
    types = types_of(agents, spec, n_agents)
    sizes = [planned_calibration(agents[name], spec, n_agents) for name in types]
    warn_resolution([(n_tests, min(sizes, default=0))], spec.level)


TYPES = Deciding(
    name="types",
    at_agent=TypesAgent,
    at_coordinator=TypesCoordinator,
    transitions={
        (State.READY, Kind.START): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.OUTCOME): frozenset({State.DONE}),
        (State.ASKING, Kind.SHARED): frozenset({State.ASKING, State.DONE}),
        (State.ASKING, Cue.DROP): frozenset(),  # ends the run
    },
    counts_type=SharedHistogram,
    needs=(
        "a row that is normal at some agent is exchangeable with that agent's calibration rows,"
        " given all other rows, all agents hold their columns in the same number format, and how"
        " columns become numbers was fixed before any of these rows was read"
    ),
    plain_needs=(
        "a row that is normal at some site, and that site's known normals, are exchangeable,"
        " for instance drawn independently from the same source",
        "all sites hold their columns in the same number format, and how columns become"
        " numbers was fixed before any of these rows was read",
    ),
    peers_learn=(
        "how far from an agent's normals rows conform to them; the total count; the lowest flagged"
        " cell"
    ),
    coordinator_learns=(
        "every agent's counts of calibration rows and of test rows in each cell of the score, and"
        " by the agent whose normals are nearest; the same of null_train"
    ),
    false_alarm="A row counts as a false alarm if it is normal at any agent, not only its own.",
    by_cells=True,
    warn_thin=_warn_types,
    fewest_calibration=0,
)

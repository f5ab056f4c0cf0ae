"""The regime `consensus` in messages: rounds, checked counts of folds, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from conovel.deciding.base import Decided, Deciding, Planned, Present
from conovel.errors import CountOutOfRangeError, OutcomeMismatchError, UnexpectedMessageError
from conovel.learning.base import Cue, Next, Out, Party, State, insist
from conovel.spec.bodies import COORDINATOR, Body, Kind, Outcome, Ready, Start
from conovel.spec.consensus import N_FOLDS, Agreed, fold_sizes, told_types, types_of
from conovel.spec.fields import COUNTS, DIGEST, U32
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers, planned_calibration
from conovel.stats.cells import N_CELLS
from conovel.stats.consensus import (
    MIXED,
    Calibration,
    Consensus,
    Fold,
    FoldHistograms,
    decide_folds,
)
from conovel.stats.levels import Level
from conovel.stats.resolution import warn_resolution

COUNT_ROUNDS = tuple(range(1, 1 + N_FOLDS))


@dataclass(frozen=True)
class FoldCounts(Body):
    """Agent to coordinator: its rows in each cell, by the score of one fold; rounds 1 and 2.

    `others` are the test rows of the other fold. `conforms` is the lowest cell, by the agent's own
    model, in which a row does not conform to its normals. `score` is the digest of all models that
    the scores of both folds are made of: the same at every agent.
    """

    kind = Kind.FOLD
    calibration: Annotated[tuple[int, ...], COUNTS]
    tests: Annotated[tuple[int, ...], COUNTS]
    others: Annotated[tuple[int, ...], COUNTS]
    conforms: Annotated[int, U32]
    score: Annotated[bytes, DIGEST]


def check_counts(agent: str, ready: Ready, counts: FoldCounts, fold: int) -> None:
    """Check the counts of one fold against the numbers that an agent gave before.

    Raises
    ------
    CountOutOfRangeError
        If they are about other numbers of rows, or name a cell that does not exist.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    sizes = fold_sizes(ready.n_tested)
    expected = (ready.n_calibration, sizes[fold], sizes[1 - fold])
    totals = tuple(map(sum, (counts.calibration, counts.tests, counts.others)))
    if totals != expected or counts.conforms > N_CELLS:
        raise CountOutOfRangeError(
            f"{agent} counts {totals} rows in fold {fold + 1}, and has {expected}: calibration"
            " rows, tests of this fold, tests of the other",
            agent,
        )


def check_score(counts: Mapping[str, Sequence[FoldCounts]]) -> None:
    """Check that all agents scored with the same models; blame the first that did not.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    digests = {name: [one.score for one in both] for name, both in sorted(counts.items())}
    every = [digest for both in digests.values() for digest in both]
    usual = max(sorted(set(every)), key=every.count)
    for name, both in digests.items():
        if any(digest != usual for digest in both):
            raise OutcomeMismatchError(
                f"{name} scored its rows with other models than the others: a peer sent it"
                " another model",
                name,
            )


def joined_folds(
    counts: Mapping[str, Sequence[FoldCounts]], ready: Mapping[str, Ready], types: Sequence[str]
) -> list[Fold]:
    """Add up the test rows of all agents in each fold; calibration rows stay apart by type.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    sizes = [fold_sizes(one.n_tested) for one in ready.values()]
    totals = [sum(size[fold] for size in sizes) for fold in range(N_FOLDS)]
    folds = []
    for fold in range(N_FOLDS):
        own = {name: both[fold] for name, both in counts.items()}
        tests, others = (
            tuple(map(sum, zip(*(getattr(one, kind) for one in own.values()), strict=True)))
            for kind in ("tests", "others")
        )
        calibrations = tuple(
            Calibration(ready[name].n_calibration, own[name].calibration) for name in types
        )
        folds.append(Fold(totals[fold], totals[1 - fold], tests, others, calibrations))
    return folds


def decide_consensus(
    counts: Mapping[str, Sequence[FoldCounts]],
    ready: Mapping[str, Ready],
    types: Sequence[str],
    level: Level,
) -> Consensus:
    """Decide over both folds of all agents.

    Proof: Theorem 16 (docs/theory.md#thm-consensus).
    """
    if not any(one.n_tested for one in ready.values()):
        return Consensus((N_CELLS,) * N_FOLDS, (0,) * N_FOLDS, (None,) * N_FOLDS)
    return decide_folds(joined_folds(counts, ready, types), level)


def told_limits(
    counts: Mapping[str, Sequence[FoldCounts]], participants: Sequence[str]
) -> tuple[int, ...]:
    """Return the limits of conforming of all participants, as an outcome has them."""
    return tuple(counts[name][fold].conforms for fold in range(N_FOLDS) for name in participants)


def fold_counts(histograms: FoldHistograms, score: bytes) -> Iterator[tuple[int, FoldCounts]]:
    """Give what an agent sends to the coordinator, with the round of each message."""
    for round_, fold in zip(COUNT_ROUNDS, histograms.folds, strict=True):
        counts = (fold.calibration, fold.tests, fold.others)
        yield round_, FoldCounts(*counts, fold.conforms, score)


def agreed_of(outcome: Outcome) -> Agreed | None:
    """Return what all agents agreed on; None in other regimes than `consensus`."""
    if not outcome.conforms:
        return None
    return Agreed(outcome.cells, {name: outcome.limits_of(name) for name in outcome.participants})


def fold_faults(
    histograms: FoldHistograms, outcome: Outcome, agent: str, n_tests: int
) -> Iterator[str]:
    """Name what in an outcome contradicts what an agent knows of its own folds."""
    n_folds, cells, limits = len(histograms.folds), outcome.cells, outcome.conforms
    if outcome.n_tests != n_tests:
        yield "another number of tests"
    if len(cells) != n_folds or max(cells) > N_CELLS:
        yield "cells that do not exist"
    if len(limits) != n_folds * len(outcome.participants) or max(limits) > N_CELLS:
        yield "not one limit for every agent"
    if outcome.limits_of(agent) != tuple(fold.conforms for fold in histograms.folds):
        yield "another limit than this agent's"
    if histograms.n_rejected(cells) > outcome.n_rejected:
        yield "fewer rejections than at this agent"


class FoldsAgent:
    """An agent that sends its rows in each cell by the score of each fold."""

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

    def ready(self, counts: FoldHistograms, score: bytes) -> Ready:
        """Take the rows of the site in each cell of both folds, and the digest of their score."""
        self._folds, self._score = counts, score
        return Ready(counts.size, counts.n_calibration)

    def start(self, start: Start) -> Next:
        """Send the rows of both folds."""
        insist(not start.rooms, f"{len(start.rooms)} x are told, and not 0")
        self._n_tests = start.n_tests
        bodies = fold_counts(self._folds, self._score)
        return State.COUNTING, [Out([COORDINATOR], body, round_) for round_, body in bodies]

    def take(self, body: Body, round_: int) -> Next:
        """Nothing is asked: the table of states has no such message."""
        raise AssertionError(body)

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Check the lowest rejected cells and the limits against the own rows."""
        insist(not is_ready, "an outcome before the counts")
        for fault in fold_faults(self._folds, outcome, self.party.name, self._n_tests):
            insist(False, fault)

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many test rows are in the rejected cells of their fold."""
        return self._folds.n_rejected(outcome.cells)


class FoldsCoordinator:
    """The coordinator's side: types by numbers of rows, and one decision over both folds."""

    def __init__(self, present: Present) -> None:
        self.present = present
        self._types: tuple[str, ...] = ()
        self._folds: dict[str, list[FoldCounts]] = {}

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Say who is a type."""
        self._types = types_of(agents, self.present.spec, n_invited)
        return told_types(self._types, roster)

    def begin(self) -> Next:
        """Ask everybody for its rows in each cell."""
        self.present.round = N_FOLDS
        return State.ASKING, [Out(self.present.here, self.present.start())]

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take the rows of an agent by the score of one fold."""
        counts = self._folds.setdefault(sender, [])
        if not isinstance(body, FoldCounts) or round_ != len(counts) + 1:
            raise UnexpectedMessageError(f"{sender} sent counts that are not asked for", sender)
        check_counts(sender, self.present.ready[sender], body, len(counts))
        counts.append(body)
        complete = {name for name, both in self._folds.items() if len(both) == len(COUNT_ROUNDS)}
        if set(self.present.here) - complete:
            return State.ASKING, []
        check_score(self._folds)
        return State.DONE, []

    def lost(self, name: str) -> Next:
        """Break the run off: the worst case is over all agents."""
        self.present.require_all(name)
        raise AssertionError(name)

    def decided(self) -> Decided:
        """Decide over both folds."""
        present = self.present
        decided = decide_consensus(self._folds, present.ready, self._types, present.spec.level)
        limits = told_limits(self._folds, present.here)
        return Decided(
            sum(decided.n_rejected), rounds=N_FOLDS, cells=decided.cells, conforms=limits
        )


def _warn_types(spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned) -> None:
    """Warn when the type with the fewest calibration rows keeps everybody from rejecting."""
    n_agents, n_tests = len(agents), sum(rows.n_test for rows in agents.values())
    types = types_of(agents, spec, n_agents)
    sizes = [planned_calibration(agents[name], spec, n_agents) for name in types]
    warn_resolution([(n_tests, min(sizes, default=0))], spec.level * MIXED[0][1])


FOLDS = Deciding(
    name="folds",
    at_agent=FoldsAgent,
    at_coordinator=FoldsCoordinator,
    transitions={
        (State.READY, Kind.START): frozenset({State.COUNTING}),
        (State.COUNTING, Kind.OUTCOME): frozenset({State.DONE}),
        (State.ASKING, Kind.FOLD): frozenset({State.ASKING, State.DONE}),
        (State.ASKING, Cue.DROP): frozenset(),  # ends the run
    },
    counts_type=FoldHistograms,
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
        "from which cell on rows do not conform to an agent's normals; the total count; the lowest"
        " flagged cell of each fold"
    ),
    coordinator_learns=(
        "every agent's counts of calibration rows, and of test rows of either fold, in each cell"
        " of the common scale, by the score of each fold"
    ),
    false_alarm="A row counts as a false alarm if it is normal at any agent, not only its own.",
    bound_by_nulls=True,
    by_cells=True,
    warn_thin=_warn_types,
    fewest_calibration=0,
)

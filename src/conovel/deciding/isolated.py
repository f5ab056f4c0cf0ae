"""Every agent decides alone, at level α/K: nothing is counted together.

`pooled` has the rows of all agents in one place, which then decides alone at level α. It is for
simulations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from conovel.deciding.base import Decided, Deciding, Planned, Present
from conovel.learning.base import Next, Party, State, insist
from conovel.spec.bodies import Body, Kind, Outcome, Ready, Start
from conovel.spec.findings import Finding
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import THIN, Numbers, thin_finding
from conovel.stats.null_proportion import NullProportion
from conovel.stats.resolution import warn_resolution
from conovel.stats.stepup import RankHistogram, step_up_counts


def decide_alone(
    histogram: RankHistogram, level: Fraction, estimator: NullProportion | None
) -> int:
    """Run a step-up of one's own; give the largest rejected rank.

    Proof: Lemma 4 (docs/theory.md#lem-sum), Proposition 3 (docs/theory.md#prop-conservative).

    Examples
    --------
    >>> import numpy as np
    >>> decide_alone(RankHistogram(np.array([1, 1, 2, 9, 20]), 19), Fraction(1, 5), None)
    2
    """
    if histogram.size == 0:
        return 0
    return step_up_counts([histogram], level, estimator).limits[0]


class IsolatedAgent:
    """An agent that runs a step-up of its own."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.limit = self.floor = 0

    def plan(self, weights: Sequence[Fraction]) -> Fraction:
        """Nothing is planned."""
        insist(not weights, f"{len(weights)} weights are told, and not 0")
        return Fraction(0)

    def ready(self, counts: RankHistogram, score: bytes) -> Ready:
        """Decide."""
        spec = self.party.spec
        self._ranks = counts
        self.limit = decide_alone(counts, spec.test_level(len(self.party.agents)), spec.pi0)
        return Ready(counts.size, counts.n_calibration)

    def start(self, start: Start) -> Next:
        """Refuse: there is nothing to count."""
        insist(False, f"{self.party.spec.regime.name} has no counts to start")
        raise AssertionError(start)

    def take(self, body: Body, round_: int) -> Next:
        """Nothing is asked: the table of states has no such message."""
        raise AssertionError(body)

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Check that nobody tells a total: none was counted."""
        insist(Decided.of(outcome) == Decided(), "it tells a total, and nothing was counted")

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many ranks are within the limit."""
        return self._ranks.at_most(self.limit)


class IsolatedCoordinator:
    """The coordinator's side: it ends the run once everybody has decided."""

    def __init__(self, present: Present) -> None:
        self.present = present

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Nothing is planned."""
        return ()

    def begin(self) -> Next:
        """End: nothing is counted."""
        return State.DONE, []

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Nothing comes: the table of states has no such message."""
        raise AssertionError(body)

    def lost(self, name: str) -> Next:
        """Nobody is waited for."""
        raise AssertionError(name)

    def decided(self) -> Decided:
        """Return nothing: nobody learns what others reject."""
        return Decided()


def _thin(
    spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned, share: Fraction = THIN
) -> dict[str, Finding]:
    level = spec.test_level(len(planned))
    findings = {
        name: thin_finding(size, n, level, spec.pi0, name, " of its own", share)
        for name, (n, size) in planned.items()
        if n
    }
    return {name: finding for name, finding in findings.items() if finding is not None}


def _warn_thin(spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned) -> None:
    """Warn when not even the agent with the most calibration rows can reject a row."""
    if spec.pi0 is None:
        largest = max(planned.values(), key=lambda block: block[1])
        warn_resolution([largest], spec.test_level(len(planned)))


ISOLATED = Deciding(
    name="isolated",
    at_agent=IsolatedAgent,
    at_coordinator=IsolatedCoordinator,
    transitions={
        (State.READY, Kind.START): frozenset()  # ends the run
    },
    counts_type=RankHistogram,
    shares_counts=False,
    shares_ranks=False,
    whose=" of its own",
    thin=_thin,
    warn_thin=_warn_thin,
)
POOLED = Deciding(
    name="pooled",
    at_agent=IsolatedAgent,
    at_coordinator=IsolatedCoordinator,
    transitions={},
    counts_type=RankHistogram,
    needs="the nulls of all agents together are exchangeable given the novelties",
    plain_needs=(
        "the normals of all sites together are exchangeable given the novelties",
        "scores do not depend on the order of the rows, which conovel ensures",
    ),
    coordinator_learns="every row",
    shares_counts=False,
    bound_by_nulls=True,
)

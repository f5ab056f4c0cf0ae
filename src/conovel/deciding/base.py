"""What every way of deciding is: the two sides of it, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

from conovel.errors import SiteVanishedError, UnexpectedMessageError
from conovel.learning.base import Next, Party, Table
from conovel.spec.bodies import Body, Outcome, Ready, Start
from conovel.spec.findings import Finding
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import THIN, Numbers, thin_finding
from conovel.stats.resolution import warn_resolution


@dataclass(frozen=True)
class Decided:
    """What a way of deciding gives: the fields of an OUTCOME that follow from the counts."""

    n_rejected: int = 0
    slope: Fraction = Fraction(0)
    rounds: int = 0
    cells: tuple[int, ...] = ()
    conforms: tuple[int, ...] = ()
    k: int = 0

    @classmethod
    def of(cls, outcome: Outcome) -> Decided:
        """Return what an outcome says was decided."""
        return cls(**{part.name: getattr(outcome, part.name) for part in fields(cls)})

    def matches(self, outcome: Outcome) -> bool:
        """Tell whether an outcome says the same."""
        return self == Decided.of(outcome)


@dataclass
class Present:
    """What the coordinator knows of its agents, while they decide.

    Attributes
    ----------
    spec : RunSpec
    run_id : bytes
    gone : set of str
        Whoever vanished.
    ready : dict of Ready
        What the agents said when they were ready, by name.
    round : int
        The round of counts.
    """

    spec: RunSpec
    run_id: bytes
    gone: set[str] = field(default_factory=set)
    ready: dict[str, Ready] = field(default_factory=dict)
    round: int = 0

    @property
    def here(self) -> list[str]:
        """Everybody who was ready and is still there, sorted."""
        return sorted(set(self.ready) - self.gone)

    @property
    def n_tests(self) -> int:
        """The tests of everybody who was ready."""
        return sum(ready.n_tested for ready in self.ready.values())

    def start(self, rooms: tuple[Fraction, ...] = ()) -> Start:
        """Return the message that begins the counts."""
        return Start(tuple(self.here), self.n_tests, rooms)

    def insist_on_round(self, sender: str, round_: int) -> None:
        """Refuse counts of another round."""
        if round_ != self.round:
            raise UnexpectedMessageError(f"{sender} counts for round {round_}", sender)

    def require_all(self, name: str) -> None:
        """Break the run off: the counts cannot do without an agent."""
        raise SiteVanishedError(f"{name} vanished during the counts", name)


class DecidingAgent(Protocol):
    """An agent's side of a way of deciding."""

    @property
    def limit(self) -> int:
        """The largest rejected rank, or the lowest rejected cell."""

    @property
    def floor(self) -> int:
        """The lowest cell whose rows take part."""

    def plan(self, weights: Sequence[Fraction]) -> Fraction:
        """Take what the roster tells of every agent; return what it tells of this one."""

    def ready(self, counts: Any, score: bytes) -> Ready:
        """Take the counts of the site's rows, and return what READY tells of them."""

    def start(self, start: Start) -> Next:
        """Begin the counts."""

    def take(self, body: Body, round_: int) -> Next:
        """Take a message of the coordinator."""

    def finish(self, outcome: Outcome, *, is_ready: bool) -> None:
        """Hold an outcome against what this agent knows, and note what it rejects.

        `is_ready` says that no counts have begun.
        """

    def n_rejected(self, outcome: Outcome) -> int:
        """Return how many of its rows are rejected."""


class DecidingCoordinator(Protocol):
    """The coordinator's side of a way of deciding; it ends in the state ``DONE``."""

    def plan(
        self, agents: Mapping[str, Numbers], n_invited: int, roster: Sequence[str]
    ) -> tuple[Fraction, ...]:
        """Return what the roster tells of every agent, from numbers of rows alone."""

    def begin(self) -> Next:
        """Begin, now that everybody is ready."""

    def take(self, sender: str, body: Body, round_: int) -> Next:
        """Take a message of an agent."""

    def lost(self, name: str) -> Next:
        """Go on without an agent, or break the run off."""

    def decided(self) -> Decided:
        """Return what was decided."""


def either(
    plain: Callable[[Any], Any],
    committed: Callable[[Any, Any], Any],
    hidden: Callable[[Any], Any] | None = None,
) -> Callable[[Any], Any]:
    """Return what makes a side of a run: behind commitments, or under masks, if it asks so."""

    def make(about: Party | Present) -> Any:
        if hidden is not None and about.spec.masks and not about.spec.is_committed:
            return hidden(about)
        side = plain(about)
        return committed(about, side) if about.spec.is_committed else side

    return make


# The tests and the calibration rows that each agent is planned to have, by name.
Planned: TypeAlias = Mapping[str, tuple[int, int]]


def thin_ranks(
    spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned, share: Fraction = THIN
) -> dict[str, Finding]:
    """Find the agents that have few calibration rows for the tests of all."""
    total = sum(n for n, _ in planned.values())
    findings = {
        name: thin_finding(size, total, spec.level, spec.pi0, name, " of all agents", share)
        for name, (n, size) in planned.items()
        if n
    }
    return {name: finding for name, finding in findings.items() if finding is not None}


def warn_ranks(spec: RunSpec, agents: Mapping[str, Numbers], planned: Planned) -> None:
    """Warn when no row of any agent can be rejected, by numbers of rows alone."""
    if spec.pi0 is None:
        warn_resolution(list(planned.values()), spec.level)


@dataclass(frozen=True)
class Deciding:
    """A way to decide which rows are rejected.

    Attributes
    ----------
    name : str
    at_agent, at_coordinator : callable
        Make the two sides.
    transitions : mapping
        The rows of the table of states that this way adds.
    counts_type : type
        What a site counts its rows as.
    count : callable or None
        How a site counts its ranked rows; None where it counts ranks.
    needs : str
        What the guarantee assumes; empty where that is said by the way of learning.
    plain_needs : tuple of str
        The same in the words of a report, where it is not what most ways need.
    peers_learn, coordinator_learns : str
        What becomes known beyond names, row numbers and models.
    false_alarm : str
        What counts as a false alarm, where that is more than a row normal at its own agent.
    shares_counts : bool
        Whether what one agent counts decides about the rows of others.
    bound_by_nulls : bool
        Whether the bound is α · m0/m: proven with the share of normal rows.
    shares_ranks : bool
        Whether the ranks of all agents are compared in one step-up, also of an agent in no group.
    whose : str
        Whose tests a rank is compared with, as words after a number of rows; empty where agents
        are in groups.
    by_cells : bool
        Whether rows are rejected by their cell on a common scale, and not by their rank.
    thin : callable
        Finds the agents with few calibration rows, from numbers of rows alone: `thin_ranks` is an
        example.
    warn_thin : callable
        Warns, before any work, when no row can be rejected.
    fewest_calibration : int
        With how many calibration rows an agent can take part.
    """

    name: str
    at_agent: Callable[[Party], DecidingAgent]
    at_coordinator: Callable[[Present], DecidingCoordinator]
    transitions: Table
    counts_type: type[Any]
    count: Callable[[Any, Any], Any] | None = None
    needs: str = ""
    plain_needs: tuple[str, ...] = ()
    peers_learn: str = ""
    coordinator_learns: str = "nothing"
    false_alarm: str = ""
    shares_counts: bool = True
    bound_by_nulls: bool = False
    shares_ranks: bool = True
    whose: str = " of all agents"
    by_cells: bool = False
    thin: Callable[..., dict[str, Finding]] = thin_ranks
    warn_thin: Callable[[RunSpec, Mapping[str, Numbers], Planned], None] = warn_ranks
    fewest_calibration: int = 1

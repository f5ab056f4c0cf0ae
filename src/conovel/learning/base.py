"""What every way of learning and of deciding shares: states, steps, and who takes part.

A way is a frozen record (:class:`Learning`, :class:`conovel.deciding.base.Deciding`) that names
two small classes: the side of an agent and the side of the coordinator. A side does no IO. It
takes a message or the result of work at a site, and returns the next state and the steps to take:
messages to send, and work to ask of the site. The machines of :mod:`conovel.protocol` add the
envelope, the order of the phases, and what is done about faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from conovel.errors import OutcomeMismatchError
from conovel.spec.bodies import COORDINATOR, Body, Kind
from conovel.spec.run_spec import RunSpec
from conovel.spec.training import Numbers

if TYPE_CHECKING:
    from conovel.learning.together.masks import Masks

EXCHANGEABLE = (
    "each agent's nulls are exchangeable given its novelties and its scores do not depend on"
    " the order of its rows"
)
INDEPENDENT = f"agents are independent, {EXCHANGEABLE}"


class State(Enum):
    """Where a party stands; ways have further states of their own."""

    # an agent
    NEW = "new"
    JOINING = "joining"  # said hello, waits for the roster
    RANKING = "ranking"  # has learnt, waits for its site to rank the rows
    READY = "ready"  # has its ranks, waits for the counts
    COUNTING = "counting"  # answers questions
    # the coordinator
    GATHERING = "gathering"  # waits for hellos
    WAITING = "waiting"  # waits until everybody is ready
    ASKING = "asking"  # waits for the counts of this round
    # of a list over several batches, see conovel.protocol.listing
    LISTING = "listing"  # an agent that told its history and answers questions
    COLLECTING = "collecting"  # the coordinator, waiting for histories
    # both
    DONE = "done"
    ABORTED = "aborted"


class Cue(Enum):
    """An event that is not a message: what the driver tells its machine."""

    JOIN = "join"
    TELL = "tell"
    WORK_DONE = "work done"
    DROP = "drop"


Trigger: TypeAlias = Kind | Cue
# (state, message or cue) -> the states it may lead to. ABORTED may follow any and is left out.
Table: TypeAlias = Mapping[tuple[Enum, Trigger], frozenset[Enum]]


class Out(NamedTuple):
    """A message to send: the machine gives it an envelope for each receiver."""

    receivers: Collection[str]
    body: Body
    round: int = 0


class Work(ABC):
    """Work that a machine asks of its site; the result goes to ``Agent.work_done``.

    Attributes
    ----------
    phase : {"fit", "score"}
        What it spends its time with.
    """

    phase: ClassVar[str] = "fit"

    @abstractmethod
    def at(self, site: Any) -> Any:
        """Do it on the rows of a site."""


def _as_ranks(site: Any, ranks: Any) -> Any:
    return ranks


@dataclass(frozen=True)
class RankRows(Work):
    """Rank the tested rows with these models of the peers."""

    phase = "score"
    models: Mapping[str, bytes]
    count: Callable[[Any, Any], Any] = field(default=_as_ranks, compare=False)

    def at(self, site: Any) -> Any:
        """Return the counts of the rows, as the way of deciding counts them."""
        return self.count(site, site.ranks(self.models))


Step: TypeAlias = Out | Work
Next: TypeAlias = tuple[Enum, Sequence[Step]]


@dataclass
class Party:
    """One agent of a run, and what it knows of the others.

    Attributes
    ----------
    name : str
    spec : RunSpec
    run_id, nonce : bytes
    agents : tuple of str
        The roster, in canonical order; empty before it has come.
    gone : set of str
        Whoever vanished.
    secret : bytes
        32 bytes for masks, which nobody else ever knows; `nonce` may be revealed.
    own : Numbers
        Its numbers of rows, as its HELLO has them.
    masks : Masks or None
        What hides its numbers from the coordinator, see :mod:`conovel.learning.together.masks`;
        None before the keys have come, and in a run without masks.
    numbers : dict of Numbers
        Of everybody on the roster, as they told it with their keys; empty without masks.
    """

    name: str
    spec: RunSpec
    run_id: bytes
    nonce: bytes
    agents: tuple[str, ...] = ()
    gone: set[str] = field(default_factory=set)
    secret: bytes = field(default=b"", repr=False)
    own: Numbers = field(default=Numbers(0, 0))
    masks: Masks | None = None
    numbers: dict[str, Numbers] = field(default_factory=dict)

    @property
    def index(self) -> int:
        """Its place on the roster."""
        return self.agents.index(self.name)

    @property
    def here(self) -> set[str]:
        """Everybody on the roster who is still there."""
        return set(self.agents) - self.gone

    @property
    def peers(self) -> set[str]:
        """The others who are still there."""
        return self.here - {self.name}


def insist(holds: object, otherwise: str) -> None:
    """Hold the coordinator to what it said before."""
    if not holds:
        raise OutcomeMismatchError(f"the coordinator is wrong: {otherwise}", COORDINATOR)


class LearningAgent(Protocol):
    """An agent's side of a way of learning; it ends in the state ``RANKING``.

    Attributes
    ----------
    score : bytes
        A digest of the score that all agents have in common; empty where each has its own.
    """

    score: bytes

    @property
    def awaited(self) -> list[str]:
        """The peers whose messages are waited for."""

    def begin(self, weight: Fraction) -> Next:
        """Begin, now that the roster is known; `weight` is the agent's in the plan."""

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take a message of this way, in this state."""

    def work_done(self, result: Any) -> Next:
        """Take what the site was asked for last."""

    def lost(self, state: Enum) -> Next:
        """Go on without a peer that vanished."""


class LearningCoordinator(Protocol):
    """The coordinator's side of a way of learning."""

    def begin(self, roster: Sequence[str]) -> None:
        """Begin, with everybody on the roster."""

    def take(self, sender: str, body: Body, round_: int) -> Sequence[Out]:
        """Take a message of this way, while agents learn."""

    def require_learnt(self, sender: str) -> None:
        """Refuse a READY that comes too early."""

    def lost(self, name: str) -> None:
        """Break the run off if nobody can learn without this agent."""


class NothingToCollect:
    """The coordinator's side of a way that needs no coordinator to learn."""

    def begin(self, roster: Sequence[str]) -> None:
        """Nothing begins."""

    def take(self, sender: str, body: Body, round_: int) -> Sequence[Out]:
        """Nothing comes: the table of states has no such message."""
        raise AssertionError(body)

    def require_learnt(self, sender: str) -> None:
        """Nothing is missing."""

    def lost(self, name: str) -> None:
        """Nothing: the others go on."""


@dataclass(frozen=True)
class Learning:
    """A way to learn a score.

    Attributes
    ----------
    name : str
    at_agent, at_coordinator : callable
        Make the two sides.
    transitions : mapping
        The rows of the table of states that this way adds.
    model_rounds : tuple of int
        The rounds in which an agent sends a MODEL to every peer; empty where it sends none.
    models_in_words : str
        What peers receive; empty where they receive nothing.
    needs : str
        What the guarantee assumes, where every agent decides alone.
    scores_compared : bool
        Whether scores of one agent's rows are compared with those of another's. Then all columns
        must have become numbers in one way before any row was read.
    learnt_from : callable
        Of how many mixture rows a model learns, given calibration rows and test rows; None where
        it learns from known normals alone.
    one_score : bool
        Whether one function scores the rows of all agents. Then these need one number format.
    combines : bool
        Whether an agent puts the models of its peers together with its own (`composite`).
    by_sums : bool
        Whether agents send sums over their rows, which masks can hide.
    simulated : bool
        Whether raw rows would have to leave their site: for simulations only.
    """

    name: str
    at_agent: Callable[[Party], LearningAgent]
    at_coordinator: Callable[[], LearningCoordinator]
    transitions: Table
    model_rounds: tuple[int, ...] = ()
    models_in_words: str = ""
    coordinator_learns: str = ""  # beyond names and row numbers, while agents learn
    needs: str = INDEPENDENT
    scores_compared: bool = False
    learnt_from: Callable[[int, int], int | None] = int.__add__
    one_score: bool = False
    combines: bool = False
    by_sums: bool = False
    simulated: bool = False

    @property
    def spends(self) -> bool:
        """Whether what an agent learns from its rows leaves it, and costs ε with `privacy`."""
        return bool(self.model_rounds) or self.by_sums

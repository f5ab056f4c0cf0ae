"""The run as a table of states and events, and what both machines share.

There is no IO here, no clock and no random number: bytes in, events out. What happens next is
one look into :data:`TRANSITIONS`; what has no entry there is a fault. Any fault, on whichever
side, ends in ``ABORTED``, tells everybody, and leaves no outcome behind. Messages from one
party to another must arrive in the order they were sent; between different parties any order
will do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TypeAlias

from conovel.errors import (
    ConovelError,
    DuplicateMessageError,
    ForgedSenderError,
    InputError,
    LocalProtocolError,
    MisroutedMessageError,
    RemoteProtocolError,
    ReplayedMessageError,
    RunAbortedError,
    UnexpectedMessageError,
    UnknownSenderError,
)
from conovel.protocol.events import Event, Outbox, Send
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import Abort, Body, Kind, Left, Message, Outcome
from conovel.spec.fields import MAX_NAME_BYTES, MAX_TEXT_BYTES


class State(Enum):
    """Where a party stands."""

    # an agent
    NEW = "new"
    JOINING = "joining"  # said hello, waits for the roster
    FITTING = "fitting"  # waits for its site to fit the models
    EXCHANGING = "exchanging"  # sent its models, waits for those of its peers
    REFITTING = "refitting"  # waits for its site to fit second models
    SEALING = "sealing"  # sealed its second models, waits for the seals of all
    RANKING = "ranking"  # waits for its site to rank the rows
    READY = "ready"  # has its ranks, waits for the counts
    COUNTING = "counting"  # answers questions
    COMMITTED = "committed"  # committed to its counts, waits for all commitments
    REVEALED = "revealed"  # revealed its counts, waits for the outcome
    # the coordinator
    GATHERING = "gathering"  # waits for hellos
    WAITING = "waiting"  # waits until everybody is ready
    ASKING = "asking"  # waits for the counts of this round
    COMMITTING = "committing"  # waits for commitments
    REVEALING = "revealing"  # waits for what was committed to
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
    MODELS_READY = "models ready"
    REFIT_READY = "refit ready"
    RANKS_READY = "ranks ready"
    DROP = "drop"


Trigger: TypeAlias = Kind | Cue

# (state, message or cue) -> the states it may lead to. ABORTED may follow any and is left out.
TRANSITIONS: dict[tuple[State, Trigger], frozenset[State]] = {
    (State.NEW, Cue.JOIN): frozenset({State.JOINING}),
    (State.JOINING, Kind.MODEL): frozenset({State.JOINING}),  # a peer had its roster sooner
    (State.JOINING, Kind.ROSTER): frozenset({State.FITTING, State.RANKING}),
    (State.FITTING, Kind.MODEL): frozenset({State.FITTING}),
    (State.FITTING, Kind.LEFT): frozenset({State.FITTING}),
    (State.FITTING, Cue.MODELS_READY): frozenset(
        {State.EXCHANGING, State.REFITTING, State.RANKING}
    ),
    (State.EXCHANGING, Kind.MODEL): frozenset({State.EXCHANGING, State.REFITTING, State.RANKING}),
    (State.EXCHANGING, Kind.LEFT): frozenset({State.EXCHANGING, State.RANKING}),
    (State.REFITTING, Cue.REFIT_READY): frozenset({State.SEALING}),
    (State.SEALING, Kind.MODEL): frozenset({State.SEALING}),  # a peer had all seals sooner
    (State.SEALING, Kind.SEALED): frozenset({State.EXCHANGING, State.RANKING}),
    (State.RANKING, Kind.LEFT): frozenset({State.RANKING}),
    (State.RANKING, Cue.RANKS_READY): frozenset({State.READY}),
    (State.READY, Kind.LEFT): frozenset({State.READY}),
    (State.READY, Kind.START): frozenset({State.COUNTING, State.COMMITTED}),
    (State.READY, Kind.OUTCOME): frozenset({State.DONE}),  # regimes without counts
    (State.COUNTING, Kind.BELOW): frozenset({State.COUNTING}),
    (State.COUNTING, Kind.STEP): frozenset({State.COUNTING}),
    (State.COUNTING, Kind.LEFT): frozenset({State.COUNTING}),
    (State.COUNTING, Kind.OUTCOME): frozenset({State.DONE}),
    (State.COMMITTED, Kind.COMMITMENTS): frozenset({State.REVEALED}),
    (State.REVEALED, Kind.REVEALS): frozenset({State.REVEALED}),
    (State.REVEALED, Kind.OUTCOME): frozenset({State.DONE}),
    (State.GATHERING, Kind.HELLO): frozenset({State.GATHERING, State.WAITING}),
    (State.GATHERING, Cue.DROP): frozenset({State.GATHERING, State.WAITING}),
    (State.WAITING, Kind.READY): frozenset(
        {State.WAITING, State.ASKING, State.COMMITTING, State.DONE}
    ),
    (State.WAITING, Kind.SEAL): frozenset({State.WAITING}),
    (State.WAITING, Cue.DROP): frozenset(
        {State.WAITING, State.ASKING, State.COMMITTING, State.DONE}
    ),
    (State.COMMITTING, Kind.COMMIT): frozenset({State.COMMITTING, State.REVEALING}),
    (State.COMMITTING, Cue.DROP): frozenset(),  # ends the run
    (State.REVEALING, Kind.REVEAL): frozenset({State.REVEALING, State.DONE}),
    (State.REVEALING, Cue.DROP): frozenset(),  # ends the run
    (State.ASKING, Kind.HISTOGRAM): frozenset({State.ASKING, State.DONE}),
    (State.ASKING, Kind.FOLD): frozenset({State.ASKING, State.DONE}),
    (State.ASKING, Kind.COUNT): frozenset({State.ASKING, State.DONE}),
    (State.ASKING, Cue.DROP): frozenset({State.ASKING, State.DONE}),
    (State.DONE, Cue.DROP): frozenset({State.DONE}),  # too late to matter
}


class Machine(ABC):
    """One party of a run: what an agent and the coordinator have in common.

    Parameters
    ----------
    name : str
        Its name.
    run_id : bytes
        16 bytes that all parties agreed on and no other run has.
    state : State
        Where it begins.

    Attributes
    ----------
    state : State
    error : ConovelError or None
        Why the run was broken off.
    """

    transitions = TRANSITIONS
    _relays_aborts = False

    def __init__(self, name: str, run_id: bytes, state: State) -> None:
        if len(run_id) != 16:
            raise InputError(f"run_id must have 16 bytes, not {len(run_id)}")
        self.name = name
        self.run_id = bytes(run_id)
        self.state = state
        self.error: ConovelError | None = None
        self._gone: set[str] = set()  # whoever vanished: what still arrives is ignored
        self._heard: set[tuple[str, Kind, int, str]] = set()
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run; raises the error of a broken one."""
        if self.error is not None:
            raise self.error
        if self._outcome is None:
            raise LocalProtocolError(f"{self.name} has no outcome yet: it is {self.state.value}")
        return self._outcome

    def receive(self, data: bytes, peer: str = "") -> Sequence[Event]:
        """Take one message and return what is to be done.

        Nothing a peer sends raises: a fault ends in ``ABORTED``, is kept in ``error``, and
        the messages to send tell everybody.

        Parameters
        ----------
        data : bytes
            One whole message.
        peer : str
            Who handed it over, if the transport can vouch for that.
        """
        if self.state is State.ABORTED:
            return []
        if peer in self._gone:
            return self._turn_away(peer)
        try:
            message = decode(data, peer)
        except ConovelError as error:
            return self.abort(error)
        return self.take(message, peer)

    def take(self, message: Message, peer: str = "") -> Sequence[Event]:
        """Take one message that is decoded already; see :meth:`receive`."""
        if self.state is State.ABORTED:
            return []
        if peer in self._gone:
            return self._turn_away(peer)
        try:
            self._check_envelope(message, peer)
            if message.sender in self._gone:
                return self._turn_away(message.sender)
            if isinstance(message.body, Abort):
                raise _as_error(message.sender, message.body)
            self._take_place(message)
            return self._advance(message.body.kind, lambda: self._react(message), message.sender)
        except ConovelError as error:
            return self.abort(error)

    def abort(self, error: ConovelError) -> Outbox:
        """Break the run off, for a fault or for a reason of the driver's, and tell everybody."""
        if self.state is State.ABORTED:
            return []
        self.state, self.error, self._outcome = State.ABORTED, error, None
        # Everybody hears from the coordinator; an agent only passes on what it found itself.
        if isinstance(error, RunAbortedError) and not self._relays_aborts:
            return []
        return self._send(self._others(), self._farewell(error))

    def refuse(self, error: RemoteProtocolError, peer: str) -> Outbox:
        """Break the run off because of what a peer sent, unless the peer was given up before."""
        return self._turn_away(peer) if peer in self._gone else self.abort(error)

    @abstractmethod
    def _others(self) -> set[str]:
        """Name everybody who should hear of the end."""

    @abstractmethod
    def _knows(self, sender: str) -> bool:
        """Tell whether a message may come from there at all."""

    @abstractmethod
    def _react(self, message: Message) -> Sequence[Event]:
        """Deal with a message that the table has a place for."""

    def _turn_away(self, sender: str) -> Outbox:
        """Answer somebody who was given up."""
        return []

    def _check_envelope(self, message: Message, peer: str) -> None:
        sender = message.sender
        if peer and peer != sender:
            raise ForgedSenderError(f"{peer} sent a message in the name of {sender}", peer)
        if message.run_id != self.run_id:
            raise ReplayedMessageError(f"{sender} sent a message of another run", sender)
        if message.receiver != self.name:
            raise MisroutedMessageError(
                f"{sender} sent {self.name} a message for {message.receiver}", sender
            )
        if not self._knows(sender):
            raise UnknownSenderError(f"{sender} does not take part in this run", sender)

    def _take_place(self, message: Message) -> None:
        """Refuse a second message for the same place in the run, whatever it says."""
        body, sender = message.body, message.sender
        about = body.agent if isinstance(body, Left) else ""
        place = (sender, body.kind, message.round, about)
        if place in self._heard:
            raise DuplicateMessageError(f"{sender} sent its {body.kind.name} twice", sender)
        self._heard.add(place)

    def _advance(
        self, trigger: Trigger, action: Callable[[], Sequence[Event]], sender: str
    ) -> Sequence[Event]:
        """Do what a message or a cue asks for, if the table has a place for it here."""
        allowed = self.transitions.get((self.state, trigger))
        if allowed is None:
            raise UnexpectedMessageError(
                f"{sender} sent {trigger.name} while {self.name} was {self.state.value}", sender
            )
        events = action()
        if self.state not in allowed and self.state is not State.ABORTED:
            raise LocalProtocolError(f"{trigger.name} must not lead to {self.state.value}")
        return events

    def _send(self, receivers: Iterable[str], body: Body, round_: int = 0) -> Outbox:
        messages = [Message(self.run_id, self.name, to, round_, body) for to in sorted(receivers)]
        return [Send(message.receiver, encode(message), message) for message in messages]

    def _farewell(self, error: ConovelError) -> Abort:
        culprit = error.culprit if isinstance(error, RemoteProtocolError) else self.name
        reason = as_text(str(error), MAX_TEXT_BYTES)
        return Abort(as_text(culprit, MAX_NAME_BYTES), type(error).__name__, reason)


def as_text(text: str, limit: int) -> str:
    """Make a text fit into a message: one printable line, cut after `limit` bytes.

    Examples
    --------
    >>> as_text("Łódź", 6)
    'Łód'
    """
    line = "".join(c if c.isprintable() else " " for c in text)
    return line.encode()[:limit].decode(errors="ignore")


def _as_error(sender: str, abort: Abort) -> RunAbortedError:
    if abort.fault == RunAbortedError.__name__:  # passed on: the reason already says by whom
        return RunAbortedError(abort.reason, abort.culprit)
    reason = f"{sender} broke the run off: {abort.reason} ({abort.fault})"
    return RunAbortedError(reason, abort.culprit)

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
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from conovel.deciding.ways import DECIDING, LEARNING
from conovel.errors import (
    CODES,
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
from conovel.learning.base import Cue, Out, State, Step, Table, Trigger, Work
from conovel.protocol.messages import decode, encode
from conovel.spec.bodies import Abort, Body, Kind, Left, Message, Outcome
from conovel.spec.fields import MAX_NAME_BYTES, MAX_TEXT_BYTES


@dataclass(frozen=True)
class Send:
    """Carry these bytes, which are this message, to this party."""

    receiver: str
    data: bytes
    message: Message


Event: TypeAlias = Send | Work
Outbox: TypeAlias = list[Send]


def messages_of(events: Iterable[Event]) -> Outbox:
    """Return the messages among events."""
    return [event for event in events if isinstance(event, Send)]


# What holds for every pair of ways; a way adds rows of its own.
SHARED: Table = {
    (State.NEW, Cue.JOIN): frozenset({State.JOINING}),
    (State.RANKING, Kind.LEFT): frozenset({State.RANKING}),
    (State.RANKING, Cue.WORK_DONE): frozenset({State.READY}),
    (State.READY, Kind.LEFT): frozenset({State.READY}),
    (State.READY, Kind.OUTCOME): frozenset({State.DONE}),  # where nothing is counted
    (State.GATHERING, Kind.HELLO): frozenset({State.GATHERING, State.WAITING}),
    (State.GATHERING, Cue.DROP): frozenset({State.GATHERING, State.WAITING}),
    (State.WAITING, Kind.READY): frozenset({State.WAITING, State.ASKING, State.DONE}),
    (State.WAITING, Cue.DROP): frozenset({State.WAITING, State.ASKING, State.DONE}),
    (State.DONE, Cue.DROP): frozenset({State.DONE}),  # too late to matter
}


def joined(*tables: Table) -> Table:
    """Join tables of states: what one of them allows is allowed."""
    whole: dict[tuple[Enum, Trigger], frozenset[Enum]] = {}
    for table in tables:
        for event, following in table.items():
            whole[event] = whole.get(event, frozenset()) | following
    return whole


TRANSITIONS = joined(
    SHARED,
    *(learning.transitions for learning in LEARNING.values()),
    *(deciding.transitions for deciding in DECIDING.values()),
)


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

    transitions: Table = TRANSITIONS
    _relays_aborts = False

    def __init__(self, name: str, run_id: bytes, state: Enum) -> None:
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

    def _events(self, steps: Iterable[Step]) -> Sequence[Event]:
        """Give messages their envelopes; work at the site is an event as it is."""
        events: list[Event] = []
        for step in steps:
            events += self._send(*step) if isinstance(step, Out) else [step]
        return events

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
    fault = ", ".join(filter(None, (abort.fault, CODES.get(abort.fault))))
    reason = f"{sender} broke the run off: {abort.reason} ({fault})"
    return RunAbortedError(reason, abort.culprit)

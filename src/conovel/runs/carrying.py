"""The work that a protocol's events ask for, done at a site: the one place that joins the two."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, TypeAlias

from conovel.errors import ConovelError, InputError, RunAbortedError, SiteFailedError, WireError
from conovel.learning.base import Work
from conovel.models.wire import paper_bits
from conovel.protocol import agent as protocol
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.states import Event, Outbox, Send, messages_of
from conovel.protocol.transcript import Transcript
from conovel.runs.agents import Agent
from conovel.site.site import Site
from conovel.spec.bodies import COORDINATOR, Body, Kind, Model, Start

# Takes the time of a phase of work.
Timing: TypeAlias = Callable[[str], AbstractContextManager[object]]


def perform(
    agent: protocol.Agent, site: Any, events: Iterable[Event], timing: Timing = nullcontext
) -> Outbox:
    """Do the work that events ask for, and what follows from it; return the messages to send."""
    outbox: Outbox = []
    waiting = deque(events)
    while waiting:
        event = waiting.popleft()
        if isinstance(event, Send):
            outbox.append(event)
        else:
            waiting.extend(_work(agent, site, event, timing))
    return outbox


def _work(agent: protocol.Agent, site: Any, event: Work, timing: Timing) -> Sequence[Event]:
    try:
        with timing(event.phase):
            result = event.at(site)
        return agent.work_done(result)
    except Exception as error:  # whatever goes wrong at a site ends the run
        return agent.site_failed(error)


def note_sent(transcript: Transcript, sent: Send) -> None:
    """Take a message down, and for a model what the paper charges for it."""
    body, price = sent.message.body, None
    if isinstance(body, Model):
        with suppress(WireError):  # its receiver will refuse it
            price = paper_bits(body.blob)
    transcript.note(sent.message, len(sent.data), price)


Phase: TypeAlias = Literal["hello", "models", "counts"]
_LAST_WORD = {"models": {Kind.ROSTER}, "counts": {Kind.BELOW, Kind.STEP, Kind.COMMITMENTS}}


def as_dropouts(dropouts: Any, agents: Sequence[Agent]) -> dict[str, Phase]:
    """Check which agents should vanish, and when; see :meth:`conovel.Network.run`."""
    if dropouts is None:
        return {}
    phases = ("hello", "models", "counts")
    if not isinstance(dropouts, Mapping) or not all(
        isinstance(phase, str) and phase in phases for phase in dropouts.values()
    ):
        raise InputError(
            f"dropouts must map names of agents to 'hello', 'models' or 'counts', not {dropouts!r}"
        )
    present = {agent.name for agent in agents}
    if unknown := [str(name) for name in dropouts if name not in present]:
        raise InputError(f"there is no agent called {', '.join(unknown)} to drop out")
    return dict(dropouts)


def carry(
    coordinator: Coordinator,
    machines: Mapping[str, protocol.Agent],
    sites: Mapping[str, Site],
    dropouts: dict[str, Phase],
    tell: Callable[[str], None],
) -> Transcript:
    """Carry messages in the order they were sent until no message is left."""
    transcript = Transcript()
    queue: deque[Send] = deque()
    gone: set[str] = set()

    def vanish(name: str) -> None:
        gone.add(name)
        queue.extend(coordinator.drop(name))

    for name, machine in machines.items():
        if dropouts.get(name) == "hello":
            vanish(name)
        else:
            queue.extend(messages_of(machine.join(sites[name].facts)))
    while queue:
        sent = queue.popleft()
        receiver, sender, body = sent.receiver, sent.message.sender, sent.message.body
        note_sent(transcript, sent)
        if receiver in gone or sender in gone:
            continue
        if receiver == COORDINATOR:
            queue.extend(messages_of(coordinator.receive(sent.data, sender)))
        elif _is_last_word(body, dropouts.get(receiver, "")):
            vanish(receiver)
        else:
            tell(f"{receiver}: {body.kind.name.lower()} from {sender}")
            machine = machines[receiver]
            events = machine.receive(sent.data, sender)
            queue.extend(perform(machine, sites[receiver], events))
    return transcript


def _is_last_word(body: Body, phase: str) -> bool:
    """Tell whether this is the message that an agent vanishes after; see `Network.run`."""
    if isinstance(body, Start) and body.rooms:  # joint: the histogram is the answer to it
        return phase == "counts"
    return body.kind in _LAST_WORD.get(phase, ())


def raise_first_fault(machines: Mapping[str, protocol.Agent]) -> None:
    """Raise what an agent itself found wrong, not what the others were told of it."""
    for name, machine in machines.items():
        error = machine.error
        if error is None or isinstance(error, RunAbortedError):
            continue
        cause = error.__cause__
        if not isinstance(error, SiteFailedError) or cause is None:
            raise error
        if isinstance(cause, ConovelError):
            raise type(cause)(f"agent {name}: {cause}") from cause
        raise cause

"""The work that a protocol's events ask for, done at a site: the one place that joins the two."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Protocol

from conovel.errors import WireError
from conovel.models.wire import paper_bits
from conovel.protocol.agent import Agent
from conovel.protocol.bodies import Model
from conovel.protocol.events import (
    CompareRows,
    Event,
    FitModels,
    Outbox,
    RankRows,
    RefitModels,
    Send,
    Work,
)
from conovel.protocol.transcript import Transcript
from conovel.stats.cells import CellHistogram
from conovel.stats.consensus import FoldHistograms
from conovel.stats.ranks import RankHistogram


class RowsAtWork(Protocol):
    """What a driver asks of a site."""

    def models(self, index: int, names: Sequence[str], weight: Fraction) -> Mapping[str, bytes]:
        """Make a model for every peer: names in canonical order, `index` is one's own place.

        `weight` is that of the agent's group in the regime `joint`.
        """

    def ranks(self, models: Mapping[str, bytes]) -> RankHistogram | CellHistogram:
        """Rank the tested rows with the peers' models.

        Raises
        ------
        ModelRefusedError
            If a model cannot be decoded; its `culprit` is the peer.
        """

    def refit(self, models: Mapping[str, bytes]) -> Sequence[bytes]:
        """Learn again with the first models of the peers; give a model for each fold."""

    def compare(self, models: Mapping[str, tuple[bytes, ...]]) -> FoldHistograms:
        """Count rows by the score of each fold, made of these models of all agents."""


def perform(agent: Agent, site: RowsAtWork, events: Iterable[Event]) -> Outbox:
    """Do the work that events ask for, and what follows from it; return the messages to send."""
    outbox: Outbox = []
    waiting = deque(events)
    while waiting:
        event = waiting.popleft()
        if isinstance(event, Send):
            outbox.append(event)
        else:
            waiting.extend(_work(agent, site, event))
    return outbox


def _work(agent: Agent, site: RowsAtWork, event: Work) -> Sequence[Event]:
    try:
        match event:
            case FitModels():
                return agent.models_ready(site.models(event.index, event.agents, event.weight))
            case RefitModels():
                return agent.refit_ready(site.refit(event.models))
            case CompareRows():
                return agent.ranks_ready(site.compare(event.models))
            case RankRows():
                return agent.ranks_ready(site.ranks(event.models))
    except Exception as error:  # whatever goes wrong at a site ends the run
        return agent.site_failed(error)


def note_sent(transcript: Transcript, sent: Send) -> None:
    """Take a message down, and for a model what the paper charges for it."""
    body, price = sent.message.body, None
    if isinstance(body, Model):
        with suppress(WireError):  # its receiver will refuse it
            price = paper_bits(body.blob)
    transcript.note(sent.message, len(sent.data), price)

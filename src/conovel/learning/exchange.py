"""Agents exchange models, once: each sends one to every peer and scores with all of them.

In the regime `split` rows are cut into as many blocks as there are agents, so that no model meets
the rows it has learnt from, and every peer receives a model of another block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from typing import Any

from conovel.errors import SiteFailedError, UnexpectedMessageError, UnknownSenderError
from conovel.learning.base import (
    Cue,
    Learning,
    Next,
    NothingToCollect,
    Out,
    Party,
    RankRows,
    State,
    Step,
    Table,
    Work,
)
from conovel.spec.bodies import Body, Kind, Model


class Exchange(Enum):
    """States of an agent that exchanges models."""

    FITTING = "fitting"  # waits for its site to fit the models
    EXCHANGING = "exchanging"  # sent its models, waits for those of its peers


@dataclass(frozen=True)
class FitModels(Work):
    """Fit, and make a model for every peer.

    `agents` are all names in canonical order, `index` is the agent's own place among them. Where
    agents calibrate in groups, `weight` is that of the agent's group, zero if it is in a group
    with no other.
    """

    index: int
    agents: tuple[str, ...]
    weight: Fraction = Fraction(0)

    def at(self, site: Any) -> Mapping[str, bytes]:
        """Return a model for every peer, by name."""
        models: Mapping[str, bytes] = site.models(self.index, self.agents, self.weight)
        return models


class ModelBox:
    """The models that an agent has received, by sender and round, and those that it waits for.

    Attributes
    ----------
    awaited : set of tuple
        Sender and round of the models that have not come.

    Examples
    --------
    >>> box = ModelBox()
    >>> box.wait_for(["north", "south"], [0])
    >>> box.add("north", 0, b"model")
    >>> sorted(box.awaited), box.of_round(0)
    ([('south', 0)], {'north': b'model'})
    """

    def __init__(self) -> None:
        self.awaited: set[tuple[str, int]] = set()
        self._blobs: dict[tuple[str, int], bytes] = {}

    @property
    def senders(self) -> set[str]:
        """Everybody a model has come from."""
        return {sender for sender, _ in self._blobs}

    def wait_for(self, senders: Collection[str], rounds: Iterable[int]) -> None:
        """Wait for a model of each sender in each round, unless it has come already."""
        due = {(sender, round_) for round_ in rounds for sender in senders}
        self.awaited = due - self._blobs.keys()

    def add(self, sender: str, round_: int, blob: bytes) -> None:
        """Take a model."""
        self._blobs[sender, round_] = blob
        self.awaited.discard((sender, round_))

    def give_up(self, present: Collection[str]) -> None:
        """Wait no longer for whoever is not present."""
        self.awaited = {one for one in self.awaited if one[0] in present}

    def of_round(self, round_: int) -> dict[str, bytes]:
        """Return the models of a round by sender, sorted."""
        return {s: blob for (s, r), blob in sorted(self._blobs.items()) if r == round_}

    def clear(self) -> None:
        """Forget all models: their bytes are not needed any more."""
        self._blobs.clear()


class ExchangeAgent:
    """An agent's side of the exchange."""

    rounds: tuple[int, ...] = (0,)
    fitting: type[FitModels] = FitModels

    def __init__(self, party: Party) -> None:
        self.party, self.box = party, ModelBox()
        self.score = b""  # each agent has a score of its own

    @property
    def awaited(self) -> list[str]:
        """The peers whose models have not come."""
        return sorted({sender for sender, _ in tuple(self.box.awaited)})

    def begin(self, weight: Fraction) -> Next:
        """Ask for the models, one for every peer."""
        party = self.party
        for sender in sorted(self.box.senders - set(party.agents)):
            raise UnknownSenderError(f"{sender} sent a model and is not on the roster", sender)
        return Exchange.FITTING, [self.fitting(party.index, party.agents, weight)]

    def work_done(self, result: Mapping[str, bytes]) -> Next:
        """Send every peer its model."""
        steps = self.sent(result, self.rounds[0])
        return self.after(steps, self.rounds[:1])

    def sent(self, models: Mapping[str, bytes], round_: int) -> list[Step]:
        """Return the messages with the models for all peers."""
        if set(models) != set(self.party.agents) - {self.party.name}:
            raise SiteFailedError("the site did not make one model for every peer")
        return [Out([peer], Model(models[peer]), round_) for peer in sorted(self.party.peers)]

    def after(self, steps: list[Step], rounds: Iterable[int]) -> Next:
        """Wait for the models of all peers in these rounds."""
        self.box.wait_for(self.party.peers, rounds)
        state, following = self.when_complete(Exchange.EXCHANGING)
        return state, [*steps, *following]

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take a model."""
        if not isinstance(body, Model) or round_ not in self.rounds:
            raise UnexpectedMessageError(f"{sender} sent a model of round {round_}", sender)
        self.box.add(sender, round_, body.blob)
        return self.when_complete(state)

    def lost(self, state: Enum) -> Next:
        """Wait no longer for a peer that vanished."""
        self.box.give_up(self.party.peers)
        return self.when_complete(state)

    def when_complete(self, state: Enum) -> Next:
        """Go on as soon as every peer that is still there has sent its models."""
        if state is not Exchange.EXCHANGING or self.box.awaited:
            return state, []
        return self.complete()

    def complete(self) -> Next:
        """Ask for ranks by the score that all models make together."""
        models = self.box.of_round(0)
        self.box.clear()  # their bytes are not needed any more
        return State.RANKING, [RankRows(models)]


_AFTER = frozenset({Exchange.EXCHANGING, State.RANKING})
TRANSITIONS: Table = {
    (State.JOINING, Kind.MODEL): frozenset({State.JOINING}),  # a peer had its roster sooner
    (State.JOINING, Kind.ROSTER): frozenset({Exchange.FITTING}),
    (Exchange.FITTING, Kind.MODEL): frozenset({Exchange.FITTING}),
    (Exchange.FITTING, Kind.LEFT): frozenset({Exchange.FITTING}),
    (Exchange.FITTING, Cue.WORK_DONE): _AFTER,
    (Exchange.EXCHANGING, Kind.MODEL): _AFTER,
    (Exchange.EXCHANGING, Kind.LEFT): _AFTER,
}
EXCHANGE = Learning(
    name="exchange",
    at_agent=ExchangeAgent,
    at_coordinator=NothingToCollect,
    transitions=TRANSITIONS,
    model_rounds=ExchangeAgent.rounds,
    models_in_words="one model per agent",
    combines=True,
)
BLOCKS = replace(
    EXCHANGE, name="blocks", models_in_words="one model per agent, made for this peer alone"
)

"""Agents learn one score together: rounds of sums through the coordinator, who only adds.

An agent sends whole numbers that it computed from its rows (:class:`Sums`). When those of all are
in, the coordinator sends their totals to everybody (:class:`Totals`). What is counted next follows
from the totals, at every agent by itself (:mod:`conovel.learning.together.learner`).

With masks, agents first send one another public keys (:class:`Key`), and then numbers that say
nothing by themselves (:mod:`conovel.learning.together.masks`). The totals are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from conovel.errors import (
    CountOutOfRangeError,
    SiteVanishedError,
    UnexpectedMessageError,
    UnknownSenderError,
)
from conovel.learning.base import Cue, Learning, Next, Out, Party, State, Step, Table, Work, insist
from conovel.learning.together.masks import Key, Purpose, added, agree, public_key
from conovel.spec.bodies import COORDINATOR, Body, Kind
from conovel.spec.fields import BLOB
from conovel.spec.training import Numbers
from conovel.stats.cells import CellHistogram

if TYPE_CHECKING:
    from conovel.learning.together.at_site import SiteLearner
    from conovel.learning.together.private_site import PrivateSiteLearner

NUMBER = np.dtype("<i8")  # whole numbers of 64 bits; sums are modulo 2^64


@dataclass(frozen=True)
class Sums(Body):
    """Agent to coordinator: its numbers of this round."""

    kind = Kind.SUMS
    numbers: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Totals(Body):
    """Coordinator to agents: the sums of the numbers of all agents in this round."""

    kind = Kind.TOTALS
    numbers: Annotated[bytes, BLOB]


class Together(Enum):
    """States of an agent that learns with the others."""

    AGREEING = "agreeing"  # sent its key, waits for those of its peers
    COUNTING_ROWS = "counting rows"  # waits for its site
    ADDING = "adding"  # sent its numbers, waits for the totals


@dataclass(frozen=True)
class CountRows(Work):
    """Count the rows for the first round, or for the round that follows from these totals."""

    learner: SiteLearner | PrivateSiteLearner
    weight: Fraction
    totals: bytes | None = None

    def at(self, site: Any) -> bytes | None:
        """Return the numbers of the round; None if the score is learnt."""
        if self.totals is None:
            return self.learner.begin(site, self.weight)
        return self.learner.go_on(self.totals)


@dataclass(frozen=True)
class RankTogether(Work):
    """Rank the tested rows by the score that was learnt."""

    phase = "score"
    learner: SiteLearner | PrivateSiteLearner

    def at(self, site: Any) -> CellHistogram:
        """Return the counts of the rows."""
        return self.learner.ranks(site)


def _learner_of(party: Party) -> SiteLearner | PrivateSiteLearner:
    """Return what a site learns with; the modules are loaded late, one of them loads numba."""
    if party.spec.privacy is not None:
        from conovel.learning.together.private_site import PrivateSiteLearner  # noqa: PLC0415

        return PrivateSiteLearner(party)
    from conovel.learning.together.at_site import SiteLearner  # noqa: PLC0415

    return SiteLearner(party)


class TogetherAgent:
    """An agent's side: it counts, and goes on with the totals."""

    def __init__(self, party: Party) -> None:
        self.party, self.score = party, b""
        self._learner = _learner_of(party)
        self._weight, self._round = Fraction(0), 0
        self._keys: dict[str, Key] = {}  # of the peers
        self._is_agreed = not party.spec.masks

    @property
    def awaited(self) -> list[str]:
        """The peers whose keys have not come."""
        return [] if self._is_agreed else sorted(self.party.peers - self._keys.keys())

    def begin(self, weight: Fraction) -> Next:
        """Count for the first round; with masks, send the own key first."""
        self._weight, party = weight, self.party
        if not party.spec.masks:
            return self._count()
        for sender in sorted(self._keys.keys() - set(party.agents)):
            raise UnknownSenderError(f"{sender} sent a key and is not on the roster", sender)
        insist(len(party.agents) > 1, "an agent alone has nobody to hide its numbers among")
        key = Key(public_key(party.secret), *party.own)
        state, steps = self._when_agreed()
        return state, [Out(party.peers, key), *steps]

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take the key of a peer, or the totals of the round that was sent last."""
        if isinstance(body, Key) and self.party.spec.masks:
            self._keys[sender] = body
            return (state, []) if state is State.JOINING else self._when_agreed()
        if not isinstance(body, Totals) or round_ != self._round:
            raise UnexpectedMessageError(f"{sender} sent totals of round {round_}", sender)
        if self.party.masks is not None:
            self.party.masks.hear(body.numbers)
        return Together.COUNTING_ROWS, [CountRows(self._learner, self._weight, body.numbers)]

    def work_done(self, result: bytes | None) -> Next:
        """Send the numbers, or ask for ranks once the score is learnt."""
        if result is None:
            return State.RANKING, [RankTogether(self._learner)]
        self._round += 1
        if self.party.masks is not None:
            agents = self.party.agents
            result = self.party.masks.masked(result, Purpose.LEARN, self._round, agents)
        return Together.ADDING, [Out([COORDINATOR], Sums(result), self._round)]

    def lost(self, state: Enum) -> Next:
        """Nothing: without an agent the coordinator ends the run."""
        return state, []

    def _when_agreed(self) -> Next:
        """Count for the first round, once the keys of all peers have come."""
        if self.awaited:
            return Together.AGREEING, []
        party, self._is_agreed = self.party, True
        keys = {name: key.public for name, key in self._keys.items()}
        party.masks = agree(party.name, party.secret, party.run_id, party.agents, keys)
        numbers = {name: Numbers(key.n_null, key.n_test) for name, key in self._keys.items()}
        party.numbers = dict(sorted({**numbers, party.name: party.own}.items()))
        return self._count()

    def _count(self) -> Next:
        steps: list[Step] = [CountRows(self._learner, self._weight)]
        return Together.COUNTING_ROWS, steps


class TogetherCoordinator:
    """The coordinator's side: it adds, and chooses nothing."""

    def __init__(self) -> None:
        self._roster: tuple[str, ...] = ()
        self._numbers: dict[str, bytes] = {}
        self._learnt: set[str] = set()  # whoever has sent READY
        self._round = 1

    def begin(self, roster: Sequence[str]) -> None:
        """Wait for the numbers of everybody on the roster."""
        self._roster = tuple(roster)

    def take(self, sender: str, body: Body, round_: int) -> Sequence[Out]:
        """Take the numbers of an agent; give the totals once all have come."""
        is_due = round_ == self._round and sender not in {*self._numbers, *self._learnt}
        if not isinstance(body, Sums) or not is_due or len(body.numbers) % 8:
            raise UnexpectedMessageError(f"{sender} sent numbers that are not asked for", sender)
        self._numbers[sender] = body.numbers
        if len(self._numbers) < len(self._roster):
            return []
        sizes = {name: len(numbers) for name, numbers in sorted(self._numbers.items())}
        usual = Counter(sizes.values()).most_common(1)[0][0]
        for name, size in sizes.items():
            if size != usual:
                raise CountOutOfRangeError(
                    f"{name} sent {size // 8} numbers, not {usual // 8}", name
                )
        totals = added(list(self._numbers.values()))
        self._numbers, self._round = {}, round_ + 1
        return [Out(self._roster, Totals(totals), round_)]

    def require_learnt(self, sender: str) -> None:
        """Refuse a READY before the first totals, or while a round is under way.

        If others were ready before, whoever still sent numbers is at fault.
        """
        if self._round == 1 or self._numbers:
            culprit = min(self._numbers) if self._learnt and self._numbers else sender
            raise UnexpectedMessageError(f"{culprit} learns another number of rounds", culprit)
        self._learnt.add(sender)

    def lost(self, name: str) -> None:
        """End the run: sums of the others would be about other rows than the totals before."""
        raise SiteVanishedError(f"{name} vanished, and a score learnt together needs all", name)


TRANSITIONS: Table = {
    (State.JOINING, Kind.KEY): frozenset({State.JOINING}),  # a peer had its roster sooner
    (State.JOINING, Kind.ROSTER): frozenset({Together.AGREEING, Together.COUNTING_ROWS}),
    (Together.AGREEING, Kind.KEY): frozenset({Together.AGREEING, Together.COUNTING_ROWS}),
    (Together.COUNTING_ROWS, Cue.WORK_DONE): frozenset({Together.ADDING, State.RANKING}),
    (Together.ADDING, Kind.TOTALS): frozenset({Together.COUNTING_ROWS}),
    (State.WAITING, Kind.SUMS): frozenset({State.WAITING}),
}
TOGETHER = Learning(
    name="together",
    at_agent=TogetherAgent,
    at_coordinator=TogetherCoordinator,
    transitions=TRANSITIONS,
    models_in_words="the totals of the numbers that all agents send while they learn",
    coordinator_learns="the numbers of rows, and sums over rows, that every agent sends",
    by_sums=True,
)

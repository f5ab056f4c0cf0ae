"""Agents learn one score together: rounds of sums through the coordinator, who only adds.

An agent sends whole numbers that it computed from its rows (:class:`Sums`). When those of all are
in, the coordinator sends their totals to everybody (:class:`Totals`). What is counted next follows
from the totals, at every agent by itself (:mod:`conovel.learning.together.learner`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from conovel.errors import CountOutOfRangeError, SiteVanishedError, UnexpectedMessageError
from conovel.learning.base import Cue, Learning, Next, Out, Party, State, Table, Work
from conovel.spec.bodies import COORDINATOR, Body, Kind
from conovel.spec.fields import BLOB
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
        self.awaited: list[str] = []
        self._learner = _learner_of(party)
        self._weight, self._round = Fraction(0), 0

    def begin(self, weight: Fraction) -> Next:
        """Count for the first round."""
        self._weight = weight
        return Together.COUNTING_ROWS, [CountRows(self._learner, weight)]

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take the totals of the round that was sent last."""
        if not isinstance(body, Totals) or round_ != self._round:
            raise UnexpectedMessageError(f"{sender} sent totals of round {round_}", sender)
        return Together.COUNTING_ROWS, [CountRows(self._learner, self._weight, body.numbers)]

    def work_done(self, result: bytes | None) -> Next:
        """Send the numbers, or ask for ranks once the score is learnt."""
        if result is None:
            return State.RANKING, [RankTogether(self._learner)]
        self._round += 1
        return Together.ADDING, [Out([COORDINATOR], Sums(result), self._round)]

    def lost(self, state: Enum) -> Next:
        """Nothing: without an agent the coordinator ends the run."""
        return state, []


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
        arrays = [np.frombuffer(numbers, NUMBER) for numbers in self._numbers.values()]
        totals = np.sum(arrays, axis=0, dtype=NUMBER).tobytes()
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
    (State.JOINING, Kind.ROSTER): frozenset({Together.COUNTING_ROWS}),
    (Together.COUNTING_ROWS, Cue.WORK_DONE): frozenset({Together.ADDING, State.RANKING}),
    (Together.ADDING, Kind.TOTALS): frozenset({Together.COUNTING_ROWS}),
    (State.WAITING, Kind.SUMS): frozenset({State.WAITING}),
}
TOGETHER = Learning(
    name="together",
    at_agent=TogetherAgent,
    at_coordinator=TogetherCoordinator,
    transitions=TRANSITIONS,
    sends_sums=True,
    models_in_words="the totals of the numbers that all agents send while they learn",
    coordinator_learns="the numbers of rows, and sums over rows, that every agent sends",
)

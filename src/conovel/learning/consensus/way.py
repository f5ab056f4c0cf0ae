"""Agents learn one score for all of them, in the rounds of sums of `together`.

The rounds and messages are those of :mod:`conovel.learning.together.way`. What differs is what is
summed (:mod:`conovel.learning.consensus.learner`), and that agents keep a digest of all totals:
the score has to be the same function at every agent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from conovel.learning.base import Learning, Next, Party, State, Work
from conovel.learning.together.way import TRANSITIONS, TogetherAgent, TogetherCoordinator, Totals
from conovel.spec.bodies import Body
from conovel.stats.consensus import SharedHistogram

if TYPE_CHECKING:
    from conovel.learning.consensus.at_site import ConsensusLearner


@dataclass(frozen=True)
class CompareRows(Work):
    """Count the rows by the score that all agents learnt."""

    phase = "score"
    learner: ConsensusLearner

    def at(self, site: Any) -> SharedHistogram:
        """Return the counts of the rows."""
        return self.learner.compare(site)


class ConsensusAgent(TogetherAgent):
    """An agent's side: it counts, goes on with the totals, and notes a digest of them."""

    def __init__(self, party: Party) -> None:
        super().__init__(party)
        from conovel.learning.consensus.at_site import (  # noqa: PLC0415  (loads numba)
            ConsensusLearner,
        )

        self._learner: ConsensusLearner = ConsensusLearner(party)
        self._heard = b""  # a digest of all totals so far

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Take the totals of the round that was sent last."""
        after = super().take(sender, body, round_, state)
        if isinstance(body, Totals):
            self._heard = hashlib.sha256(self._heard + body.numbers).digest()
        return after

    def work_done(self, result: bytes | None) -> Next:
        """Send the numbers, or ask for the counts once the score is learnt."""
        if result is not None:
            return super().work_done(result)
        self.score = self._heard
        return State.RANKING, [CompareRows(self._learner)]


CONSENSUS = Learning(
    name="consensus",
    at_agent=ConsensusAgent,
    at_coordinator=TogetherCoordinator,
    transitions=TRANSITIONS,
    models_in_words=(
        "the totals of the numbers that all agents send while they learn; a rounded centre of"
        " every agent's null_train"
    ),
    coordinator_learns="the numbers of rows, and sums over rows, that every agent sends",
    scores_compared=True,
    one_score=True,
    by_sums=True,
)

"""Every agent learns from its own rows alone: nothing is sent before the counts."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from fractions import Fraction
from typing import Any

from conovel.learning.base import (
    EXCHANGEABLE,
    Learning,
    Next,
    NothingToCollect,
    Party,
    RankRows,
    State,
)
from conovel.spec.bodies import Body, Kind


class AloneAgent:
    """An agent that asks its site for ranks as soon as it knows who takes part."""

    def __init__(self, party: Party) -> None:
        self.awaited: list[str] = []
        self.score = b""  # each agent has a score of its own

    def begin(self, weight: Fraction) -> Next:
        """Ask for the ranks."""
        return State.RANKING, [RankRows({})]

    def take(self, sender: str, body: Body, round_: int, state: Enum) -> Next:
        """Nothing comes: the table of states has no such message."""
        raise AssertionError(body)

    def work_done(self, result: Any) -> Next:
        """Nothing is asked for before the ranks."""
        raise AssertionError(result)

    def lost(self, state: Enum) -> Next:
        """Nobody was waited for."""
        return state, []


ALONE = Learning(
    name="alone",
    at_agent=AloneAgent,
    at_coordinator=NothingToCollect,
    transitions={(State.JOINING, Kind.ROSTER): frozenset({State.RANKING})},
    needs=EXCHANGEABLE,
)
# All rows are brought to one place, in simulations: it learns as an agent that is alone does.
POOLED_ROWS = replace(
    ALONE, name="pooled", models_in_words="every row", scores_compared=True, simulated=True
)

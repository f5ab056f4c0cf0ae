"""The list so far of a network: e-BH over all batches and all agents, by counts.

After the run of a batch each agent tells its history: how many rows were tested and rejected in
each batch, over all agents, as a digest. If all agree, the coordinator asks k = M, the number of
rows in all batches; every agent answers how many of its own rows have E ≥ M/(αk); the sum is the
next k, until it stays (docs/theory.md, Theorem 14). Only these counts are exchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from fractions import Fraction

from conovel.deciding.asking import Count
from conovel.errors import (
    CountOutOfRangeError,
    CountRisingError,
    InputError,
    LocalProtocolError,
    OutcomeMismatchError,
    SiteVanishedError,
    SpecMismatchError,
    UnexpectedMessageError,
)
from conovel.learning.base import Cue, State, Table
from conovel.protocol.messages import as_name
from conovel.protocol.states import Event, Machine, Outbox, messages_of
from conovel.spec.bodies import COORDINATOR, History, Kind, Listed, Listing, Message

LISTING_TRANSITIONS: Table = {
    (State.NEW, Cue.TELL): frozenset({State.LISTING}),
    (State.LISTING, Kind.LISTING): frozenset({State.LISTING}),
    (State.LISTING, Kind.LISTED): frozenset({State.DONE}),
    (State.COLLECTING, Kind.HISTORY): frozenset({State.COLLECTING, State.ASKING}),
    (State.COLLECTING, Cue.DROP): frozenset(),
    (State.ASKING, Kind.COUNT): frozenset({State.ASKING, State.DONE}),
    (State.ASKING, Cue.DROP): frozenset(),
    (State.DONE, Cue.DROP): frozenset({State.DONE}),
}


def history_of(batches: Sequence[tuple[int, int]], level: Fraction) -> History:
    """Return what an agent tells of its ledger.

    Parameters
    ----------
    batches : sequence of (tests, rejections)
        Of every batch, over all agents.
    level : Fraction
        Of the list.

    Examples
    --------
    >>> history_of([(300, 12), (280, 0)], Fraction(1, 10)).n_tests
    580
    """
    text = json.dumps([str(level), [list(batch) for batch in batches]])
    digest = hashlib.sha256(text.encode()).digest()
    return History(len(batches), sum(n_tests for n_tests, _ in batches), digest)


class ListingAgent(Machine):
    """An agent that decides with others which rows are on the list.

    Parameters
    ----------
    name : str
    run_id : bytes
        Of the batch that was added last.
    count : callable
        From k to the number of own rows, of all batches, with E ≥ M/(αk).

    Attributes
    ----------
    n_listed : int
        Rows on the list over all agents, once it is done.
    rounds : list of (k, count)
        Every question, and the own answer.
    """

    transitions = LISTING_TRANSITIONS

    def __init__(self, name: str, run_id: bytes, count: Callable[[int], int]) -> None:
        super().__init__(as_name(name), run_id, State.NEW)
        self._count = count
        self.rounds: list[tuple[int, int]] = []
        self._n_tests = 0
        self._n_listed: int | None = None

    @property
    def n_listed(self) -> int:
        """Rows on the list over all agents; raises the error of a broken exchange."""
        if self.error is not None:
            raise self.error
        if self._n_listed is None:
            raise LocalProtocolError(f"{self.name} has no list yet: it is {self.state.value}")
        return self._n_listed

    def tell(self, history: History) -> Outbox:
        """Tell the history of the own ledger: the first thing to call."""

        def send() -> Outbox:
            self._n_tests = history.n_tests
            self.state = State.LISTING
            return self._send([COORDINATOR], history)

        return messages_of(self._advance(Cue.TELL, send, self.name))

    def _others(self) -> set[str]:
        return {COORDINATOR}

    def _knows(self, sender: str) -> bool:
        return sender == COORDINATOR

    def _react(self, message: Message) -> Sequence[Event]:
        if isinstance(message.body, Listing):
            return self._on_question(message.body.k, message.round)
        if isinstance(message.body, Listed):
            return self._on_listed(message.body.n_listed)
        raise AssertionError(message)  # the table lets nothing else through

    def _on_question(self, k: int, round_: int) -> Outbox:
        if not self.rounds:
            self._insist(k == self._n_tests, "k must begin at the number of rows")
        else:
            last_k, answer = self.rounds[-1]
            self._insist(answer <= k < last_k, "k must fall, to the sum of counts")
        self.rounds.append((k, self._count(k)))
        return self._send([COORDINATOR], Count(self.rounds[-1][1]), round_)

    def _on_listed(self, n_listed: int) -> Outbox:
        last_k, answer = self.rounds[-1] if self.rounds else (-1, 0)
        self._insist(n_listed in (last_k, 0), "not the fixed point")
        self._insist(answer <= n_listed, "fewer rows than at this agent")
        self._n_listed = n_listed
        self.state = State.DONE
        return []

    def _insist(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise OutcomeMismatchError(f"the coordinator is wrong: {otherwise}", COORDINATOR)


class ListingCoordinator(Machine):
    """The party that asks for the counts of a list.

    Parameters
    ----------
    names : sequence of str
        The agents of the batch that was added last.
    run_id : bytes

    Attributes
    ----------
    rounds : list of (k, counts by agent)
        Every question and its answers.
    n_batches : int
        Batches of the list, once the agents have told their histories.
    """

    transitions = LISTING_TRANSITIONS
    _relays_aborts = True

    def __init__(self, names: Sequence[str], run_id: bytes) -> None:
        super().__init__(COORDINATOR, run_id, State.COLLECTING)
        self._names = sorted(map(as_name, names))
        if len(set(self._names)) != len(self._names) or not self._names:
            raise InputError("a list needs agents of different names")
        self._histories: dict[str, History] = {}
        self.rounds: list[tuple[int, dict[str, int]]] = []

    @property
    def n_batches(self) -> int:
        """Batches of the list."""
        return max((history.n_batches for history in self._histories.values()), default=0)

    def drop(self, name: str) -> Outbox:
        """Break off, because an agent vanished: its rows would be missing on the list."""
        if self.state in (State.DONE, State.ABORTED):
            return []
        return self.abort(SiteVanishedError(f"{name} vanished while the list was made", name))

    def _others(self) -> set[str]:
        return set(self._names)

    def _knows(self, sender: str) -> bool:
        return sender in self._names

    def _react(self, message: Message) -> Sequence[Event]:
        if isinstance(message.body, History):
            return self._on_history(message.sender, message.body)
        if isinstance(message.body, Count):
            return self._on_count(message.sender, message.body.count, message.round)
        raise AssertionError(message)  # the table lets nothing else through

    def _on_history(self, sender: str, history: History) -> Outbox:
        first = next(iter(self._histories.values()), history)
        if history != first:
            raise SpecMismatchError(
                f"{sender} has {history.n_batches} batches with {history.n_tests} rows in its"
                f" ledger and another agent {first.n_batches} with {first.n_tests}, or their"
                " numbers differ: all agents need the ledgers of the same batches",
                sender,
            )
        self._histories[sender] = history
        if set(self._histories) != set(self._names):
            return []
        self.state = State.ASKING
        return self._ask(history.n_tests)

    def _ask(self, k: int) -> Outbox:
        self.rounds.append((k, {}))
        return self._send(self._names, Listing(k), len(self.rounds))

    def _on_count(self, sender: str, count: int, round_: int) -> Outbox:
        if round_ != len(self.rounds):
            raise UnexpectedMessageError(f"{sender} counts for another round", sender)
        k, counts = self.rounds[-1]
        if count > self._histories[sender].n_tests:
            raise CountOutOfRangeError(f"{sender} counts {count} rows", sender)
        if len(self.rounds) > 1 and count > self.rounds[-2][1][sender]:
            raise CountRisingError(f"{sender} counts more rows than for a larger k", sender)
        counts[sender] = count
        if set(counts) != set(self._names):
            return []
        total = sum(counts.values())
        if 0 < total < k:
            return self._ask(total)
        self.state = State.DONE
        return self._send(self._names, Listed(min(total, k)), len(self.rounds))

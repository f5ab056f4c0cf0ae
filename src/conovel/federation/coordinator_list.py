"""The coordinator's part in the list over several batches."""

from __future__ import annotations

from typing import Any

from conovel.errors import ConovelError
from conovel.federation.terms import Terms
from conovel.protocol.events import Outbox, messages_of
from conovel.protocol.listing import ListingCoordinator
from conovel.protocol.states import State
from conovel.spec.bodies import Abort, Kind, Message
from conovel.spec.guarantee import network_over_time

LIST_MESSAGES = frozenset({Kind.LISTING, Kind.LISTED})  # of the coordinator
# After these a site owes an answer: to the outcome of the batch, its history.
LIST_QUESTIONS = frozenset({Kind.OUTCOME, Kind.LISTING})


class CoordinatorList:
    """The list of a run, at the coordinator: it begins when the run of the batch is decided.

    Parameters
    ----------
    terms : Terms
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._machine = ListingCoordinator(terms.agents, terms.run_bytes)
        self._n_bytes = 0

    @property
    def is_done(self) -> bool:
        """Whether the list is made."""
        return self._machine.state is State.DONE

    @property
    def state(self) -> str:
        """Where it stands, for a display."""
        return "making the list" if not self.is_done else "done"

    @property
    def error(self) -> ConovelError | None:
        """What was wrong with a message about the list."""
        return self._machine.error

    def takes(self, message: Message, run_state: State) -> bool:
        """Tell whether a message is about the list, and not about the run of the batch."""
        return run_state is State.DONE and not isinstance(message.body, Abort)

    def take(self, message: Message, n_bytes: int, sender: str) -> Outbox:
        """Take a message about the list; look at :attr:`error` afterwards."""
        outbox = messages_of(self._machine.take(message, sender))
        self._n_bytes += n_bytes + sum(len(sent.data) for sent in outbox)
        return outbox

    def to_dict(self) -> dict[str, Any]:
        """Give the list as JSON types: how many rows, and none of them."""
        rounds = self._machine.rounds
        n_batches, last = self._machine.n_batches, rounds[-1][1]
        return {
            "list": self._terms.list_name,
            "level": str(self._terms.promised.level),
            "guarantee": network_over_time(self._terms.promised),
            "n_listed_in_all": sum(last.values()),
            "rounds": [{"k": k, "counts": dict(sorted(c.items()))} for k, c in rounds],
            "sites": {name: {"batch": n_batches, "n_listed": last[name]} for name in sorted(last)},
            "bytes": self._n_bytes,
        }

"""A site's part in the list over several batches: its ledger, from one run to the next.

The ledger is locked from the beginning of a run to its end. Nothing is written before all sites
have made the list. Then the batch is prepared (:mod:`conovel.runs.ledger_file`) when the site
confirms, and taken when the coordinator asks to publish, which it does after every site has
confirmed. If a run is broken off in between, the next run settles it
(:mod:`conovel.federation.site_list`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

from msgspec import Meta

from conovel.deciding.ways import network_over_time
from conovel.errors import BatchRefusedError, ConovelError, InputError, LocalProtocolError
from conovel.federation.settings import SiteFile
from conovel.federation.terms import Terms
from conovel.learning.base import State
from conovel.protocol.agent import Agent
from conovel.protocol.listing import ListingAgent, ListingCoordinator, history_of
from conovel.protocol.states import Outbox, messages_of
from conovel.rows.storage import are_large, locked
from conovel.runs.ledger import MAX_BATCHES, Ledger
from conovel.runs.ledger_file import (
    Prepared,
    drop_prepared,
    read_ledger,
    read_prepared,
    take_prepared,
    write_prepared,
)
from conovel.runs.ledger_records import BatchFacts, LedgerUpdate
from conovel.runs.site_results import SiteResult, with_part
from conovel.site.site import Site
from conovel.spec.bodies import Abort, Kind, Message
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.records import Digest, as_value

NEEDS_MEMORY = "it reads its files in pieces, and a ledger needs the rows in memory"
Decide: TypeAlias = Callable[[Site, Agent], SiteResult]
# Of both directions; the run of the batch has its own counts before.
_MESSAGES = frozenset({Kind.HISTORY, Kind.LISTING, Kind.COUNT, Kind.LISTED})


def objection_to_list(terms: Terms, file: SiteFile) -> str:
    """Return why a site does not take part in the list of a run; an empty text if it does.

    The site's own file names the list. A run that continues a list tells how many rows of
    earlier batches are on it, so it needs more than the consent to a run.
    """
    if not terms.list_name:
        return ""
    if terms.list_name != file.list_name:
        own = f"{file.list_name!r}" if file.list_name else "none"
        return (
            f"it takes part in {own} and not in the list {terms.list_name!r}: the site names a"
            " list and the file of its ledger under [list] in its site.toml"
        )
    if file.memory is not None or are_large(file.null, file.test):
        return NEEDS_MEMORY
    return ""


class SiteList:
    """The list of a run at one site."""

    def __init__(self, name: str, path: Path, terms: Terms, decide: Decide) -> None:
        self._path, self._terms, self._decide = path, terms, decide
        self._open_files = ExitStack()
        self._ledger = Ledger(terms.promised.level)
        self._prepared: Prepared | None = None
        self._standing: Standing | None = None  # between open and agree
        self._machine = ListingAgent(name, terms.run_bytes, self._count)
        self.facts: BatchFacts | None = None
        self.update: LedgerUpdate | None = None

    def open(self) -> list[Any]:
        """Lock and read the ledger; tell where it stands."""
        self._open_files.enter_context(locked(self._path, wait=False))
        if self._path.exists():
            self._ledger = read_ledger(self._path)
        self._prepared = read_prepared(self._path, self._ledger)
        self._standing = Standing.of(self._ledger, self._prepared)
        return self._standing.to_plain()

    def agree(self, standings: Any) -> str:
        """Take or give up a prepared batch; return why the list cannot go on, or nothing."""
        own = self._standing
        if own is None:  # a new ledger would replace the one that was not read
            raise LocalProtocolError("the ledger is not open, or the list has begun")
        try:
            if not isinstance(standings, Mapping):
                raise InputError("the standings of the sites are a table")
            everybody = {
                str(n): Standing.from_plain(standing) for n, standing in standings.items()
            }
        except InputError as error:
            return str(error)
        if everybody.get(self._machine.name) != own or set(everybody) != set(self._terms.agents):
            return "the coordinator does not tell where the ledgers stand"
        if objection := objection_to(everybody):
            return objection
        if self._prepared is not None and is_taken(own, everybody):
            take_prepared(self._path, self._prepared)
            self._ledger = self._prepared.ledger
        drop_prepared(self._path)
        self._prepared = self._standing = None
        return ""

    def objection(self) -> str:
        """Return why the ledger does not take this batch; asked before a model exists."""
        level = self._terms.promised.level
        if self._ledger.level != level:
            return f"its ledger has level {self._ledger.level}, and the list of the run {level}"
        if self._ledger.final:
            return "its ledger has final decisions, and the list of a network has none"
        if self.facts is None:
            raise LocalProtocolError("the rows are not read")
        try:
            self._ledger.require(self.facts)
        except BatchRefusedError as error:
            return str(error)
        return ""

    @property
    def error(self) -> ConovelError | None:
        """What was wrong with the coordinator's messages about the list."""
        return self._machine.error

    def begin(self, site: Site, agent: Agent) -> Outbox:
        """Add what the run of the batch rejected here, in memory; tell the history."""
        if self.facts is None:
            raise LocalProtocolError("the rows are not read")
        result, outcome = self._decide(site, agent), agent.outcome
        self._before = self._ledger.listed()
        numbers = outcome.n_tests, outcome.n_rejected
        self._ledger.add_of_network(result.rejected, numbers, self.facts, result.ids)
        return self._machine.tell(history_of(self._ledger.history, self._ledger.level))

    def has(self, message: Message) -> bool:
        """Tell whether a message is about the list, and not about the run of the batch."""
        return self._machine.state is not State.NEW and message.body.kind in _MESSAGES

    def take(self, message: Message, sender: str) -> Outbox:
        """Take a message about the list; look at :attr:`error` afterwards."""
        sent = messages_of(self._machine.take(message, sender))
        if self._machine.state is State.DONE:
            self._ledger.list_size = self._machine.n_listed
            self.update = self._ledger.update_since(self._before)
        return sent

    def prepare(self) -> None:
        """Put the ledger with the batch on the disk, beside the old one."""
        _ = self._machine.n_listed  # raises if the list is not made
        agents = self._terms.agents
        self._prepared = Prepared(self._terms.run_id, agents, self._ledger)
        write_prepared(self._prepared, self._path)

    def commit(self) -> None:
        """Replace the ledger, after every site has prepared the batch."""
        if self._prepared is None:
            raise LocalProtocolError("the list is not prepared: the ledger stays as it was")
        take_prepared(self._path, self._prepared)
        self._prepared = None

    def close(self) -> None:
        """Unlock the ledger. A prepared batch stays for the next run to settle."""
        self._prepared = None
        self._open_files.close()

    @property
    def n_flagged(self) -> int:
        """Rows of the batch that are on the list."""
        return 0 if self.update is None else int(self.update.rejected.sum())

    def decided(self, result: SiteResult) -> SiteResult:
        """Let the list decide about the rows of the batch."""
        if self.update is None:
            raise LocalProtocolError("the list is not made")
        return with_part(result, "ledger", self.update, rejected=self.update.rejected)

    def to_dict(self) -> dict[str, Any]:
        """Give the list as this site knows it, as JSON types."""
        if self.update is None:
            raise LocalProtocolError("the list is not made")
        name = self._machine.name
        return {
            "list": self._terms.list_name,
            "level": str(self._ledger.level),
            "guarantee": str(network_over_time(self._terms.promised)),
            "n_listed_in_all": self._ledger.list_size,
            "rounds": [{"k": k, "counts": {name: count}} for k, count in self._machine.rounds],
            "sites": {name: self.update.summary()},
        }

    def _count(self, k: int) -> int:
        return self._ledger.count(k)


class Standing(NamedTuple):
    """Where the ledger of one site stands."""

    n_batches: Annotated[int, Meta(ge=0, le=MAX_BATCHES)]
    history: Digest  # of the level of the list and of the numbers of every batch over all sites
    # The same with the prepared batch, if there is one.
    prepared: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    # Who took part in the run of the prepared batch.
    agents: Annotated[tuple[str, ...], Meta(max_length=MAX_AGENTS)] = ()

    @classmethod
    def of(cls, ledger: Ledger, prepared: Prepared | None) -> Standing:
        """Describe a ledger and the batch that is prepared for it."""
        own = len(ledger.entries), _digest(ledger)
        if prepared is None:
            return cls(*own)
        return cls(*own, _digest(prepared.ledger), prepared.agents)

    def to_plain(self) -> list[Any]:
        """Give it as plain types."""
        return [self.n_batches, self.history, self.prepared, list(self.agents)]

    @classmethod
    def from_plain(cls, plain: Any) -> Standing:
        """Read what :meth:`to_plain` gave; :class:`InputError` for anything else."""
        standing: Standing = as_value(cls, plain, "the standing of a ledger")
        return standing


def is_taken(standing: Standing, everybody: Mapping[str, Standing]) -> bool:
    """Tell whether some site has in its ledger what this one has prepared."""
    return any(other.history == standing.prepared for other in everybody.values())


def objection_to(everybody: Mapping[str, Standing]) -> str:
    """Return why a run cannot continue the list of these ledgers; an empty text if it can."""
    after = {}
    for name, standing in everybody.items():
        taken = is_taken(standing, everybody)
        after[name] = standing.prepared if taken else standing.history
        # An absent site may have the batch in its ledger.
        absent = sorted(set(standing.agents) - set(everybody))
        if absent and not taken:
            return (
                f"whether the last batch is on the list is known to {', '.join(absent)} alone: run"
                " once with all sites that took part in it"
            )
    if len(set(after.values())) <= 1:
        return ""
    numbers = ", ".join(f"{name} has {one.n_batches}" for name, one in sorted(everybody.items()))
    return (
        f"the ledgers are not about the same batches: {numbers}; all sites need the ledgers of the"
        " same batches, or a new list"
    )


def _digest(ledger: Ledger) -> str:
    return history_of(ledger.history, ledger.level).digest.hex()


LIST_MESSAGES = frozenset({Kind.LISTING, Kind.LISTED})  # of the coordinator
# After these a site owes an answer: to the outcome of the batch, its history.
LIST_QUESTIONS = frozenset({Kind.OUTCOME, Kind.LISTING})


class CoordinatorList:
    """The list of a run, at the coordinator: it begins when the run of the batch is decided."""

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

    def takes(self, message: Message, run_state: Enum) -> bool:
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
            "guarantee": str(network_over_time(self._terms.promised)),
            "n_listed_in_all": sum(last.values()),
            "rounds": [{"k": k, "counts": dict(sorted(c.items()))} for k, c in rounds],
            "sites": {name: {"batch": n_batches, "n_listed": last[name]} for name in sorted(last)},
            "bytes": self._n_bytes,
        }

"""The driver of the coordinator in one run: messages, deadlines, and the account of the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from operator import index
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

from conovel.deciding.ways import ways_of
from conovel.errors import (
    ConovelError,
    LocalProtocolError,
    MalformedMessageError,
    RefusedError,
    RemoteProtocolError,
    SiteVanishedError,
)
from conovel.federation.metrics import IN, OUT, Measures
from conovel.federation.run_records import account_of, guarantee_of
from conovel.federation.site_list import LIST_MESSAGES, LIST_QUESTIONS, CoordinatorList
from conovel.federation.terms import Terms
from conovel.learning.base import State
from conovel.protocol.coordinator import Coordinator
from conovel.protocol.messages import decode
from conovel.protocol.plain_bodies import as_plain
from conovel.protocol.replay_messages import key_entries
from conovel.protocol.states import Outbox, as_text, messages_of
from conovel.protocol.transcript import Entry, Transcript
from conovel.spec.bodies import Kind
from conovel.spec.fields import MAX_MODEL_BYTES, MAX_TEXT_BYTES
from conovel.stats.levels import is_finite_number

# Messages that a site has to answer.
QUESTIONS = frozenset(
    {
        Kind.ROSTER,
        Kind.TOTALS,
        Kind.START,
        Kind.SIZES,
        Kind.WANTED,
        Kind.COMMITMENTS,
        Kind.BELOW,
        Kind.STEP,
    }
)
MAX_BYTES = 1 << 20  # of a message to the coordinator; the largest is a REVEAL
MAX_SUMS_BYTES = MAX_MODEL_BYTES + 1024  # the same, where agents send sums
TICK_SECONDS = 0.1
# Sends messages; returns the receivers that could not be reached, and why.
Deliver: TypeAlias = Callable[[Outbox], Mapping[str, str]]
P = ParamSpec("P")
T = TypeVar("T")


class WorkerThread:
    """A thread that does pieces of work in order."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a piece of work; the future holds its result or error."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # passed on to the caller that waits
                future.set_exception(error)

        self._queue.put(job)
        return future

    def stop(self) -> None:
        """End the thread after the work that is queued."""
        self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()


@dataclass
class Replies:
    """The answers to a call to several sites, and why other sites did not answer."""

    values: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class Sites(Protocol):
    """Calls to many sites at once."""

    def are_cut_off(self) -> bool:
        """Return whether NVFlare has stopped the job, so that no site can be reached."""

    def begin(self) -> Replies:
        """Propose the terms; a site answers with its objection, or with an empty text."""

    def ask(self, question: str, names: Sequence[str], *values: Any) -> Replies:
        """Ask these sites; a question is the name of a method of the driver of a site."""


class CoordinatorDriver:
    """The coordinator in one run."""

    def __init__(self, terms: Terms, deliver: Deliver) -> None:
        self.terms = terms
        by_sums = ways_of(terms.spec.regime).learning.by_sums
        self.most_bytes = MAX_SUMS_BYTES if by_sums else MAX_BYTES  # of a message
        self.transcript = Transcript()
        self._deliver = deliver
        self._coordinator = Coordinator(terms.agents, spec=terms.spec, run_id=terms.run_bytes)
        self._listing = CoordinatorList(terms) if terms.list_name else None
        self._measures = Measures()
        self._began = time.monotonic()
        self._unanswered = dict.fromkeys(terms.agents, self._began)  # site: since when
        self._entered = {self._coordinator.state: self._began}
        self._over = threading.Event()
        self._worker = WorkerThread("conovel coordinator")

    def take(self, data: bytes, sender: str) -> None:
        """Take a message of a site whose name the transport has checked."""
        if len(data) <= self.most_bytes:
            self._worker.do(self._step, lambda: self._receive(data, sender))
        else:
            text = (
                f"{sender} sent {len(data):,} bytes, and a message to the coordinator has at most"
                f" {self.most_bytes:,}"
            )
            error = MalformedMessageError(text, sender)
            self._worker.do(self._step, lambda: self._coordinator.abort(error))

    def refuse(self, error: RemoteProtocolError, sender: str) -> None:
        """Break the run off because of what came from a site, unless it was given up before."""
        self._worker.do(self._step, lambda: self._coordinator.refuse(error, sender))

    def run(self, sites: Sites) -> dict[str, Any]:
        """Run to the end, and return the account: counts, threshold, transcript."""
        self._propose(sites)
        self._wait(sites)
        unpublished = self._settle(sites)
        self._worker.stop()
        return self._account(unpublished)

    def stop(self, reason: str) -> None:
        """Break the run off, for a reason of NVFlare or of an operator."""
        self._abort(LocalProtocolError(reason))

    def progress(self) -> dict[str, Any]:
        """Return the progress of the run, in JSON types."""
        transcript = self.transcript
        sizes = dict(transcript.agents)
        rounds = dict(transcript.rounds)
        state = self._coordinator.state
        listing = self._listing if state is State.DONE else None
        return {
            "state": listing.state if listing else state.value,
            "here": sorted(sizes),
            "ready": sorted(name for name, s in sizes.items() if s.n_calibration),
            "owing": sorted(self._unanswered),
            "round": max(rounds, default=0),
            "bytes": sum(entry.n_bytes for entry in list(transcript.entries)),
            "seconds": time.monotonic() - self._began,
        }

    def _propose(self, sites: Sites) -> None:
        self._hear(sites.begin())
        if self._listing is None or self._coordinator.error is not None:
            return
        standings = sites.ask("ledger", self.terms.agents)
        silent = {n: f"did not tell of its ledger: {why}" for n, why in standings.failures.items()}
        self._give_up(silent)
        if not silent:
            self._hear(sites.ask("agree", self.terms.agents, standings.values))

    def _hear(self, replies: Replies) -> None:
        """Break off if a site refuses, or does not answer."""
        for name, objection in sorted(replies.values.items()):
            if objection:
                reason = as_text(str(objection), MAX_TEXT_BYTES // 2)
                self._abort(RefusedError(f"{name} refuses: {reason}", name))
                return
        self._give_up({name: f"did not begin: {why}" for name, why in replies.failures.items()})

    def _wait(self, sites: Sites) -> None:
        terms = self.terms
        while not self._over.wait(TICK_SECONDS):
            now = time.monotonic()
            if sites.are_cut_off():
                self.stop("the run was stopped")
            if now - self._began > terms.run_seconds:
                late = ", ".join(sorted(self._unanswered)) or "no site"
                why = f"no outcome within {terms.run_seconds:g} s, waiting for {late}"
                self._abort(SiteVanishedError(why))
            limit = now - terms.stage_seconds
            overdue = [name for name, since in list(self._unanswered.items()) if since < limit]
            if overdue:
                why = f"did not answer within {terms.stage_seconds:g} s"
                self._give_up(dict.fromkeys(self._overdue_by_themselves(sites, overdue), why))

    def _overdue_by_themselves(self, sites: Sites, overdue: Sequence[str]) -> Sequence[str]:
        """Return the overdue sites that do not wait for the models of others.

        A site that waits for a model gets more time, unless all overdue sites wait.
        """
        waiting = {name for name, peers in sites.ask("waiting", overdue).values.items() if peers}
        if waiting == set(overdue):
            return overdue
        for name in waiting & set(self._unanswered):
            self._unanswered[name] = time.monotonic()
        return [name for name in overdue if name not in waiting]

    def _settle(self, sites: Sites) -> dict[str, str]:
        """Ask for the decisions once every site has confirmed; return who did not write them."""
        if self._coordinator.error is not None:
            return {}
        names = self._coordinator.outcome.participants
        replies = sites.ask("settle", names)
        for name, why in sorted(replies.failures.items()):
            if self.terms.spec.on_dropout == "abort":
                self._abort(SiteVanishedError(f"{name} did not confirm the outcome: {why}", name))
                return {}
        try:
            for name, rows in sorted(replies.values.items()):
                self.transcript.entries += self._entries(name, rows)
            if self.terms.spec.masks:  # no key passes the coordinator's machine in the clear
                self.transcript.entries += key_entries(self.transcript.roster)
        except MalformedMessageError as error:
            self._abort(error)
            return {}
        return {**replies.failures, **sites.ask("publish", sorted(replies.values)).failures}

    def _entries(self, sender: str, rows: Any) -> list[Entry]:
        """Check the sizes of models that a site reports to have sent to its peers."""
        entries: list[Entry] = []
        rounds = ways_of(self.terms.spec.regime).learning.model_rounds
        peers = set(self.terms.agents) - {sender}
        due = {(round_, peer) for peer in peers for round_ in rounds}
        try:
            for round_, receiver, n_bytes, bits in rows:
                due.remove((round_, receiver))  # raises for a second size of the same model
                if index(n_bytes) <= 0:
                    raise ValueError(receiver, n_bytes)
                if bits is not None and not is_finite_number(bits):
                    raise ValueError(bits)
                entries.append(Entry(round_, sender, receiver, "MODEL", n_bytes, bits))
        except (LookupError, TypeError, ValueError):
            text = f"{sender} sent sizes of models that cannot be right"
            raise MalformedMessageError(text, sender) from None
        return entries

    def _step(self, work: Callable[[], Outbox]) -> None:
        """Call the state machine and send its messages; no error leaves this thread."""
        try:
            outbox = work()
        except Exception as error:
            reason = f"the coordinator could not go on ({type(error).__name__})"
            outbox = self._coordinator.abort(LocalProtocolError(reason))
        self._send(outbox)

    def _receive(self, data: bytes, sender: str) -> Outbox:
        self._unanswered.pop(sender, None)
        try:
            message = decode(data, sender)
        except RemoteProtocolError:  # the machine aborts the run, unless that site was dropped
            self._measures.message(IN, "no message", len(data))
            return messages_of(self._coordinator.receive(data, sender))
        self._measures.message(IN, message.body.kind.name, len(data))
        if self._listing is not None and self._listing.takes(message, self._coordinator.state):
            sent = self._listing.take(message, len(data), sender)
            return self._coordinator.abort(error) if (error := self._listing.error) else sent
        self.transcript.note(message, len(data))
        return messages_of(self._coordinator.take(message, sender))

    def _give_up(self, why: Mapping[str, str]) -> None:
        for name in sorted(why):
            self._unanswered.pop(name, None)
            if self.terms.spec.on_dropout == "abort":
                self._abort(SiteVanishedError(f"{name} {why[name]}", name))
            else:
                self._worker.do(self._step, partial(self._coordinator.drop, name))

    def _abort(self, error: ConovelError) -> None:
        self._worker.do(self._step, lambda: self._coordinator.abort(error)).result()

    def _send(self, outbox: Outbox) -> None:
        for sent in outbox:
            kind = sent.message.body.kind
            self._measures.message(OUT, kind.name, len(sent.data))
            if kind not in LIST_MESSAGES:
                self.transcript.note(sent.message, len(sent.data))
            if kind in QUESTIONS or (self._listing is not None and kind in LIST_QUESTIONS):
                self._unanswered[sent.receiver] = time.monotonic()
        lost = self._deliver(outbox)
        state = self._coordinator.state
        self._entered.setdefault(state, time.monotonic())
        is_listed = self._listing is None or self._listing.is_done
        if state is State.ABORTED or (state is State.DONE and is_listed):
            self._over.set()
        elif lost:
            self._drop_unreached(lost)

    def _drop_unreached(self, lost: Mapping[str, str]) -> None:
        for name, why in sorted(lost.items()):
            self._unanswered.pop(name, None)
            error = SiteVanishedError(f"{name} could not be reached: {why}", name)
            gone = self.terms.spec.on_dropout == "abort"
            self._send(self._coordinator.abort(error) if gone else self._coordinator.drop(name))

    def _account(self, unpublished: Mapping[str, str]) -> dict[str, Any]:
        terms, error = self.terms, self._coordinator.error
        account = account_of(error, terms.to_dict(), self.transcript)
        account["unpublished"] = dict(unpublished)
        account["seconds"] = self._durations()
        if error is None:
            outcome = self._coordinator.outcome
            account["outcome"] = as_plain(outcome)
            account["guarantee"] = guarantee_of(terms, outcome, self.transcript)
            if self._listing is not None:
                account["ledger"] = self._listing.to_dict()
        return account

    def measures(self) -> dict[str, Any]:
        """Return messages, bytes and seconds of the run, for its record."""
        return self._measures.to_plain() | {"seconds": self._durations()}

    def _durations(self) -> dict[str, float]:
        """Return the seconds that each state lasted, in order."""
        times = [*self._entered.values(), time.monotonic()]
        return {
            state.value: after - before
            for state, before, after in zip(self._entered, times, times[1:], strict=False)
        }

"""The driver of one site in one run: consent, deadlines, the record, and messages.

The driver does not know how bytes are sent. The state machine is called on one thread only
(:mod:`conovel.drivers.nvflare.worker_thread`). Decisions are written when the coordinator asks for
it, after every site has confirmed the outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from conovel.drivers.nvflare.consent import Limits
from conovel.drivers.nvflare.run_records import DONE, FAILED, Record
from conovel.drivers.nvflare.site_list import SiteList
from conovel.drivers.nvflare.terms import Terms
from conovel.drivers.nvflare.worker_thread import WorkerThread
from conovel.drivers.work import note_sent, perform
from conovel.errors import (
    ConovelError,
    InputError,
    LocalProtocolError,
    RefusedError,
    RemoteProtocolError,
    SiteFailedError,
    SiteVanishedError,
)
from conovel.models.wire.header import VERSION as WIRE_VERSION
from conovel.protocol.agent import Agent
from conovel.protocol.bodies import Roster
from conovel.protocol.events import Outbox, messages_of
from conovel.protocol.messages import COORDINATOR, decode
from conovel.protocol.states import State
from conovel.protocol.transcript import Transcript
from conovel.site.site import Site
from conovel.spec.version import __version__
from conovel.stats.words import counted

Deliver: TypeAlias = Callable[
    [Outbox], Mapping[str, str]
]  # receivers that could not be reached, and why
Publish: TypeAlias = Callable[[Site, Agent, Transcript], Path]


class SiteDriver:
    """One site in one run.

    Parameters
    ----------
    name : str
        The site's name.
    terms : Terms
        The terms of the run.
    limits : Limits
        What the site agrees to.
    record : Record
        Where the end of the run is noted.
    open_site : callable
        Reads the rows. Called once, on the driver's own thread.
    deliver : callable
        Sends messages; returns the receivers that could not be reached, with the reason.
    publish : callable
        Writes the decisions; returns their folder.
    listing : SiteList, optional
        The list over several batches that the run continues.
    """

    def __init__(
        self,
        name: str,
        terms: Terms,
        limits: Limits,
        record: Record,
        open_site: Callable[[], Site],
        deliver: Deliver,
        publish: Publish,
        listing: SiteList | None = None,
    ) -> None:
        self.terms, self.limits, self.record = terms, limits, record
        self._deliver, self._publish = deliver, publish
        self._listing = listing
        self._site = _Opened(open_site)
        self._agent = Agent(
            name,
            spec=terms.spec,
            run_id=terms.run_bytes,
            software=__version__,
            wire_version=WIRE_VERSION,
        )
        self._transcript = Transcript()  # what this site sent and received, and nothing else
        self._bytes_in, self._counting = 0, threading.Lock()
        self._n_here = len(terms.agents)
        self._settled = False
        self._worker = WorkerThread(f"conovel {name}")
        self._alarm = threading.Timer(terms.run_seconds, self._expire)
        self._alarm.daemon = True

    def begin(self) -> None:
        """Read the rows and, if they are enough for a model, send a hello."""
        self._alarm.start()
        self._worker.do(self._step, self._join)

    def take(self, data: bytes, sender: str) -> None:
        """Take a message of a party whose name the transport has checked."""
        # Counted before the message is queued, so that no sender can fill the memory.
        with self._counting:
            self._bytes_in += len(data)
            is_too_much = self._bytes_in > self.limits.max_bytes_in
        if is_too_much:
            why = f"more than {self.limits.max_bytes_in:,} bytes came in"
            self._worker.do(self._step, lambda: self._refuse(why))
        else:
            self._worker.do(self._step, lambda: self._receive(data, sender))

    def ledger(self, seconds: float) -> list[Any]:
        """Lock the ledger of the list, and tell where it stands: before :meth:`agree`."""
        self._alarm.start()
        return self._worker.do(self._open_ledger).result(seconds)

    def agree(self, standings: Any, seconds: float) -> str:
        """Go on if all sites have ledgers of the same batches, else return the reason."""
        objection = self._worker.do(self._with_list().agree, standings).result(seconds)
        if not objection:
            self._worker.do(self._step, self._join)
        return objection

    def waiting(self) -> list[str]:
        """Return the peers whose models have not arrived; does not wait for work at the site."""
        if self._agent.state is not State.EXCHANGING:
            return []
        return self._agent.awaited

    def settle(self, seconds: float) -> list[list[Any]]:
        """Confirm the outcome; return the sizes of the models that were sent."""
        return self._worker.do(self._settle).result(seconds)

    def publish(self, seconds: float) -> None:
        """Write the decisions, after every site has confirmed the outcome."""
        self._worker.do(self._write).result(seconds)

    def _step(self, work: Callable[[], Outbox]) -> None:
        """Call the state machine and send its messages; no error leaves this thread."""
        try:
            outbox = work()
        except Exception as error:
            name = self._agent.name
            failure = SiteFailedError(f"{name} could not go on ({type(error).__name__})")
            failure.__cause__ = error
            outbox = self._agent.abort(failure)
        self._send(outbox)
        if self._agent.error is not None:
            self._end(self._agent.error)

    def _join(self) -> Outbox:
        # The run can be repeated at the site with this seed.
        self.record.note(seed=self._site.local.spec.seed)
        if reason := self._objection_to_training(len(self.terms.agents)):
            return self._refuse(*reason)
        if self._listing is not None and (objection := self._listing.objection()):
            return self._refuse(objection)
        return messages_of(self._agent.join(self._site.local.facts))

    def _objection_to_training(self, n_agents: int) -> tuple[str, str] | None:
        rows = self._site.local.training_rows(n_agents)
        objection = self.limits.objection_to_training(self.terms, rows)
        return objection if objection[0] else None

    def _receive(self, data: bytes, sender: str) -> Outbox:
        try:
            message = decode(data, sender)
        except RemoteProtocolError:  # the machine aborts the run, unless that peer was dropped
            return messages_of(self._agent.receive(data, sender))
        if self._listing is not None and self._listing.has(message):
            sent = self._listing.take(message, sender)
            return self._agent.abort(error) if (error := self._listing.error) else sent
        self._transcript.note(message, len(data))
        objection, self._n_here = self.limits.objection_to(message, self.terms, self._n_here)
        if objection:
            return self._refuse(objection)
        if isinstance(message.body, Roster) and self._agent.error is None:
            # In `split` the blocks depend on the number of agents.
            reason = self._objection_to_training(len(message.body.agents))
            if reason:
                return self._refuse(*reason)
        sent = perform(self._agent, self._site.local, self._agent.take(message, sender))
        if self._listing is not None and self._agent.state is State.DONE:
            sent += self._listing.begin(self._site.local, self._agent)
        return sent

    def _open_ledger(self) -> list[Any]:
        try:
            return self._with_list().open()
        except ConovelError as error:  # its text is for the site's own record
            self._end(error)
            raise

    def _with_list(self) -> SiteList:
        if self._listing is None:
            raise LocalProtocolError("the run continues no list")
        return self._listing

    def _refuse(self, reason: str, numbers: str = "") -> Outbox:
        """Break off with a reason for all parties, and numbers for the site's own record."""
        name = self._agent.name
        error = RefusedError(f"{name} refuses: {reason}", name)
        if numbers:
            error.__cause__ = InputError(numbers)
        return self._agent.abort(error)

    def _send(self, outbox: Outbox) -> None:
        for sent in outbox:
            if self._listing is None or not self._listing.has(sent.message):
                note_sent(self._transcript, sent)
        unreached = self._deliver(outbox)
        if not unreached or self._agent.state is State.ABORTED:
            return
        # A run needs its coordinator. Whether a peer that cannot be reached is dropped is for the
        # coordinator to decide, unless the terms say to break off at once.
        lost = COORDINATOR if COORDINATOR in unreached else min(unreached)
        if lost == COORDINATOR or self.terms.spec.on_dropout == "abort":
            reason = f"{self._agent.name} could not reach {lost}: {unreached[lost]}"
            self._deliver(self._agent.abort(SiteVanishedError(reason, lost)))

    def _settle(self) -> list[list[Any]]:
        _ = self._agent.outcome  # raises the error of a broken run
        if self._listing is not None:
            self._listing.prepare()
        self._settled = True
        sent = [e for e in self._transcript.entries if e.sender == self._agent.name]
        models = (e for e in sent if e.kind == "MODEL")
        return [[e.round, e.receiver, e.n_bytes, e.paper_bits] for e in models]

    def _write(self) -> None:
        if not self._settled:
            raise LocalProtocolError("the outcome is not confirmed: nothing may be published")
        if not self.record.is_open:
            raise LocalProtocolError("the run has ended here: nothing may be published")
        try:
            if self._listing is not None:  # first: the other sites write their ledgers, too
                self._listing.commit()
            path = self._publish(self._site.local, self._agent, self._transcript)
        except ConovelError as error:
            self._end(error)
            raise
        flagged = self._agent.n_rejected if self._listing is None else self._listing.n_flagged
        said = counted(flagged, "row")
        self.record.finish(DONE, f"{said} flagged, see {path}", results=str(path))
        self._close()

    def _expire(self) -> None:
        reason = f"no outcome within {self.terms.run_seconds:g} s"
        # Noted from this thread, because the driver's own thread may hang.
        if self.record.finish(FAILED, reason):
            error = SiteVanishedError(f"{self._agent.name}: {reason}", COORDINATOR)
            self._worker.do(self._step, lambda: self._agent.abort(error))

    def _end(self, error: ConovelError) -> None:
        cause = error.__cause__
        self.record.finish(FAILED, f"{error}: {cause}" if cause else str(error))
        self._close()

    def _close(self) -> None:
        self._alarm.cancel()
        if self._listing is not None:
            self._listing.close()


class _Opened:
    """A site whose rows are read when they are first asked for."""

    def __init__(self, open_site: Callable[[], Site]) -> None:
        self._open = open_site

    @cached_property
    def local(self) -> Site:
        return self._open()

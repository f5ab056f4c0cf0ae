"""The driver of one site in one run: consent, deadlines, the record, and messages.

The driver does not know how bytes are sent. The state machine is called on one thread only, a
:class:`~conovel.federation.coordinator_driver.WorkerThread`. Decisions are written when the
coordinator asks for it, after every site has confirmed the outcome.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

from conovel.deciding.ways import ways_of
from conovel.errors import (
    ConovelError,
    FederationError,
    InputError,
    LocalProtocolError,
    RefusedError,
    RemoteProtocolError,
    SiteFailedError,
    SiteVanishedError,
)
from conovel.federation.answers import Question, ask_person
from conovel.federation.consent import (
    Limits,
    Objection,
    objection_to_model_in,
    objection_to_model_out,
    objection_to_precision,
)
from conovel.federation.coordinator_driver import Deliver, WorkerThread
from conovel.federation.exposure import epsilon_spent, runs_of, runs_spent
from conovel.federation.metrics import IN, OUT, Measures
from conovel.federation.run_records import DONE, FAILED, Record
from conovel.federation.site_files import SiteFiles
from conovel.federation.site_list import SiteList
from conovel.federation.terms import Terms
from conovel.learning.base import State
from conovel.learning.together.masks import SECRET_BYTES
from conovel.models.wire.header import VERSION as WIRE_VERSION
from conovel.protocol.agent import Agent
from conovel.protocol.messages import decode
from conovel.protocol.states import Outbox, messages_of
from conovel.protocol.transcript import Transcript
from conovel.rows.chained_lines import sha256
from conovel.runs.network_run import note_sent, perform
from conovel.site.site import Site
from conovel.spec.bodies import COORDINATOR, Model, Roster
from conovel.spec.fields import NONCE_BYTES
from conovel.spec.version import __version__
from conovel.stats.words import counted

MOST_RECEIVED = 10_000  # messages of one run that are written down one by one
ANSWER_SECONDS = 0.3  # between two looks for the answer of a person


class SiteDriver:
    """One site in one run."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        limits: Limits,
        record: Record,
        files: SiteFiles,
        deliver: Deliver,
    ) -> None:
        self.terms, self.limits, self.record = terms, limits, record
        self._files, self._deliver, self._listing = files, deliver, files.listing
        self._measures = Measures()
        self._agent = Agent(
            name,
            spec=terms.spec,
            run_id=terms.run_bytes,
            software=__version__,
            wire_version=WIRE_VERSION,
            nonce=secrets.token_bytes(NONCE_BYTES),
            secret=secrets.token_bytes(SECRET_BYTES),
        )
        self.transcript = Transcript()  # what this site sent and received, and nothing else
        self._bytes_in, self._counting = 0, threading.Lock()
        self._n_received = self._n_models = 0
        self._n_here = len(terms.agents)
        self._settled = False
        self._question: Question | None = None
        self._ready_since: float | None = None
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

    def refuse(self, error: RemoteProtocolError, sender: str) -> None:
        """Break the run off because of what came from a party, unless it was given up before."""
        self._worker.do(self._step, lambda: self._agent.refuse(error, sender))

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
            outbox = self._allowed(work())
            self._note_sent(outbox)  # before it is sent: what left is written down
        except Exception as error:
            name = self._agent.name
            failure = SiteFailedError(f"{name} could not go on ({type(error).__name__})")
            failure.__cause__ = error
            outbox = self._agent.abort(failure)
            with suppress(ConovelError):  # the log may be what failed
                self._note_sent(outbox)
        self._send(outbox)
        if self._agent.error is not None:
            self._end(self._agent.error)

    @cached_property
    def _site(self) -> Site:
        """The rows, read when they are first asked for."""
        with self._measures.timing("read"):
            return self._files.open()

    def _join(self) -> Outbox:
        # The run can be repeated at the site with this seed.
        self.record.note(seed=self._site.spec.seed)
        reason = self._objection_to_models(len(self.terms.agents))
        if reason[0]:
            return self._refuse(*reason)
        if seconds := self.limits.ask_seconds:
            self._question = ask_person(self.record, seconds, self.terms.stage_seconds)
            return self._hear_person()
        return self._enter()

    def _hear_person(self) -> Outbox:
        """Go on once a person has agreed; look again in a moment while nobody has answered."""
        if self._question is None or self._agent.error is not None or not self.record.is_open:
            return []
        objection = self._question.heard(self._files.file.state, self.record)
        if objection is None:  # this thread is free meanwhile, for a message that ends the run
            again = threading.Timer(
                ANSWER_SECONDS, self._worker.do, (self._step, self._hear_person)
            )
            again.daemon = True
            again.start()
            return []
        return self._refuse(objection) if objection else self._enter()

    def _enter(self) -> Outbox:
        """Send a hello, unless the site has revealed too much already."""
        reason = self._admission()
        if reason[0]:
            return self._refuse(*reason)
        if self._listing is not None and (objection := self._listing.objection()):
            return self._refuse(objection)
        return messages_of(self._agent.join(self._site.facts))

    def _objection_to_models(self, n_agents: int) -> Objection:
        """Return why no model or count may be made from these rows, before there is one."""
        limits, local = self.limits, self._site
        learning = ways_of(self.terms.spec.regime).learning
        rows = local.training_rows(n_agents, learning.learnt_from)
        objections = (
            limits.objection_to_training(self.terms, rows),
            limits.objection_to_calibration(self.terms, rows),
            (objection_to_precision(limits, self.terms, local.spec.bits), ""),
        )
        return next((one for one in objections if one[0]), ("", ""))

    def _admission(self) -> Objection:
        """Write down which rows the run has and what it spends, unless that is too much.

        Nobody else writes meanwhile, so that two runs that begin at once are counted both. It is
        on the disk before a model is made.
        """
        if self.record.log is None:
            return "", ""
        facts, digest = self._site.facts, self._files.digest()
        data_set, privacy = self._files.file.data_set, self.terms.spec.privacy
        with self.record.log.reading() as (chain, new):
            if chain.broken:
                raise FederationError(f"line {chain.broken} of the audit log does not hold")
            runs = runs_of(chain.entries)
            spent, n_rows = epsilon_spent(runs, data_set), facts.n_null + facts.n_test
            objection = self.limits.objection_to_epsilon(self.terms, spent, n_rows)
            if not objection[0]:
                objection = self.limits.objection_to_runs(runs_spent(runs, digest))
            if not objection[0]:
                about = {"n_null": facts.n_null, "n_test": facts.n_test, "set": data_set}
                if privacy is not None:
                    about |= {"privacy": str(privacy), "epsilon": str(spent.plus(privacy).epsilon)}
                new.append(self.record.entry("data", data=digest, **about))
        return objection

    def _allowed(self, outbox: Outbox) -> Outbox:
        """Return the messages, or a refusal if a model among them may not leave."""
        for message in (sent.message for sent in outbox):
            body = message.body
            if not isinstance(body, Model):
                continue
            if why := objection_to_model_out(self.limits, body.blob):
                return self._refuse(why)
        return outbox

    def _note_sent(self, outbox: Outbox) -> None:
        """Write every message down in the audit log, before it leaves."""
        entries = []
        for sent in outbox:
            kind = sent.message.body.kind.name
            self._measures.message(OUT, kind, len(sent.data))
            about = {"kind": kind, "to": sent.receiver, "bytes": len(sent.data)}
            if kind == "MODEL":
                self._n_models += 1
                about["n_train"] = self._n_trained()
            entries.append(self.record.entry("sent", **about, sha256=sha256(sent.data)))
        if entries and self.record.log is not None:
            self.record.log.append(*entries)
        if any(entry["kind"] == "MODEL" for entry in entries):
            self.record.note(models_sent=self._n_models)

    def _n_trained(self) -> int:
        """Return how many known normals are in null_train of the models that leave, at most."""
        local, n_blocks = self._site, self.terms.spec.regime.n_blocks(self._n_here)
        n_train = max(rows.n_train for rows in local.training_rows(self._n_here))
        return min(local.facts.n_null, n_train * n_blocks)

    def _note_received(self, kind: str, data: bytes, sender: str) -> None:
        self._n_received += 1
        self._measures.message(IN, kind, len(data))
        if self._n_received <= MOST_RECEIVED and self.record.is_open:
            about = {"kind": kind, "from": sender, "bytes": len(data), "sha256": sha256(data)}
            self.record.tell("received", durable=False, **about)

    def _receive(self, data: bytes, sender: str) -> Outbox:
        try:
            message = decode(data, sender)
        except RemoteProtocolError:  # the machine aborts the run, unless that peer was dropped
            self._note_received("no message", data, sender)
            return messages_of(self._agent.receive(data, sender))
        self._note_received(message.body.kind.name, data, sender)
        if self._listing is not None and self._listing.has(message):
            sent = self._listing.take(message, sender)
            return self._agent.abort(error) if (error := self._listing.error) else sent
        self.transcript.note(message, len(data))
        objection, self._n_here = self.limits.objection_to(message, self.terms, self._n_here)
        if objection:
            return self._refuse(objection)
        if self._agent.error is None:
            n_test = self._site.facts.n_test
            reason = self.limits.objection_to_sizes(message, self.terms, n_test)
            if isinstance(message.body, Model):
                reason = objection_to_model_in(self.limits, message.body.blob), ""
            if isinstance(message.body, Roster) and not reason[0]:
                # In `split` the blocks depend on the number of agents.
                reason = self._objection_to_models(len(message.body.agents))
            if reason[0]:
                return self._refuse(*reason)
        events = self._agent.take(message, sender)
        sent = perform(self._agent, self._site, events, self._measures.timing)
        self._time_counting()
        if self._listing is not None and self._agent.state is State.DONE:
            sent += self._listing.begin(self._site, self._agent)
        return sent

    def _time_counting(self) -> None:
        """Take the time from the ranks to the outcome."""
        if self._agent.state is State.READY:
            self._ready_since = time.monotonic()
        elif self._agent.state is State.DONE and self._ready_since is not None:
            self._measures.seconds["count"] = time.monotonic() - self._ready_since

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
                note_sent(self.transcript, sent)
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
        sent = [e for e in self.transcript.entries if e.sender == self._agent.name]
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
            with self._measures.timing("write"):
                path = self._files.publish(self._site, self._agent, self.transcript)
        except ConovelError as error:
            self._end(error)
            raise
        flagged = self._agent.n_rejected if self._listing is None else self._listing.n_flagged
        flagged_rows = f"{counted(flagged, 'row')} flagged"
        measures = self._measures.to_plain()
        self.record.finish(
            DONE, f"{flagged_rows}, see {path}", flagged_rows, results=str(path), measures=measures
        )
        self._close()

    def _expire(self) -> None:
        reason = f"no outcome within {self.terms.run_seconds:g} s"
        # Noted from this thread, because the driver's own thread may hang.
        error = SiteVanishedError(f"{self._agent.name}: {reason}", COORDINATOR)
        if self.record.finish(FAILED, reason, **self._about(error)):
            self._worker.do(self._step, lambda: self._agent.abort(error))

    def _end(self, error: ConovelError) -> None:
        cause = error.__cause__
        # The cause may hold a value of a row: it stays in the record.
        message = f"{error}: {cause}" if cause else str(error)
        self.record.finish(FAILED, message, str(error), **self._about(error))
        self._close()

    def _about(self, error: ConovelError) -> dict[str, Any]:
        return {**error.named(), "measures": self._measures.to_plain()}

    def _close(self) -> None:
        self._alarm.cancel()
        if self._listing is not None:
            self._listing.close()

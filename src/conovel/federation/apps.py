"""The objects that run inside NVFlare's processes.

A job names :class:`CoordinatorApp` and :class:`SiteApp`, classes of the installed conovel;
the kits allow these, Collab's own controller and executor, and nothing else. Both objects
only pass bytes between the drivers and Collab calls.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.collab import collab
from nvflare.collab.runtime.defs import MSG_CHANNEL, MSG_TOPIC
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)

from conovel.deciding.ways import ways_of
from conovel.errors import (
    ConovelError,
    FederationError,
    InputError,
    LocalProtocolError,
    ProtocolError,
    RefusedError,
    RemoteProtocolError,
    ReplayedMessageError,
    SignatureError,
)
from conovel.federation.calls import MAX_REASON, Delivery, Sites
from conovel.federation.certificates import Authority, read_credentials
from conovel.federation.coordinator_driver import CoordinatorDriver
from conovel.federation.processes import ENVIRONMENT, state_of
from conovel.federation.run_records import DONE, FAILED, RunRecords, account_of
from conovel.federation.session import OUTCOME_FILE, SERVER, TOPIC
from conovel.federation.settings import read_federation, read_site
from conovel.federation.signatures import (
    OVERHEAD,
    MessageSigner,
    MessageVerifier,
    check_signed_terms,
    not_encrypted,
    terms_of,
)
from conovel.federation.site_driver import SiteDriver
from conovel.federation.site_files import SiteFiles
from conovel.federation.site_list import objection_to_list
from conovel.federation.terms import Terms
from conovel.protocol.states import as_text
from conovel.rows.storage import write_json
from conovel.spec.bodies import COORDINATOR
from conovel.stats.words import counted

POLL_SECONDS = 1.0  # how often a site asks NVFlare for tasks during a run, of which there are none
_log = logging.getLogger("conovel.federation")


class SiteApp:
    """A site's end of the Collab calls."""

    def __init__(self) -> None:
        self._driver: SiteDriver | None = None

    @collab.init  # type: ignore[untyped-decorator]
    def prepare(self, context: Any) -> None:
        """Keep the objects by which the other parties are called."""
        self._proxies = {proxy.name: proxy for proxy in context.clients}
        self._proxies[COORDINATOR] = context.server
        self._file = read_site(Path(os.environ[ENVIRONMENT]))
        self._job = str(collab.fl_ctx.get_job_id())
        cell = collab.fl_ctx.get_engine().get_cell()
        if not cell.core_cell.credential_manager.enforce_identity:
            raise FederationError(
                "NVFlare does not check who sends a message here: no models will be sent"
            )
        if context.app.name != self._file.name:
            raise FederationError(f"{self._file.path} is not about {context.app.name}")
        self._own = read_credentials(self._file.kit)
        refuse_unencrypted(cell, self._refuse_unencrypted)

    @collab.publish  # type: ignore[untyped-decorator]
    def begin(self, terms: dict[str, Any]) -> dict[str, Any]:
        """Begin a run on signed terms; answer with the reason if the site refuses."""
        return _answer(lambda: self._begin(terms))

    @collab.publish  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> str:
        """Take one message; answer with the reason if that is not possible."""
        if self._driver is None:
            return "its run has not begun"
        caller, message = collab.caller, _as_bytes(data)
        if caller == SERVER:
            self._driver.take(message, COORDINATOR)
        else:
            most = self._file.limits.max_bytes_in
            _take_signed(self._driver, self._verify, caller, message, most)
        return ""

    @collab.publish  # type: ignore[untyped-decorator]
    def ledger(self) -> dict[str, Any]:
        """Answer where the ledger of the list stands."""
        return _answer(lambda: self._begun().ledger(self._begun().terms.call_seconds))

    @collab.publish  # type: ignore[untyped-decorator]
    def agree(self, standings: dict[str, Any]) -> dict[str, Any]:
        """Begin, if the ledgers of all sites fit together; answer with the reason if not."""
        return _answer(lambda: self._begun().agree(standings, self._begun().terms.call_seconds))

    @collab.publish  # type: ignore[untyped-decorator]
    def waiting(self) -> dict[str, Any]:
        """Answer with the peers whose models have not arrived."""
        return _answer(lambda: self._begun().waiting())

    @collab.publish  # type: ignore[untyped-decorator]
    def settle(self) -> dict[str, Any]:
        """Confirm the outcome."""
        return _answer(lambda: self._begun().settle(self._begun().terms.call_seconds))

    @collab.publish  # type: ignore[untyped-decorator]
    def publish(self) -> dict[str, Any]:
        """Write the decisions."""
        return _answer(lambda: self._begun().publish(self._begun().terms.stage_seconds))

    def _begin(self, terms: dict[str, Any]) -> str:
        if self._driver is not None:
            raise FederationError("a run has begun here already")
        records = RunRecords(self._file.state, self._file.audit_log)
        about: dict[str, Any] = {}
        try:
            signed = check_signed_terms(terms, self._own.authority)
            agreed, about["operator"] = signed.terms, signed.operator
            about["terms"] = agreed.to_log()
            self._check(agreed)
            record = records.open(agreed.run_id, agreed.run_seconds, self._job, **about)
        except (InputError, RefusedError, ReplayedMessageError, SignatureError) as error:
            about |= error.named()
            records.refuse(_run_id(terms_of(terms), self._job), str(error), self._job, **about)
            return str(error)
        files = SiteFiles(self._file, agreed)
        name, limits = self._file.name, self._file.limits
        sign = MessageSigner(self._own, agreed.run_id)
        self._verify = MessageVerifier(self._own.authority, name, agreed.run_id)
        deliver = Delivery(self._proxies, agreed.call_seconds, sign)
        self._driver = SiteDriver(name, agreed, limits, record, files, deliver)
        if files.listing is None:  # with a list, once the ledgers of all sites fit together
            self._driver.begin()
        return ""

    def _check(self, terms: Terms) -> None:
        """Refuse what this site does not agree to."""
        if objection := self._file.limits.objection(terms):
            raise RefusedError(objection)
        if objection := self._file.limits.objection_to_schema(terms, self._file.schema):
            raise RefusedError(objection)
        if objection := objection_to_list(terms, self._file):
            raise RefusedError(objection)
        if self._file.name not in terms.agents or set(terms.agents) - set(self._proxies):
            raise RefusedError("the terms name other agents than the job")

    def _refuse_unencrypted(self, sender: str) -> None:
        _log.error("a message in the name of %s came without encryption", sender)
        if self._driver is not None:
            self._driver.refuse(not_encrypted(self._file.name, sender), sender)

    def _begun(self) -> SiteDriver:
        if self._driver is None:
            raise FederationError("no run has begun here")
        return self._driver


class CoordinatorApp:
    """The coordinator's end of the Collab calls."""

    def __init__(self, terms: dict[str, Any]) -> None:
        self._signed = terms
        self._driver: CoordinatorDriver | None = None
        self._account: dict[str, Any] = {}

    @collab.publish  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> str:
        """Take one message; answer with the reason if that is not possible."""
        if self._driver is None:
            return "its run has not begun"
        most = self._driver.most_bytes
        _take_signed(self._driver, self._verify, collab.caller, _as_bytes(data), most)
        return ""

    @collab.main  # type: ignore[untyped-decorator]
    def run(self, context: Any) -> None:
        """Run to the end, and write the account to a file of the job."""
        job = str(collab.fl_ctx.get_job_id())
        settings = Path(os.environ[ENVIRONMENT])
        _poll_less(collab.fl_ctx)
        records = RunRecords(state_of(settings))
        try:
            self._account = self._run(context, records, job, settings)
        except Exception as error:
            if not isinstance(error, ConovelError):
                _log.exception("the run could not go on")
                error = LocalProtocolError(f"the coordinator failed ({type(error).__name__})")
            if not records.knows(job):
                run_id = _run_id(terms_of(self._signed), job)
                records.refuse(run_id, str(error), job, **error.named())
            self._account = account_of(error, terms_of(self._signed))
        folder = Path(context.workspace.get_run_dir(job))
        write_json(folder / OUTCOME_FILE, self._account)
        if self._account["state"] == "failed":
            raise ProtocolError(self._account["message"])

    def _run(self, context: Any, records: RunRecords, job: str, settings: Path) -> dict[str, Any]:
        authority = Authority.of_kit(read_federation(settings).kit)
        signed = check_signed_terms(self._signed, authority)
        terms = signed.terms
        proxies = {proxy.name: proxy for proxy in context.clients}
        if set(proxies) != set(terms.agents):
            raise FederationError("the terms name other agents than the job")
        record = records.open(terms.run_id, terms.run_seconds, job, operator=signed.operator)
        self._verify = MessageVerifier(authority, COORDINATOR, terms.run_id)
        self._driver = CoordinatorDriver(terms, Delivery(proxies, terms.call_seconds))
        collab.fl_ctx.get_engine().register_app_command(TOPIC, self._answer)
        account = self._driver.run(Sites(proxies, terms, context, self._signed))
        measures = self._driver.measures()
        if account["state"] == "failed":
            facts = {"fault": account["fault"], "code": account["code"], "measures": measures}
            record.finish(FAILED, account["message"], **facts)
        else:
            record.finish(DONE, _ending(account, terms), measures=measures)
        return account

    def _answer(self, topic: str, data: Any, fl_ctx: FLContext) -> dict[str, Any]:
        """Answer the question of an operator."""
        match data:
            case {"ask": "outcome"}:
                return self._account
            case {"ask": "progress"} if self._driver:
                return self._driver.progress()
            case {"ask": "stop", "reason": str(reason)} if self._driver and not self._account:
                self._driver.stop(as_text(reason, MAX_REASON))
                return {"stopped": True}
        return {}


def _ending(account: Mapping[str, Any], terms: Terms) -> str:
    """Return how a run ended that was not broken off."""
    if "ledger" in account:
        return f"{account['ledger']['n_listed_in_all']:,} rows on the list"
    if ways_of(terms.spec.regime).deciding.shares_counts:
        return f"{counted(account['outcome']['n_rejected'], 'row')} flagged in all"
    return "every site decided alone"


def _take_signed(
    driver: SiteDriver | CoordinatorDriver,
    verify: MessageVerifier,
    sender: str,
    data: bytes,
    most: int,
) -> None:
    """Hand a message of a site to a driver, once its signature is checked."""
    if len(data) > most + OVERHEAD:
        driver.take(data, sender)  # the driver refuses so many bytes
        return
    try:
        message = verify(sender, data)
    except SignatureError as error:
        driver.refuse(error, sender)
    else:
        driver.take(message, sender)


def _poll_less(fl_ctx: FLContext) -> None:
    """Let sites ask for tasks less often, now that all have begun: each time costs kilobytes."""
    config: Any = getattr(fl_ctx.get_prop(FLContextKey.RUNNER), "config", None)
    if hasattr(config, "task_request_interval"):
        config.task_request_interval = POLL_SECONDS


def _as_bytes(data: Any) -> bytes:
    """Return the bytes of a message; anything else becomes no bytes, which is no message."""
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b""


def _run_id(terms: Any, job: str) -> str:
    """Return the id of a run that is refused; its job if the terms have no id."""
    named = terms.get("run_id") if isinstance(terms, Mapping) else None
    return as_text(named, 32) if isinstance(named, str) else job


def _answer(work: Callable[[], Any]) -> dict[str, Any]:
    """Do what the coordinator asks for; of an unexpected error, answer with its class only.

    Collab would send an exception with its traceback, which holds local paths.
    """
    if collab.caller != SERVER:
        return {"error": f"{collab.caller} is not the coordinator"}
    try:
        return {"value": work()}
    except RemoteProtocolError as error:  # its message holds nothing secret
        return {"error": str(error)}
    except Exception as error:
        _log.exception("a call of the coordinator failed")
        return {"error": f"it could not go on ({type(error).__name__})"}


def refuse_unencrypted(cell: Any, refuse: Callable[[str], None]) -> None:
    """Call `refuse` with the name of a site whose call came without encryption, and drop it."""

    def look(message: Message) -> Message | None:
        sender = unencrypted_sender(message.headers)
        if sender is None:
            return None
        refuse(sender)
        return Message()  # NVFlare drops a message for which a filter returns anything

    cell.core_cell.add_incoming_filter(STREAM_CHANNEL, STREAM_DATA_TOPIC, look)


def unencrypted_sender(headers: dict[str, Any]) -> str | None:
    """Return the site in whose name a call came without encryption; None if it may pass."""
    call = headers.get(StreamHeaderKey.CHANNEL), headers.get(StreamHeaderKey.TOPIC)
    if call != (MSG_CHANNEL, MSG_TOPIC):
        return None
    marks = headers.get(MessageHeaderKey.SECURE), headers.get(MessageHeaderKey.ENCRYPTED)
    sender = str(headers.get(MessageHeaderKey.ORIGIN)).partition(".")[0]
    return None if sender == FQCN.ROOT_SERVER or all(mark is True for mark in marks) else sender

"""The objects that run inside NVFlare's processes.

A job names :class:`CoordinatorApp` and :class:`SiteApp`, classes of the installed conovel;
the kits allow these, Collab's own controller and executor, and nothing else. Both objects
only pass bytes between the drivers and Collab calls.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.collab import collab
from nvflare.collab.api.exceptions import CollabCallError, RunAborted

from conovel.drivers.nvflare.accounts import account_of
from conovel.drivers.nvflare.coordinator_driver import CoordinatorDriver, Replies
from conovel.drivers.nvflare.paths import ENVIRONMENT, state_of
from conovel.drivers.nvflare.run_records import DONE, FAILED, RunRecords
from conovel.drivers.nvflare.session import OUTCOME_FILE, TOPIC
from conovel.drivers.nvflare.settings import read_site
from conovel.drivers.nvflare.site_driver import SiteDriver
from conovel.drivers.nvflare.site_files import SiteFiles
from conovel.drivers.nvflare.terms import Terms
from conovel.errors import (
    ConovelError,
    FederationError,
    InputError,
    LocalProtocolError,
    ProtocolError,
    RefusedError,
    RemoteProtocolError,
    ReplayedMessageError,
)
from conovel.protocol.events import Outbox
from conovel.protocol.messages import COORDINATOR
from conovel.protocol.states import as_text
from conovel.site.storage import write_json
from conovel.stats.words import counted

SERVER = "server"  # what Collab calls the coordinator
MAX_REASON = 200  # bytes of a reason that another party gives
_log = logging.getLogger("conovel.drivers.nvflare")


class SiteApp:
    """A site's end of the Collab calls."""

    def __init__(self) -> None:
        self._driver: SiteDriver | None = None
        self._operator = ""

    @collab.init  # type: ignore[untyped-decorator]
    def prepare(self, context: Any) -> None:
        """Keep the objects by which the other parties are called."""
        self._proxies = {proxy.name: proxy for proxy in context.clients}
        self._proxies[COORDINATOR] = context.server
        self._file = read_site(Path(os.environ[ENVIRONMENT]))
        self._job = str(collab.fl_ctx.get_job_id())
        self._operator = _submitter(collab.fl_ctx)
        cell = collab.fl_ctx.get_engine().get_cell()
        if not cell.core_cell.credential_manager.enforce_identity:
            raise FederationError(
                "NVFlare does not check who sends a message here: no models will be sent"
            )
        if context.app.name != self._file.name:
            raise FederationError(f"{self._file.path} is not about {context.app.name}")

    @collab.publish  # type: ignore[untyped-decorator]
    def begin(self, terms: dict[str, Any]) -> dict[str, Any]:
        """Begin a run; answer with the reason if the site refuses."""
        return _answer(lambda: self._begin(terms))

    @collab.publish  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> str:
        """Take one message; answer with the reason if that is not possible."""
        if self._driver is None:
            return "its run has not begun"
        caller = collab.caller
        self._driver.take(_as_bytes(data), COORDINATOR if caller == SERVER else caller)
        return ""

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
        about: dict[str, Any] = {"operator": self._operator}
        try:
            agreed = Terms.from_dict(terms)
            about["terms"] = agreed.to_log()
            self._check(agreed)
            record = records.open(agreed.run_id, agreed.run_seconds, self._job, **about)
        except (InputError, RefusedError, ReplayedMessageError) as error:
            records.refuse(_run_id(terms, self._job), str(error), self._job, **about)
            return str(error)
        files = SiteFiles(self._file, agreed)
        deliver = _Delivery(self._proxies, agreed.call_seconds)
        name, limits = self._file.name, self._file.limits
        self._driver = SiteDriver(
            name, agreed, limits, record, files.open, deliver, files.publish, files.digest
        )
        self._driver.begin()
        return ""

    def _check(self, terms: Terms) -> None:
        """Refuse what this site does not agree to."""
        if objection := self._file.limits.objection(terms):
            raise RefusedError(objection)
        if objection := self._file.limits.objection_to_schema(terms, self._file.schema):
            raise RefusedError(objection)
        if self._file.name not in terms.agents or set(terms.agents) - set(self._proxies):
            raise RefusedError("the terms name other agents than the job")

    def _begun(self) -> SiteDriver:
        if self._driver is None:
            raise FederationError("no run has begun here")
        return self._driver


class CoordinatorApp:
    """The coordinator's end of the Collab calls.

    Parameters
    ----------
    terms : dict
        The terms of the run, as the submitter wrote them into the job.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        self._terms = terms
        self._driver: CoordinatorDriver | None = None
        self._account: dict[str, Any] = {}

    @collab.publish  # type: ignore[untyped-decorator]
    def take(self, data: bytes) -> str:
        """Take one message; answer with the reason if that is not possible."""
        if self._driver is None:
            return "its run has not begun"
        self._driver.take(_as_bytes(data), collab.caller)
        return ""

    @collab.main  # type: ignore[untyped-decorator]
    def run(self, context: Any) -> None:
        """Run to the end, and write the account to a file of the job."""
        job = str(collab.fl_ctx.get_job_id())
        records = RunRecords(state_of(Path(os.environ[ENVIRONMENT])))
        try:
            self._account = self._run(context, records, job)
        except Exception as error:
            if not isinstance(error, ConovelError):
                _log.exception("the run could not go on")
                error = LocalProtocolError(f"the coordinator failed ({type(error).__name__})")
            if not records.knows(job):
                records.refuse(_run_id(self._terms, job), str(error), job)
            self._account = account_of(error, self._terms)
        folder = Path(context.workspace.get_run_dir(job))
        write_json(folder / OUTCOME_FILE, self._account)
        if self._account["state"] == "failed":
            raise ProtocolError(self._account["message"])

    def _run(self, context: Any, records: RunRecords, job: str) -> dict[str, Any]:
        terms = Terms.from_dict(self._terms)
        proxies = {proxy.name: proxy for proxy in context.clients}
        if set(proxies) != set(terms.agents):
            raise FederationError("the terms name other agents than the job")
        record = records.open(terms.run_id, terms.run_seconds, job)
        self._driver = CoordinatorDriver(terms, _Delivery(proxies, terms.call_seconds))
        collab.fl_ctx.get_engine().register_app_command(TOPIC, self._answer)
        account = self._driver.run(_Sites(proxies, terms, context))
        if account["state"] == "failed":
            record.finish(FAILED, account["message"])
        elif terms.spec.regime.uses_counts:
            record.finish(
                DONE, f"{counted(account['outcome']['n_rejected'], 'row')} flagged in all"
            )
        else:
            record.finish(DONE, "every site decided alone")
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


class _Sites:
    """Calls to many sites at once; the reply names every site that fails."""

    def __init__(self, proxies: Mapping[str, Any], terms: Terms, context: Any) -> None:
        self._proxies, self._terms, self._context = proxies, terms, context

    def are_cut_off(self) -> bool:
        return bool(self._context.is_aborted())

    def begin(self, terms: Mapping[str, Any]) -> Replies:
        return self._call(
            self._terms.agents, lambda site: site(timeout=self._terms.call_seconds).begin(terms)
        )

    def waiting(self, names: Sequence[str]) -> Replies:
        seconds = self._terms.call_seconds
        return self._call(names, lambda site: site(timeout=seconds).waiting())

    def settle(self, names: Sequence[str]) -> Replies:
        seconds = 2 * self._terms.call_seconds
        return self._call(names, lambda site: site(timeout=seconds).settle())

    def publish(self, names: Sequence[str]) -> Replies:
        seconds = self._terms.stage_seconds + self._terms.call_seconds
        return self._call(names, lambda site: site(timeout=seconds).publish())

    def _call(self, names: Sequence[str], call: Callable[[Any], Any]) -> Replies:
        replies = Replies()

        def one(name: str) -> None:
            try:
                match call(self._proxies[name]):
                    case {"value": value}:
                        replies.values[name] = value
                    case {"error": str(why)}:
                        replies.failures[name] = as_text(why, MAX_REASON)
                    case _:
                        replies.failures[name] = "its answer could not be read"
            except (CollabCallError, RunAborted) as error:
                replies.failures[name] = _reason(error)

        if names:
            with ThreadPoolExecutor(len(names)) as pool:
                list(pool.map(one, names))
        return replies


class _Delivery:
    """Sends an outbox: to many receivers at once, to each receiver in order."""

    def __init__(self, proxies: Mapping[str, Any], seconds: float) -> None:
        self._proxies, self._seconds = proxies, seconds

    def __call__(self, outbox: Outbox) -> dict[str, str]:
        by_receiver: dict[str, list[bytes]] = {}
        for sent in outbox:
            by_receiver.setdefault(sent.receiver, []).append(sent.data)
        if not by_receiver:
            return {}
        with ThreadPoolExecutor(len(by_receiver)) as pool:
            results = pool.map(lambda item: self._send(*item), by_receiver.items())
            return {name: why for name, why in results if why}

    def _send(self, receiver: str, messages: list[bytes]) -> tuple[str, str]:
        # Messages between sites are encrypted from end to end.
        proxy = self._proxies.get(receiver)
        if proxy is None:
            return receiver, "it does not take part"
        between_sites = COORDINATOR in self._proxies and receiver != COORDINATOR
        try:
            for data in messages:
                if why := proxy(timeout=self._seconds, secure=between_sites).take(data):
                    return receiver, as_text(str(why), MAX_REASON)
        except (CollabCallError, RunAborted) as error:
            _log.warning("%s could not be reached: %s", receiver, error)
            return receiver, _reason(error)
        return receiver, ""


def _reason(error: Exception) -> str:
    """Return a short reason for a failed call, in our own words where we know it."""
    if isinstance(error, RunAborted):
        return "the job was stopped"
    if isinstance(error, CollabCallError) and error.cause_type == "TimeoutError":
        return "no answer in time"
    return as_text(str(getattr(error, "cause", error)), MAX_REASON)


def _as_bytes(data: Any) -> bytes:
    """Return the bytes of a message; anything else becomes no bytes, which is no message."""
    return bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b""


def _submitter(context: FLContext) -> str:
    """Return who submitted a job, as the coordinator says: empty if it does not."""
    meta = context.get_prop(FLContextKey.JOB_META)
    name = meta.get(JobMetaKey.SUBMITTER_NAME.value) if isinstance(meta, Mapping) else ""
    return as_text(str(name or ""), MAX_REASON)


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

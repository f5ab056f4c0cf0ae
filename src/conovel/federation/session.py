"""An operator's connection to the coordinator: submit a run, watch it, fetch its outcome.

Only this module and the modules that run inside NVFlare's processes import NVFlare.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from conovel.errors import FederationError, InputError
from conovel.federation.certificates import Credentials, check_certificate, read_credentials
from conovel.federation.hardening import APPS, COLLAB
from conovel.federation.kits import require_nvflare
from conovel.federation.reach import address_of, in_our_words, obstacle
from conovel.federation.settings import FederationFile
from conovel.federation.signatures import sign_terms
from conovel.federation.terms import Terms
from conovel.protocol.not_checked import FORMATS
from conovel.protocol.replay import verify
from conovel.rows.storage import read_json
from conovel.spec.bodies import COORDINATOR

SERVER = "server"  # what NVFlare calls the coordinator
TOPIC = "conovel"  # an operator's questions to a run
JOB_PREFIX = "conovel-"
CONNECT_SECONDS = 20.0
OUTCOME_FILE = "conovel_outcome.json"
_START = "Start `conovel agent` there, or name the others with --sites"
MAX_OUTCOME_BYTES = 1 << 28


class NoOutcomeError(FederationError):
    """NVFlare ended a job before the coordinator could write its account."""


@dataclass(frozen=True)
class Job:
    """A run as NVFlare lists it: the number of its job, our run id, NVFlare's status."""

    number: str
    run_id: str
    status: str
    submitted: str

    @property
    def is_over(self) -> bool:
        """Whether it has ended. If its coordinator was killed, this stays False."""
        return self.status.startswith("FINISHED")

    @property
    def ending(self) -> str:
        """How it ended, in one or two words; empty if it has not."""
        words = {"COMPLETED": "done", "ABORTED": "stopped", "CAN_NOT_SCHEDULE": "never began"}
        return words.get(self.status.removeprefix("FINISHED:"), "failed") if self.is_over else ""


class Session:
    """A connection of an operator; made by :func:`connect`."""

    def __init__(self, session: Any, own: Credentials) -> None:
        self._session, self._own = session, own

    def connected(self) -> list[str]:
        """Return the names of the sites that are connected to the coordinator."""
        return sorted(client.name for client in self._do(self._session.get_connected_client_list))

    def jobs(self) -> list[Job]:
        """List the jobs that the coordinator knows, the oldest first."""
        listed_jobs = self._do(self._session.list_jobs, True)
        jobs = [
            Job(
                str(job["job_id"]),
                str(job.get("name") or job.get("job_name")).removeprefix(JOB_PREFIX),
                str(job.get("status", "")),
                str(job.get("submit_time_iso") or job.get("submit_time", ""))[:19],
            )
            for job in listed_jobs
        ]
        return sorted(jobs, key=lambda job: job.submitted)

    def submit(self, terms: Terms) -> str:
        """Sign the terms and submit a run; return the number of its job."""
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder) / "conovel"
            write_job(job, terms, sign_terms(terms, self._own))
            return str(self._do(self._session.submit_job, str(job)))

    def progress(self, job: str) -> dict[str, Any]:
        """Ask a run for its progress; empty while it cannot answer."""
        return self._ask(job, "progress")

    def stop(self, job: str, reason: str) -> None:
        """Break a run off: ask its coordinator, which informs all sites, or else abort the job."""
        if not self._ask(job, "stop", reason=reason):
            self._do(self._session.abort_job, job)

    def outcome(self, job: str) -> dict[str, Any]:
        """Fetch the account of a run that is over; empty if it is not over."""
        if account := self._ask(job, "outcome"):
            return account
        meta = dict(self._do(self._session.get_job_meta, job))
        status = str(meta.get("status", ""))
        if status == "SUBMITTED":
            self._require_sites(job, meta.get("mandatory_clients") or ())
        if not status.startswith("FINISHED"):
            return {}
        folder = Path(self._do(self._session.download_job_result, job))
        try:
            accounts = sorted(folder.rglob(OUTCOME_FILE))
            if not accounts:
                raise NoOutcomeError(f"the run was refused by the engine: {_refusal(meta)}")
            if accounts[0].stat().st_size > MAX_OUTCOME_BYTES:
                raise NoOutcomeError(f"the outcome has more than {MAX_OUTCOME_BYTES:,} bytes")
            return read_json(accounts[0])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _require_sites(self, job: str, names: Sequence[str]) -> None:
        """Withdraw a job that has not begun, and cannot: NVFlare would try for nine minutes."""
        if gone := sorted(set(names) - set(self.connected())):
            self.stop(job, "a site has gone")
            raise NoOutcomeError(f"the run could not begin: {', '.join(gone)} went away. {_START}")

    def _ask(self, job: str, question: str, **more: str) -> dict[str, Any]:
        """Ask the coordinator's process of a run; empty if it is not running."""
        try:
            answer = self._session.do_app_command(job, TOPIC, {"ask": question, **more})
        except Exception:  # NVFlare raises its own kinds for a job that is not running
            return {}
        return answer if isinstance(answer, dict) else {}

    def _do(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            cause = in_our_words(f"{type(error).__name__}: {error}", "it could not do that")
            raise FederationError(f"the coordinator refused or failed: {cause}") from error


@contextmanager
def connect(file: FederationFile) -> Iterator[Session]:
    """Connect as the operator of a federation file."""
    require_nvflare()
    if file.operator is None or file.operator_kit is None:
        raise FederationError(f"{file.path} has no [operator]: only an operator can do this")
    kit = file.operator_kit
    host, port = address_of(kit)
    check_certificate(kit, file.operator)
    # Errors that matter are raised as ours. gRPC writes to the terminal past Python.
    logging.getLogger().addHandler(logging.NullHandler())
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from nvflare.fuel.flare_api.flare_api import new_secure_session  # noqa: PLC0415

    try:
        with redirect_stdout(StringIO()):  # NVFlare prints its progress
            session = new_secure_session(file.operator, str(kit), timeout=CONNECT_SECONDS)
    except Exception as error:
        late = f"it listens, and did not answer within {CONNECT_SECONDS:g} s"
        raw = f"{type(error).__name__}: {error}".replace("NoConnection", "")
        raise FederationError(
            f"no connection to the coordinator of {file.name} at {host}:{port}:"
            f" {obstacle(kit) or in_our_words(raw, late)}"
        ) from error
    try:
        yield Session(session, read_credentials(kit))
    finally:
        with suppress(Exception):  # the coordinator may be gone
            session.close()


def _refusal(meta: dict[str, Any]) -> str:
    """Return why a job did not run: what its parties say, or else what its status means."""
    details = [str(detail).partition(": ") for detail in meta.get("job_deploy_detail") or []]
    unclear = "it could not take the job, see engine.log there"
    refusals = [
        f"{COORDINATOR if who == SERVER else who}: {in_our_words(raw, unclear)}"
        for who, _, raw in details
        if raw not in ("", "OK")
    ]
    failed = "a party could not start its part, see the engine.log of all"
    return "; ".join(refusals) or in_our_words(str(meta.get("status")), failed)


def write_job(folder: Path, terms: Terms, signed: dict[str, Any]) -> None:
    """Write a job: names of classes and the signed terms, no code."""
    called = {"server_obj_id": "conovel", "sync_task_timeout": 60}
    controller = {"path": f"{COLLAB}.controller.CollabController", "args": called}
    executor = {"path": f"{COLLAB}.executor.CollabExecutor", "args": {"client_obj_id": "conovel"}}
    app = {"path": f"{APPS}.CoordinatorApp", "args": {"terms": signed}}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": 0.2},
        "workflows": [{"id": "controller", **controller}],
        "components": [{"id": "conovel", **app}],
    }
    site = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [{"id": "conovel", "path": f"{APPS}.SiteApp", "args": {}}],
    }
    meta = {
        "name": f"{JOB_PREFIX}{terms.run_id}",
        "resource_spec": {},
        "min_clients": len(terms.agents),
        "mandatory_clients": list(terms.agents),
        "deploy_map": {"coordinator": [SERVER], "site": list(terms.agents)},
    }
    files = {
        "meta.json": meta,
        "coordinator/config/config_fed_server.json": server,
        "site/config/config_fed_client.json": site,
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n")


POLL_SECONDS = 0.3
LAUNCH_SECONDS = 120.0  # in which a process at every site must start
LOST_SECONDS = 20.0  # without an answer of the coordinator


def run(
    session: Session,
    terms: Terms,
    on_progress: Callable[[dict[str, Any]], None],
    launch_seconds: float = LAUNCH_SECONDS,
) -> dict[str, Any]:
    """Submit a run and wait for its end; return the coordinator's account, also of a failed run.

    It is an error if there is none, because the run never began or the coordinator was lost, or if
    the account contradicts itself.
    """
    if missing := sorted(set(terms.agents) - set(session.connected())):
        raise FederationError(f"not connected to the coordinator: {', '.join(missing)}. {_START}")
    job = session.submit(terms)
    seconds = launch_seconds + terms.run_seconds + terms.call_seconds
    try:
        return checked(follow(session, job, on_progress, seconds), terms)
    except KeyboardInterrupt:
        session.stop(job, "its operator stopped it")
        raise


def follow(
    session: Session, job: str, on_progress: Callable[[dict[str, Any]], None], seconds: float
) -> dict[str, Any]:
    """Wait for the end of a job that was submitted."""
    deadline = time.monotonic() + seconds
    last_answer = time.monotonic()
    while time.monotonic() < deadline:
        try:
            if progress := session.progress(job):
                on_progress(progress)
            if account := session.outcome(job):
                return account
            last_answer = time.monotonic()
        except NoOutcomeError:
            raise
        except FederationError:
            if time.monotonic() - last_answer > LOST_SECONDS:
                raise FederationError(
                    "the coordinator does not answer any more; nothing will be published"
                ) from None
        time.sleep(POLL_SECONDS)
    session.stop(job, "its deadline passed")
    raise FederationError(f"the run had no outcome within {seconds:g} s and was stopped")


def checked(account: dict[str, Any], terms: Terms) -> dict[str, Any]:
    """Check that an account is about these terms and that its outcome follows from its counts."""
    match account:
        case {
            "format": str(version),
            "state": "done" | "failed" as state,
            "message": str(),
            "terms": about,
            "unpublished": dict(),
        } if version == FORMATS["run"]:
            if about != terms.to_dict():
                raise FederationError("the coordinator gave an account of another run")
        case _:
            raise FederationError("the coordinator gave no account that could be read")
    if state == "done":
        findings = verify(account)
        if not findings and account.get("outcome") != account["transcript"]["outcome"]:
            findings = ["the outcome is not that of the transcript"]
        if findings:
            raise FederationError(f"the coordinator's account does not hold: {findings[0]}")
    return account


def stop_runs(session: Session, reason: str) -> list[str]:
    """Break off every run that is under way; return their ids."""
    stopped = []
    for job in session.jobs():
        if job.is_over:
            continue
        with suppress(FederationError):  # the run was over, or its coordinator was killed
            session.stop(job.number, reason)
            stopped.append(job.run_id)
    return stopped


def choose_sites(sites: tuple[str, ...], chosen: list[str] | None) -> tuple[str, ...]:
    """Check the names of the sites of a run; None stands for all."""
    if unknown := sorted(set(chosen or []) - set(sites)):
        raise InputError(f"no site is called {unknown[0]!r}: there are {', '.join(sites)}")
    return tuple(chosen) if chosen else sites

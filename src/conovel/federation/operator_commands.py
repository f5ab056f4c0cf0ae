"""What an operator does: submit a run, wait for its outcome, stop runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from conovel.errors import FederationError, InputError
from conovel.federation import accounts
from conovel.federation.session import NoOutcomeError, Session
from conovel.federation.terms import Terms
from conovel.protocol.replay import verify

POLL_SECONDS = 0.3
LAUNCH_SECONDS = 120.0  # in which a process at every site must start
LOST_SECONDS = 20.0  # without an answer of the coordinator


def run(
    session: Session,
    terms: Terms,
    on_progress: Callable[[dict[str, Any]], None],
    launch_seconds: float = LAUNCH_SECONDS,
) -> dict[str, Any]:
    """Submit a run and wait for its end.

    Parameters
    ----------
    session : Session
    terms : Terms
    on_progress : callable
        Called with the progress of the run, as
        :meth:`conovel.federation.coordinator_driver.CoordinatorDriver.progress` gives it.
    launch_seconds : float
        How long the sites may take to start.

    Returns
    -------
    dict
        The account of the coordinator's driver, also of a run that failed.

    Raises
    ------
    FederationError
        If there is no account, because the run never began or the coordinator was lost; or
        if the account contradicts itself.
    """
    if missing := sorted(set(terms.agents) - set(session.connected())):
        raise FederationError(f"not connected to the coordinator: {', '.join(missing)}")
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
            "format": accounts.FORMAT,
            "state": "done" | "failed" as state,
            "message": str(),
            "terms": about,
            "unpublished": dict(),
        }:
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


def choose_sites(known: tuple[str, ...], chosen: list[str] | None) -> tuple[str, ...]:
    """Check the names of the sites of a run; None stands for all."""
    if unknown := sorted(set(chosen or []) - set(known)):
        raise InputError(f"no site is called {unknown[0]!r}: there are {', '.join(known)}")
    return tuple(chosen) if chosen else known

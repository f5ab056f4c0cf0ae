"""What an operator does: submit a run and wait for its outcome, look around, break off."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from conovel.errors import FederationError, InputError
from conovel.federation.session import NoOutcomeError, Session
from conovel.federation.terms import Terms

POLL_SECONDS = 0.3
LAUNCH_SECONDS = 120.0  # for a process at every site to start
LOST_SECONDS = 20.0  # without a word from the coordinator


def run(
    session: Session,
    terms: Terms,
    tell: Callable[[dict[str, Any]], None],
    launch_seconds: float = LAUNCH_SECONDS,
) -> dict[str, Any]:
    """Submit a run and wait for its end.

    Parameters
    ----------
    session : Session
    terms : Terms
    tell : callable
        Told how far the run is: what :meth:`conovel.federation.chair.Chair.progress` says.
    launch_seconds : float
        How long the sites may take to start.

    Returns
    -------
    dict
        The account of :meth:`conovel.federation.chair.Chair.run`, also of a run that failed.

    Raises
    ------
    FederationError
        If there is no account: the run never began, or the coordinator vanished.
    """
    if missing := sorted(set(terms.agents) - set(session.connected())):
        raise FederationError(f"not connected to the coordinator: {', '.join(missing)}")
    job = session.submit(terms)
    seconds = launch_seconds + terms.run_seconds + terms.call_seconds
    try:
        return follow(session, job, tell, seconds)
    except KeyboardInterrupt:
        session.stop(job, "its operator stopped it")
        raise


def follow(
    session: Session, job: str, tell: Callable[[dict[str, Any]], None], seconds: float
) -> dict[str, Any]:
    """Wait for the end of a job that was submitted."""
    deadline = time.monotonic() + seconds
    heard = time.monotonic()
    while time.monotonic() < deadline:
        try:
            if progress := session.progress(job):
                tell(progress)
            if account := session.outcome(job):
                return account
            heard = time.monotonic()
        except NoOutcomeError:
            raise
        except FederationError:
            if time.monotonic() - heard > LOST_SECONDS:
                raise FederationError(
                    "the coordinator does not answer any more; nothing will be published"
                ) from None
        time.sleep(POLL_SECONDS)
    session.stop(job, "its deadline passed")
    raise FederationError(f"the run had no outcome within {seconds:g} s and was stopped")


def stop_runs(session: Session, reason: str) -> list[str]:
    """Break off every run that is under way; give their ids."""
    stopped = []
    for job in session.jobs():
        if job.is_over:
            continue
        with suppress(FederationError):  # it was over, or its coordinator was killed
            session.stop(job.number, reason)
            stopped.append(job.run_id)
    return stopped


def choose_sites(known: tuple[str, ...], chosen: list[str] | None) -> tuple[str, ...]:
    """Check the names of the sites of a run; all by default."""
    if unknown := sorted(set(chosen or []) - set(known)):
        raise InputError(f"no site is called {unknown[0]!r}: there are {', '.join(known)}")
    return tuple(chosen) if chosen else known

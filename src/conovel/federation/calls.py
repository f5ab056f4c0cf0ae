"""Collab calls from one party to others: questions to many sites at once, and messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nvflare.collab.api.exceptions import CollabCallError, RunAborted

from conovel.federation.coordinator_driver import Replies
from conovel.federation.terms import Terms
from conovel.protocol.states import Outbox, as_text
from conovel.spec.bodies import COORDINATOR

MAX_REASON = 200  # bytes of a reason that another party gives
_log = logging.getLogger("conovel.federation")


class Sites:
    """Calls to many sites at once; the reply names every site that fails."""

    def __init__(
        self, proxies: Mapping[str, Any], terms: Terms, context: Any, signed: Any = None
    ) -> None:
        self._proxies, self._terms, self._context = proxies, terms, context
        self._signed = signed

    def are_cut_off(self) -> bool:
        """Tell whether NVFlare has stopped the job."""
        return bool(self._context.is_aborted())

    def begin(self) -> Replies:
        """Give the signed terms to all sites."""
        return self.ask("begin", self._terms.agents, self._signed)

    def ask(self, question: str, names: Sequence[str], *values: Any) -> Replies:
        """Call a method of :class:`~conovel.federation.apps.SiteApp` at these sites."""
        replies, once = Replies(), self._terms.call_seconds
        own = {"begin": once, "waiting": once, "publish": self._terms.stage_seconds + once}
        seconds = own.get(question, 2 * once)

        def one(name: str) -> None:
            try:
                match getattr(self._proxies[name](timeout=seconds), question)(*values):
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


class Delivery:
    """Sends an outbox: to many receivers at once, to each receiver in order.

    A site gives `sign`, which makes signed bytes of a message for a receiver.
    """

    def __init__(
        self,
        proxies: Mapping[str, Any],
        seconds: float,
        sign: Callable[[str, bytes], bytes] = lambda receiver, message: message,
    ) -> None:
        self._proxies, self._seconds, self._sign = proxies, seconds, sign

    def __call__(self, outbox: Outbox) -> dict[str, str]:
        """Send messages; return the receivers that could not be reached, and why."""
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
            for message in messages:
                data = self._sign(receiver, message)
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

"""Totals over the runs of a party since its supervisor began, from the records of the runs.

All labels are from fixed lists, so that no text of a record gets onto a page of metrics.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from conovel import errors
from conovel.federation.measures import IN, OUT, Volume, read_measures
from conovel.federation.run_records import DONE, FAILED, REFUSED, RUNNING
from conovel.protocol.states import State
from conovel.spec.bodies import Kind

OTHER = "other"
_KINDS = frozenset({*Kind.__members__, "OPENING", "no message"})
_PHASES = frozenset({"read", "fit", "score", "count", "write"} | {one.value for one in State})
_FAULTS = frozenset(
    name
    for name, thing in vars(errors).items()
    if isinstance(thing, type) and issubclass(thing, errors.ConovelError)
)


@dataclass
class RunTotals:
    """What the runs of a party add up to.

    Attributes
    ----------
    n_started : int
        Runs that began.
    n_ended : dict of (state, fault) to int
        Runs that were published, failed or were refused; `fault` is the class of the error.
    messages : dict of (direction, kind) to Volume
    seconds : dict of phase to (runs, seconds)

    Examples
    --------
    >>> totals = RunTotals()
    >>> run = {"run_id": "a", "began": 1.0, "state": "running"}
    >>> totals.follow(run)
    >>> totals.n_running
    1
    >>> totals.follow(
    ...     {"run_id": "a", "began": 1.0, "state": "failed", "fault": "SiteVanishedError"}
    ... )
    >>> totals.n_running, totals.n_ended
    (0, {('failed', 'SiteVanishedError'): 1})
    """

    n_started: int = 0
    n_ended: dict[tuple[str, str], int] = field(default_factory=dict)
    messages: dict[tuple[str, str], Volume] = field(default_factory=dict)
    seconds: dict[str, tuple[int, float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _open: set[tuple[str, float]] = field(default_factory=set, repr=False)

    @property
    def n_running(self) -> int:
        """Runs that have begun and not ended."""
        return len(self._open)

    def follow(self, run: Mapping[str, Any]) -> None:
        """Take the record of a run that begins or ends."""
        key, state = (run["run_id"], run["began"]), run["state"]
        with self.lock:
            # A short run may have ended before anybody looked.
            self.n_started += state != REFUSED and key not in self._open
            if state == RUNNING:
                self._open.add(key)
                return
            self._open.discard(key)
            self._end(run)

    def _end(self, run: Mapping[str, Any]) -> None:
        state = _one_of((DONE, FAILED, REFUSED), run["state"])
        end = state, "" if state == DONE else _one_of(_FAULTS, run.get("fault"))
        self.n_ended[end] = self.n_ended.get(end, 0) + 1
        measures = read_measures(run.get("measures"))
        for (direction, kind), (messages, n_bytes) in measures.messages.items():
            of = _one_of((IN, OUT), direction), _one_of(_KINDS, kind)
            before = self.messages.get(of, Volume(0, 0))
            self.messages[of] = Volume(before.messages + messages, before.n_bytes + n_bytes)
        for name, seconds in measures.seconds.items():
            phase = _one_of(_PHASES, name)
            runs, total = self.seconds.get(phase, (0, 0.0))
            self.seconds[phase] = runs + 1, total + seconds


def _one_of(known: Collection[str], word: Any) -> str:
    return word if isinstance(word, str) and word in known else OTHER

"""A page of metrics about a party, in the format of Prometheus, served by its supervisor.

It holds no row, no id, no name of a file or a party, and no number of flagged rows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from conovel.errors import CODES, FederationError, MissingExtraError
from conovel.federation.audit_log import AuditLog
from conovel.federation.processes import PEERS_FILE
from conovel.federation.run_records import DONE, FAILED, REFUSED, RUNNING
from conovel.learning.base import State
from conovel.models.wire.header import VERSION as MODEL_VERSION
from conovel.protocol.messages import VERSION as MESSAGE_VERSION
from conovel.spec.bodies import Kind
from conovel.spec.version import __version__

if TYPE_CHECKING:
    from conovel.federation.settings import MetricsAddress

STALE_SECONDS = 100.0  # three heartbeats: an older number of connected parties does not count
IN, OUT = "in", "out"
OTHER = "other"
_KINDS = frozenset({*Kind.__members__, "OPENING", "no message"})
_PHASES = frozenset({"read", "fit", "score", "count", "write"} | {one.value for one in State})


class Volume(NamedTuple):
    """Messages of one kind in one direction, and their bytes."""

    messages: int
    n_bytes: int


class Measures:
    """The measures of one run.

    Examples
    --------
    >>> measures = Measures()
    >>> measures.message(OUT, "MODEL", 300)
    >>> measures.message(OUT, "MODEL", 310)
    >>> with measures.timing("fit"):
    ...     pass
    >>> read_measures(measures.to_plain()).messages[OUT, "MODEL"]
    Volume(messages=2, n_bytes=610)
    """

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], Volume] = {}
        self.seconds: dict[str, float] = {}

    def message(self, direction: str, kind: str, n_bytes: int) -> None:
        """Add a message."""
        before = self.messages.get((direction, kind), Volume(0, 0))
        self.messages[direction, kind] = Volume(before.messages + 1, before.n_bytes + n_bytes)

    @contextmanager
    def timing(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - began

    def to_plain(self) -> dict[str, Any]:
        """Return all of it in JSON types, for the record of the run."""
        rows = list(self.messages.items())  # a copy: a deadline is noted from another thread
        return {"messages": [[*of, *volume] for of, volume in rows], "seconds": dict(self.seconds)}


def read_measures(plain: Any) -> Measures:
    """Read what :meth:`Measures.to_plain` gave; what is not like that is empty.

    The files of runs from before there were measures have none.
    """
    measures = Measures()
    try:
        for direction, kind, messages, n_bytes in plain["messages"]:
            measures.messages[str(direction), str(kind)] = Volume(int(messages), int(n_bytes))
        measures.seconds = {str(phase): float(s) for phase, s in plain["seconds"].items()}
    except (AttributeError, LookupError, TypeError, ValueError):
        return Measures()
    return measures


@dataclass
class RunTotals:
    """What the runs of a party add up to."""

    n_started: int = 0  # runs that began
    # Runs that were published, failed or were refused; `fault` is the class of the error.
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
        end = state, "" if state == DONE else _one_of(CODES, run.get("fault"))
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


def _one_of(words: Collection[str], word: Any) -> str:
    return word if isinstance(word, str) and word in words else OTHER


@dataclass(frozen=True, eq=False)  # a registry needs a hash
class PartyMetrics:
    """What the page of one party says."""

    party: str  # ``"site"`` or ``"coordinator"``
    state: Path  # the folder of its records
    folders: Mapping[str, Path]  # folders whose size is told, by the word for each
    log: AuditLog | None = None  # the audit log of a site
    expires: float | None = None  # when its certificate expires, in seconds since 1970
    totals: RunTotals = field(default_factory=RunTotals)

    def collect(self) -> Iterator[Any]:
        """Give the metrics; prometheus_client calls it for every request."""
        yield _one("info", "Versions", 1, self._versions())
        with self.totals.lock:
            of_runs = list(_of_runs(self.totals))
        yield from of_runs
        peers = n_connected(self.state / PEERS_FILE)
        yield _one("connected_peers", "Connected sites; at a site, the coordinator", peers)
        if self.log is not None:
            yield _one("audit_log_entries", "Entries of the audit log", self.log.n_lines())
        if self.expires is not None:
            name = "certificate_expiry_timestamp_seconds"
            yield _one(name, "When the certificate expires", self.expires)
        sizes = {(word,): size_of(folder) for word, folder in self.folders.items()}
        yield _family("Gauge", "disk_bytes", "Size of the party's folders", ("folder",), sizes)

    def _versions(self) -> dict[str, str]:
        return {
            "party": self.party,
            "version": __version__,
            "messages": str(MESSAGE_VERSION),
            "models": str(MODEL_VERSION),
            "nvflare": version("nvflare"),
        }


@contextmanager
def serving(where: MetricsAddress | None, metrics: PartyMetrics) -> Iterator[None]:
    """Serve the page while a block runs; nothing happens without an address."""
    if where is None:
        yield
        return
    if find_spec("prometheus_client") is None:
        raise MissingExtraError("prometheus_client", "metrics")
    from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(where.port, where.address, registry)
    except OSError as error:
        place = f"{where.address}:{where.port}"
        raise FederationError(f"metrics cannot be served on {place}: {error}") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def n_connected(path: Path, now: float | None = None) -> int:
    """Return the number in a file that is written at every heartbeat; 0 if it is too old."""
    try:
        age = (time.time() if now is None else now) - path.stat().st_mtime
        return int(path.read_text()) if age < STALE_SECONDS else 0
    except (OSError, ValueError):
        return 0


def size_of(folder: Path) -> int:
    """Return the bytes of all files of a folder; files may vanish meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total


def _of_runs(totals: RunTotals) -> Iterator[Any]:
    yield _family("Counter", "runs_started", "Runs that began", (), {(): totals.n_started})
    what = "Runs that ended: done, failed or refused, and the class and number of the error"
    ended = {(*of, CODES.get(of[1], "")): n for of, n in totals.n_ended.items()}
    yield _family("Counter", "runs_ended", what, ("state", "fault", "code"), ended)
    yield _one("runs_running", "Runs that have not ended", totals.n_running)
    messages, n_bytes = ({of: v[i] for of, v in totals.messages.items()} for i in (0, 1))
    labels = ("direction", "kind")
    yield _family("Counter", "messages", "Messages of runs that have ended", labels, messages)
    yield _family(
        "Counter", "message_bytes", "Their bytes, without the transport", labels, n_bytes
    )
    from prometheus_client.core import SummaryMetricFamily  # noqa: PLC0415

    phases = SummaryMetricFamily("conovel_phase_seconds", "Time of a phase", labels=["phase"])
    for phase, (runs, seconds) in totals.seconds.items():
        phases.add_metric([phase], runs, seconds)
    yield phases


def _family(
    kind: str, name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]
) -> Any:
    from prometheus_client import core  # noqa: PLC0415

    family = getattr(core, f"{kind}MetricFamily")(f"conovel_{name}", text, labels=labels)
    for of, value in values.items():
        family.add_metric(of, value)
    return family


def _one(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Any:
    of = labels or {}
    return _family("Gauge", name, text, tuple(of), {tuple(of.values()): value})

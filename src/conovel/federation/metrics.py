"""A page of metrics about a party, in the format of Prometheus, served by its supervisor.

It holds no row, no id, no name of a file or a party, and no number of flagged rows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from conovel.errors import FederationError, MissingExtraError
from conovel.federation.audit_log import AuditLog
from conovel.federation.paths import PEERS_FILE
from conovel.federation.run_totals import RunTotals
from conovel.models.wire.header import VERSION as MODEL_VERSION
from conovel.protocol.messages import VERSION as MESSAGE_VERSION
from conovel.spec.records import check_fields
from conovel.spec.version import __version__

STALE_SECONDS = 100.0  # three heartbeats: an older number of connected parties does not count


@dataclass(frozen=True)
class MetricsAddress:
    """Where the page is served.

    Attributes
    ----------
    port : int
    address : str
        An address of this machine. The default can be reached from this machine only.
    """

    port: Annotated[int, Meta(ge=1, le=65535)]
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, eq=False)  # a registry needs a hash
class PartyMetrics:
    """What the page of one party says.

    Attributes
    ----------
    party : str
        ``"site"`` or ``"coordinator"``.
    state : Path
        The folder of its records.
    folders : mapping of str to Path
        Folders whose size is told, by the word for each.
    log : AuditLog, optional
        The audit log of a site.
    expires : float, optional
        When its certificate expires, in seconds since 1970.
    totals : RunTotals
    """

    party: str
    state: Path
    folders: Mapping[str, Path]
    log: AuditLog | None = None
    expires: float | None = None
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
    """Serve the page while a block runs; nothing happens without an address.

    Raises
    ------
    MissingExtraError
        If prometheus_client is not installed.
    FederationError
        If the address cannot be used.
    """
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
    ended = "Runs that ended: done, failed or refused, and the class of the error"
    yield _family("Counter", "runs_ended", ended, ("state", "fault"), totals.n_ended)
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

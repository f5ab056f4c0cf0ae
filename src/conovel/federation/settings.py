"""The two files that a person edits: ``site.toml`` at a site, ``federation.toml`` elsewhere.

Every key is known and has a type. An unknown key is an error that names it, because a limit with a
misspelt name would not limit anything. Paths are relative to the file that contains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from conovel.errors import ConovelError, FederationError, FileError, InputError
from conovel.federation.audit_log import AuditLog
from conovel.federation.consent import Limits
from conovel.federation.processes import AUDIT_FILE, state_of
from conovel.protocol.messages import as_name
from conovel.spec.records import MAX_BYTES, Port, Positive, as_record, check_fields, read_toml
from conovel.spec.schema import Schema
from conovel.spec.settings import as_bits

if TYPE_CHECKING:
    from conovel.rows.dialects import ReadingOptions

AS_PROPOSED: Any = "as the run proposes"
KEEP_RUNS = 100
_Texts: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class MetricsAddress:
    """Where the page is served."""

    port: Port
    # An address of this machine. The default can be reached from this machine only.
    address: str = "127.0.0.1"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class _SiteTable:
    name: str
    kit: str
    results: str = "results"
    verdicts: str = "site.verdicts"
    keep_runs: Positive = KEEP_RUNS


@dataclass(frozen=True)
class _DataTable:
    null: str
    test: str
    known: str | None = None
    kind_column: str | None = None
    columns: _Texts | None = None
    id: str | None = None
    memory: str | None = None
    unpacked: str | None = None
    exclude: _Texts | None = None
    schema: str | None = None
    set: str | None = None
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na: _Texts | None = None
    check: bool = True


@dataclass(frozen=True)
class _ModelTable:
    scorer: str | _Texts | None = None
    bits: int | str | None = None


@dataclass(frozen=True)
class _ListTable:
    name: str  # as in conovel run --list
    ledger: str


@dataclass(frozen=True)
class _SiteTables:
    site: _SiteTable
    data: _DataTable
    model: _ModelTable = _ModelTable()
    list: _ListTable | None = None
    consent: Limits = field(default_factory=Limits)
    metrics: MetricsAddress | None = None


@dataclass(frozen=True)
class _FederationTable:
    name: str
    sites: _Texts


@dataclass(frozen=True)
class _CoordinatorTable:
    kit: str | None = None
    keep_runs: Positive = KEEP_RUNS


@dataclass(frozen=True)
class _OperatorTable:
    name: str | None = None
    kit: str | None = None


@dataclass(frozen=True)
class _FederationTables:
    federation: _FederationTable
    coordinator: _CoordinatorTable = _CoordinatorTable()
    operator: _OperatorTable = _OperatorTable()
    metrics: MetricsAddress | None = None


@dataclass(frozen=True)
class SiteFile:
    """The content of ``site.toml``."""

    # Absolute.
    path: Path
    name: str  # the site's name, as in its certificate
    kit: Path
    results: Path
    null: Path
    test: Path
    # As in ``conovel detect``.
    columns: list[str] | None
    id_column: str | None
    memory: str | None
    reading: ReadingOptions
    schema: Schema | None  # what the columns are; a run must have the same
    check: bool  # whether the site looks for what speaks against its decisions
    scorer: list[str] | None  # names of scorers; None for the default
    # How the site's own model is sent; as the run proposes, unless the file says it.
    bits: int | str | None
    limits: Limits  # what the site agrees to
    keep_runs: int = KEEP_RUNS  # how many runs are kept, see :mod:`conovel.federation.run_records`
    list_name: str = ""  # the list over several batches that the site takes part in; empty if none
    ledger: Path | None = None  # the file of the ledger of that list
    # Where the page of metrics is served; None if there is none.
    metrics: MetricsAddress | None = None
    known: Path | None = None  # known novelties, where the site has any
    kind_column: str | None = None  # as in ``conovel detect``
    data_set: str = ""  # the name of its rows in the ε ledger: no row is in two data sets
    verdicts: Path | None = None  # the file of verdicts, for `conovel desk`
    # Tables of [data] that are no files here: which, and where. They are copied for each run.
    addresses: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def state(self) -> Path:
        """Where the records of runs are."""
        return state_of(self.path)

    @property
    def audit_log(self) -> AuditLog:
        """Where it is written down what left the site."""
        return AuditLog(self.state / AUDIT_FILE)


@dataclass(frozen=True)
class FederationFile:
    """The content of ``federation.toml``; a party has only its own kits."""

    path: Path
    name: str
    sites: tuple[str, ...]
    coordinator_kit: Path | None
    operator: str | None
    operator_kit: Path | None
    keep_runs: int = KEEP_RUNS
    metrics: MetricsAddress | None = None

    @property
    def kit(self) -> Path:
        """The kit of the coordinator; :class:`FederationError` at a party that is none."""
        if self.coordinator_kit is None:
            raise FederationError(f"{self.path} has no [coordinator] with a kit")
        return self.coordinator_kit

    @property
    def state(self) -> Path:
        """Where the records of runs are."""
        return state_of(self.path)


def read_site(path: Path) -> SiteFile:
    """Read ``site.toml``; an error names the table and the key."""
    tables = as_record(_SiteTables, _read(path), str(path))
    folder = path.resolve().parent
    site, data, model, own_list = tables.site, tables.data, tables.model, tables.list
    try:
        bits = AS_PROPOSED
        if model.bits is not None:
            bits = as_bits(None if model.bits == "float64" else model.bits)
        columns = None if data.columns is None else list(data.columns)
        reading = _reading(data)
        rows = {"null": data.null, "test": data.test, "known": data.known}
        return SiteFile(
            path=path.resolve(),
            name=as_name(site.name),
            kit=folder / site.kit,
            results=folder / site.results,
            verdicts=folder / site.verdicts,
            null=_path(folder, data.null),
            test=_path(folder, data.test),
            known=None if data.known is None else _path(folder, data.known),
            addresses={k: str(v) for k, v in rows.items() if "://" in str(v)},
            kind_column=data.kind_column,
            columns=columns,
            id_column=data.id,
            memory=_memory(data.memory),
            reading=reading,
            schema=_schema(folder, data.schema, reading.exclude, columns),
            check=data.check,
            scorer=_scorers(model.scorer),
            bits=bits,
            limits=tables.consent,
            keep_runs=site.keep_runs,
            metrics=tables.metrics,
            data_set="" if data.set is None else as_name(data.set),
            list_name="" if own_list is None else as_name(own_list.name),
            ledger=None if own_list is None else folder / own_list.ledger,
        )
    except ConovelError as error:
        raise InputError(f"{path}: {error}") from error


def read_federation(path: Path) -> FederationFile:
    """Read ``federation.toml``."""
    tables = as_record(_FederationTables, _read(path), str(path))
    folder = path.resolve().parent
    try:
        sites = sorted(map(as_name, tables.federation.sites))
    except ConovelError as error:
        raise InputError(f"{path}: {error}") from error
    kits = tables.coordinator.kit, tables.operator.kit
    coordinator_kit, operator_kit = (None if kit is None else folder / kit for kit in kits)
    return FederationFile(
        path=path.resolve(),
        name=tables.federation.name,
        sites=tuple(sites),
        coordinator_kit=coordinator_kit,
        operator=tables.operator.name,
        operator_kit=operator_kit,
        keep_runs=tables.coordinator.keep_runs,
        metrics=tables.metrics,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    tables = read_toml(content, str(path))
    return {name: table for name, table in tables.items() if table != {}}


def _path(folder: Path, text: str) -> Path:
    """Return where a table is; an address becomes what may be shown of it."""
    if "://" not in text:
        return folder / text
    from conovel.rows.fetched import without_secrets  # noqa: PLC0415  (loads pyarrow)

    return Path(without_secrets(text))


def _reading(data: _DataTable) -> ReadingOptions:
    from conovel.rows.dialects import ReadingOptions  # noqa: PLC0415  (loads pyarrow)

    return ReadingOptions(
        data.separator,
        data.decimal,
        data.encoding,
        data.na or (),
        data.exclude or (),
        unpacked=_unpacked(data.unpacked),
    )


def _schema(
    folder: Path, value: str | None, exclude: Sequence[str], columns: Sequence[str] | None
) -> Schema | None:
    """Read the schema; it differs from that of a run where a site leaves out what the run uses."""
    if value is None:
        return None
    from conovel.rows.schemas import as_whole_schema, restricted  # noqa: PLC0415  (scikit-learn)

    return as_whole_schema(restricted(folder / value, exclude, columns))


def _memory(value: str | None) -> str | None:
    if value is None:
        return None
    from conovel.site.engines import as_memory  # noqa: PLC0415  (loads scikit-learn)

    as_memory(value)  # raises if it is not an amount of memory
    return value


def _unpacked(value: str | None) -> str | None:
    if value is None:
        return None
    from conovel.rows.unpacked import as_bytes  # noqa: PLC0415  (loads pyarrow)

    as_bytes(value, "unpacked")  # raises if it is not an amount of memory
    return value


def _scorers(value: str | tuple[str, ...] | None) -> list[str] | None:
    if value is None:
        return None
    from conovel.scorers.argument import scorer_by_name  # noqa: PLC0415  (loads scikit-learn)

    names = [value] if isinstance(value, str) else list(value)
    for name in names:
        scorer_by_name(name)  # raises if there is no such scorer
    return names

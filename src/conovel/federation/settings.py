"""The two files that a person edits: ``site.toml`` at a site, ``federation.toml`` elsewhere.

Every key is known and has a type. An unknown key is an error that names it, because a limit with a
misspelt name would not limit anything. Paths are relative to the file that contains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conovel.errors import ConovelError, FileError, InputError
from conovel.federation.audit_log import AuditLog
from conovel.federation.consent import Limits
from conovel.federation.metrics import MetricsAddress
from conovel.federation.paths import AUDIT_FILE, state_of
from conovel.protocol.messages import as_name
from conovel.spec.schema import Schema
from conovel.spec.settings import as_bits
from conovel.spec.toml_text import MAX_BYTES, read_toml
from conovel.stats.words import briefly

if TYPE_CHECKING:
    from conovel.rows.dialects import Reading

AS_PROPOSED: Any = "as the run proposes"
KEEP_RUNS = 100
_NUMBER = int | float

_METRICS = {"port": (int, False), "address": (str, False)}
_SITE: Mapping[str, Mapping[str, tuple[Any, bool]]] = {  # key: (type, whether it is needed)
    "site": {
        "name": (str, True),
        "kit": (str, True),
        "results": (str, False),
        "keep_runs": (int, False),
    },
    "data": {
        "null": (str, True),
        "test": (str, True),
        "columns": (list, False),
        "id": (str, False),
        "memory": (str, False),
        "unpacked": (str, False),
        "exclude": (list, False),
        "schema": (str, False),
        "set": (str, False),
        "separator": (str, False),
        "decimal": (str, False),
        "encoding": (str, False),
        "na": (list, False),
        "check": (bool, False),
    },
    "model": {"scorer": (str | list, False), "bits": (int | str, False)},
    "list": {"name": (str, False), "ledger": (str, False)},
    "consent": {
        "regimes": (list, False),
        "max_level": (_NUMBER | str, False),
        "min_agents": (int, False),
        "max_bytes_in": (int, False),
        "max_seconds": (_NUMBER, False),
        "min_train_rows": (int, False),
        "min_train_share": (_NUMBER | str, False),
        "min_liars": (int, False),
        "reveal_to": (str, False),
        "min_calibration_rows": (int, False),
        "max_bits": (int | str, False),
        "max_forest_bytes": (int, False),
        "composites": (list, False),
        "max_nodes_in": (int, False),
        "min_group_rows": (int | str, False),
        "model_families": (list, False),
        "max_runs_per_day": (int, False),
        "max_runs_per_data": (int, False),
        "max_peer_share": (_NUMBER, False),
        "max_epsilon": (_NUMBER | str, False),
    },
    "metrics": _METRICS,
}
_FEDERATION: Mapping[str, Mapping[str, tuple[Any, bool]]] = {
    "federation": {"name": (str, True), "sites": (list, True)},
    "coordinator": {"kit": (str, False), "keep_runs": (int, False)},
    "operator": {"name": (str, False), "kit": (str, False)},
    "metrics": _METRICS,
}


@dataclass(frozen=True)
class SiteFile:
    """The content of ``site.toml``.

    Attributes
    ----------
    path, kit, results, null, test : Path
        Absolute.
    name : str
        The site's name, as in its certificate.
    columns, id_column, memory, reading
        As in ``conovel detect``.
    schema : Schema or None
        What the columns are; a run must have the same.
    check : bool
        Whether the site looks for what speaks against its decisions.
    scorer : list of str or None
        Names of scorers; None for the default.
    bits : int, str or None
        How the site's own model is sent; as the run proposes, unless the file says it.
    limits : Limits
        What the site agrees to.
    keep_runs : int
        How many runs are kept, see :mod:`conovel.federation.retention`.
    list_name : str
        The list over several batches that the site takes part in; empty if none.
    ledger : Path or None
        The file of the ledger of that list.
    metrics : MetricsAddress or None
        Where the page of metrics is served; None if there is none.
    data_set : str
        The name of its rows in the ε ledger: no row is in two data sets.
    """

    path: Path
    name: str
    kit: Path
    results: Path
    null: Path
    test: Path
    columns: list[str] | None
    id_column: str | None
    memory: str | None
    reading: Reading
    schema: Schema | None
    check: bool
    scorer: list[str] | None
    bits: int | str | None
    limits: Limits
    keep_runs: int = KEEP_RUNS
    list_name: str = ""
    ledger: Path | None = None
    metrics: MetricsAddress | None = None
    data_set: str = ""

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
    def state(self) -> Path:
        """Where the records of runs are."""
        return state_of(self.path)


def read_site(path: Path) -> SiteFile:
    """Read ``site.toml``; an error names the table and the key."""
    tables = _read(path, _SITE)
    folder = path.resolve().parent
    site, data, model = tables["site"], tables["data"], tables["model"]
    try:
        bits = model.get("bits", AS_PROPOSED)
        if bits is not AS_PROPOSED:
            bits = as_bits(None if bits == "float64" else bits)
        columns = _texts("columns", data["columns"]) if "columns" in data else None
        reading = _reading(data)
        return SiteFile(
            path=path.resolve(),
            name=as_name(site["name"]),
            kit=folder / site["kit"],
            results=folder / site.get("results", "results"),
            null=folder / data["null"],
            test=folder / data["test"],
            columns=columns,
            id_column=data.get("id"),
            memory=_memory(data.get("memory")),
            reading=reading,
            schema=_schema(folder, data.get("schema"), reading.exclude, columns),
            check=data.get("check", True),
            scorer=_scorers(model.get("scorer")),
            bits=bits,
            limits=Limits(**tables["consent"]),
            keep_runs=_keep_runs(site),
            metrics=_metrics(tables["metrics"]),
            data_set=as_name(data["set"]) if "set" in data else "",
            **_list_of(folder, tables["list"]),
        )
    except ConovelError as error:
        raise InputError(f"{path}: {error}") from error


def read_federation(path: Path) -> FederationFile:
    """Read ``federation.toml``."""
    tables = _read(path, _FEDERATION)
    folder = path.resolve().parent
    federation, operator = tables["federation"], tables["operator"]

    def kit(table: Mapping[str, Any]) -> Path | None:
        return folder / table["kit"] if "kit" in table else None

    try:
        sites = [as_name(name) for name in _texts("sites", federation["sites"])]
        keep_runs = _keep_runs(tables["coordinator"])
        metrics = _metrics(tables["metrics"])
    except ConovelError as error:
        raise InputError(f"{path}: {error}") from error
    return FederationFile(
        path=path.resolve(),
        name=federation["name"],
        sites=tuple(sorted(sites)),
        coordinator_kit=kit(tables["coordinator"]),
        operator=operator.get("name"),
        operator_kit=kit(operator),
        keep_runs=keep_runs,
        metrics=metrics,
    )


def _read(path: Path, known: Mapping[str, Mapping[str, tuple[Any, bool]]]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    plain = read_toml(content, str(path))
    if unknown := sorted(set(plain) - set(known)):
        raise InputError(
            f"{path}: [{unknown[0]}] is not a table of this file; choose from {_list(known)}"
        )
    tables = {}
    for name, keys in known.items():
        table = tables[name] = plain.get(name, {})
        if not isinstance(table, dict):
            raise InputError(f"{path}: {name} must be a table, [{name}]")
        if unknown := sorted(set(table) - set(keys)):
            raise InputError(
                f"{path}: [{name}] has no key {unknown[0]!r}; choose from {_list(keys)}"
            )
        for key, (kind, needed) in keys.items():
            if needed and key not in table:
                raise InputError(f"{path}: [{name}] needs the key {key!r}")
            if key in table and not _is_a(table[key], kind):
                raise InputError(f"{path}: {key} in [{name}] cannot be {briefly(table[key])}")
    return tables


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):  # in Python, it is an integer, too
        return kind is bool
    return isinstance(value, kind)


def _list(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _texts(key: str, values: list[Any]) -> list[str]:
    if not values or not all(isinstance(value, str) for value in values):
        raise InputError(f"{key} must be a list of names, not {briefly(values)}")
    return values


def _keep_runs(table: Mapping[str, Any]) -> int:
    n = int(table.get("keep_runs", KEEP_RUNS))
    if n < 1:
        raise InputError(f"keep_runs must be a number from 1, not {n}")
    return n


def _metrics(table: Mapping[str, Any]) -> MetricsAddress | None:
    if table and "port" not in table:
        raise InputError("[metrics] needs the key 'port'")
    return MetricsAddress(**table) if table else None


def _list_of(folder: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    if not table:
        return {}
    if set(table) != {"name", "ledger"}:
        raise InputError("[list] needs both keys: name, as in conovel run --list, and ledger")
    return {"list_name": as_name(table["name"]), "ledger": folder / table["ledger"]}


def _reading(data: Mapping[str, Any]) -> Reading:
    from conovel.rows.dialects import Reading  # noqa: PLC0415  (loads pyarrow)

    na, exclude = (tuple(_texts(k, data[k])) if k in data else () for k in ("na", "exclude"))
    separator, decimal, encoding = map(data.get, ("separator", "decimal", "encoding"))
    return Reading(
        separator, decimal, encoding, na, exclude, unpacked=_unpacked(data.get("unpacked"))
    )


def _schema(
    folder: Path, value: str | None, exclude: Sequence[str], columns: Sequence[str] | None
) -> Schema | None:
    """Read the schema; it differs from that of a run where a site leaves out what the run uses."""
    if value is None:
        return None
    from conovel.rows.asked import as_whole_schema, restricted  # noqa: PLC0415  (scikit-learn)

    return as_whole_schema(restricted(folder / value, exclude, columns))


def _memory(value: str | None) -> str | None:
    if value is None:
        return None
    from conovel.site.memory import as_memory  # noqa: PLC0415  (loads scikit-learn)

    as_memory(value)  # raises if it is not an amount of memory
    return value


def _unpacked(value: str | None) -> str | None:
    if value is None:
        return None
    from conovel.rows.unpacked import as_bytes  # noqa: PLC0415  (loads pyarrow)

    as_bytes(value, "unpacked")  # raises if it is not an amount of memory
    return value


def _scorers(value: str | list[Any] | None) -> list[str] | None:
    if value is None:
        return None
    from conovel.scorers.registry import scorer_by_name  # noqa: PLC0415  (loads scikit-learn)

    names = [value] if isinstance(value, str) else _texts("scorer", value)
    for name in names:
        scorer_by_name(name)  # raises if there is no such scorer
    return names

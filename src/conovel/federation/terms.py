"""What a run asks of every site: names and numbers, never a path, a class or code."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from conovel.errors import InputError
from conovel.protocol.messages import as_name
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.listing import of_list, require_listable
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.spec.seeds import run_id_of_terms
from conovel.spec.settings import COMMITTED
from conovel.stats.levels import as_liars, is_finite_number
from conovel.stats.words import briefly

MAX_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Terms:
    """The terms of one run, as every site gets them; checked when they are made.

    Attributes
    ----------
    agents : tuple of str
        Who takes part, in canonical order.
    spec : RunSpec
        The settings of the run; its regime can be deployed.
    run_id : str
        32 hexadecimal digits that follow from all other values here, the nonce included
        (:func:`conovel.spec.seeds.run_id_of_terms`): other terms have another id. With an id that
        is given instead, there is no nonce, and no site takes part.
    call_seconds : float
        How long a message may take to arrive.
    stage_seconds : float
        How long a site may take to answer: read its rows, fit and rank, or count.
    run_seconds : float
        How long the whole run may take.
    nonce : str
        32 random hexadecimal digits, so that no two runs have the same id.
    asked_at : int
        When the run was asked for, in seconds since 1970.
    list_name : str
        The list over several batches that the run continues; empty if it stands by itself. Each
        site has the ledger of the list in a file of its own. `spec` then has half the level of
        the list.

    Examples
    --------
    >>> terms = Terms(("south", "north"), RunSpec.of(regime="counts", level=0.1))
    >>> terms.agents, str(terms.spec.level), Terms.from_dict(terms.to_dict()) == terms
    (('north', 'south'), '1/10', True)
    """

    agents: tuple[str, ...]
    spec: RunSpec = field(default_factory=lambda: RunSpec.of(counting=COMMITTED))
    run_id: str = ""
    call_seconds: float = 30.0
    stage_seconds: float = 900.0
    run_seconds: float = 3600.0
    nonce: str = ""
    asked_at: int = 0
    list_name: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "agents", _names(self.agents))
        as_deployable(self.spec.regime)
        as_liars(self.spec.liars, len(self.agents))
        if self.spec.repeats != 1:
            raise InputError(
                f"repeats={self.spec.repeats} is for a network in one process, not for a run"
                " between organisations: take repeats=1"
            )
        if self.list_name != "":
            put(self, "list_name", as_name(self.list_name))
            require_listable(self.spec)
            of_list(self.spec)  # raises if twice the level is none
        for name in ("call_seconds", "stage_seconds", "run_seconds"):
            put(self, name, _seconds(name, getattr(self, name)))
        self._name_the_run()

    def _name_the_run(self) -> None:
        put = object.__setattr__
        if self.run_id == self.nonce == "":
            put(self, "nonce", secrets.token_hex(16))
            put(self, "asked_at", int(time.time()))
            put(self, "run_id", run_id_of_terms(self.to_dict()))
        _check_digits("run id", self.run_id)
        if self.nonce != "":
            _check_digits("nonce", self.nonce)
        if not (type(self.asked_at) is int and 0 <= self.asked_at < 1 << 33):
            raise InputError(f"asked_at must be a number of seconds, not {briefly(self.asked_at)}")

    @property
    def has_own_id(self) -> bool:
        """Whether the run id follows from these terms."""
        return self.nonce != "" and self.run_id == run_id_of_terms(self.to_dict())

    @property
    def run_bytes(self) -> bytes:
        """The run id as messages carry it."""
        return bytes.fromhex(self.run_id)

    @property
    def promised(self) -> RunSpec:
        """The settings with the level that is promised: that of the list if there is one."""
        return of_list(self.spec) if self.list_name else self.spec

    def to_dict(self) -> dict[str, Any]:
        """Give the terms as plain JSON types."""
        return asdict(self) | {"agents": list(self.agents), "spec": self.spec.to_dict()}

    def to_log(self) -> dict[str, Any]:
        """Give the terms for a record: of a schema, which may be long, the digests only."""
        plain = self.to_dict()
        if self.spec.schema is not None:
            digests = json.dumps(self.spec.schema.digests, sort_keys=True, default=str)
            plain["spec"]["schema"] = hashlib.sha256(digests.encode()).hexdigest()
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Terms:
        """Read what :meth:`to_dict` wrote; :class:`InputError` for anything else."""
        if not isinstance(plain, Mapping):
            raise InputError("the terms of a run are a table")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(map(str, set(plain) - known)):
            raise InputError(f"the terms of a run say nothing about {', '.join(unknown)}")
        if missing := sorted({"agents", "spec", "run_id"} - set(plain)):
            raise InputError(f"the terms of a run lack {', '.join(missing)}")
        return cls(**{**plain, "spec": RunSpec.from_dict(plain["spec"])})


def _names(names: Any) -> tuple[str, ...]:
    if not isinstance(names, list | tuple):
        raise InputError("agents must be a list of names")
    if not 2 <= len(names) <= MAX_AGENTS:
        raise InputError(f"a run needs 2 to {MAX_AGENTS} agents, not {len(names)}")
    checked = sorted(as_name(name) for name in names)
    if len(set(checked)) < len(checked):
        raise InputError(f"a run needs agents of different names, not {', '.join(checked)}")
    return tuple(checked)


def _check_digits(what: str, text: Any) -> None:
    if not (isinstance(text, str) and len(text) == 32 and set(text) <= set("0123456789abcdef")):
        raise InputError(f"a {what} has 32 hexadecimal digits, not {briefly(text)}")


def _seconds(name: str, value: Any) -> float:
    if is_finite_number(value) and 0 < value <= MAX_SECONDS:
        return float(value)
    raise InputError(
        f"{name} must be a number of seconds up to {MAX_SECONDS}, not {briefly(value)}"
    )

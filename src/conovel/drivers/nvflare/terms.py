"""What a run asks of every site: names and numbers, never a path, a class or code."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any

from conovel.errors import InputError
from conovel.protocol.fields import MAX_AGENTS
from conovel.protocol.messages import as_name
from conovel.spec.counting import COMMITTED
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec
from conovel.stats.tolerant import as_liars

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
        32 hexadecimal digits that no other run has; drawn if not given.
    call_seconds : float
        How long a message may take to arrive.
    stage_seconds : float
        How long a site may take to answer: read its rows, fit and rank, or count.
    run_seconds : float
        How long the whole run may take.

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

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "agents", _names(self.agents))
        put(self, "run_id", _run_id(self.run_id))
        as_deployable(self.spec.regime)
        as_liars(self.spec.liars, len(self.agents))
        if self.spec.repeats != 1:
            raise InputError(
                f"repeats={self.spec.repeats} is for a network in one process, not for a run"
                " between organisations: take repeats=1"
            )
        for name in ("call_seconds", "stage_seconds", "run_seconds"):
            put(self, name, _seconds(name, getattr(self, name)))

    @property
    def run_bytes(self) -> bytes:
        """The run id as messages carry it."""
        return bytes.fromhex(self.run_id)

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


def _run_id(text: Any) -> str:
    if text == "":
        return secrets.token_hex(16)
    if isinstance(text, str) and len(text) == 32 and set(text) <= set("0123456789abcdef"):
        return text
    raise InputError(f"a run id has 32 hexadecimal digits, not {text!r}")


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isfinite(value) and 0 < value <= MAX_SECONDS:
        return float(value)
    raise InputError(f"{name} must be a number of seconds up to {MAX_SECONDS}, not {value!r}")

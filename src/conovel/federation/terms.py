"""What a run asks of every site: names and numbers, never a path, a class or code."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from conovel.errors import InputError
from conovel.protocol.messages import as_name
from conovel.spec.fields import MAX_AGENTS
from conovel.spec.records import as_record, check_fields
from conovel.spec.regimes import as_deployable
from conovel.spec.run_spec import RunSpec, of_list, require_listable, run_id_of_terms
from conovel.stats.levels import as_liars

MAX_SECONDS = 7 * 24 * 3600
_Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=MAX_SECONDS)]
_DIGITS = "32 hexadecimal digits"
_Digits: TypeAlias = Annotated[str, Meta(pattern=r"\A([0-9a-f]{32})?\Z", description=_DIGITS)]


@dataclass(frozen=True)
class Terms:
    """The terms of one run, as every site gets them; checked when they are made."""

    agents: tuple[str, ...]  # in canonical order
    spec: RunSpec = field(default_factory=lambda: RunSpec.of(masks=True))
    # It follows from all other values here, the nonce included: other terms have another id. With
    # an id that is given instead, there is no nonce, and no site takes part.
    run_id: _Digits = ""
    call_seconds: _Seconds = 30.0  # in which a message arrives
    stage_seconds: _Seconds = 900.0  # in which a site reads its rows, fits and ranks, or counts
    run_seconds: _Seconds = 3600.0
    nonce: _Digits = ""  # random, so that no two runs have the same id
    asked_at: Annotated[int, Meta(ge=0, lt=1 << 33)] = 0  # seconds since 1970
    # The list over several batches that the run continues; `spec` then has half its level.
    list_name: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        check_fields(self)
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
        if self.run_id == self.nonce == "":
            put(self, "nonce", secrets.token_hex(16))
            put(self, "asked_at", int(time.time()))
            put(self, "run_id", run_id_of_terms(self.to_dict()))
        if self.run_id == "":
            raise InputError("the terms of a run with a nonce have a run_id, of 32 digits")

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
        if isinstance(plain, Mapping) and not {"spec", "run_id"} <= set(plain):
            raise InputError("the terms of a run need the keys 'spec' and 'run_id'")
        return as_record(cls, plain, "the terms of a run")


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    if not 2 <= len(names) <= MAX_AGENTS:
        raise InputError(f"a run needs 2 to {MAX_AGENTS} agents, not {len(names)}")
    checked = sorted(map(as_name, names))
    if len(set(checked)) < len(checked):
        raise InputError(f"a run needs agents of different names, not {', '.join(checked)}")
    return tuple(checked)

"""What a run asks of every site: names and numbers, never a path, a class or code."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from math import isfinite
from typing import Any

from conovel.errors import InputError
from conovel.protocol.fields import MAX_AGENTS
from conovel.protocol.messages import as_name
from conovel.protocol.states import spell_pi0
from conovel.spec.regimes import Regime, as_deployable
from conovel.stats.levels import as_level
from conovel.stats.null_proportion import as_estimator

MAX_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Terms:
    """The terms of one run, as every site gets them; checked when they are made.

    Attributes
    ----------
    agents : tuple of str
        Who takes part, in canonical order.
    run_id : str
        32 hexadecimal digits that no other run has; drawn if not given.
    regime, level, pi0, composite, bits, train_fraction, seed
        As of :class:`conovel.Network`, as texts; `pi0` and `train_fraction` are empty where
        a network has None.
    on_dropout : {"abort", "conservative"}
        When a site vanishes at any stage: break off, or go on as docs/protocol.md has it.
    call_seconds : float
        How long a message may take to arrive.
    stage_seconds : float
        How long a site may take to answer: read its rows, fit and rank, or count.
    run_seconds : float
        How long the whole run may take.

    Examples
    --------
    >>> terms = Terms(("south", "north"), regime="counts", level="0.1")
    >>> terms.agents, terms.level, Terms.from_dict(terms.to_dict()) == terms
    (('north', 'south'), '1/10', True)
    """

    agents: tuple[str, ...]
    run_id: str = ""
    regime: str = "full"
    level: str = "1/10"
    pi0: str = ""
    composite: str = "auto"
    bits: int | str | None = "compact"
    train_fraction: str = ""
    seed: int = 0
    on_dropout: str = "abort"
    call_seconds: float = 30.0
    stage_seconds: float = 900.0
    run_seconds: float = 3600.0

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "agents", _names(self.agents))
        put(self, "run_id", _run_id(self.run_id))
        put(self, "regime", as_deployable(_text("regime", self.regime)).name)
        put(self, "level", str(as_level(self.level)))
        put(self, "pi0", spell_pi0(as_estimator(_text("pi0", self.pi0) or None)))
        put(self, "composite", _composite(self.composite))
        put(self, "bits", read_bits(self.bits))
        if _text("train_fraction", self.train_fraction):
            put(self, "train_fraction", str(as_level(self.train_fraction, "train_fraction")))
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise InputError(f"seed must be an integer from 0, not {self.seed!r}")
        if self.on_dropout not in ("abort", "conservative"):
            raise InputError(
                f"on_dropout must be 'abort' or 'conservative', not {self.on_dropout!r}"
            )
        for name in ("call_seconds", "stage_seconds", "run_seconds"):
            put(self, name, _seconds(name, getattr(self, name)))

    @property
    def run_bytes(self) -> bytes:
        """The run id as messages carry it."""
        return bytes.fromhex(self.run_id)

    @property
    def rules(self) -> Regime:
        """The regime itself."""
        return as_deployable(self.regime)

    @property
    def alpha(self) -> Fraction:
        """The level as a number."""
        return as_level(self.level)

    @property
    def share(self) -> Fraction | None:
        """The share of known normals that train, or None to let each site weigh it."""
        return as_level(self.train_fraction) if self.train_fraction else None

    def to_dict(self) -> dict[str, Any]:
        """Give the terms as plain JSON types."""
        return asdict(self) | {"agents": list(self.agents)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Terms:
        """Read what :meth:`to_dict` wrote; :class:`InputError` for anything else."""
        if not isinstance(plain, Mapping):
            raise InputError("the terms of a run are a table")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(map(str, set(plain) - known)):
            raise InputError(f"the terms of a run say nothing about {', '.join(unknown)}")
        if missing := sorted({"agents", "run_id"} - set(plain)):
            raise InputError(f"the terms of a run lack {', '.join(missing)}")
        return cls(**plain)


def read_bits(bits: Any) -> int | str | None:
    """Check how models are sent."""
    from conovel.site.surrogate import as_bits  # noqa: PLC0415  (loads scikit-learn)

    return as_bits(bits)


def _composite(name: Any) -> str:
    from conovel.site.composite import as_composite  # noqa: PLC0415  (loads scikit-learn)

    return as_composite(_text("composite", name))


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


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, not {value!r}")
    return value


def _seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isfinite(value) and 0 < value <= MAX_SECONDS:
        return float(value)
    raise InputError(f"{name} must be a number of seconds up to {MAX_SECONDS}, not {value!r}")
